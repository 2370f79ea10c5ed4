"""A TagStore in this process' memory, for tests: it hands out segments one after the other, and can be wiped.

This memory loses nothing but by wipe(): what the scripts do about a loss is tested on a real Redis.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from snowredis.numbers import protocol
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

    def __init__(self, config: TagConfig, server_time_ms: Callable[[], int], *, new: bool = True) -> None:
        self.config = config
        self._server_time_ms = server_time_ms
        self._lock = threading.RLock()
        self._incarnations = 0
        self.wipe()
        if new:
            self.open(OpenRequest("create", 0))

    def wipe(self) -> None:
        """Forget everything, as FLUSHALL does: the tag is closed until it is opened."""
        with self._lock:
            self._next = 0
            # client -> the newest request, and the segment that was its reply
            self._granted: dict[str, tuple[str, int, int]] = {}
            self._closed, self._closed_ms = True, self._server_time_ms()
            self._incarnations += 1

    def _answer(self) -> tuple[int, str, int, None]:
        return self._server_time_ms(), f"{self._incarnations}-0", self._next, None

    def take(self, request: TakeRequest) -> protocol.TakeReply:
        with self._lock:
            # what a process has is not handed out again
            self._next = max(self._next, request.seen)
            if self._closed:
                return protocol.Closed(*self._answer(), ClosedReason.NO_TAG, self._closed_ms)
            if request.wanted == 0:
                return protocol.Noted(*self._answer())
            name, first, until = self._granted.get(request.client, ("", 0, 0))
            if name == request.request_id:
                return protocol.Granted(*self._answer(), first, until)
            count = min(request.wanted, self.config.size - self._next)
            if count < 1:
                return protocol.Exhausted(*self._answer())
            first, self._next = self._next, self._next + count
            self._granted[request.client] = request.request_id, first, self._next
            return protocol.Granted(*self._answer(), first, self._next)

    def open(self, request: OpenRequest) -> protocol.OpenReply:
        with self._lock:
            if request.how == "create" and (not self._closed or self._next):
                return protocol.NotNew(*self._answer())
            left_ms = self._closed_ms + request.settle_ms - self._server_time_ms()
            if self._closed and left_ms > 0:
                return protocol.Settling(*self._answer(), left_ms)
            if not self._closed and (request.how == "bound" or request.from_position <= self._next):
                return protocol.Opened(*self._answer(), False)
            self._next, self._closed = max(self._next, request.from_position), False
            self._incarnations += 1
            return protocol.Opened(*self._answer(), True)

    def read(self) -> Mapping[str, str]:
        """Return the fields that people are shown, as RedisTagStore does."""
        with self._lock:
            return {
                "signature": self.config.signature,
                "next": str(self._next),
                "handed_out": str(self._next),
                "reason": "no-tag" if self._closed else "",
                "closed_at": str(self._closed_ms),
            }

    def use(self, config: TagConfig) -> None:
        """Do nothing: it has the constants of the tag."""

    def after_fork(self) -> None:
        """Do nothing: the child's copy of the memory is a tag of its own."""

    def close(self) -> None:
        """Do nothing: the tag exists as long as this object."""
