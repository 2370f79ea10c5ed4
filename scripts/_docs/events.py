"""Tables of the JSON of commands and service: the fields of every record, and the kinds and reasons of events."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from scripts._docs.schema import schema_of
from scripts._docs.tables import table
from snowredis.core.as_json import to_json
from snowredis.monitor.conditions import Condition, PlanAnswer, Status
from snowredis.monitor.history import Event, Whois
from snowredis.monitor.lease import Lease, Owner
from snowredis.monitor.pool import PoolInfo
from snowredis.monitor.pool_monitor import Reading
from snowredis.snowflake.protocol.messages import WorkerStats
from snowredis.snowflake.protocol.record import REASONS, EventKind

_EXAMPLE = Event(
    at_ms=1795230981059,
    kind=EventKind.RELEASED,
    worker=17,
    owner=Owner("web-3", 4711, "orders"),
    from_ms=1795230950000,
    until_ms=1795230981042,
    id="1795230981059-0",
    stats=WorkerStats(1_250, 40, -2),
    claimed_ms=1795230950000,
    renewed_ms=1795230980000,
)


# kind -> what it says
_MEANINGS = {
    EventKind.CLAIMED: "a process leased the worker id",
    EventKind.RELEASED: "it released the worker id",
    EventKind.EXPIRED: "the lease ended without a release; `at` is its end",
    EventKind.DIED: "another process found its process dead, and released the worker id",
    EventKind.RETURNED: "the process renewed a lease that had ended at `ended_at`",
    EventKind.ADOPTED: "a lease that Redis had forgotten was accepted again",
    EventKind.LOST: "a renewal was refused",
    EventKind.CLOCK_BACK: "the clock of the process went back",
    EventKind.FLOOR: "Redis may have forgotten something: new workers start at `from`",
    EventKind.ALARM: "ids with times between `from` and `until` may have been repeated",
}


# kind -> the fields that have a value, besides those of every event
_FIELDS = {
    EventKind.CLAIMED: ("from", "until", "lanes_from"),
    EventKind.RELEASED: ("from", "until", "claimed_at", "heartbeat_at", "stats"),
    EventKind.DIED: ("from", "until", "claimed_at", "heartbeat_at", "stats"),
    EventKind.EXPIRED: ("from", "until", "claimed_at", "heartbeat_at", "stats"),
    EventKind.RETURNED: ("from", "until", "ended_at"),
    EventKind.CLOCK_BACK: ("from", "until", "stats"),
    EventKind.ADOPTED: ("from", "until", "reason"),
    EventKind.LOST: ("until", "reason"),
    EventKind.FLOOR: ("from", "reason"),
    EventKind.ALARM: ("from", "until", "reason"),
}
# records in the order in which a reader meets them
RECORDS = (Reading, PoolInfo, Status, Condition, PlanAnswer, Lease, Event, WorkerStats, Whois)


def kinds() -> str:
    """Return the table of the kinds of events with the reasons and the fields of each."""
    rows = (
        (f"`{kind}`", _MEANINGS[kind], _names(_FIELDS.get(kind, ())), _reasons(REASONS.get(kind, ())))
        for kind in EventKind
    )
    return table(("kind", "what it says", "fields of its own", "reasons"), rows)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def records() -> str:
    """Return a table of fields for each record that JSON shows."""
    return "\n\n".join(f"**{record.__name__}**\n\n{_record(record)}" for record in RECORDS)


def _record(record: type[Any]) -> str:
    properties = schema_of(record)["properties"]
    rows = ((f"`{name}`", _type(field), field.get("description", "")) for name, field in properties.items())
    return table(("field", "type", "meaning"), rows)


def _type(field: dict[str, Any]) -> str:
    """Return the type of a field in one word or two."""
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"])
    if field.get("format") == "date-time":
        return "time"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    named = field.get("type", "object")
    return named if isinstance(named, str) else " or ".join(named)


def _reasons(codes: Iterable[object]) -> str:
    return "<br>".join(f"`{code}`: {getattr(code, 'text', '')}" for code in codes)


def example() -> str:
    """Return an event in JSON, as `snowredis events --json` prints it, but in several lines."""
    return f"```json\n{json.dumps(to_json(_EXAMPLE), indent=2)}\n```"
