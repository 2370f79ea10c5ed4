"""Make a SegmentGenerator, or the stores of a tag, from settings. Connects to nothing, but starts embedded://.

The kinds "segment" and "ticket" of snowredis.generator(). A ticket is a segment of one number that is fetched when a
caller waits for it, as Flickr's ticket servers hand them out: each costs a round trip, and none is lost when a process
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from snowredis.core.description import IdDescription
from snowredis.errors import ConfigError
from snowredis.kinds.protocol import IdKind
from snowredis.numbers.counts import Steps
from snowredis.numbers.fetcher import Bound
from snowredis.numbers.protocol import TagConfig, TagStore, describe
from snowredis.numbers.segments import SegmentGenerator
from snowredis.numbers.settings import SEGMENT_SETTINGS
from snowredis.process.clock import SYSTEM
from snowredis.settings import Servers, url_or_default
from snowredis.snowflake.open import is_in_memory, open_independent

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import InstrumentedAttribute
    from sqlalchemy.sql import ColumnElement


def open_generator(url: Servers, **settings: Any) -> SegmentGenerator:
    """Return a generator of the numbers of a tag; *settings* are those of SEGMENT_SETTINGS. Connects to nothing yet.

    Raises ConfigError for a setting, or a combination, that cannot work.
    """
    given = {name: SEGMENT_SETTINGS[name].check(value) for name, value in settings.items()}
    used = {name: setting.default for name, setting in SEGMENT_SETTINGS.items()} | given
    steps = Steps(used["step"], used["max_step"], used["period"])
    bound = None
    if used["bound"] is not None:
        if not callable(used["bound"]):
            raise ConfigError(
                "bound must be a function that returns the highest number in use, or None: a number that stays in the "
                f"program would be wrong after the next loss. It is {used['bound']!r}."
            )
        margin = used["bound_margin"] if used["bound_margin"] is not None else 2 * steps.max_step
        bound = Bound(used["bound"], margin)
    stores = open_stores(url, given)
    clock = getattr(url, "clock", None) or SYSTEM
    return SegmentGenerator(stores, steps, prefetch=used["prefetch"], bound=bound, label=used["label"], clock=clock)


def open_stores(url: Servers, settings: Mapping[str, Any]) -> Sequence[TagStore]:
    """Return the stores of a tag, one for each server. Raises ConfigError."""
    used = {name: setting.default for name, setting in SEGMENT_SETTINGS.items()} | dict(settings)
    opened = open_independent(url, used["min_replicas"])
    slack_s = used["failover_slack"]
    slack_ms = max(getattr(each, "failover_slack_ms", 0) for each in opened) if slack_s is None else slack_s * 1000
    config = TagConfig(
        tag=used["tag"],
        start=used["start"],
        maximum=used["maximum"],
        durability=used["durability"],
        failover_slack_ms=round(slack_ms),
    )
    count = len(opened)
    return [
        _store(each, replace(config, share=(index, count)), used["min_replicas"]) for index, each in enumerate(opened)
    ]


def _store(server: Any, config: TagConfig, min_replicas: Any) -> TagStore:
    if is_in_memory(server):
        make: Callable[[TagConfig], TagStore] = server.tag_store
        return make(config)
    from snowredis.numbers.stores import RedisTagStore

    return RedisTagStore(server, config, min_replicas=min_replicas)


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    return describe(settings.get("maximum", SEGMENT_SETTINGS["maximum"].default))


def _open(settings: Mapping[str, Any]) -> SegmentGenerator:
    given = dict(settings)
    return open_generator(url_or_default(given.pop("url", None)), **given)


SEGMENT = IdKind(
    name="segment",
    summary="short numbers, nearly in sequence, for one business tag; handed out by Redis in segments",
    settings=SEGMENT_SETTINGS,
    describe=_describe,
    open=_open,
)


# how a ticket is fetched is not a choice
_OF_TICKETS = {"step": 1, "max_step": 1, "prefetch": False}

TICKET = IdKind(
    name="ticket",
    summary="short numbers, one a request, from one of several servers",
    settings={name: setting for name, setting in SEGMENT_SETTINGS.items() if name not in (*_OF_TICKETS, "period")},
    describe=_describe,
    open=lambda settings: _open({**settings, **_OF_TICKETS}),
)


def highest_in(engine: Engine, *columns: ColumnElement[int] | InstrumentedAttribute[int]) -> Callable[[], int | None]:
    """Return a ``bound`` for SegmentGenerator: a function that returns the highest number in *columns*.

    None if there is no row. Every column that has numbers of the tag belongs here, archives included. Needs SQLAlchemy;
    each column needs an index.
    """
    from sqlalchemy import func, select

    statements = [select(func.max(column)) for column in columns]

    def highest() -> int | None:
        with engine.connect() as connection:
            found = [connection.execute(statement).scalar() for statement in statements]
        return max((number for number in found if number is not None), default=None)

    return highest
