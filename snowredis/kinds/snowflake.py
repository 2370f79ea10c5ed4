"""The kind "snowflake": snowredis.connect() as one kind of several."""

from __future__ import annotations

from snowredis.connection import connect
from snowredis.core.description import describe_snowflake
from snowredis.core.presets import resolve_layout
from snowredis.kinds.protocol import IdKind
from snowredis.settings import SETTINGS

SNOWFLAKE = IdKind(
    name="snowflake",
    summary="64-bit numbers, ordered by time, from a worker id that is leased from Redis",
    settings=SETTINGS,
    describe=lambda settings: describe_snowflake(resolve_layout(settings.get("layout"))),
    open=lambda settings: connect(**settings),
)
