"""A lease as its holder has it: the value, where it is stored, and what the newest reply showed of its pool.

LeaseSlot stores the lease of one generator, in memory and in a crash record, with the token of an open claim. A fork
and a suspension invalidate both, at any moment.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from snowredis.core.layout import Layout
from snowredis.snowflake.context import Context
from snowredis.snowflake.protocol import (
    NO_STATS,
    PoolConfig,
    ReleaseRequest,
    RenewRequest,
    Store,
    WorkerStats,
)
from snowredis.snowflake.replies import Granted, Renewed, Reply, Seen


class Lease(NamedTuple):
    """The right of this process to one worker id.

    Attributes:
        pool, worker: the pool, and the worker id.
        token_hash: identifies the claim without revealing its token; hex.
        until: the first tick that is not reserved.
        until_ms: the same in ms since 1970.
        opens: for each lane (namespace) the first tick that was available when it was claimed.
        incarnation: of the pool, when the lease was last renewed.
        renewals: how often it was renewed.
        outage_until, outage_until_ms: as until, of the outage lane, the last one in ``opens``; 0 if it is not reserved.
    """

    pool: str
    worker: int
    token_hash: str
    until: int
    until_ms: int
    opens: tuple[int, ...]
    incarnation: str
    renewals: int
    outage_until: int = 0
    outage_until_ms: int = 0

    @property
    def lane_until_ms(self) -> int:
        """End of its outage lane, ms since 1970; 0 if it has none, or only after a gap behind its other lanes."""
        return self.outage_until_ms if self.outage_until and self.opens[-1] <= self.until else 0


class HeldLease(NamedTuple):
    """A lease with its secrets and its bookkeeping. Immutable: replaced as a whole.

    Attributes:
        serial: of the claim; counts the claims of this process and of those that it was forked from.
        token: proves to the store that this process is the holder.
        renewal_id: of the last renewal that had a reply, or of the claim.
        pending_renewal_id: of a renewal that was sent and has no reply; empty if there is none.
        lanes_ms: where each lane's reservation begins, ms since 1970.
        generation: of the process that claimed it, by the fork guard: no other may give it back.
        marks: where each lane's mark is recorded before its ids can be taken, in case of a crash; None if nowhere.
        clocks_s: wall clock and monotonic clock at the last reply that granted something.
        taken_ms: when this process took it over from one that had ended, ms since 1970; 0 if it did not.
    """

    serial: int
    token: str
    renewal_id: str
    pending_renewal_id: str
    lanes_ms: tuple[int, ...]
    lease: Lease
    generation: int
    marks: memoryview | None = None
    clocks_s: tuple[float, float] = (0.0, 0.0)
    taken_ms: int = 0

    @classmethod
    def granted(cls, reply: Granted, config: PoolConfig, token: str, serial: int, generation: int) -> HeldLease:
        """Return the lease that *reply* grants to the claim with *token*."""
        layout = config.layout
        # 0 is not a valid id, and without a sequence tick 0 of worker 0 has no other
        lowest = 0 if layout.sequences > 1 else 1
        lease = Lease(
            pool=config.name,
            worker=reply.worker,
            token_hash=hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest(),
            until=layout.first_tick_from(reply.until_ms),
            until_ms=reply.until_ms,
            opens=tuple(max(lowest, layout.first_tick_from(ms)) for ms in reply.lanes_ms),
            incarnation=reply.incarnation,
            renewals=0,
            outage_until=layout.first_tick_from(reply.outage_until_ms) if reply.outage_until_ms else 0,
            outage_until_ms=reply.outage_until_ms,
        )
        return cls(serial, token, reply.renewal_id, "", reply.lanes_ms, lease, generation)

    @classmethod
    def taken_over(cls, credentials: Mapping[str, Any], config: PoolConfig, serial: int, generation: int) -> HeldLease:
        """Return the lease of a dead process, as its crash record says, for the ticks that it did not use.

        Raises ValueError, LookupError, TypeError: the record is damaged.
        """
        lanes_ms = tuple(map(int, credentials["lanes_ms"]))
        state = (0, str(credentials["incarnation"]), 0, 0, None)
        lease = (
            int(credentials["worker"]),
            int(credentials["until_ms"]),
            tuple(map(max, lanes_ms, credentials["marks_ms"])),
            str(credentials["renewal_id"]),
            int(credentials["outage_until_ms"]),
        )
        reply = Granted(*state, *lease)
        held = cls.granted(reply, config, str(credentials["token"]), serial, generation)
        wall_s, steady_s = credentials["clocks_s"]
        return held._replace(
            pending_renewal_id=str(credentials["pending_renewal_id"]),
            lanes_ms=lanes_ms,
            clocks_s=(float(wall_s), float(steady_s)),
        )

    def renewed(self, reply: Renewed, layout: Layout) -> HeldLease:
        """Return this lease after *reply* to its pending renewal; its end never moves back."""
        until_ms = max(reply.until_ms, self.lease.until_ms)
        held = self._with_outage_lane(reply, layout)
        lease = held.lease._replace(
            until=layout.first_tick_from(until_ms),
            until_ms=until_ms,
            incarnation=reply.incarnation,
            renewals=self.lease.renewals + 1,
        )
        return held._replace(renewal_id=self.pending_renewal_id, pending_renewal_id="", lease=lease)

    def _with_outage_lane(self, reply: Renewed, layout: Layout) -> HeldLease:
        """Return this lease with the reservation of its outage lane after *reply*.

        The beginning may be later than before as long as the lane is not reserved.
        """
        if not (reply.outage_from_ms or reply.outage_until_ms):
            return self
        lease = self.lease
        until_ms = max(reply.outage_until_ms, lease.outage_until_ms)
        from_ms = max(self.lanes_ms[-1], reply.outage_from_ms)
        opens = max(lease.opens[-1], layout.first_tick_from(from_ms))
        lease = lease._replace(
            opens=(*lease.opens[:-1], opens),
            outage_until=layout.first_tick_from(until_ms) if until_ms else 0,
            outage_until_ms=until_ms,
        )
        return self._replace(lanes_ms=(*self.lanes_ms[:-1], from_ms), lease=lease)

    def renew_request(self, caller_ms: int, stats: WorkerStats, owner: str) -> RenewRequest:
        """Return the request for the pending renewal, made at *caller_ms* of this host's clock."""
        return RenewRequest(
            *self._credentials,
            caller_ms=caller_ms,
            held_until_ms=self.lease.until_ms,
            held_outage_ms=self.lease.outage_until_ms,
            held_lanes_ms=self.lanes_ms,
            stats=stats,
            owner=owner,
            held_incarnation=self.lease.incarnation,
        )

    def release_request(self, caller_ms: int, marks_ms: tuple[int, ...], stats: WorkerStats) -> ReleaseRequest:
        """Return the request to give it back; *marks_ms*: each lane's first unused ms, 0 for a lane never used."""
        return ReleaseRequest(
            *self._credentials,
            caller_ms=caller_ms,
            held_until_ms=self.lease.until_ms,
            held_outage_ms=self.lease.outage_until_ms,
            marks_ms=marks_ms,
            stats=stats,
        )

    @property
    def _credentials(self) -> tuple[int, str, str, str]:
        """The first fields of both requests: worker id, token, renewal id, pending renewal id."""
        return self.lease.worker, self.token, self.renewal_id, self.pending_renewal_id


