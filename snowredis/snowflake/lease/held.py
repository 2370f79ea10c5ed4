"""A lease as its holder has it: values that are replaced as a whole; and the slot where a generator stores them."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from snowredis.core.layout import Layout
from snowredis.snowflake.crash.files import RECORDS
from snowredis.snowflake.crash.record import NO_RECORD, CrashRecord, Credentials
from snowredis.snowflake.protocol.messages import Store, Terms, WorkerStats, hash_of
from snowredis.snowflake.protocol.pool_config import PoolConfig


class OwnLease(NamedTuple):
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


class HeldLease(NamedTuple):
    """A lease with its secrets and its bookkeeping. Immutable: replaced as a whole.

    Attributes:
        serial: of the claim; counts the claims of this process and of those that it was forked from.
        token: proves to the store that this process is the holder.
        terms: as Redis granted or renewed it last.
        pending_renewal_id: of a renewal that was sent and has no reply; empty if there is none.
        generation: of the process that claimed it, by the fork guard: no other may release it.
        is_recorded: whether a crash record has it.
        clocks_s: wall clock and monotonic clock at the last reply that granted something.
        taken_ms: when this process took it over from one that had ended, ms since 1970; 0 if it did not.
        outage_used_ms: that one may have used the outage lane before this time, and not from it on; 0: it did not.
    """

    serial: int
    token: str
    terms: Terms
    pending_renewal_id: str
    lease: OwnLease
    generation: int
    is_recorded: bool = False
    clocks_s: tuple[float, float] = (0.0, 0.0)
    taken_ms: int = 0
    outage_used_ms: int = 0

    @classmethod
    def granted(cls, terms: Terms, config: PoolConfig, token: str, serial: int, generation: int) -> HeldLease:
        """Return the lease with these *terms* that was granted to the claim with *token*."""
        layout = config.layout
        # 0 is not a valid id, and without a sequence tick 0 of worker 0 has no other
        lowest = 0 if layout.sequences > 1 else 1
        opens = tuple(max(lowest, layout.first_tick_from(ms)) for ms in terms.lanes_ms)
        lease = OwnLease(config.name, terms.worker, hash_of(token), 0, 0, opens, "", -1)
        return cls(serial, token, terms, "", lease, generation).renewed(terms, layout)

    def renewed(self, terms: Terms, layout: Layout) -> HeldLease:
        """Return this lease after a reply to its pending renewal.

        The beginning of its outage lane may be later than before as long as that lane is not reserved.
        """
        opens, outage_until_ms = self.lease.opens, terms.outage_until_ms or 0
        lease = self.lease._replace(
            until=layout.first_tick_from(terms.until_ms),
            until_ms=terms.until_ms,
            opens=(*opens[:-1], max(opens[-1], layout.first_tick_from(terms.lanes_ms[-1]))),
            incarnation=terms.incarnation,
            renewals=self.lease.renewals + 1,
            outage_until=layout.first_tick_from(outage_until_ms) if outage_until_ms else 0,
            outage_until_ms=outage_until_ms,
        )
        return self._replace(terms=terms, pending_renewal_id="", lease=lease)

    @property
    def outage_lane_ms(self) -> tuple[int, int]:
        """Beginning and end of the reservation in its outage lane; the end is 0 if it has none."""
        return self.terms.lanes_ms[-1], self.lease.outage_until_ms

    def credentials(self, stats: WorkerStats) -> Credentials:
        """Return what a crash record says of this lease."""
        return Credentials(self.token, self.terms, self.pending_renewal_id, clocks_s=self.clocks_s, stats=stats)

    @classmethod
    def taken_over(cls, found: Credentials, config: PoolConfig, serial: int, generation: int) -> HeldLease:
        """Return the lease in a crash record for a process that takes it over.

        That process has the rest of the outage lane. The other lanes open only where what the process before had ends:
        nothing says how far it used them.
        """
        held = cls.granted(found.terms, config, found.token, serial, generation)
        lease, ordinary = held.lease, config.ordinary_lanes
        opens = (*[lease.until] * ordinary, *lease.opens[ordinary:])
        return held._replace(
            pending_renewal_id=found.pending_renewal_id,
            lease=lease._replace(opens=opens),
            clocks_s=found.clocks_s,
            outage_used_ms=found.outage_used_ms,
        )


class Claimed(NamedTuple):
    """Result of a claim.

    Attributes:
        settling_ms: 0 if a lease is held, else how long the pool asks to wait before the next attempt.
        replaced: the lease that was held before and is to be released; no ids are made of it any more.
        granted: the new lease, if one was granted; *void*: whether no ids may be made of it.
    """

    settling_ms: int = 0
    replaced: HeldLease | None = None
    granted: HeldLease | None = None
    void: bool = False


class LeaseSlot:
    """Stores a lease and a token; a fork or a suspension makes either void.

    A signal handler may fork, or suspend the generator, in the middle of any method of LeaseManager; the rest of the
    method then runs in the child, or after the suspension, with what it had learned before. So every claim takes a
    serial before anything of its request is made, and its lease and its token count only if that serial is not below
    ``oldest``. A fork and a suspension raise ``oldest``: whatever is stored late is void.

    Attributes:
        oldest: the lowest serial that is not void.
        latest: the lease that was stored last and not removed, even if it is void.
        record: where the lease is recorded in case of a crash.
        lent: true if another program makes the ids of the lease, in its first lane only: no outage lane is claimed.
            Nobody here knows which times that program used. So no lease is recorded: that program may go on when this
            process was killed, and the worker id must not be released before the lease ends.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._serials = itertools.count(1)
        self.oldest = 0
        self.latest: HeldLease | None = None
        self._lost_lease: HeldLease | None = None
        # the serial, the token and the owner of a claim
        self._asked = (0, "", "")
        self.record = NO_RECORD
        self.lent = False

    def next_serial(self) -> int:
        """Return the serial of a new claim, greater than all before."""
        return next(self._serials)

    @property
    def held(self) -> HeldLease | None:
        """The lease that ids may be made of; None if there is none."""
        latest = self.latest
        return latest if latest is not None and latest.serial >= self.oldest else None

    @property
    def lost_lease(self) -> HeldLease | None:
        """A lease that was lost, whose outage lane ids may still be made of; None if there is none."""
        lost = self._lost_lease
        return lost if lost is not None and lost.serial >= self.oldest else None

    @property
    def outage_lanes_ms(self) -> list[tuple[int, int]]:
        """The outage lanes of the lease, and of one that was lost, as in lane_until_ms().

        They stay closed if the clock of this host was set.
        """
        return [each.outage_lane_ms for each in (self.held, self.lost_lease) if each]

    def keep_lane(self, lost: HeldLease) -> None:
        """Keep the outage lane of *lost*, unless it was not open yet and there is another lost lease."""
        lease, other = lost.lease, self.lost_lease
        was_open = lease.opens[-1] < lease.until
        if lease.outage_until > lease.opens[-1] and (was_open or other is None):
            # recorded nowhere: nobody can take it over
            self._lost_lease = lost._replace(is_recorded=False)

    def drop_lost_lease(self) -> None:
        """Keep no outage lane of a lost lease."""
        self._lost_lease = None

    @property
    def asked(self) -> tuple[str, str]:
        """The token and the owner of a claim that has no reply yet, to be sent again; empty if there is none."""
        serial, token, owner = self._asked
        return (token, owner) if serial >= self.oldest else ("", "")

    def set_asked(self, token: str, owner: str, serial: int | None = None) -> None:
        """Store the *token* and *owner* of the claim with *serial*; by default one that is not void now."""
        self._asked = (self.oldest if serial is None else serial, token, owner)

    def open_record(self, serial: int) -> CrashRecord:
        """Return where the claim with *serial* is recorded.

        Called before the token is made: a child that is forked after that has no record of its own in which the
        token, which is its parent's, would be released when the child is killed.
        """
        record = self.record
        if record is NO_RECORD:
            record = self._new_record()
            # a child that was forked meanwhile does not get the record of its parent
            if serial >= self.oldest:
                self.record = record
        return record

    def record_claim(self, record: CrashRecord, token: str, owner: str) -> None:
        """Record that a claim is under way: a process killed before its reply comes may have a worker id."""
        # the record of a lease that is to be replaced stays
        if self.latest is None:
            record.write(Credentials(token, owner=owner))

    def hold(self, held: HeldLease, stats: WorkerStats, *, fresh: bool = False) -> bool:
        """Record *held*, then make it the lease that ids may be made of; return False if it is void.

        A lease that is not *fresh* is recorded only if it was when it was fresh: else the use of its outage lane since
        then is unknown.
        """
        record = self.record
        # checked after the record was read: a child that was forked before has another record, and a void lease
        if held.serial < self.oldest:
            return False
        if fresh or held.is_recorded:
            held = held._replace(is_recorded=record.write(held.credentials(stats)))
        if held.serial < self.oldest:
            return False
        self.latest = held
        return True

    def remove(self, held: HeldLease) -> None:
        """Remove *held*, unless the lease of another claim was stored since."""
        latest = self.latest
        if latest is not None and latest.serial == held.serial:
            self.latest = None

    def detach(self) -> HeldLease | None:
        """Remove the lease, and return it; None if there is none."""
        held = self.latest
        if self.latest is held:
            self.latest = None
        return held

    def clear_record(self) -> None:
        """Record that nothing is held, unless a lease is stored here."""
        record = self.record
        if self.latest is None:
            record.clear()

    def make_void(self) -> None:
        """Invalidate the lease, and any claim under way."""
        self.oldest = self.next_serial()
        self.set_asked("", "")

    def after_fork(self) -> None:
        """Forget the parent's lease, in a forked child."""
        record, latest = self.record, self.latest
        # this comes before the rest: whatever a call that goes on here stores from now on is void
        self.make_void()
        # a lease that a signal handler has claimed here meanwhile stays
        if self.record is record:
            self.record = NO_RECORD
        record.forget()
        if self.latest is latest:
            self.latest = None
        self._lost_lease = None

    def close(self) -> None:
        """Release the crash record's memory; a lease that is still recorded stays so as long as there is room."""
        record, self.record = self.record, NO_RECORD
        record.give_up()

    def _new_record(self) -> CrashRecord:
        return NO_RECORD if self.lent else RECORDS.new_record(self._store)
