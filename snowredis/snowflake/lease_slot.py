"""Where the lease of one generator is stored: in memory, and in a crash record, with the token of a claim under way.

A fork and a suspension invalidate both, at any moment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

from snowredis.snowflake.lease import HeldLease
from snowredis.snowflake.protocol import NO_STATS, Store, WorkerStats


class CrashRecorder(Protocol):
    """Records what another process needs to give one generator's lease back if this process is killed.

    No method blocks or raises.
    """

    def write_claim(self, token: str, owner: str) -> None:
        """Record that a claim is under way: its worker id may be leased though no reply came."""

    def write_lease(self, held: HeldLease, stats: WorkerStats, *, fresh: bool) -> memoryview | None:
        """Record the lease *held*; no lane of a *fresh* one was used yet, beyond its ``marks_before_ms``.

        Returns:
            where its marks belong (int64): ms of each lane's first unused tick, 0 for a lane never used. They may
            be stored from anywhere, and only ever grow within a lease. None if nothing could be recorded.
        """

    def write_pending(self, renewal_id: str) -> None:
        """Record the id of a renewal of the recorded lease, before it is sent."""

    def note_release(self, token: str | None, *, sent: bool) -> None:
        """Record whether a release may have been sent, of the lease with *token*, or any: nobody may take it over."""

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

    def detach(self) -> HeldLease | None:
        """Remove the lease, and return it; None if there is none."""
        held = self.latest
        if self.latest is held:
            self.latest = None
        return held

    def record_taken(self, record: CrashRecorder | None, taken: HeldLease) -> HeldLease:
        """Record the lease of a dead process as one of this process; return it with where its marks belong."""
        if record is None:
            return taken
        return taken._replace(marks=record.write_lease(taken, NO_STATS, fresh=True))

    def note_release(self, held: HeldLease | None, *, sent: bool) -> None:
        """Record whether a release of *held*, or of what is recorded, may have been sent."""
        record = self.record
        if record is not None:
            record.note_release(held and held.token, sent=sent)

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
