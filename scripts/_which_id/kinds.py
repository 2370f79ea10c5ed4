"""The kinds that are compared, and a generator of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import snowredis
from snowredis.core.description import IdDescription
from snowredis.core.presets import resolve_layout
from snowredis.kinds.opening import find_kind
from snowredis.numbers import DatedGenerator
from snowredis.numbers.protocol import OpenRequest
from snowredis.snowflake.protocol import PoolConfig

# kind -> settings, without the url
SETTINGS: dict[str, dict[str, Any]] = {
    # a layout whose ceiling, ids a ms, no loop of Python reaches
    "snowflake": {"pool": "which", "layout": "41/0/0/6/16"},
    "segment": {"tag": "which"},
    "ticket": {"tag": "which-ticket"},
    # 5 million of them are made in a day
    "dated": {"tag": "which", "format": "{date:%Y%m%d}-{number:08}"},
    "uuid7": {},
    "uuid4": {},
    "ulid": {},
    "objectid": {},
}
# kinds whose columns hold what another kind's do
SAME_COLUMNS = {"ticket": "segment"}


class Contestant(NamedTuple):
    """A kind, and one open generator of it."""

    kind: str
    ids: Any
    settings: dict[str, Any]

    @property
    def description(self) -> IdDescription:
        return find_kind(self.kind).describe(self.settings)


@contextlib.contextmanager
def opened(kind: str, redis_url: str) -> Iterator[Contestant]:
    """Open a generator of *kind*, whose pool or tag is created if it is new."""
    settings = dict(SETTINGS[kind])
    if "url" in find_kind(kind).settings:
        settings["url"] = redis_url
    if kind == "snowflake":
        config = PoolConfig(name=settings["pool"], layout=resolve_layout(settings["layout"]))
        with contextlib.suppress(snowredis.SnowredisError):
            snowredis.WorkerPool(redis_url, config.name).create(config)
    if kind == "dated":
        with DatedGenerator(**settings) as numbers:
            numbers.create()
    with snowredis.generator(kind, **settings) as ids:
        for store in getattr(ids, "_stores", ()):
            store.open(OpenRequest("create", 0))
        yield Contestant(kind, ids, settings)
