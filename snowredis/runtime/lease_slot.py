"""Storage of one generator's current lease, in memory and in a crash record, and of the token of an open claim."""

from __future__ import annotations

import itertools

from snowredis.lease.model import Store
from snowredis.lease.stats import WorkerStats
from snowredis.runtime.lease import HeldLease
from snowredis.runtime.process import THIS, CrashRecorder


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
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._serials = itertools.count(1)
        self.oldest = 0
        self.latest: HeldLease | None = None
        # the serial and the token of a claim
        self._asked = (0, "")
        self.record: CrashRecorder | None = None

    def next_serial(self) -> int:
        """Return the serial of a new claim, greater than all before."""
        return next(self._serials)

    @property
    def held(self) -> HeldLease | None:
        """The lease that ids may be made of; None if there is none."""
        latest = self.latest
        return latest if latest is not None and latest.serial >= self.oldest else None

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

    def hold(self, held: HeldLease, stats: WorkerStats, *, fresh: bool = False) -> bool:
        """Record *held*, then make it the lease that ids may be made of; return False if it is void.

        A lease that is not *fresh* is recorded only if it was when it was fresh, else nobody recorded what was used
        since.
        """
        record = self.record
        # after the record was read: a child that was forked before has another one, and this lease is void there
        if held.serial < self.oldest:
            return False
        if record is not None and (fresh or held.marks is not None):
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

    def clear_record(self) -> None:
        """Record that nothing is held, unless a lease is stored here."""
        record = self.record
        if record is not None and self.latest is None:
            record.clear()

    def make_void(self) -> None:
        """Make void whatever was claimed or requested, also a claim whose reply is still to come."""
        self.oldest = self.next_serial()
        self.set_token("")

    def after_fork(self) -> None:
        """Forget the parent's lease, in a forked child."""
        # first: whatever a call that goes on here stores from now on is void
        self.make_void()
        record, self.record = self.record, None
        if record is not None:
            record.forget()
        self.latest = None

    def close(self) -> None:
        """Release the crash record's memory; a lease that is still recorded stays so as long as there is room."""
        record, self.record = self.record, None
        if record is not None:
            record.give_up()

    def _new_record(self) -> CrashRecorder | None:
        return None if THIS.crash_records is None else THIS.crash_records.new_record(self._store)
