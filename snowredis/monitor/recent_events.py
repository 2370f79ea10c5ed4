"""The newest events of a pool, for readers that come again: only what is new is read from Redis.

Follow the events of one server, with leases that ended and that no script has written yet.

Deaths: processes that ended without releasing their worker id, from the events of a pool. Pure.

A process that was paused, or cut off from Redis, for longer than a ttl can return: its death is taken back then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator

from snowredis.monitor.events import Event
from snowredis.monitor.snapshot import Death
from snowredis.snowflake.codes import EventKind


class RecentEvents:
    """Events of some kinds, kept for some time. Thread-safe.

    Args:
        read: returns all events of one server after an id or a time, the oldest first.
        kinds: which events are kept.
        keep_ms: how long.
    """

    def __init__(
        self, read: Callable[[str], list[Event]], kinds: Collection[EventKind], keep_ms: int
    ) -> None:
        self._read, self._kinds, self._keep_ms = read, kinds, keep_ms
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._last_id = ""

    def read(self, now_ms: int) -> list[Event]:
        """Return the events up to now, in the order of the stream.

        Blocks:
            for a round trip; the first call for all events that are kept.

        Raises:
            StoreUnavailable.
        """
        first_ms = max(0, now_ms - self._keep_ms)
        with self._lock:
            if self._last_id and int(self._last_id.partition("-")[0]) > now_ms + self._keep_ms:
                # another stream, of a server whose clock is far behind
                self._events, self._last_id = [], ""
            new = self._read(self._last_id or str(first_ms))
            if new:
                self._last_id = new[-1].id
            self._events += [event for event in new if event.kind in self._kinds]
            self._events = [event for event in self._events if event.order[0] >= first_ms]
            return list(self._events)


# between two looks at the leases; each takes four short commands
FOLLOW_EVERY_S = 1.0


def follow(
    written: Iterator[Event | None], read_ended: Callable[[], list[Event]], after: str
) -> Iterator[Event | None]:
    """Yield the events of *written*, and those of *read_ended* once, as soon as they are there.

    Args:
        written: events from the stream, and None when there was none for a while.
        read_ended: returns the expiries that no script has written yet.
        after: "$": only leases that end from now on; else a place in the stream: that end after its time.
    """
    # expiries that were yielded, or are older than *after*, until they are written, too
    known: set[str] = set()
    if after == "$":
        known.update(event.key for event in read_ended())
    after_ms = 0 if after == "$" else int(after.partition("-")[0])
    looked_at_s = -FOLLOW_EVERY_S
    while True:
        for event in written:
            if event is None:
                break
            if event.kind == EventKind.EXPIRED and event.key in known:
                known.discard(event.key)
                continue
            yield event
            if time.monotonic() - looked_at_s >= FOLLOW_EVERY_S:
                break
        if time.monotonic() - looked_at_s >= FOLLOW_EVERY_S:
            looked_at_s = time.monotonic()
            for event in read_ended():
                if event.key not in known and event.at_ms > after_ms:
                    known.add(event.key)
                    yield event
        yield None


# events without which deaths_in() would return another result
KINDS = frozenset({EventKind.EXPIRED, EventKind.RECLAIMED, EventKind.RETURNED})


def deaths_in(events: Iterable[Event], since_ms: int = 0) -> list[Death]:
    """Return the deaths after *since_ms*, the newest first, each once, without those that were taken back."""
    deaths: dict[tuple[int, int, int, EventKind], Death] = {}
    returned = set()
    for event in events:
        if event.kind == EventKind.RETURNED and event.ended_ms is not None:
            returned.add((event.server, event.worker, event.ended_ms, EventKind.EXPIRED))
        elif event.kind in KINDS and event.at_ms > since_ms:
            deaths[event.server, event.worker, event.at_ms, event.kind] = _death_of(event)
    left = [death for place, death in deaths.items() if place not in returned]
    return sorted(left, key=lambda death: (-death.at_ms, death.server, death.worker))


def _death_of(event: Event) -> Death:
    return Death(
        at_ms=event.at_ms,
        worker=event.worker,
        host=event.host,
        pid=event.pid,
        label=event.label,
        kind="reclaimed" if event.kind == EventKind.RECLAIMED else "expired",
        heartbeat_ms=event.heartbeat_ms,
        claimed_ms=event.claimed_ms,
        until_ms=event.until_ms,
        ids_made=event.stats.ids_made if event.stats else 0,
        server=event.server,
        key=event.key,
    )
