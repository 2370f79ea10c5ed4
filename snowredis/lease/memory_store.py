"""A pool in this process' memory, for tests; also the protocol of the Lua scripts in Python.

Follows the scripts rule by rule; the same tests run on both. It loses nothing, so the rules for losses (R3, R4, R10)
apply only after wipe(), and there is no server to identify: durability="detect" behaves as "assured".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from snowredis.lease import replies
from snowredis.lease.codes import LossReason
from snowredis.lease.model import ClaimRequest, PoolConfig, ReleaseRequest, RenewRequest, StoredField
from snowredis.lease.replies import Seen
from snowredis.lease.stats import NO_STATS, WorkerStats

# hex digits of the first renewal id of a lease, as in claim.lua; those of renewals are longer
FIRST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Record:
    """Record of a worker id. The mark of a lane is the later of its entry in lanes_ms and until_ms."""

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
        """Return the lowest mark of the lanes."""
        return max(min(self.lanes_ms), self.until_ms)


class MemoryStore:
    """A Store in memory: one pool, shared by all generators that use this object. Thread-safe.

    Args:
        config: of the pool.
        server_time_ms: returns the time of the Redis clock, ms since 1970.
        new: False: the first worker waits for the floor, as after a loss.
    """

    where = "memory"
    urls = ()
    redundant = False

    def __init__(self, config: PoolConfig, server_time_ms: Callable[[], int], *, new: bool = True) -> None:
        self.config = config
        self._server_time_ms = server_time_ms
        self._lock = threading.RLock()
        self._losses_unnoticed = config.durability == "none"
        self._records: dict[int, Record] = {}
        self._incarnation, self._version, self._floor_ms = "", 0, 0
        self._raises = 0
        # kind and worker id, oldest first
        self.events: list[tuple[str, int]] = []
        if new:
            self._raise_floor(0, Seen())

    def _overdue(self, record: Record, now: int) -> bool:
        """Return True if the worker id may have been leased to another process after a loss that nobody noticed."""
        margin_ms = self.config.redis_skew_ms + self.config.failover_slack_ms
        return self._losses_unnoticed and record.lease_end_ms <= now + margin_ms

    def stored(self, field: StoredField) -> str:
        """Return a field of the pool; "" after a wipe."""
        values = {"signature": self.config.signature, "incarnation": self._incarnation}
        return values[field] if self._incarnation else ""

    def after_fork(self) -> None:
        """Do nothing: the child's copy of the memory is a pool of its own."""

    def wipe(self) -> None:
        """Delete everything, as FLUSHALL does."""
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
        """Create the pool if it does not exist; return the Redis time and the caller's time after the cap (R2)."""
        now = self._server_time_ms()
        if not self._incarnation:
            self._raise_floor(now + self.config.floor_ms, seen)
        return now, min(caller_ms, now + self.config.max_clock_lead_ms)

    def _pool(self, now: int) -> tuple[int, str, int, int, None]:
        """Return the fields that all replies have, for a call that is about to return."""
        self._version += 1
        return now, self._incarnation, self._version, self._floor_ms, None

    def claim(self, request: ClaimRequest, seen: Seen) -> replies.ClaimReply:
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
            if self._floor_ms > now and not self._losses_unnoticed:
                return replies.Settling(*self._pool(now), self._floor_ms - now)
            chosen = self._choose(now, min(request.fit_ms, capped), request.wait_ms)
            if isinstance(chosen, replies.ClaimRefused):
                return chosen
            unused = Record("", "", "", 0, (0,) * self.config.layout.namespaces, 0, NO_STATS, "")
            before = self._records.get(chosen, unused)
            if before.token:
                self.events.append(("expired", chosen))
            least = max(before.until_ms, self._floor_ms)
            if self._losses_unnoticed:
                least = max(least, now + self.config.floor_ms)
            record = Record(
                token=request.token,
                incarnation=self._incarnation,
                renewal_id=self._first_renewal_id(),
                until_ms=capped + ttl,
                lanes_ms=tuple(max(lane, least) for lane in before.lanes_ms),
                lease_end_ms=now + ttl,
                stats=NO_STATS,
                owner=request.owner,
            )
            self.events.append(("claimed", chosen))
            return self._grant(chosen, record, now)

    def _first_renewal_id(self) -> str:
        return f"{self._version:0{FIRST_DIGITS}x}"

    def _grant(self, worker: int, record: Record, now: int) -> replies.Granted:
        self._records[worker] = record
        return replies.Granted(*self._pool(now), worker, record.until_ms, record.lanes_ms, record.renewal_id)

    def _choose(self, now: int, fit_ms: int, wait_ms: int) -> int | replies.ClaimRefused:
        """Choose a worker id: the longest available one with a lane for *fit_ms*; else a new one; else the nearest.

        Returns the refusal if there is none.
        """
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
            return replies.PoolFull(*self._pool(now), max(0, first - now))
        nearest = min(oldest, key=lambda worker: self._records[worker].low_mark_ms)
        behind = self._records[nearest].low_mark_ms - fit_ms
        return nearest if behind <= wait_ms else replies.Behind(*self._pool(now), behind)

    def renew(self, request: RenewRequest, seen: Seen) -> replies.RenewReply:
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
            elif self._losses_unnoticed:
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
                return replies.LeaseGone(*self._pool(now), reason or LossReason.FORGOTTEN)
            record = replace(
                record,
                incarnation=self._incarnation,
                renewal_id=request.pending_renewal_id,
                until_ms=max(record.until_ms, capped + config.ttl_ms),
                lease_end_ms=max(record.lease_end_ms, now + config.ttl_ms),
                stats=request.stats,
            )
            self._records[request.worker] = record
            return replies.Renewed(*self._pool(now), record.until_ms, adopted)

    def release(self, request: ReleaseRequest, seen: Seen) -> replies.ReleaseReply:
        with self._lock:
            now, _ = self._open(request.caller_ms, seen)
            record = self._records.get(request.worker)
            if (
                record is None
                or record.token != request.token
                or record.renewal_id not in (request.renewal_id, request.pending_renewal_id)
                or record.incarnation != self._incarnation
            ):
                return replies.NotHeld(*self._pool(now))
            if request.marks_ms is not None:
                lanes = tuple(map(max, record.lanes_ms, request.marks_ms))
                record = replace(record, lanes_ms=lanes, until_ms=0)
            self._records[request.worker] = replace(
                record, token="", renewal_id="", owner="", lease_end_ms=now
            )
            self.events.append(("released", request.worker))
            return replies.Released(*self._pool(now))

    def create(self, caller_ms: int) -> replies.CreateReply:
        with self._lock:
            now = self._server_time_ms()
            if self._incarnation:
                return replies.AlreadyExists(*self._pool(now))
            self._raise_floor(0, Seen())
            return replies.Created(*self._pool(now))

    def close(self) -> None:
        """Do nothing: the pool exists as long as this object."""
