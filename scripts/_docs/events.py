"""The events of a pool: their kinds, reasons and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from scripts._docs.tables import table
from snowredis.monitor.as_json import event_as_json
from snowredis.monitor.events import Event
from snowredis.snowflake.codes import REASONS, EventKind
from snowredis.snowflake.protocol import WorkerStats

_EXAMPLE = Event(
    at_ms=1795230981059,
    kind=EventKind.RELEASED,
    worker=17,
    host="web-3",
    pid=4711,
    label="orders",
    from_ms=1795230950000,
    until_ms=1795230981042,
    id="1795230981059-0",
    stats=WorkerStats(1_250, 40, -2),
    claimed_ms=1795230950000,
    heartbeat_ms=1795230980000,
)


# kind -> what it says
_MEANINGS = {
    EventKind.CLAIMED: "a process leased the worker id",
    EventKind.RELEASED: "it gave the worker id back",
    EventKind.EXPIRED: "a death: the lease ended without a release; `at` is its end",
    EventKind.RECLAIMED: "a death: the process was killed, and its parent gave the worker id back",
    EventKind.RETURNED: "not dead: the process renewed a lease that had ended at `ended_at`",
    EventKind.ADOPTED: "a lease that Redis had forgotten was accepted again",
    EventKind.LOST: "a renewal was refused",
    EventKind.CLOCK_BACK: "the clock of the process went back",
    EventKind.FLOOR: "Redis may have forgotten something: new workers start at `floor_at`",
    EventKind.ALARM: "ids with times between `from` and `until` may have been repeated",
}


def kinds() -> str:
    """Return the table of the kinds of events with the reasons and the fields of each."""
    rows = (
        (f"`{kind}`", _MEANINGS[kind], _fields(kind), _reasons(REASONS.get(kind, ()))) for kind in EventKind
    )
    return table(("kind", "what it says", "fields of its own", "reasons"), rows)


def _fields(kind: EventKind) -> str:
    common = set(event_as_json(_EXAMPLE)) & set(event_as_json(replace(_EXAMPLE, kind=EventKind.LOST)))
    own = event_as_json(replace(_EXAMPLE, kind=kind, from_ms=1, until_ms=1))
    return ", ".join(f"`{name}`" for name in own if name not in common | {"reason", "text"})


def _reasons(codes: Iterable[object]) -> str:
    return "<br>".join(f"`{code}`: {getattr(code, 'text', '')}" for code in codes)


def example() -> str:
    """Return an event in JSON, as `snowredis events --json` prints it, but in several lines."""
    return f"```json\n{json.dumps(event_as_json(_EXAMPLE), indent=2)}\n```"
