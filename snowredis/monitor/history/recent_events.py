"""The newest events of a pool, for readers that come again: only what is new is read from Redis."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from snowredis.lease.codes import EventKind
from snowredis.monitor.history.events import Event


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