class Claimed(NamedTuple):
    """Result of LeaseManager.claim().

    Attributes:
        settling_ms: 0 if a lease is held, else how long the pool asks to wait before the next attempt.
        replaced: the lease that was held before and is to be released; no ids are made of it any more.
        granted: the new lease, if one was granted; *void*: whether no ids may be made of it.
        taken_over: whether the lease of a dead process is held, since Redis did not reply.
    """

    settling_ms: int = 0
    replaced: HeldLease | None = None
    granted: HeldLease | None = None
    void: bool = False
    taken_over: bool = False


class CrashRecorder(Protocol):
    """Records what another process needs to give one generator's lease back if this process is killed.

    No method blocks or raises.
    """

    def write_claim(self, token: str, owner: str) -> None:
        """Record that a claim is under way: its worker id may be leased though no reply came."""

    def write_lease(
        self, held: HeldLease, stats: WorkerStats, *, fresh: bool, marks_ms: Sequence[int] = ()
    ) -> memoryview | None:
        """Record the lease *held*; no lane of a *fresh* one was used yet, beyond *marks_ms*.

        Returns:
            where its marks belong (int64): ms of each lane's first unused tick, 0 for a lane never used. They may
            be stored from anywhere, and only ever grow within a lease. None if nothing could be recorded.
        """

    def write_pending(self, renewal_id: str) -> None:
        """Record the id of a renewal of the recorded lease, before it is sent."""

    def note_release(self, token: str, *, sent: bool) -> None:
        """Record whether a release of the lease with *token* may have been sent: nobody may take it over then."""

    def clear(self) -> None:
        """Record that nothing is held any more."""

    def forget(self) -> None:
        """Never write again, in a forked child, whatever call goes on there."""

    def give_up(self) -> None:
        """Release the memory for another generator. A lease that is still recorded stays so if there is room."""


