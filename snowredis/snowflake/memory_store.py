"""A pool in this process' memory, for tests; also the protocol of the Lua scripts in Python.

Follows the scripts rule by rule; the same tests run on both. It loses nothing, so the rules for losses (R3, R4, R10)
apply only after wipe(), and there is no server to identify: every durability behaves as "assured".
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable

from snowredis.snowflake import protocol, replies
from snowredis.snowflake.codes import EventKind, FloorReason
from snowredis.snowflake.lease import hash_of
from snowredis.snowflake.record import LeaseRecord
from snowredis.snowflake.replies import LossReason, Seen

# the same as in release.lua
MOST_LOWERED = 3
# hex digits of the first renewal id of a lease, as in claim.lua; those of renewals are longer
FIRST_DIGITS = 12


def is_held(record: LeaseRecord, lease: protocol.PresentedLease) -> bool:
    """Return whether *lease* is the one in *record*, with its newest renewal id or one that is pending (R5)."""
    is_newest = record.renewal_id in (lease.renewal_id, lease.pending_renewal_id)
    return is_newest and record.token_hash == hash_of(lease.token)


class MemoryStore:
    """A Store in memory: one pool, shared by all generators that use this object. Thread-safe.

    All of its records are of its present incarnation: another one begins only with a new pool, after wipe().

    Args:
        config: of the pool.
        server_time_ms: returns the time of the Redis clock, ms since 1970.
        new: False: the first worker waits for the floor, as after a loss.
    """

    where = "memory"
    urls = ()
    shared = False

    def __init__(self, config: protocol.PoolConfig, server_time_ms: Callable[[], int], *, new: bool = True) -> None:
        self.config = config
        self._server_time_ms = server_time_ms
        self._lock = threading.RLock()
        # used in the names of incarnations and events
        self._serials = itertools.count(1)
        self.wipe()
        if new:
            self._begin(server_time_ms(), 0, 0, Seen())

    def wipe(self) -> None:
        """Delete everything, as FLUSHALL does."""
        with self._lock:
            self._records: dict[int, LeaseRecord] = {}
            # no incarnation: there is no pool
            self._incarnation, self._version, self._swept_ms = "", 0, 0
            # when the floors were raised, and the end of the highest reservation
            self._floor_ms = self._raised_ms = self._top_ms = 0
            self._outage_floor_ms = self._outage_top_ms = 0
            # ids and fields of events as in the stream in Redis, the oldest first; and how many there were, by counter
            self._entries: deque[tuple[str, dict[str, str]]] = deque(maxlen=protocol.DEFAULT_MAX_EVENTS)
            self._counts: Counter[str] = Counter()

    def prepare(self) -> None:
        """Learn what a claim needs: nothing."""

    def after_fork(self) -> None:
        """Do nothing: the child's copy of the memory is a pool of its own."""

    def close(self) -> None:
        """Do nothing: the pool exists as long as this object."""

    # --- pool ------------------------------------------------------------------------------------------

    def create(self, caller_ms: int) -> replies.CreateReply:
        with self._lock:
            now = self._server_time_ms()
            if self._incarnation:
                return replies.Exists(*self._pool(now))
            # the same as in create.lua. A pool that is new with this object has lost nothing
            self._begin(now, 0, 0 if self.config.durability == "assured" else self._outage_horizon_ms(now), Seen())
            return replies.Created(*self._pool(now))

    def _begin(self, now: int, floor_ms: int, outage_floor_ms: int, seen: Seen) -> None:
        """Create the pool with these floors, in an incarnation after the one that the caller has *seen*."""
        newest = max(now, int(seen.incarnation.partition("-")[0] or 0) + 1)
        self._incarnation = f"{newest}-{0:08x}{next(self._serials):x}"
        self._floor_ms, self._outage_floor_ms, self._raised_ms = floor_ms, outage_floor_ms, now
        self._event(EventKind.FLOOR, -1, now, LeaseRecord(lanes_ms=(floor_ms,)), reason=FloorReason.NO_POOL)

    def _open(self, caller_ms: int, seen: Seen) -> tuple[int, int]:
        """Create the pool if it does not exist; return the Redis time and the caller's time after the cap (R2)."""
        now = self._server_time_ms()
        floor_ms, outage_floor_ms = now + self.config.floor_ms, self._outage_horizon_ms(now)
        if not self._incarnation:
            self._begin(now, floor_ms, outage_floor_ms, seen)
        if self._raised_ms > now + self.config.redis_skew_ms:
            # the Redis clock was ahead when the floor was raised
            self._floor_ms = min(self._floor_ms, max(floor_ms, self._top_ms))
            self._outage_floor_ms = min(self._outage_floor_ms, max(outage_floor_ms, self._outage_top_ms))
            self._raised_ms = now
        return now, min(caller_ms, now + self.config.max_clock_lead_ms)

    def _outage_horizon_ms(self, now: int) -> int:
        """Return the time at which every reservation of an outage lane has ended; 0 if the pool has no such lanes."""
        config = self.config
        return now + config.floor_ms - config.ttl_ms + config.outage_reserve_ms if config.outage_reserve_ms else 0

    def _latest_end_ms(self, now: int) -> int:
        """Return the end above which no server can have granted a lease: above it, the Redis clock was ahead."""
        return now + self.config.redis_skew_ms + self.config.ttl_ms

    def _pool(self, now: int) -> tuple[int, str, int, int, None]:
        """Return the fields that all replies have, for a call that is about to return."""
        self._version += 1
        self._sweep(now)
        return now, self._incarnation, self._version, self._floor_ms, None

    def _sweep(self, now: int) -> None:
        """Bound the lease ends, and write which leases ended since the last call, once the floor has passed."""
        for worker, record in self._records.items():
            self._records[worker] = record._replace(lease_end_ms=min(record.lease_end_ms, self._latest_end_ms(now)))
        if self._floor_ms > now:
            return
        self._swept_ms = min(self._swept_ms, now)
        for worker, record in sorted(self._records.items(), key=lambda item: (item[1].lease_end_ms, item[0])):
            self._note_end(worker, record, now)
        self._swept_ms = now

    def _event(self, kind: str, worker: int, at_ms: int, record: LeaseRecord, count: str = "", **more: object) -> None:
        """Write an event, and count it; *count*: the name of its counter, if that is not *kind*."""
        fields = {"event": kind, "worker": worker, "owner": record.owner, "from": record.lanes_ms[0]}
        fields |= {"until": record.until_ms, "at": at_ms} | more
        # like ids of a stream, these only grow, whatever the clock does
        newest_ms = max(self._server_time_ms(), int(self._entries[-1][0].split("-")[0]) if self._entries else 0)
        entry = {name: str(value) for name, value in fields.items()}
        self._entries.append((f"{newest_ms}-{next(self._serials)}", entry))
        self._counts[count or kind] += 1

    def _note_end(self, worker: int, record: LeaseRecord, now: int) -> None:
        """Write that a lease ended without a release, unless _sweep() did; before its record is changed."""
        if not record.token_hash or not self._swept_ms < record.lease_end_ms <= now:
            return
        more = {"stats": record.stats.to_text(), "claimed": record.claimed_ms, "renewed": record.renewed_ms}
        more["outage"] = record.outage_ms if record.lanes_ms[-1] <= record.until_ms else 0
        self._event(EventKind.EXPIRED, worker, record.lease_end_ms, record, "expired", **more)

    def _note_return(self, worker: int, record: LeaseRecord, now: int) -> None:
        """Write that the holder of a lease goes on, if the lease had ended; before its record is changed."""
        self._note_end(worker, record, now)
        if record.token_hash and record.lease_end_ms <= now:
            self._event(EventKind.RETURNED, worker, now, record, ended=record.lease_end_ms)

    def _extend(self, worker: int, record: LeaseRecord, now: int, capped: int) -> LeaseRecord:
        """Store *record* with its lease and its reservations extended, and return it."""
        ttl_ms, reserve_ms = self.config.ttl_ms, self.config.outage_reserve_ms
        if reserve_ms and capped + reserve_ms > record.lanes_ms[-1]:
            record = record._replace(outage_ms=max(record.outage_ms, capped + reserve_ms))
        self._records[worker] = record = record._replace(
            until_ms=max(record.until_ms, capped + ttl_ms),
            lease_end_ms=min(self._latest_end_ms(now), max(record.lease_end_ms, now + ttl_ms)),
            renewed_ms=now,
        )
        self._top_ms = max(self._top_ms, record.until_ms)
        self._outage_top_ms = max(self._outage_top_ms, record.outage_ms)
        return record

    # --- claim, renew, release ---------------------------------------------------------------------------

    def claim(self, request: protocol.ClaimRequest, seen: Seen) -> replies.ClaimReply:
        with self._lock:
            now, capped = self._open(request.caller_ms, seen)
            token_hash, first_renewal_id = hash_of(request.token), f"{self._version:0{FIRST_DIGITS}x}"
            for worker, record in self._records.items():
                is_claimed = record.token_hash == token_hash and record.lease_end_ms > now
                if is_claimed and len(record.renewal_id) == FIRST_DIGITS:
                    # the same claim again
                    again = record._replace(renewal_id=first_renewal_id)
                    return self._granted(worker, self._extend(worker, again, now, capped), now)
            if self._floor_ms > now:
                return replies.Settling(*self._pool(now), self._floor_ms - now)
            usable_from_ms = min(request.usable_from_ms, capped)
            if self._floor_ms - usable_from_ms > request.wait_ms + self.config.floor_ms:
                # marks are never lowered: they stay where callers can reach them
                return replies.Behind(*self._pool(now), self._floor_ms - usable_from_ms)
            chosen = self._choose(now, usable_from_ms, request.wait_ms)
            if isinstance(chosen, replies.ClaimRefused):
                return chosen
            before = self._records.get(chosen, LeaseRecord(lanes_ms=(0,) * self.config.layout.namespaces))
            self._note_end(chosen, before, now)
            lanes_ms = [max(lane, self._floor_ms, before.until_ms) for lane in before.lanes_ms]
            if self.config.outage_reserve_ms:
                lanes_ms[-1] = max(before.outage_mark_ms, self._outage_floor_ms)
            record = LeaseRecord(
                token_hash=token_hash,
                incarnation=self._incarnation,
                renewal_id=first_renewal_id,
                lanes_ms=tuple(lanes_ms),
                lowered_ms=before.lowered_ms,
                claimed_ms=now,
                owner=request.owner,
            )
            record = self._extend(chosen, record, now, capped)
            lanes = ",".join(map(str, lanes_ms))
            self._event(EventKind.CLAIMED, chosen, now, record, "claims", lanes=lanes, outage=record.outage_ms)
            return self._granted(chosen, record, now)

    def _granted(self, worker: int, record: LeaseRecord, now: int) -> replies.Granted:
        lease = (worker, record.until_ms, record.lanes_ms, record.renewal_id, record.outage_ms)
        return replies.Granted(*self._pool(now), *lease)

    def _low_mark_ms(self, worker: int) -> int:
        """Return the lowest mark of the lanes of *worker*, except for the outage lane."""
        record = self._records[worker]
        return max(min(record.lanes_ms[: self.config.ordinary_lanes]), record.until_ms)

    def _choose(self, now: int, usable_from_ms: int, wait_ms: int) -> int | replies.ClaimRefused:
        """Choose the longest available worker id with a lane for *usable_from_ms*; else a new one; else the nearest.

        One whose outage lane is not open comes after a new one whose outage lane is. Returns the refusal if there is
        none.
        """
        free = sorted((r.lease_end_ms, worker) for worker, r in self._records.items() if r.lease_end_ms <= now)
        oldest = [worker for _, worker in free[:64]]
        fitting = [worker for worker in oldest if self._low_mark_ms(worker) <= usable_from_ms]
        for worker in fitting:
            mark_ms = max(self._records[worker].outage_mark_ms, self._outage_floor_ms)
            if not self.config.outage_reserve_ms or mark_ms <= usable_from_ms:
                return worker
        if fitting and self._outage_floor_ms > usable_from_ms:
            return fitting[0]
        unused = next(worker for worker in itertools.count() if worker not in self._records)
        if unused < self.config.layout.workers or fitting:
            return unused if unused < self.config.layout.workers else fitting[0]
        if not oldest:
            self._counts["refused"] += 1
            first_ms = min(record.lease_end_ms for record in self._records.values())
            return replies.PoolFull(*self._pool(now), max(0, first_ms - now))
        nearest = min(oldest, key=self._low_mark_ms)
        behind_ms = self._low_mark_ms(nearest) - usable_from_ms
        return nearest if behind_ms <= wait_ms else replies.Behind(*self._pool(now), behind_ms)

    def renew(self, request: protocol.RenewRequest, seen: Seen) -> replies.RenewReply:
        with self._lock:
            now, capped = self._open(request.caller_ms, seen)
            lease, worker = request.lease, request.lease.worker
            record = self._records.get(worker)
            adopted = record is None
            if reason := self._loss(record, request, now):
                lost = LeaseRecord(owner=request.owner, until_ms=lease.until_ms)
                self._event(EventKind.LOST, worker, now, lost, reason=reason, outage=lease.outage_until_ms)
                return replies.Lost(*self._pool(now), reason)
            if record is None:
                record = self._adopted(request, now)
            else:
                self._note_return(worker, record, now)
            if request.stats.clock_backs > record.stats.clock_backs:
                self._event(EventKind.CLOCK_BACK, worker, now, record, stats=request.stats.to_text())
            renewed = record._replace(renewal_id=lease.pending_renewal_id, stats=request.stats, owner=request.owner)
            renewed = self._extend(worker, renewed, now, capped)
            if adopted:
                cause = FloorReason.NO_POOL
                self._event(EventKind.ADOPTED, worker, now, renewed, reason=cause, outage=renewed.outage_ms)
            outage_from_ms = renewed.lanes_ms[-1] if self.config.outage_reserve_ms else 0
            return replies.Renewed(*self._pool(now), renewed.until_ms, adopted, outage_from_ms, renewed.outage_ms)

    def _loss(self, record: LeaseRecord | None, request: protocol.RenewRequest, now: int) -> LossReason | None:
        """Return why the renewal of a lease whose worker id has this *record* is refused; None if it is not."""
        if record is None:
            # R4: by now, another server may have leased this worker id
            is_old = request.lease.until_ms <= now + self.config.floor_ms - self.config.ttl_ms
            return LossReason.TOO_OLD if is_old else None
        if is_held(record, request.lease):
            return None
        end_ms = request.lease.outage_until_ms
        was_lowered = any(begin < end_ms <= end for begin, end in record.lowered_ms)
        is_copied = record.token_hash == hash_of(request.lease.token)
        is_copied = is_copied or (request.held_lanes_ms[-1] < end_ms and was_lowered)
        return LossReason.COPIED if is_copied else LossReason.REASSIGNED

    def _adopted(self, request: protocol.RenewRequest, now: int) -> LeaseRecord:
        """Return the record of a lease that was lost, as its holder knows it (R4)."""
        lanes_ms, outage_ms = request.held_lanes_ms, request.lease.outage_until_ms
        if self.config.outage_reserve_ms and outage_ms <= lanes_ms[-1]:
            lanes_ms, outage_ms = (*lanes_ms[:-1], max(lanes_ms[-1], self._outage_floor_ms)), 0
        return LeaseRecord(
            token_hash=hash_of(request.lease.token),
            incarnation=self._incarnation,
            until_ms=request.lease.until_ms,
            lanes_ms=lanes_ms,
            outage_ms=outage_ms,
            claimed_ms=now,
            stats=request.stats,
        )

    def release(self, request: protocol.ReleaseRequest, seen: Seen) -> replies.ReleaseReply:
        with self._lock:
            now, _ = self._open(request.caller_ms, seen)
            worker, record = request.lease.worker, self._records.get(request.lease.worker)
            if record is None or not is_held(record, request.lease):
                return replies.Gone(*self._pool(now))
            (self._note_end if request.reclaimed else self._note_return)(worker, record, now)
            kind = EventKind.RECLAIMED if request.reclaimed else EventKind.RELEASED
            # a process has one death, even if its lease ended before it was reclaimed
            count = "reclaimed" if request.reclaimed and record.lease_end_ms > now else "releases"
            lowered, used_until_ms = self._lowered(record, request)
            more = {"from": record.lanes_ms[0], "until": used_until_ms, "stats": request.stats.to_text()}
            more |= {"claimed": record.claimed_ms, "renewed": record.renewed_ms}
            more["outage"] = lowered.outage_mark_ms if self.config.outage_reserve_ms else 0
            self._event(kind, worker, now, record, count, **more)
            lowered = lowered._replace(token_hash="", renewal_id="", owner="", lease_end_ms=now, stats=request.stats)
            self._records[worker] = lowered
            return replies.Released(*self._pool(now))

    def _lowered(self, record: LeaseRecord, request: protocol.ReleaseRequest) -> tuple[LeaseRecord, int]:
        """Return *record* with those marks lowered that are this holder's own ends (R7), and until when it was used."""
        lease, marks_ms, used_until_ms = request.lease, request.marks_ms, record.until_ms
        if marks_ms is None:
            return record, used_until_ms
        used_ms, ordinary = tuple(map(max, record.lanes_ms, marks_ms)), self.config.ordinary_lanes
        if record.until_ms == lease.until_ms:
            used_until_ms = max(marks_ms[:ordinary])
            record = record._replace(until_ms=0, lanes_ms=(*used_ms[:ordinary], *record.lanes_ms[ordinary:]))
        from_ms, until_ms = record.lanes_ms[-1], record.outage_ms
        if self.config.outage_reserve_ms and from_ms < until_ms == lease.outage_until_ms:
            record = record._replace(lanes_ms=(*record.lanes_ms[:-1], used_ms[-1]), outage_ms=0)
            if used_ms[-1] < until_ms:
                lowered_ms = record.lowered_ms
                if len(lowered_ms) == MOST_LOWERED:
                    (begin, first_ms), (_, second_ms), *rest = lowered_ms
                    lowered_ms = ((begin, max(first_ms, second_ms)), *rest)
                record = record._replace(lowered_ms=(*lowered_ms, (from_ms, until_ms)))
        return record, used_until_ms
