"""The events of a pool: their kinds, reasons and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable

from scripts._docs.tables import table
from snowredis.lease.codes import REASONS, EventKind
from snowredis.lease.stats import WorkerStats
from snowredis.monitor.as_json import event_as_json
from snowredis.monitor.history.events import Event

_AT_MS = 1795230981059


def kinds() -> str:
    """Return the table of the kinds of events, with the fields and the reasons that each has."""
    titles = ("kind", "fields", "reasons")
    shared = _shared_fields()
    rows = (
        (f"`{kind}`", ", ".join(f"`{name}`" for name in _fields(kind) if name not in shared), _reasons(kind))
        for kind in EventKind
    )
    return table(titles, rows)


def example() -> str:
    """Return a release in JSON, as `snowredis events --json` prints it, but in several lines."""
    return f"```json\n{json.dumps(_json(EventKind.RELEASED), indent=2)}\n```"


def _shared_fields() -> Iterable[str]:
    """Return the fields that every event of a worker id has."""
    return set.intersection(*(set(_fields(kind)) for kind in EventKind if kind not in _OF_THE_POOL))


# the other kinds concern one worker id
_OF_THE_POOL = (EventKind.FLOOR, EventKind.ALARM)


def _fields(kind: EventKind) -> list[str]:
    return list(_json(kind))


def _json(kind: EventKind) -> dict[str, object]:
    reason = next(iter(REASONS.get(kind, ())), "")
    return event_as_json(
        Event(
            at_ms=_AT_MS,
            kind=kind,
            worker=-1 if kind in _OF_THE_POOL else 17,
            host="web-3",
            pid=4711,
            label="orders",
            from_ms=_AT_MS - 31_000,
            until_ms=_AT_MS - 17,
            id=f"{_AT_MS}-0",
            reason=str(reason),
            text=getattr(reason, "text", ""),
            lanes_ms=(_AT_MS - 31_000,),
            stats=WorkerStats(ids_made=12_000, ids_per_s=400, clock_offset_ms=-3),
            claimed_ms=_AT_MS - 31_017,
            heartbeat_ms=_AT_MS - 1_000,
            ended_ms=_AT_MS - 5_000,
        )
    )


def _reasons(kind: EventKind) -> str:
    codes: Iterable[object] = REASONS.get(kind, ())
    return "<br>".join(f"`{code}`: {getattr(code, 'text', '')}" for code in codes)