class LeaseSlot:
    """Stores a lease and a token; a fork or a suspension makes either void.

    A signal handler may fork, or suspend the generator, in the middle of any method of LeaseManager; the rest of the
    method then runs in the child, or after the suspension, with what it had learned before. So every claim takes a
    serial before anything of its request is made, and its lease and its token count only if that serial is not below
    ``oldest``. A fork and a suspension raise ``oldest``: whatever is stored late is void.

    Attributes:
        oldest: the lowest serial that is not void.
        latest: the lease that was stored last and not removed, even if it is void.
        record: where the lease is recorded in case of a crash; None if nowhere.
        lent: true if another program makes the ids of the lease; its outage lane is not used.
    """

    def __init__(self, store: Store, new_record: Callable[[Store], CrashRecorder | None]) -> None:
        self._store, self._open_record = store, new_record
        self._serials = itertools.count(1)
        self.oldest = 0
        self.latest: HeldLease | None = None
        self._kept: HeldLease | None = None
        # the serial and the token of a claim
        self._asked = (0, "")
        self.record: CrashRecorder | None = None
        self.lent = False

    def lend(self) -> None:
        """Let another program make the ids of the lease, in its first lane only.

        Nobody here knows which times that program used. So no lease is recorded: another process would give it back
        with marks that nobody raises.
        """
        self.lent, self._open_record = True, lambda _: None

    def next_serial(self) -> int:
        """Return the serial of a new claim, greater than all before."""
        return next(self._serials)

    @property
    def held(self) -> HeldLease | None:
        """The lease that ids may be made of; None if there is none."""
        latest = self.latest
        return latest if latest is not None and latest.serial >= self.oldest else None

    @property
    def kept(self) -> HeldLease | None:
        """A lease that was lost, whose outage lane ids may still be made of; None if there is none."""
        kept = self._kept
        return kept if kept is not None and kept.serial >= self.oldest else None

    def keep(self, lost: HeldLease) -> None:
        """Keep the outage lane of *lost*, unless it was not open yet and another one is kept."""
        lease, kept = lost.lease, self.kept
        was_open = lease.opens[-1] < lease.until
        if not self.lent and lease.outage_until > lease.opens[-1] and (was_open or kept is None):
            # recorded nowhere: nobody can give it back
            self._kept = lost._replace(marks=None)

    def drop_kept(self) -> None:
        """Keep no outage lane of a lost lease."""
        self._kept = None

    @property
    def token(self) -> str:
        """The token of a claim that has no reply yet, to be sent again; empty if there is none."""
        serial, token = self._asked
        return token if serial >= self.oldest else ""

    def set_token(self, token: str, serial: int | None = None) -> None:
        """Store the *token* of the claim with *serial*; by default one that is not void now."""
        self._asked = (self.oldest if serial is None else serial, token)

    def open_record(self, serial: int) -> CrashRecorder | None:
        """Return where the claim with *serial* is recorded; None if nowhere.

        Called before the token is made: a child that is forked after that has no record of its own in which the
        token, which is its parent's, would be given back when the child is killed.
        """
        record = self.record
        if record is None:
            record = self._new_record()
            # not that of a parent, in a child that was forked meanwhile
            if serial >= self.oldest:
                self.record = record
        return record

    def record_claim(self, record: CrashRecorder | None, token: str, owner: str) -> None:
        """Record that a claim is under way: a process killed before its reply comes may have a worker id."""
        # the record of a lease that is to be replaced stays
        if record is not None and self.latest is None:
            record.write_claim(token, owner)

    def hold(self, held: HeldLease, stats: WorkerStats | None, *, fresh: bool = False) -> bool:
        """Record *held*, then make it the lease that ids may be made of; return False if it is void.

        A lease that is not *fresh* is recorded only if it was when it was fresh: else its use since is unknown. Without
        *stats* only its pending renewal is new.
        """
        record = self.record
        # after the record was read: a child that was forked before has another one, and this lease is void there
        if held.serial < self.oldest:
            return False
        if record is not None and (fresh or held.marks is not None):
            if stats is None:
                record.write_pending(held.pending_renewal_id)
            else:
                marks = record.write_lease(held, stats, fresh=fresh)
                if fresh:
                    held = held._replace(marks=marks)
        if held.serial < self.oldest:
            return False
        self.latest = held
        return True

    def remove(self, held: HeldLease) -> None:
        """Remove *held*, unless the lease of another claim was stored since."""
        latest = self.latest
        if latest is not None and latest.serial == held.serial:
            self.latest = None

    def record_taken(self, taken: HeldLease, marks_ms: Sequence[int]) -> HeldLease:
        """Record the lease of a dead process as one of this process; return it with where its marks belong."""
        record = self.open_record(taken.serial)
        if record is None:
            return taken
        return taken._replace(marks=record.write_lease(taken, NO_STATS, fresh=True, marks_ms=marks_ms))

    def note_release(self, held: HeldLease, *, sent: bool) -> None:
        """Record whether a release of *held* may have been sent."""
        record = self.record
        if record is not None:
            record.note_release(held.token, sent=sent)

    def clear_record(self) -> None:
        """Record that nothing is held, unless a lease is stored here."""
        record = self.record
        if record is not None and self.latest is None:
            record.clear()

    def make_void(self) -> None:
        """Invalidate the lease, and any claim under way."""
        self.oldest = self.next_serial()
        self.set_token("")

    def after_fork(self) -> None:
        """Forget the parent's lease, in a forked child."""
        # first: whatever a call that goes on here stores from now on is void
        self.make_void()
        record, self.record = self.record, None
        if record is not None:
            record.forget()
        self.latest = self._kept = None

    def close(self) -> None:
        """Release the crash record's memory; a lease that is still recorded stays so as long as there is room."""
        record, self.record = self.record, None
        if record is not None:
            record.give_up()

    def _new_record(self) -> CrashRecorder | None:
        return self._open_record(self._store)


