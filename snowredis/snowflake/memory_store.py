"""A pool in this process' memory, for tests; also the protocol of the Lua scripts in Python.

Follows the scripts rule by rule; the same tests run on both. It loses nothing, so the rules for losses (R3, R4, R10)
apply only after wipe(), and there is no server to identify: every durability behaves as "assured".
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from hashlib import sha1

from snowredis.snowflake import protocol, replies
from snowredis.snowflake.codes import EventKind, FloorReason
from snowredis.snowflake.record import LeaseRecord
from snowredis.snowflake.replies import LossReason, Seen

# as in release.lua
MOST_CUTS = 3
# hex digits of the first renewal id of a lease, as in claim.lua; those of renewals are longer
FIRST_DIGITS = 12


def hash_of(token: str) -> str:
    """Return what a record has of a token."""
    return sha1(token.encode(), usedforsecurity=False).hexdigest()


class MemoryStore:
    """A Store in memory: one pool, shared by all generators that use this object. Thread-safe.

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
        self._records: dict[int, LeaseRecord] = {}
        self._incarnation, self._version, self._floor_ms = "", 0, 0
        # when the floors were raised, and the end of the highest reservation
        self._raised_ms = self._top_ms = 0
        self._outage_floor_ms = self._outage_top_ms = 0
        self._raises = 0
        self._swept_ms = 0
        # ids and fields of events as in the stream in Redis, the oldest first; and how many there were, by counter
        self._entries: deque[tuple[str, dict[str, str]]] = deque(maxlen=protocol.DEFAULT_MAX_EVENTS)
        self._events_added = 0
        self._counts: Counter[str] = Counter()
        if new:
            self._raise_floors(0, 0, Seen())
            self._note_floor(server_time_ms())

    @property
    def events(self) -> list[tuple[str, int]]:
        """Kind and worker id of every event that concerns a worker id, the oldest first."""
        return [(e["event"], int(e["worker"])) for _, e in list(self._entries) if e["worker"] != "-1"]

    def _event(self, kind: str, worker: int, at_ms: int, record: LeaseRecord, **more: object) -> None:
        self._events_added += 1
        until_ms = more.pop("until", record.until_ms)
        fields = {"event": kind, "worker": worker, "owner": record.owner, "from": record.lanes_ms[0]}
        fields |= {"until": until_ms, "at": at_ms} | more
        entry = {name: str(value) for name, value in fields.items()}
        # like ids of a stream, these only grow, whatever the clock does
        newest_ms = max(self._server_time_ms(), int(self._entries[-1][0].split("-")[0]) if self._entries else 0)
        self._entries.append((f"{newest_ms}-{self._events_added}", entry))

    def _note_floor(self, now: int) -> None:
        pool = LeaseRecord(lanes_ms=(self._floor_ms,))
        self._event(EventKind.FLOOR, -1, now, pool, reason=FloorReason.NO_POOL)

    def _note_end(self, worker: int, record: LeaseRecord, now: int) -> None:
        """Write that a lease ended without a release, unless _sweep() did; before its record is changed."""
        if not record.token_hash or not self._swept_ms < record.lease_end_ms <= now:
            return
        more = {"stats": record.stats.to_text(), "claimed": record.claimed_ms, "renewed": record.renewed_ms}
        more["outage"] = record.outage_ms if record.lanes_ms[-1] <= record.until_ms else 0
        self._event(EventKind.EXPIRED, worker, record.lease_end_ms, record, **more)
        self._counts["expired"] += 1

    def _sweep(self, now: int) -> None:
        """Bound the lease ends, and write which leases ended since the last call, once the floor has passed."""
        for worker, record in self._records.items():
            if record.lease_end_ms > self._latest_end_ms(now):
                self._records[worker] = record._replace(lease_end_ms=self._latest_end_ms(now))
        if self._floor_ms > now:
            return
        self._swept_ms = min(self._swept_ms, now)
        ended = [
            (record.lease_end_ms, worker)
            for worker, record in self._records.items()
            if self._swept_ms < record.lease_end_ms <= now
        ]
        for _, worker in sorted(ended):
            self._note_end(worker, self._records[worker], now)
        self._swept_ms = now

    def _latest_end_ms(self, now: int) -> int:
        """Return the end above which no server can have granted a lease: above it, the Redis clock was ahead."""
        return now + self.config.redis_skew_ms + self.config.ttl_ms

    def prepare(self) -> None:
        """Learn what a claim needs: nothing."""

    def after_fork(self) -> None:
        """Do nothing: the child's copy of the memory is a pool of its own."""

    def wipe(self) -> None:
        """Delete everything, as FLUSHALL does."""
        with self._lock:
            self._records.clear()
            self._incarnation, self._version, self._floor_ms, self._swept_ms = "", 0, 0, 0
            self._raised_ms = self._top_ms = self._outage_floor_ms = self._outage_top_ms = 0
            self._entries.clear()
            self._counts.clear()

    def _raise_floors(self, floor_ms: int, outage_floor_ms: int, seen: Seen) -> None:
        def raised(incarnation: str) -> int:
            return int(incarnation.partition("-")[0] or 0)

        self._raises += 1
        newest = max(self._server_time_ms(), raised(self._incarnation) + 1, raised(seen.incarnation) + 1)
        self._incarnation = f"{newest}-{0:08x}{self._raises:x}"
        self._floor_ms, self._raised_ms = max(self._floor_ms, floor_ms), self._server_time_ms()
        self._outage_floor_ms = max(self._outage_floor_ms, outage_floor_ms)

    def _open(self, caller_ms: int, seen: Seen) -> tuple[int, int]:
        """Create the pool if it does not exist; return the Redis time and the caller's time after the cap (R2)."""
        now = self._server_time_ms()
        if not self._incarnation:
            self._raise_floors(now + self.config.floor_ms, self._outage_horizon_ms(now), seen)
            self._note_floor(now)
        if self._raised_ms > now + self.config.redis_skew_ms:
            # the Redis clock was ahead when the floor was raised
            self._floor_ms = min(self._floor_ms, max(now + self.config.floor_ms, self._top_ms))
            most_ms = max(self._outage_horizon_ms(now), self._outage_top_ms)
            self._outage_floor_ms = min(self._outage_floor_ms, most_ms)
            self._raised_ms = now
        return now, min(caller_ms, now + self.config.max_clock_lead_ms)

    def _outage_horizon_ms(self, now: int) -> int:
        """Return the time at which every reservation of an outage lane has ended; 0 if the pool has no such lanes."""
        config = self.config
        return now + config.floor_ms - config.ttl_ms + config.outage_reserve_ms if config.outage_reserve_ms else 0

    def _with_outage_lane(self, record: LeaseRecord, capped: int) -> LeaseRecord:
        """Return *record* with the reservation of its outage lane extended."""
        reserve_ms = self.config.outage_reserve_ms
        if reserve_ms and capped + reserve_ms > record.lanes_ms[-1]:
            record = record._replace(outage_ms=max(record.outage_ms, capped + reserve_ms))
        self._outage_top_ms = max(self._outage_top_ms, record.outage_ms)
        return record

    def _low_mark_ms(self, record: LeaseRecord) -> int:
        """Return the lowest mark of the lanes, except for the outage lane."""
        return max(min(record.lanes_ms[: self.config.ordinary_lanes]), record.until_ms)

    def _pool(self, now: int) -> tuple[int, str, int, int, None]:
        """Return the fields that all replies have, for a call that is about to return."""
        self._version += 1
        self._sweep(now)
        return now, self._incarnation, self._version, self._floor_ms, None

    def claim(self, request: protocol.ClaimRequest, seen: Seen) -> replies.ClaimReply:
        with self._lock:
            now, capped = self._open(request.caller_ms, seen)
            ttl = self.config.ttl_ms
            for worker, record in self._records.items():
                current = record.token_hash == hash_of(request.token) and record.incarnation == self._incarnation
                replayed = current and len(record.renewal_id) == FIRST_DIGITS and record.lease_end_ms > now
                if replayed:
                    until = max(record.until_ms, capped + ttl)
                    ends_ms = min(self._latest_end_ms(now), max(record.lease_end_ms, now + ttl))
                    first = self._first_renewal_id()
                    again = record._replace(until_ms=until, lease_end_ms=ends_ms, renewal_id=first, renewed_ms=now)
                    return self._grant(worker, self._with_outage_lane(again, capped), now)
            if self._floor_ms > now:
                return replies.Settling(*self._pool(now), self._floor_ms - now)
            least = self._floor_ms
            usable_from_ms = min(request.usable_from_ms, capped)
            if least - usable_from_ms > request.wait_ms + self.config.floor_ms:
                # marks are never lowered: they stay where callers can reach them
                return replies.Behind(*self._pool(now), least - usable_from_ms)
            chosen = self._choose(now, usable_from_ms, request.wait_ms)
            if isinstance(chosen, replies.ClaimRefused):
                return chosen
            unused = LeaseRecord(lanes_ms=(0,) * self.config.layout.namespaces)
            before = self._records.get(chosen, unused)
            self._note_end(chosen, before, now)
            least = max(least, before.until_ms)
            lanes_ms = [max(lane, least) for lane in before.lanes_ms]
            if self.config.outage_reserve_ms:
                lanes_ms[-1] = max(before.outage_mark_ms, self._outage_floor_ms)
            record = before._replace(
                token_hash=hash_of(request.token),
                incarnation=self._incarnation,
                renewal_id=self._first_renewal_id(),
                until_ms=capped + ttl,
                lease_end_ms=now + ttl,
                lanes_ms=tuple(lanes_ms),
                outage_ms=0,
                claimed_ms=now,
                renewed_ms=now,
                stats=protocol.NO_STATS,
                owner=request.owner,
            )
            record = self._with_outage_lane(record, capped)
            lanes = ",".join(map(str, record.lanes_ms))
            self._event(EventKind.CLAIMED, chosen, now, record, lanes=lanes, outage=record.outage_ms)
            self._counts["claims"] += 1
            return self._grant(chosen, record, now)

    def _first_renewal_id(self) -> str:
        return f"{self._version:0{FIRST_DIGITS}x}"

    def _grant(self, worker: int, record: LeaseRecord, now: int) -> replies.Granted:
        self._records[worker] = record
        self._top_ms = max(self._top_ms, record.until_ms)
        lease = (worker, record.until_ms, record.lanes_ms, record.renewal_id, record.outage_ms)
        return replies.Granted(*self._pool(now), *lease)

    def _choose(self, now: int, usable_from_ms: int, wait_ms: int) -> int | replies.ClaimRefused:
        """Choose the longest available worker id with a lane for *usable_from_ms*; else a new one; else the nearest.

        One whose outage lane is not open comes after a new one whose outage lane is. Returns the refusal if there is
        none.
        """
        free = sorted((r.lease_end_ms, worker) for worker, r in self._records.items() if r.lease_end_ms <= now)
        oldest = [worker for _, worker in free[:8]]
        fitting = [worker for worker in oldest if self._low_mark_ms(self._records[worker]) <= usable_from_ms]
        for worker in fitting:
            mark_ms = max(self._records[worker].outage_mark_ms, self._outage_floor_ms)
            if not self.config.outage_reserve_ms or mark_ms <= usable_from_ms:
                return worker
        if fitting and self._outage_floor_ms > usable_from_ms:
            return fitting[0]
        capacity = self.config.layout.workers
        unused = next((w for w in range(min(capacity, len(self._records) + 1)) if w not in self._records), None)
        if unused is not None or fitting:
            return fitting[0] if unused is None else unused
        if not oldest:
            self._counts["refused"] += 1
            first = min(r.lease_end_ms for r in self._records.values())
            return replies.IdsExhausted(*self._pool(now), max(0, first - now))
        nearest = min(oldest, key=lambda worker: self._low_mark_ms(self._records[worker]))
        behind = self._low_mark_ms(self._records[nearest]) - usable_from_ms
        return nearest if behind <= wait_ms else replies.Behind(*self._pool(now), behind)

    def renew(self, request: protocol.RenewRequest, seen: Seen) -> replies.RenewReply:
        with self._lock:
            now, capped = self._open(request.caller_ms, seen)
            config, record, adopted = self.config, self._records.get(request.worker), False
            current = record is not None and record.incarnation == self._incarnation
            reason: LossReason | None = None
            ended_ms = record.lease_end_ms if record and record.token_hash and record.lease_end_ms <= now else 0
            if record is not None and current and record.token_hash == hash_of(request.token):
                if record.renewal_id not in (request.renewal_id, request.pending_renewal_id):
                    reason = LossReason.COPIED
            elif current:
                reason = LossReason.REASSIGNED
            elif request.held_until_ms <= now + config.floor_ms - config.ttl_ms:
                reason = LossReason.TOO_OLD
            else:
                adopted = True
                record = self._adopted(request, now)
            if reason is not None or record is None:
                reason = reason or LossReason.TOO_OLD
                held_outage_ms = request.held_outage_ms
                cuts_ms = record.cuts_ms if record is not None and request.held_lanes_ms[-1] < held_outage_ms else ()
                if any(from_ms < held_outage_ms <= to_ms for from_ms, to_ms in cuts_ms):
                    reason = LossReason.COPIED
                lost = LeaseRecord(owner=request.owner, until_ms=request.held_until_ms)
                reply = replies.Lost(*self._pool(now), reason)
                self._event(EventKind.LOST, request.worker, now, lost, reason=reason, outage=request.held_outage_ms)
                self._counts["lost"] += 1
                return reply
            if ended_ms:
                self._note_end(request.worker, record, now)
                self._event(EventKind.RETURNED, request.worker, now, record, ended=ended_ms)
                self._counts["returned"] += 1
            if request.stats.clock_backs > record.stats.clock_backs:
                self._event(EventKind.CLOCK_BACK, request.worker, now, record, stats=request.stats.to_text())
            record = record._replace(
                incarnation=self._incarnation,
                renewal_id=request.pending_renewal_id,
                until_ms=max(record.until_ms, capped + config.ttl_ms),
                lease_end_ms=min(self._latest_end_ms(now), max(record.lease_end_ms, now + config.ttl_ms)),
                stats=request.stats,
                owner=request.owner,
                renewed_ms=now,
            )
            self._records[request.worker] = record = self._with_outage_lane(record, capped)
            self._top_ms = max(self._top_ms, record.until_ms)
            if adopted:
                more = {"reason": FloorReason.NO_POOL, "outage": record.outage_ms}
                self._event(EventKind.ADOPTED, request.worker, now, record, **more)
                self._counts["adopted"] += 1
            outage_from_ms = record.lanes_ms[-1] if config.outage_reserve_ms else 0
            return replies.Renewed(*self._pool(now), record.until_ms, adopted, outage_from_ms, record.outage_ms)

    def _adopted(self, request: protocol.RenewRequest, now: int) -> LeaseRecord:
        """Return the record of a lease that was lost, as its holder knows it (R4)."""
        lanes_ms, outage_ms = request.held_lanes_ms, request.held_outage_ms
        if self.config.outage_reserve_ms and outage_ms <= lanes_ms[-1]:
            lanes_ms, outage_ms = (*lanes_ms[:-1], max(lanes_ms[-1], self._outage_floor_ms)), 0
        record = LeaseRecord(token_hash=hash_of(request.token), until_ms=request.held_until_ms, owner=request.owner)
        return record._replace(lanes_ms=lanes_ms, outage_ms=outage_ms, claimed_ms=now)

    def release(self, request: protocol.ReleaseRequest, seen: Seen) -> replies.ReleaseReply:
        with self._lock:
            now, _ = self._open(request.caller_ms, seen)
            record = self._records.get(request.worker)
            if (
                record is None
                or record.token_hash != hash_of(request.token)
                or record.renewal_id not in (request.renewal_id, request.pending_renewal_id)
                or record.incarnation != self._incarnation
            ):
                return replies.Gone(*self._pool(now))
            ended_ms = record.lease_end_ms if record.lease_end_ms <= now else 0
            self._note_end(request.worker, record, now)
            if ended_ms and not request.reclaimed:
                self._event(EventKind.RETURNED, request.worker, now, record, ended=ended_ms)
                self._counts["returned"] += 1
            more: dict[str, object] = {
                "from": record.lanes_ms[0],
                "claimed": record.claimed_ms,
                "renewed": record.renewed_ms,
            }
            used_until_ms = record.until_ms
            if request.marks_ms is not None:
                if record.until_ms == request.held_until_ms:
                    used_until_ms = max(request.marks_ms[: self.config.ordinary_lanes])
                record = self._lowered(record, request, request.marks_ms)
            kind = EventKind.RECLAIMED if request.reclaimed else EventKind.RELEASED
            more |= {"until": used_until_ms, "stats": request.stats.to_text()}
            more["outage"] = record.outage_mark_ms if self.config.outage_reserve_ms else 0
            self._event(kind, request.worker, now, record, **more)
            self._counts["reclaimed" if request.reclaimed and not ended_ms else "releases"] += 1
            self._records[request.worker] = record._replace(
                token_hash="", renewal_id="", owner="", lease_end_ms=now, stats=request.stats
            )
            return replies.Released(*self._pool(now))

    def _lowered(self, record: LeaseRecord, request: protocol.ReleaseRequest, marks_ms: tuple[int, ...]) -> LeaseRecord:
        """Return *record* with those marks lowered to *marks_ms* that are this holder's own ends (R7)."""
        lanes_ms = list(map(max, record.lanes_ms, marks_ms))
        ordinary = self.config.ordinary_lanes
        until_ms, outage_ms, cuts_ms = 0, 0, record.cuts_ms
        if record.until_ms != request.held_until_ms:
            until_ms, lanes_ms[:ordinary] = record.until_ms, record.lanes_ms[:ordinary]
        if self.config.outage_reserve_ms:
            if not record.lanes_ms[-1] < record.outage_ms == request.held_outage_ms:
                outage_ms, lanes_ms[-1] = record.outage_ms, record.lanes_ms[-1]
            elif lanes_ms[-1] < record.outage_ms:
                if len(cuts_ms) == MOST_CUTS:
                    (from_ms, first_ms), (_, second_ms), *rest = cuts_ms
                    cuts_ms = ((from_ms, max(first_ms, second_ms)), *rest)
                cuts_ms = (*cuts_ms, (record.lanes_ms[-1], record.outage_ms))
        return record._replace(lanes_ms=tuple(lanes_ms), until_ms=until_ms, outage_ms=outage_ms, cuts_ms=cuts_ms)

    def create(self, caller_ms: int) -> replies.CreateReply:
        with self._lock:
            now = self._server_time_ms()
            if self._incarnation:
                return replies.Exists(*self._pool(now))
            # as in create.lua; what this object is new for was never lost
            is_certain = self.config.durability == "assured"
            self._raise_floors(0, 0 if is_certain else self._outage_horizon_ms(now), Seen())
            self._note_floor(now)
            return replies.Created(*self._pool(now))

    def close(self) -> None:
        """Do nothing: the pool exists as long as this object."""
