"""The kind "snowflake": snowredis.connect() as one kind of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snowredis.connection import connect
from snowredis.core.description import IdDescription, describe_snowflake
from snowredis.core.presets import resolve_layout
from snowredis.kinds.protocol import IdKind
from snowredis.settings import SETTINGS
from snowredis.snowflake.generator import Generator


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    return describe_snowflake(resolve_layout(settings.get("layout")))


def _open(settings: Mapping[str, Any]) -> Generator:
    return connect(**settings)


SNOWFLAKE = IdKind(
    name="snowflake",
    summary="64-bit numbers, ordered by time, from a worker id that is leased from Redis",
    settings=SETTINGS,
    describe=_describe,
    open=_open,
)
