"""The pool in this process' memory: for tests, and the protocol in Python for whoever reads it.

Follows the Lua scripts rule by rule; one contract suite holds the two together. It never
forgets anything, so the rules for loss (R3, R4, R10) show only after wipe(), and there is no
server to identify: durability="detect" is as "assured".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from snowredis.lease.model import (
    NOTHING_MADE,
    Answer,
    ClaimRequest,
    PoolConfig,
    ReleaseRequest,
    RenewRequest,
    Seen,
)

# hex digits of what begins the chain of a lease, as in claim.lua; a renewal's name is longer
FIRST_TIP = 12


@dataclass(frozen=True, slots=True)
class Record:
    """A worker id's record; a lane's mark is max(its number in lanes_ms, until_ms)."""

    token: str
    incarnation: str
    tip: str
    until_ms: int
    lanes_ms: tuple[int, ...]
    lease_end_ms: int
    stats: str
    owner: str

    @property
    def low_mark_ms(self) -> int:
        return max(min(self.lanes_ms), self.until_ms)


class MemoryStore:
    """One pool, shared by every generator of this process that is given this object."""

    where = "memory"
    urls = ()

    def __init__(self, config: PoolConfig, server_time_ms: Callable[[], int], *, new: bool = True) -> None:
        self._config = config
        self._server_time_ms = server_time_ms
        self._lock = threading.RLock()
        self._records: dict[int, Record] = {}
        self._incarnation, self._version, self._floor_ms = "", 0, 0
        self._raises = 0
        self.events: list[tuple[str, int]] = []
        if new:
            self._raise_floor(0, Seen())

    @property
    def config(self) -> PoolConfig:
        return self._config

    @property
    def redundant(self) -> bool:
        return False

    @property
    def _may_forget(self) -> bool:
        """Losses may go unnoticed."""
        return self._config.durability == "none"

    def _overdue(self, record: Record, now: int) -> bool:
        """Somebody may have been given the worker id since, if losses may go unnoticed."""
        margin_ms = self._config.redis_skew_ms + self._config.failover_slack_ms
        return self._may_forget and record.lease_end_ms <= now + margin_ms

    def stored_signature(self) -> str:
        """Of the pool, or nothing after a wipe."""
        return self._config.signature if self._incarnation else ""

    def stored_incarnation(self) -> str:
        """Of the pool, or nothing after a wipe."""
        return self._incarnation

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
            self._raise_floor(now + self._config.floor_ms, seen)
        return now, min(caller_ms, now + self._config.max_clock_lead_ms)

    def _answer(self, status: str, now: int, *rest: str | int) -> Answer:
        self._version += 1
        texts = tuple(map(str, rest))
        return Answer(status, now, self._incarnation, self._version, self._floor_ms, "", texts)

    def claim(self, request: ClaimRequest, seen: Seen) -> Answer:
        with self._lock:
            now, capped = self._open(request.caller_ms, seen)
            ttl = self._config.ttl_ms
            for worker, record in self._records.items():
                current = record.token == request.token and record.incarnation == self._incarnation
                replayed = current and len(record.tip) == FIRST_TIP and record.lease_end_ms > now
                if replayed and not self._overdue(record, now):
                    until = max(record.until_ms, capped + ttl)
                    ends_ms = max(record.lease_end_ms, now + ttl)
                    again = replace(record, until_ms=until, lease_end_ms=ends_ms, tip=self._first_tip())
                    return self._grant(worker, again, now)
            if self._floor_ms > now and not self._may_forget:
                return self._answer("settling", now, self._floor_ms - now)
            chosen = self._choose(now, min(request.fit_ms, capped), request.wait_ms)
            if isinstance(chosen, Answer):
                return chosen
            before = self._records.get(chosen)
            if before and before.token:
                self.events.append(("expired", chosen))
            lanes = before.lanes_ms if before else (0,) * self._config.layout.namespaces
            least = max(before.until_ms if before else 0, self._floor_ms)
            if self._may_forget:
                least = max(least, now + self._config.floor_ms)
            record = Record(
                token=request.token,
                incarnation=self._incarnation,
                tip=self._first_tip(),
                until_ms=capped + ttl,
                lanes_ms=tuple(max(lane, least) for lane in lanes),
                lease_end_ms=now + ttl,
                stats=NOTHING_MADE,
                owner=request.owner,
            )
            self.events.append(("claimed", chosen))
            return self._grant(chosen, record, now)

    def _first_tip(self) -> str:
        return f"{self._version:0{FIRST_TIP}x}"

    def _grant(self, worker: int, record: Record, now: int) -> Answer:
        self._records[worker] = record
        lanes = ",".join(map(str, record.lanes_ms))
        return self._answer("ok", now, worker, record.until_ms, lanes, record.tip)

    def _choose(self, now: int, fit_ms: int, wait_ms: int) -> int | Answer:
        """The worker id free the longest that has a usable lane, else a new one, else the nearest, else why none."""
        free = sorted(
            (r.lease_end_ms, worker) for worker, r in self._records.items() if r.lease_end_ms <= now
        )
        oldest = [worker for _, worker in free[:8]]
        for worker in oldest:
            if self._records[worker].low_mark_ms <= fit_ms:
                return worker
        capacity = self._config.capacity
        unused = next(
            (w for w in range(min(capacity, len(self._records) + 1)) if w not in self._records), None
        )
        if unused is not None:
            return unused
        if not oldest:
            first = min(r.lease_end_ms for r in self._records.values())
            return self._answer("exhausted", now, max(0, first - now))
        nearest = min(oldest, key=lambda worker: self._records[worker].low_mark_ms)
        behind = self._records[nearest].low_mark_ms - fit_ms
        return nearest if behind <= wait_ms else self._answer("behind", now, behind)

    def renew(self, request: RenewRequest, seen: Seen) -> Answer:
        with self._lock:
            now, capped = self._open(request.caller_ms, seen)
            config, record, adopted = self._config, self._records.get(request.worker), 0
            current = record is not None and record.incarnation == self._incarnation
            why = ""
            if record is not None and current and record.token == request.token:
                if record.tip not in (request.tip, request.next_tip):
                    why = "another process presented this lease"
                elif self._overdue(record, now):
                    why = 'the lease was renewed too late for durability="none"'
            elif current:
                why = "the worker id was given to another process"
            elif self._may_forget:
                why = 'Redis does not know the lease, and durability="none" takes none up again'
            elif request.held_until_ms <= now + (
                config.redis_skew_ms + config.max_clock_lead_ms + config.failover_slack_ms
            ):
                why = "Redis lost the lease and the reservation is too old to be taken up again"
            else:
                adopted = 1
                record = Record(
                    request.token, "", "", request.held_until_ms, request.held_lanes_ms, 0, "", request.owner
                )
                self.events.append(("adopted", request.worker))
            if why or record is None:
                self.events.append(("lost", request.worker))
                return self._answer("lost", now, why)
            record = replace(
                record,
                incarnation=self._incarnation,
                tip=request.next_tip,
                until_ms=max(record.until_ms, capped + config.ttl_ms),
                lease_end_ms=max(record.lease_end_ms, now + config.ttl_ms),
                stats=request.stats,
            )
            self._records[request.worker] = record
            return self._answer("ok", now, record.until_ms, adopted)

    def release(self, request: ReleaseRequest, seen: Seen) -> Answer:
        with self._lock:
            now, _ = self._open(request.caller_ms, seen)
            record = self._records.get(request.worker)
            if (
                record is None
                or record.token != request.token
                or record.tip not in (request.tip, request.sent)
                or record.incarnation != self._incarnation
            ):
                return self._answer("gone", now)
            if request.marks_ms is not None:
                lanes = tuple(map(max, record.lanes_ms, request.marks_ms))
                record = replace(record, lanes_ms=lanes, until_ms=0)
            self._records[request.worker] = replace(record, token="", tip="", owner="", lease_end_ms=now)
            self.events.append(("released", request.worker))
            return self._answer("ok", now)

    def create(self, caller_ms: int) -> Answer:
        with self._lock:
            now = self._server_time_ms()
            if self._incarnation:
                return self._answer("exists", now)
            self._raise_floor(0, Seen())
            return self._answer("ok", now)

    def close(self) -> None:
        """Nothing to close: the pool lives as long as this object."""
