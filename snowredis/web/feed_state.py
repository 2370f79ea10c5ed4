"""Build the events that the dashboard receives: the state of a pool and its changes. Pure.

Times are ms since 1970 on the Redis clock; the page shows them in the viewer's zone.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

from snowredis.monitor.events import Event
from snowredis.monitor.polling import Reading
from snowredis.monitor.snapshot import POOL_COUNTERS, Death, Snapshot
from snowredis.monitor.status import Status
from snowredis.web.json_values import jsonable, pool_state

# length of the live chart
PAST_MS = 10 * 60 * 1000
MAX_POINTS = 1_000
MAX_EVENTS = 100
# a page with more of them would be of no use
MAX_DEATHS = 2_000
# left out because they change at every reading, so that every worker would be a change
_LEFT_OUT = ("lease_left_ms", "heartbeat_age_ms", "state", "alive")
# states of workers whose last rate is up to date
_REPORTING = ("healthy", "late")
Row: TypeAlias = dict[str, Any]
# ms since 1970, ids per second, living workers; None where nothing could be read
Point: TypeAlias = tuple[int, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Update:
    """A reading as viewers are sent it; FeedState.update() makes it and FeedState.apply() stores it.

    Attributes:
        offset_ms: Redis clock minus the clock of this host.
        change: what a viewer of the previous state needs, as a server-sent event.
    """

    values: Row
    workers: dict[int, Row]
    point: Point
    events: list[Row]
    offset_ms: int
    change: bytes


class FeedState:
    """The state of a pool as viewers have it after the last update."""

    def __init__(self) -> None:
        self._values: Row = {}
        self._workers: dict[int, Row] = {}
        self._points: deque[Point] = deque(maxlen=MAX_POINTS)
        self._events: deque[Row] = deque(maxlen=MAX_EVENTS)
        # Redis clock minus the clock of this host
        self._offset_ms = 0

    def update(self, reading: Reading, events: list[Row], forecast: Row | None) -> Update:
        """Return what *reading* changes, without changing this state: it may be called in a thread.

        Args:
            events: the newest ones, the oldest first; as many as are kept, so that all unknown ones are new.
        """
        snapshot, offset_ms = reading.snapshot, self._offset_ms
        values: Row = {
            "status": status_row(reading.status),
            "stale_since_ms": reading.stale_since_ms,
            "pool": None if snapshot is None else pool_state(snapshot.info) | {"forecast": forecast},
            "deaths": []
            if snapshot is None
            else [keyed_row(death) for death in snapshot.deaths[:MAX_DEATHS]],
        }
        workers = {} if snapshot is None else worker_rows(snapshot)
        point: Point = (reading.status.now_ms + offset_ms, None, None)
        if reading.error is None and snapshot is not None:
            offset_ms = snapshot.info.now_ms - reading.read_at_ms
            point = (snapshot.info.now_ms, rate_of(snapshot), len(snapshot.workers))
        known = {event["key"] for event in self._events}
        new = [event for event in events if event["key"] not in known]
        change = {
            **{name: value for name, value in values.items() if self._values.get(name) != value},
            # the page takes its absence for null
            "stale_since_ms": reading.stale_since_ms,
            "now_ms": point[0],
            "workers": [row for worker, row in workers.items() if self._workers.get(worker) != row],
            "gone": [worker for worker in self._workers if worker not in workers],
            "points": [point],
            "events": new,
        }
        return Update(values, workers, point, new, offset_ms, sse("change", change))

    def apply(self, update: Update) -> None:
        """Store *update*, which was made from this state."""
        self._values, self._workers, self._offset_ms = update.values, update.workers, update.offset_ms
        self._events.extend(update.events)
        self._points.append(update.point)
        while self._points[0][0] < update.point[0] - PAST_MS:
            self._points.popleft()

    def complete(self) -> bytes:
        """Return all of it as a server-sent event."""
        state = self._values | {
            "now_ms": self._points[-1][0] if self._points else None,
            "workers": list(self._workers.values()),
            "points": list(self._points),
            "events": list(self._events),
        }
        return sse("all", state)


def worker_rows(snapshot: Snapshot) -> dict[int, Row]:
    """Return the workers by worker id; a state only where the page cannot derive it from the heartbeat."""
    rows: dict[int, Row] = {}
    for info in (*snapshot.workers, *snapshot.unknown):
        row: Row = jsonable(info)
        rows[info.worker] = {name: value for name, value in row.items() if name not in _LEFT_OUT}
    for info in snapshot.unknown:
        rows[info.worker]["state"] = "unknown"
    return rows


def event_counts(snapshot: Snapshot) -> tuple[Any, ...]:
    """Return values of which at least one changes with every event of the pool."""
    info = snapshot.info
    counters = (getattr(info, name) for name in POOL_COUNTERS)
    clock_backs = sum(worker.clock_backs for worker in snapshot.workers)
    return *counters, info.incarnation, info.floor_ms, clock_backs


def keyed_row(value: Event | Death) -> Row:
    """Return an event or a death with its key."""
    row: Row = jsonable(value)
    return row | {"key": value.key}


def status_row(status: Status) -> Row:
    """Return a status with, of each condition, its part of the headline: the page can leave conditions out."""
    row: Row = jsonable(status)
    for condition, values in zip(status.conditions, row["conditions"], strict=True):
        values["short"] = condition.short
    return row


def rate_of(snapshot: Snapshot) -> int | None:
    """Return the ids per second of all workers that report; None if there are workers, but none reports."""
    rates = [info.ids_per_second for info in snapshot.workers if info.state in _REPORTING]
    return sum(rates) if rates or not snapshot.workers else None


def sse(event: str, data: Any) -> bytes:
    """Return a server-sent event."""
    text = json.dumps(data, separators=(",", ":"))
    return f"event: {event}\ndata: {text}\n\n".encode()
