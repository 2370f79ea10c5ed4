"""Responses of the service as dataclasses: their JSON, and its description in /openapi.json, are made from these.

PoolReport, Event and Whois of snowredis.monitor are shown as the commands show them with --json.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from snowredis.core.as_json import IdNumber, Shown
from snowredis.core.layout import Layout
from snowredis.core.text import FORMS, encode
from snowredis.errors import LayoutError
from snowredis.monitor.events import Event
from snowredis.monitor.snapshot import PoolInfo
from snowredis.monitor.status import Status
from snowredis.monitor.usage import UsagePoint
from snowredis.monitor.whois import Whois
from snowredis.numbers.watch import TagState


@dataclass(frozen=True, slots=True)
class IdField:
    """One field of an id.

    Attributes:
        name: such as "worker".
        bits: its binary digits.
        value: its value in decimal.
    """

    name: str
    bits: str
    value: str


@dataclass(frozen=True, slots=True)
class DecodedId:
    """Fields of an id, as text and numbers.

    Attributes:
        id: the id.
        form: the text form that it was read as.
        time: when it was made; null past the year 9999.
        fields: its fields, from the highest bit.
        forms: its text forms by name.
        layout: the layout that it was read with.
    """

    id: IdNumber
    form: str
    time_ms: Annotated[int, Shown("time", "time")]
    datacenter: int
    backup: int
    worker: int
    sequence: int
    tick: IdNumber
    fields: tuple[IdField, ...]
    forms: dict[str, str]
    layout: Layout


def decode_id(layout: Layout, an_id: int, form: str) -> DecodedId:
    """Return what *an_id* contains. Raises InvalidId."""
    parts = layout.decode(an_id)
    values = parts._asdict() | {"timestamp": parts.tick}
    fields = (
        IdField(name, f"{values[name]:0{width}b}", str(values[name]))
        for name, width in layout.fields
        if width
    )
    forms: dict[str, str] = {}
    for name in FORMS:
        # a time past the year 9999 has no friendly form
        with contextlib.suppress(LayoutError):
            forms[name] = encode(an_id, name, layout=layout)
    return DecodedId(
        an_id,
        form,
        parts.timestamp_ms,
        parts.datacenter,
        parts.backup,
        parts.worker,
        parts.sequence,
        parts.tick,
        tuple(fields),
        forms,
        layout,
    )


@dataclass(frozen=True, slots=True)
class FoundMaker:
    """An id and the process that made it.

    Attributes:
        decoded: the id.
        whois: the process, as far as it can be known.
    """

    decoded: DecodedId
    whois: Whois


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool and its status.

    Attributes:
        pool: settings and counters.
        status: the verdict.
        served_by: the worker id of the process of the service that responded; null: it has none.
        ready: whether that process can make ids of the pool.
    """

    pool: PoolInfo
    status: Status
    served_by: int | None
    ready: bool


@dataclass(frozen=True, slots=True)
class Events:
    """Events of a pool, the oldest first.

    Attributes:
        pool: name of the pool.
        events: the newest ones.
    """

    pool: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Use of a pool in the last day.

    Attributes:
        pool: name of the pool.
        points: one a minute, the oldest first.
    """

    pool: str
    points: tuple[UsagePoint, ...]


@dataclass(frozen=True, slots=True)
class PoolNames:
    """The pools of the service.

    Attributes:
        pools: their names; the first is the default.
    """

    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KindState:
    """A kind of ids that the service has besides pools, or a tag of it.

    Attributes:
        kind: name of the kind.
        tag: its tag; empty if the kind has none.
        type: type of an id in Python.
        text_length: the most characters of an id as text.
        sortable: later ids sort after earlier ones.
        guessable: who knows some ids can find others with few attempts.
        leaks: what somebody who sees ids learns.
        needs: what has to be reachable while ids are made.
        status: what the generator of the process that responded has at hand; null: it was not used yet.
        tag_state: state of the tag; null if it has none.
    """

    kind: str
    tag: str
    type: Literal["int", "str", "UUID", "bytes"]
    text_length: int
    sortable: bool
    guessable: bool
    leaks: tuple[str, ...]
    needs: tuple[str, ...]
    status: Any | None = None
    tag_state: TagState | None = None


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of ids of the service besides pools.

    Attributes:
        kinds: each with its state.
    """

    kinds: tuple[KindState, ...]


@dataclass(frozen=True, slots=True)
class Alive:
    """Liveness of the process.

    Attributes:
        ok: always true.
    """

    ok: bool = True


@dataclass(frozen=True, slots=True)
class PoolReadiness:
    """Readiness of one pool.

    Attributes:
        ready: whether this process can make ids of the pool.
        status: the verdict about the pool.
        error: why the process is not ready, a code; null if it is.
        detail: the same for people.
    """

    ready: bool
    status: Status
    error: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class TagReadiness:
    """State of one tag.

    Attributes:
        state: a word such as "open" or "closed".
        level: as of a pool's status.
    """

    state: str
    level: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of the process.

    Attributes:
        ready: whether it can make ids of all these pools.
        pools: by name; empty without the token, if the service has one.
        tags: the same for tags, which do not count for *ready*.
    """

    ready: bool
    pools: dict[str, PoolReadiness]
    tags: dict[str, TagReadiness]
