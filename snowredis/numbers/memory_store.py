"""A TagStore in this process' memory, for tests: the same rules as the scripts, without gaps, max_rate and identity."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from snowredis.numbers import replies
from snowredis.numbers.model import OpenRequest, TagConfig, TakeRequest
from snowredis.numbers.replies import ClosedReason


@dataclass
class _Record:
    received: int
    request_id: str
    from_position: int
    until_position: int
    incarnation: str


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
            self.open(OpenRequest("create", 0, 0, 0))

    def wipe(self) -> None:
        """Forget everything, as FLUSHALL does."""
        with self._lock:
            self._next = self._opened_from = 0
            self._records: dict[str, _Record] = {}
            self._reason: ClosedReason | None = None
            self._close(ClosedReason.NO_TAG)

    def _close(self, reason: ClosedReason) -> None:
        if self._reason is None:
            self._reason, self._closed_ms = reason, self._server_time_ms()
            self._handed = self._next
            self._incarnations += 1

    def _state(self, alarm: tuple[int, int] | None = None) -> tuple[int, str, int, tuple[int, int] | None]:
        return self._server_time_ms(), f"{self._incarnations}-0", self._next, alarm

    def take(self, request: TakeRequest) -> replies.TakeReply:
        with self._lock:
            received = request.received
            newest_from, until = request.segments[-1] if request.segments else (0, 0)
            record = self._records.get(request.client)
            if record is not None and (
                record.received > received + 1
                or (record.received == received + 1 and record.request_id != request.request_id)
            ):
                return replies.Copied(*self._state())
            recorded = record is not None and (
                record.received > received or (record.received == received and record.until_position == until)
            )
            lost, alarm = received > 0 and not recorded, None
            if lost:
                first = received - len(request.segments)
                known = min(record.received, received) if record is not None else 0
                if (
                    record is not None
                    and known > first
                    and (request.segments[known - first - 1][1] != record.until_position)
                ):
                    known -= 1
                handed = self._next if self._reason is None else self._handed
                gone = request.segments[max(0, known - first) :]
                low, high = min(gone)[0], min(max(gone)[1], handed)
                alarm = (low, high) if low < high else None
                if until > self._opened_from:
                    self._close(ClosedReason.ROLLED_BACK)
            if max(request.seen, until) > self._next:
                self._close(ClosedReason.ROLLED_BACK)
                self._next = max(request.seen, until)
            if lost or record is None:
                self._records[request.client] = _Record(received, "", newest_from, until, request.incarnation)
            if self._reason is not None:
                return replies.Closed(*self._state(alarm), self._reason, self._closed_ms)
            if request.wanted == 0:
                return replies.Noted(*self._state(alarm))
            return self._grant(request, None if lost else record, alarm)

    def _grant(
        self, request: TakeRequest, record: _Record | None, alarm: tuple[int, int] | None
    ) -> replies.TakeReply:
        incarnation = f"{self._incarnations}-0"
        replayed = record is not None and record.received == request.received + 1
        if record is not None and replayed and record.incarnation == incarnation:
            return replies.Granted(*self._state(alarm), record.from_position, record.until_position)
        size = self.config.size
        left = size - (self._next % size if self.config.cyclic else self._next)
        count = min(request.wanted, left)
        if count < 1:
            return replies.Exhausted(*self._state(alarm))
        first, self._next = self._next, self._next + count
        self._records[request.client] = _Record(
            request.received + 1, request.request_id, first, self._next, incarnation
        )
        return replies.Granted(*self._state(alarm), first, self._next)

    def open(self, request: OpenRequest) -> replies.OpenReply:
        with self._lock:
            if request.how == "create" and not (self._reason is ClosedReason.NO_TAG and self._next == 0):
                return replies.NotNew(*self._state())
            open_ms = self._closed_ms + request.settle_ms
            if self._reason is not None and self._server_time_ms() < open_ms:
                return replies.Settling(*self._state(), open_ms - self._server_time_ms())
            start = request.from_position
            moves = start > self._next or self.config.cyclic
            if self._reason is None and (request.how == "bound" or not moves):
                return replies.Opened(*self._state(), False)
            size = self.config.size
            if self.config.cyclic:
                start = self._next - self._next % size + start % size
                start += size if start < self._next else 0
            self._next = self._opened_from = max(self._next, start)
            self._reason = None
            self._incarnations += 1
            return replies.Opened(*self._state(), True)

    def read(self) -> Mapping[str, str]:
        """Return the fields that people are shown, as RedisTagStore does."""
        with self._lock:
            return {
                "signature": self.config.signature,
                "next": str(self._next),
                "handed_out": str(self._next),
                "reason": self._reason.value if self._reason is not None else "",
                "closed_at": str(self._closed_ms),
            }

    def after_fork(self) -> None:
        """Do nothing: the child's copy of the memory is a tag of its own."""

    def close(self) -> None:
        """Do nothing: the tag exists as long as this object."""
