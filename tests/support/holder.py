"""Lease holder for tests: makes the calls of the protocol to any store, one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from snowredis.snowflake.protocol import ClaimRequest, PresentedLease, ReleaseRequest, RenewRequest, Store, WorkerStats
from snowredis.snowflake.replies import ClaimReply, Granted, Lost, Released, Renewed, RenewReply, Reply, Seen, Settling

_R = TypeVar("_R", bound=Reply)

_numbers = itertools.count(1)


def fresh_hex() -> str:
    return f"{next(_numbers):032x}"


@dataclass
class Holder:
    """State of one process. Tests may change the attributes."""

    store: Store
    now_ms: Callable[[], int]
    token: str = field(default_factory=fresh_hex)
    renewal_id: str = ""
    worker: int = -1
    until_ms: int = 0
    lanes_ms: tuple[int, ...] = ()
    outage_ms: int = 0
    incarnation: str = ""
    seen: Seen = field(default_factory=Seen)

    def ask_claim(self, *, ahead_ms: int = 0, wait_ms: int = 10**9) -> ClaimReply:
        now = self.now_ms() + ahead_ms
        request = ClaimRequest(self.token, now, now, wait_ms, '{"host":"h"}')
        return self._learn(self.store.claim(request, self.seen))

    def claim(self, *, ahead_ms: int = 0, wait_ms: int = 10**9) -> Holder:
        answer = self.ask_claim(ahead_ms=ahead_ms, wait_ms=wait_ms)
        assert isinstance(answer, Granted), answer
        self.worker, self.until_ms = answer.worker, answer.until_ms
        self.lanes_ms, self.renewal_id, self.outage_ms = (answer.lanes_ms, answer.renewal_id, answer.outage_until_ms)
        self.incarnation = answer.seen.incarnation
        return self

    def settling(self) -> Settling:
        """Ask for a claim, which has to wait until the pool has settled; return the reply."""
        answer = self.ask_claim()
        assert isinstance(answer, Settling), answer
        return answer

    def presented(self, pending: str = "") -> PresentedLease:
        names = (self.token, self.renewal_id, pending)
        return PresentedLease(self.worker, *names, self.until_ms, self.outage_ms)

    def ask_renew(self, pending: str = "", *, ahead_ms: int = 0) -> RenewReply:
        pending = pending or fresh_hex()
        request = RenewRequest(
            lease=self.presented(pending),
            caller_ms=self.now_ms() + ahead_ms,
            held_lanes_ms=self.lanes_ms,
            stats=WorkerStats(7, 3, -2, 0, 0),
            owner='{"host":"h"}',
            held_incarnation=self.incarnation,
        )
        answer = self._learn(self.store.renew(request, self.seen))
        if isinstance(answer, Renewed):
            self.renewal_id, self.until_ms, self.outage_ms = pending, answer.until_ms, answer.outage_until_ms
            if answer.outage_from_ms or answer.outage_until_ms:
                self.lanes_ms = (*self.lanes_ms[:-1], answer.outage_from_ms)
            self.incarnation = answer.seen.incarnation
        return answer

    def lost(self) -> Lost:
        """Ask for a renewal, which has to be refused; return the reply."""
        answer = self.ask_renew()
        assert isinstance(answer, Lost), answer
        return answer

    def release(self, opened: str | None = None, *, renewal_id: str | None = None, reclaimed: bool = False) -> bool:
        """Release the worker id; return true if it was held. *opened*: as in ReleaseRequest; by default no lane was."""
        opened = "0" * len(self.lanes_ms) if opened is None else opened
        renewal_id = self.renewal_id if renewal_id is None else renewal_id
        stats = WorkerStats(ids_made=7)
        lease = self.presented()._replace(renewal_id=renewal_id)
        request = ReleaseRequest(lease, self.now_ms(), opened, stats, reclaimed)
        return isinstance(self._learn(self.store.release(request, self.seen)), Released)

    def _learn(self, answer: _R) -> _R:
        self.seen = answer.seen
        return answer
