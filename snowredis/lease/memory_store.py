"""The pool in this process' memory: for tests, and the protocol in Python for whoever reads it.

Follows the Lua scripts rule by rule; one contract suite holds the two together. It never
forgets anything, so the rules for loss (R3, R4, R10) show only after wipe(), and there is no
server to identify: durability="detect" is as "assured".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from snowredis.lease.codes import LossReason
from snowredis.lease.model import ClaimRequest, PoolConfig, ReleaseRequest, RenewRequest, StoredField
from snowredis.lease.replies import (
    AlreadyExists,
    Behind,
    ClaimRefused,
    ClaimReply,
    Created,
    CreateReply,
    Granted,
    LeaseGone,
    NotHeld,
    PoolFull,
    Released,
    ReleaseReply,
    Renewed,
    RenewReply,
    Seen,
    Settling,
)
from snowredis.lease.stats import NO_STATS, WorkerStats

# hex digits of the first renewal id of a lease, as in claim.lua; that of a renewal is longer
FIRST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Record:
    """A worker id's record; a lane's mark is max(its number in lanes_ms, until_ms)."""

    token: str
    incarnation: str
    renewal_id: str
    until_ms: int
    lanes_ms: tuple[int, ...]
    lease_end_ms: int
    stats: WorkerStats
    owner: str

    @property
    def low_mark_ms(self) -> int:
        return max(min(self.lanes_ms), self.until_ms)


class MemoryStore:
    """One pool, shared by every generator of this process that is given this object."""

    where = "memory"
    urls = ()
    redundant = False

    def __init__(self, config: PoolConfig, server_time_ms: Callable[[], int], *, new: bool = True) -> None:
        self.config = config
        self._server_time_ms = server_time_ms
        self._lock = threading.RLock()
        self._records: dict[int, Record] = {}
        self._incarnation, self._version, self._floor_ms = "", 0, 0
        self._raises = 0
        self.events: list[tuple[str, int]] = []
        if new:
            self._raise_floor(0, Seen())

    @property
    def _may_forget(self) -> bool:
        """Losses may go unnoticed."""
        return self.config.durability == "none"

    def _overdue(self, record: Record, now: int) -> bool:
        """Somebody may have been given the worker id since, if losses may go unnoticed."""
        margin_ms = self.config.redis_skew_ms + self.config.failover_slack_ms
        return self._may_forget and record.lease_end_ms <= now + margin_ms

    def stored(self, field: StoredField) -> str:
        """Return a field of the pool; "" after a wipe."""
        return self.config.signature if field == "signature" and self._incarnation else self._incarnation

    def after_fork(self) -> None:
        """Nothing: the child's copy of the memory is a pool of its own."""

    def wipe(self) -> None:
        """Forget everything, as FLUSHALL does."""
        with self._lock:
            self._records.clear()
            self._incarnation, self._version, self._floor_ms = "", 0, 0

    def _raise_floor(self, floor_ms: int, seen: Seen) -> None:
        def raised(incarnation: str) -> int:
            return int(incarnation.partition("-")[0] or 0)

        self._raises += 1
        newest = max(self._server_time_ms(), raised(self._incarnation) + 1, raised(seen.incarnation) + 1)
        self._incarnation = f"{newest}-{self._raises:x}"
        self._floor_ms = max(self._floor_ms, floor_ms)

    def _open(self, caller_ms: int, seen: Seen) -> tuple[int, int]:
        now = self._server_time_ms()
        if not self._incarnation:
            self._raise_floor(now + self.config.floor_ms, seen)
        return now, min(caller_ms, now + self.config.max_clock_lead_ms)

    def _pool(self, now: int) -> tuple[int, str, int, int, None]:
        """Return the part that all replies have in common."""
        self._version += 1
        return now, self._incarnation, self._version, self._floor_ms, None

    def claim(self, request: ClaimRequest, seen: Seen) -> ClaimReply:
        with self._lock:
            now, capped = self._open(request.caller_ms, seen)
            ttl = self.config.ttl_ms
            for worker, record in self._records.items():
                current = record.token == request.token and record.incarnation == self._incarnation
                replayed = current and len(record.renewal_id) == FIRST_DIGITS and record.lease_end_ms > now
                if replayed and not self._overdue(record, now):
                    until = max(record.until_ms, capped + ttl)
                    ends_ms = max(record.lease_end_ms, now + ttl)
                    first = self._first_renewal_id()
                    again = replace(record, until_ms=until, lease_end_ms=ends_ms, renewal_id=first)
                    return self._grant(worker, again, now)
            if self._floor_ms > now and not self._may_forget:
                return Settling(*self._pool(now), self._floor_ms - now)
            chosen = self._choose(now, min(request.fit_ms, capped), request.wait_ms)
            if isinstance(chosen, ClaimRefused):
                return chosen
            before = self._records.get(chosen)
            if before and before.token:
                self.events.append(("expired", chosen))
            lanes = before.lanes_ms if before else (0,) * self.config.layout.namespaces
            least = max(before.until_ms if before else 0, self._floor_ms)
            if self._may_forget:
                least = max(least, now + self.config.floor_ms)
            record = Record(
                token=request.token,
                incarnation=self._incarnation,
                renewal_id=self._first_renewal_id(),
                until_ms=capped + ttl,
                lanes_ms=tuple(max(lane, least) for lane in lanes),
                lease_end_ms=now + ttl,
                stats=NO_STATS,
                owner=request.owner,
            )
            self.events.append(("claimed", chosen))
            return self._grant(chosen, record, now)

    def _first_renewal_id(self) -> str:
        return f"{self._version:0{FIRST_DIGITS}x}"

    def _grant(self, worker: int, record: Record, now: int) -> Granted:
        self._records[worker] = record
        return Granted(*self._pool(now), worker, record.until_ms, record.lanes_ms, record.renewal_id)

    def _choose(self, now: int, fit_ms: int, wait_ms: int) -> int | ClaimRefused:
        """The worker id free the longest that has a usable lane, else a new one, else the nearest, else why none."""
        free = sorted(
            (r.lease_end_ms, worker) for worker, r in self._records.items() if r.lease_end_ms <= now
        )
        oldest = [worker for _, worker in free[:8]]
        for worker in oldest:
            if self._records[worker].low_mark_ms <= fit_ms:
                return worker
        capacity = self.config.capacity
        unused = next(
            (w for w in range(min(capacity, len(self._records) + 1)) if w not in self._records), None
        )
        if unused is not None:
            return unused
        if not oldest:
            first = min(r.lease_end_ms for r in self._records.values())
            return PoolFull(*self._pool(now), max(0, first - now))
        nearest = min(oldest, key=lambda worker: self._records[worker].low_mark_ms)
        behind = self._records[nearest].low_mark_ms - fit_ms
        return nearest if behind <= wait_ms else Behind(*self._pool(now), behind)

    def renew(self, request: RenewRequest, seen: Seen) -> RenewReply:
        with self._lock:
            now, capped = self._open(request.caller_ms, seen)
            config, record, adopted = self.config, self._records.get(request.worker), False
            current = record is not None and record.incarnation == self._incarnation
            reason: LossReason | None = None
            if record is not None and current and record.token == request.token:
                if record.renewal_id not in (request.renewal_id, request.pending_renewal_id):
                    reason = LossReason.COPIED
                elif self._overdue(record, now):
                    reason = LossReason.LATE
            elif current:
                reason = LossReason.REASSIGNED
            elif self._may_forget:
                reason = LossReason.FORGOTTEN
            elif request.held_until_ms <= now + (
                config.redis_skew_ms + config.max_clock_lead_ms + config.failover_slack_ms
            ):
                reason = LossReason.TOO_OLD
            else:
                adopted = True
                until_ms, lanes_ms = request.held_until_ms, request.held_lanes_ms
                record = Record(request.token, "", "", until_ms, lanes_ms, 0, NO_STATS, request.owner)
                self.events.append(("adopted", request.worker))
            if reason is not None or record is None:
                self.events.append(("lost", request.worker))
                return LeaseGone(*self._pool(now), reason or LossReason.FORGOTTEN)
            record = replace(
                record,
                incarnation=self._incarnation,
                renewal_id=request.pending_renewal_id,
                until_ms=max(record.until_ms, capped + config.ttl_ms),
                lease_end_ms=max(record.lease_end_ms, now + config.ttl_ms),
                stats=request.stats,
            )
            self._records[request.worker] = record
            return Renewed(*self._pool(now), record.until_ms, adopted)

    def release(self, request: ReleaseRequest, seen: Seen) -> ReleaseReply:
        with self._lock:
            now, _ = self._open(request.caller_ms, seen)
            record = self._records.get(request.worker)
            if (
                record is None
                or record.token != request.token
                or record.renewal_id not in (request.renewal_id, request.pending_renewal_id)
                or record.incarnation != self._incarnation
            ):
                return NotHeld(*self._pool(now))
            if request.marks_ms is not None:
                lanes = tuple(map(max, record.lanes_ms, request.marks_ms))
                record = replace(record, lanes_ms=lanes, until_ms=0)
            self._records[request.worker] = replace(
                record, token="", renewal_id="", owner="", lease_end_ms=now
            )
            self.events.append(("released", request.worker))
            return Released(*self._pool(now))

    def create(self, caller_ms: int) -> CreateReply:
        with self._lock:
            now = self._server_time_ms()
            if self._incarnation:
                return AlreadyExists(*self._pool(now))
            self._raise_floor(0, Seen())
            return Created(*self._pool(now))

    def close(self) -> None:
        """Nothing to close: the pool lives as long as this object."""
