"""A TagStore in this process' memory, for tests of applications. It loses nothing, so it knows no rule for a loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from snowredis.numbers import protocol
from snowredis.numbers.errors import NumbersClosed
from snowredis.numbers.protocol import ClosedReason, OpenRequest, TagConfig, TakeRequest


class MemoryTagStore:
    """One tag, shared by all generators that use this object. Thread-safe.

    Args:
        config: of the tag.
        server_time_ms: returns the time of the Redis clock, ms since 1970.
        new: False: the tag is closed until it is opened, as on a Redis that does not know it.
    """

    where = "memory"
    urls: Sequence[str] = ()
    knows_share = True

    def __init__(self, config: TagConfig, server_time_ms: Callable[[], int], *, new: bool = True) -> None:
        self.config = config
        self._server_time_ms = server_time_ms
        self._lock = threading.RLock()
        self._next, self._closed, self._closed_ms = 0, not new, server_time_ms()

    def _answer(self) -> tuple[int, str, int, None]:
        return self._server_time_ms(), "0-0" if self._closed else "1-0", self._next, None

    def closed(self, reply: protocol.Closed) -> NumbersClosed:
        return NumbersClosed(self.config.tag, reply.reason, self.config.start, options=self.config.options)

    def take(self, request: TakeRequest) -> protocol.TakeReply:
        with self._lock:
            if self._closed:
                return protocol.Closed(*self._answer(), ClosedReason.NO_TAG, self._closed_ms)
            if request.wanted == 0:
                return protocol.Noted(*self._answer())
            first, self._next = self._next, min(self._next + request.wanted, self.config.size)
            if first == self._next:
                return protocol.Exhausted(*self._answer(), 0)
            return protocol.GrantedNumbers(*self._answer(), first, self._next)

    def open(self, request: OpenRequest) -> protocol.OpenReply:
        with self._lock:
            if request.how == "create" and not self._closed:
                return protocol.NotNew(*self._answer())
            changed = self._closed or request.from_position > self._next
            if changed:
                self._next, self._closed = max(self._next, request.from_position), False
            return protocol.Opened(*self._answer(), changed)

    def learn_share(self) -> None:
        """Do nothing: it is known."""

    def after_fork(self) -> None:
        """Do nothing: the child's copy of the memory is a tag of its own."""

    def close(self) -> None:
        """Do nothing: the tag exists as long as this object."""
