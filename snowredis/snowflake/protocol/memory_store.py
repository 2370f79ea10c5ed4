"""A pool in this process' memory, for tests of applications: the protocol of the Lua scripts in Python.

Follows the scripts step by step; the tests of their contract hold for both. It loses nothing, and so has no steps 3 and
4 (lose, adopt), and no floors: each pool is new. There is no server to identify, and its clock does not go back. No
process dies while the pool lives, and it does not end. Nobody looks at it, so it keeps no events and no figures.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from snowredis.snowflake.protocol import messages, pool_config
from snowredis.snowflake.protocol.messages import LossReason, Seen, hash_of
from snowredis.snowflake.protocol.record import LeaseRecord

# hex digits of the first renewal id of a lease, as in claim.lua; those of renewals are longer
FIRST_DIGITS = 12


def is_held(record: LeaseRecord, token: str, terms: messages.Terms, pending: str) -> bool:
    """Return whether a lease is the one in *record*, with its newest renewal id or one that is pending."""
    return record.renewal_id in (terms.renewal_id, pending) and record.token_hash == hash_of(token)


class MemoryStore:
    """A Store in memory: one pool, shared by all generators that use this object. Thread-safe.

    Args:
        config: of the pool.
        server_time_ms: returns the time of the Redis clock, ms since 1970.
    """

    where = "memory"
    locator = ""

    def __init__(self, config: pool_config.PoolConfig, server_time_ms: Callable[[], int]) -> None:
        self.config = config
        self._server_time_ms = server_time_ms
        self._lock = threading.RLock()
        self._records: dict[int, LeaseRecord] = {}
        self._incarnation, self._version = f"{server_time_ms()}-{1:09x}", 0

    def prepare(self) -> None:
        """Learn what a claim needs: nothing."""

    def after_fork(self) -> None:
        """Replace the lock: the thread that holds it may not exist here. The copied memory is a pool of its own."""
        self._lock = threading.RLock()

    def close(self) -> None:
        """Do nothing: the pool exists as long as this object."""

    # --- pool ------------------------------------------------------------------------------------------

    def ask(self, request: messages.Request) -> Any:
        with self._lock:
            match request:
                case messages.ClaimRequest():
                    return self._claim(request)
                case messages.RenewRequest():
                    return self._renew(request)
                case messages.ReleaseRequest():
                    return self._release(request)
            return messages.Exists(*self._pool(self._server_time_ms()))

    def _read_clocks(self, caller_ms: int) -> tuple[int, int]:
        """Return the Redis time, and the caller's time after the cap."""
        now = self._server_time_ms()
        return now, min(caller_ms, now + self.config.max_clock_lead_ms)

    def _pool(self, now: int) -> tuple[int, Seen, int, None]:
        """Return the fields that all replies have, for a call that is about to return."""
        self._version += 1
        return now, Seen(self._incarnation, self._version), 0, None

    def _extend(self, worker: int, record: LeaseRecord, now: int, capped: int, *, has_lane: bool) -> LeaseRecord:
        """Store *record* with its lease and its reservations extended, and return it."""
        ttl_ms, reserve_ms = self.config.ttl_ms, self.config.outage_reserve_ms
        if reserve_ms and has_lane and capped + reserve_ms > record.lanes_ms[-1]:
            record = record._replace(outage_ms=max(record.outage_ms, capped + reserve_ms))
        self._records[worker] = record = record._replace(
            until_ms=max(record.until_ms, capped + ttl_ms), lease_end_ms=max(record.lease_end_ms, now + ttl_ms)
        )
        return record

    # --- claim, renew, release ---------------------------------------------------------------------------

    def _claim(self, request: messages.ClaimRequest) -> messages.Reply:
        now, capped = self._read_clocks(request.caller_ms)
        token_hash, first_renewal_id = hash_of(request.token), f"{self._version:0{FIRST_DIGITS}x}"
        for worker, record in self._records.items():
            is_claimed = record.token_hash == token_hash and record.owner == request.owner
            is_claimed = is_claimed and record.lease_end_ms > now
            if is_claimed and len(record.renewal_id) == FIRST_DIGITS:
                # the same claim again
                again = record._replace(renewal_id=first_renewal_id)
                return self._granted(worker, again, now, capped, request)
        layout, config, options = self.config.layout, self.config, request.options
        usable_from_ms = max(0, min(layout.ms_at(layout.tick_at(request.caller_ms)), capped))
        wait_ms = 0 if messages.NOW in options else config.floor_ms + config.horizon_ms(0) + layout.tick_ms
        chosen = self._choose(now, usable_from_ms, wait_ms, options)
        if isinstance(chosen, messages.ClaimRefused):
            return chosen
        before = self._records.get(chosen, LeaseRecord(lanes_ms=(0,) * self.config.layout.namespaces))
        lanes_ms = self._marks_ms(before)
        if self.config.outage_reserve_ms:
            lanes_ms[-1] = before.outage_mark_ms
        record = LeaseRecord(
            token_hash=token_hash,
            incarnation=self._incarnation,
            renewal_id=first_renewal_id,
            lanes_ms=tuple(lanes_ms),
            before=before.token_hash,
            owner=request.owner,
        )
        return self._granted(chosen, record, now, capped, request)

    def _granted(
        self, worker: int, record: LeaseRecord, now: int, capped: int, request: messages.ClaimRequest
    ) -> messages.Granted:
        has_lane = messages.WANTS_LANE in request.options
        record = self._extend(worker, record, now, capped, has_lane=has_lane)
        return messages.Granted(*self._pool(now), self._terms(worker, record, has_lane=has_lane))

    def _terms(self, worker: int, record: LeaseRecord, *, has_lane: bool) -> messages.Terms:
        outage_ms = record.outage_ms if has_lane else None
        until_ms, incarnation, lanes_ms = record.until_ms, record.incarnation, record.lanes_ms
        return messages.Terms(worker, until_ms, outage_ms, incarnation, record.renewal_id, lanes_ms)

    def _marks_ms(self, record: LeaseRecord) -> list[int]:
        """Return where a new reservation of each lane would begin; the outage lane counts as an ordinary one."""
        return [max(lane, record.until_ms) for lane in record.lanes_ms]

    def _lane_rank(self, record: LeaseRecord, usable_from_ms: int, wants_lane: bool) -> int:
        is_open = record.outage_mark_ms <= usable_from_ms
        return 1 if not self.config.outage_reserve_ms or is_open == wants_lane else 2

    def _rank(self, record: LeaseRecord, usable_from_ms: int, wants_lane: bool) -> tuple[int, int]:
        """Return how well a worker id fits, as rank_of() of claim.lua: 1 is best. For 4, also its lowest mark."""
        marks_ms = self._marks_ms(record)[: self.config.ordinary_lanes]
        if marks_ms[0] <= usable_from_ms:
            return self._lane_rank(record, usable_from_ms, wants_lane), 0
        return (3, 0) if min(marks_ms) <= usable_from_ms else (4, min(marks_ms))

    def _choose(self, now: int, usable_from_ms: int, wait_ms: int, options: str) -> int | messages.ClaimRefused:
        """Choose the worker id that fits best, and of these was available the longest; or return why there is none."""
        wants_lane, records = messages.WANTS_LANE in options, self._records
        free = ((worker, record) for worker, record in records.items() if record.lease_end_ms <= now)
        ranked = ((*self._rank(r, usable_from_ms, wants_lane), r.lease_end_ms, worker) for worker, r in free)
        rank, mark_ms, _, best = min(ranked, default=(5, 0, 0, -1))
        unused = next(worker for worker in itertools.count() if worker not in records)
        if rank > self._lane_rank(LeaseRecord(), usable_from_ms, wants_lane) and unused < self.config.layout.workers:
            return unused
        if rank == 4 and mark_ms - usable_from_ms > wait_ms:
            return messages.Behind(*self._pool(now), mark_ms - usable_from_ms)
        if rank < 5:
            return best
        first_ms = min(record.lease_end_ms for record in records.values())
        return messages.PoolFull(*self._pool(now), max(0, first_ms - now))

    def _renew(self, request: messages.RenewRequest) -> messages.Reply:
        now, capped = self._read_clocks(request.caller_ms)
        terms, worker, token_hash = request.lease, request.lease.worker, hash_of(request.token)
        record, has_lane = self._records.get(worker, LeaseRecord()), terms.outage_until_ms is not None
        if not is_held(record, request.token, terms, request.pending):
            is_copied = record.token_hash == token_hash
            reason = LossReason.COPIED if is_copied else LossReason.REASSIGNED
            is_later = max(record.until_ms, record.lanes_ms[0]) > terms.lanes_ms[0]
            # no copy of the caller may have given its outage lane back
            keeps = not is_copied and (not is_later or record.before == token_hash)
            return messages.Lost(*self._pool(now), reason, keeps)
        renewed = record._replace(renewal_id=request.pending)
        renewed = self._extend(worker, renewed, now, capped, has_lane=has_lane)
        return messages.Renewed(*self._pool(now), self._terms(worker, renewed, has_lane=has_lane), False)

    def _release(self, request: messages.ReleaseRequest) -> messages.Reply:
        now, _ = self._read_clocks(request.caller_ms)
        worker, record = request.lease.worker, self._records.get(request.lease.worker)
        if record is None or not is_held(record, request.token, request.lease, request.pending):
            return messages.Gone(*self._pool(now))
        self._records[worker] = LeaseRecord(
            incarnation=record.incarnation,
            lease_end_ms=now,
            lanes_ms=self._marks_after(record, request),
            before=record.before,
        )
        return messages.Released(*self._pool(now))

    def _marks_after(self, record: LeaseRecord, request: messages.ReleaseRequest) -> tuple[int, ...]:
        """Return the marks of the lanes after the release: a lane that was never opened goes back whole."""
        terms, marks_ms = request.lease, list(record.lanes_ms)
        is_sure = record.renewal_id == terms.renewal_id
        is_known = len(request.opened) == len(marks_ms)
        for lane, opened in enumerate(request.opened if is_known else "1" * len(marks_ms)):
            is_outage = lane >= self.config.ordinary_lanes
            end_ms, held_ms = record.until_ms, terms.until_ms
            if is_outage:
                end_ms, held_ms = record.outage_ms, terms.outage_until_ms or 0
            if not (lane and is_sure and opened == "0" and end_ms == held_ms):
                marks_ms[lane] = max(marks_ms[lane], end_ms)
        return tuple(marks_ms)