log = logging.getLogger("snowredis")


class PoolView:
    """The newest reply of one generator's pool.

    Attributes:
        seen: the state of the pool, which every request carries (R10, versions).
        floor_ms: the pool's floor, ms since 1970.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.seen = Seen()
        self.floor_ms = 0
        # the Redis clock, ms since 1970, minus our monotonic clock; None before the first reply
        self._redis_lead_ms: float | None = None

    def learn(self, reply: Reply, sent_s: float) -> None:
        """Store what *reply* shows, to a request that was sent at *sent_s* of the monotonic clock."""
        self.seen, self.floor_ms = reply.seen, reply.floor_ms
        # the Redis clock was read during the round trip. A slow reply says little, so it only bounds what is known
        least_ms = reply.redis_ms - self._context.clock.monotonic() * 1000
        most_ms = reply.redis_ms - sent_s * 1000
        known_ms = (least_ms + most_ms) / 2 if self._redis_lead_ms is None else self._redis_lead_ms
        self._redis_lead_ms = min(max(known_ms, least_ms), most_ms)
        if reply.alarm:
            log.critical("pool %s: ALARM: %s (ms since 1970)", self._context.config.name, reply.alarm.text)

    @property
    def offset_ms(self) -> int:
        """Return the lead of this host's clock over the Redis clock now, in ms; meaningless before the first reply."""
        return self._context.now_ms() - round(self._context.clock.monotonic() * 1000 + (self._redis_lead_ms or 0.0))
