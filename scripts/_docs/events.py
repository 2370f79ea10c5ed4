"""The events of a pool: their kinds, reasons and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from scripts._docs.tables import table
from snowredis.lease.codes import REASONS, EventKind
from snowredis.lease.stats import WorkerStats
from snowredis.monitor.history.events import Event

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
    stats=WorkerStats(),
)


def kinds() -> str:
    """Return the table of the kinds of events with the reasons of each."""
    return table(("kind", "reasons"), ((f"`{kind}`", _reasons(REASONS.get(kind, ()))) for kind in EventKind))


def _reasons(codes: Iterable[object]) -> str:
    return "<br>".join(f"`{code}`: {getattr(code, 'text', '')}" for code in codes)


def example() -> str:
    """Return an event in JSON, as `snowredis events --json` prints it, but in several lines."""
    return f"```json\n{json.dumps(asdict(_EXAMPLE), indent=2)}\n```"
