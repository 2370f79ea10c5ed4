"""Store the lease of one generator: in memory (LeaseSlot), and in a crash record, which other processes can read.

A process that was killed cannot release its lease, and no other process knows what it used: its worker id would be
unavailable until the end of the reservation. So a process records in a file in memory (record_files.py) the
credentials of each lease, and before the ids of a tick are published, how far that lane is used. The kernel keeps the
file when the process ends. The record also says how the process ended, as far as a process can tell: that is what tells
a death (kill -9, a crash) from an end that somebody chose (process/exit.py, End).

The process writes in such an order that what can be read is valid and on the safe side, whatever the process was doing
when it ended. Other processes read only after that, and release the lease (sweep.py).

Credentials are a dict: ``worker``, ``token``, ``stats``, ``lanes`` (how many), of a lease also ``renewal_id``,
``pending_renewal_id``, ``until_ms``, ``outage_until_ms`` and what another process needs to take it over (``lanes_ms``,
``incarnation``, ``clocks_s``; ``released`` once a release may have been sent), of a claim ``owner``. Read from a
record, they also have ``marks_ms`` and ``end``, and what record_files.py writes into each: ``lanes``, ``inode`` and
``server``.
"""

from __future__ import annotations

import binascii
import contextlib
import itertools
import json
import logging
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from snowredis.process.clock import now_ms
from snowredis.process.exit import End
from snowredis.process.fork import GUARD
from snowredis.snowflake.lease import HeldLease
from snowredis.snowflake.protocol import NO_STATS, ClaimRequest, PresentedLease, ReleaseRequest, Store, WorkerStats
from snowredis.snowflake.replies import Granted, Released, Seen

log = logging.getLogger("snowredis")

# the worker id of a claim that has no reply yet
UNKNOWN_WORKER = -1


def claim_credentials(token: str, owner: str) -> dict[str, Any]:
    """Return the part for a claim that is under way."""
    return {"worker": UNKNOWN_WORKER, "token": token, "owner": owner, "stats": ""}


def lease_credentials(held: HeldLease, stats: WorkerStats) -> dict[str, Any]:
    """Return the part for a lease."""
    return {
        "worker": held.lease.worker,
        "token": held.token,
        "renewal_id": held.renewal_id,
        "pending_renewal_id": held.pending_renewal_id,
        "until_ms": held.lease.until_ms,
        "outage_until_ms": held.lease.outage_until_ms,
        "lanes_ms": held.lanes_ms,
        "incarnation": held.lease.incarnation,
        "clocks_s": held.clocks_s,
        "stats": stats.to_text(),
    }


def release_dead(store: Store, credentials: dict[str, Any]) -> int | None:
    """Release the lease of a process that has ended, in one attempt.

    Blocks:
        for one round trip to Redis, two for a claim without a reply.

    Returns:
        the worker id, or None if it was not leased any more.

    Raises:
        StoreUnavailable: Redis did not reply; call again.
    """
    began_ms = now_ms()
    renewal_id, pending = credentials.get("renewal_id", ""), credentials.get("pending_renewal_id", "")
    until_ms, outage_until_ms = credentials.get("until_ms", 0), credentials.get("outage_until_ms", 0)
    lease = PresentedLease(credentials["worker"], credentials["token"], renewal_id, pending, until_ms, outage_until_ms)
    if lease.worker == UNKNOWN_WORKER:
        # ended before the reply came: the same claim again has the same result
        claim = ClaimRequest(lease.token, began_ms, began_ms, 0, credentials["owner"])
        reply = store.claim(claim, Seen())
        if not isinstance(reply, Granted):
            return None
        until_ms, outage_until_ms = reply.until_ms, reply.outage_until_ms
        lease = PresentedLease(reply.worker, lease.token, reply.renewal_id, "", until_ms, outage_until_ms)
    request = ReleaseRequest(
        lease,
        began_ms,
        tuple(credentials["marks_ms"]),
        WorkerStats.from_text(credentials["stats"]),
        # a claim without a reply made no ids, so nothing died
        reclaimed=credentials["worker"] != UNKNOWN_WORKER and credentials["end"] == End.KILLED,
    )
    return lease.worker if isinstance(store.release(request, Seen()), Released) else None


# 6 backup bits are the most that a layout has
LANES = 64
RENEWAL_ID_BYTES = 32
# a pending renewal id as json.dumps() shows it
_PENDING = b'"pending_renewal_id": "%s"'
_NO_PENDING = _PENDING % b""
# one record: a header, the end of the process, two texts and two rows of marks, of which one each counts
HEADER_BYTES = 16
MARKS_BYTES = LANES * 8
# two pages in all
TEXT_BYTES = 3576
RECORD_BYTES = HEADER_BYTES + 2 * TEXT_BYTES + 2 * MARKS_BYTES


class PageFile(Protocol):
    """File of a crash record."""

    @property
    def is_writer(self) -> bool:
        """Return whether this process may write to the page: false in a child of the process that got it."""

    def touch(self) -> None:
        """Show that the page is still in use; called at each claim and heartbeat."""

    def close(self, *, records_lease: bool) -> None:
        """Remove the file: its generator makes no more ids.

        Args:
            records_lease: a lease could not be released, or a claim has no reply. The file is kept for the processes
                that release the lease after the end of this process, unless room is needed.
        """


def read_page(page: bytes) -> dict[str, Any] | None:
    """Return the credentials in a copy of a dead process' record; None if it held nothing.

    Raises ValueError, LookupError, TypeError: the copy is damaged.
    """
    return CrashRecord(None, memoryview(bytearray(page))).read()


class CrashRecord:
    """Record of what another process needs to release one generator's lease if this process is killed.

    One writer at a time: the thread that talks to the store. No method blocks or raises. A process that this one forks
    shares the page, too, and may be in the middle of any of these methods. It calls forget(), after which a write
    raises an error, so that a child writes nothing.

    Args:
        file: the page belongs to it; None: nothing is written.
        page: RECORD_BYTES of memory.
        common: what all credentials that are written here contain.
    """

    __slots__ = ("_common", "_header", "_file", "_page", "_row", "_rows", "_texts", "_side")

    def __init__(self, file: PageFile | None, page: memoryview, common: dict[str, Any] | None = None) -> None:
        self._page, self._common = page, common or {}
        self._header = page[:HEADER_BYTES].cast("Q")
        self._texts = [page[HEADER_BYTES + i * TEXT_BYTES :][:TEXT_BYTES] for i in (0, 1)]
        marks = page[HEADER_BYTES + 2 * TEXT_BYTES :].cast("q")
        self._rows = [marks[i * LANES :][:LANES] for i in (0, 1)]
        self._side = self._row = 0
        # set last: a record that an interruption left half made gives nothing up
        self._file = file

    def write_claim(self, token: str, owner: str) -> None:
        """Record that a claim is under way: its worker id may be leased though no reply came."""
        self._write(claim_credentials(token, owner), fresh=True)

    def write_lease(self, held: HeldLease, stats: WorkerStats, *, fresh: bool) -> memoryview | None:
        """Record the lease *held*; no lane of a *fresh* one was used yet, beyond its ``marks_before_ms``.

        Returns:
            where its marks belong (int64): ms of each lane's first unused tick, 0 for a lane never used. They may
            be stored from anywhere, and only ever grow within a lease. None if nothing could be recorded.
        """
        return self._write(lease_credentials(held, stats), fresh=fresh, marks_ms=held.marks_before_ms)

    def note_release(self, token: str | None, *, sent: bool) -> None:
        """Record whether a release may have been sent, of the lease with *token*, or any: nobody may take it over."""
        with contextlib.suppress(ValueError, LookupError):
            if (written := self.read()) and token in (None, written["token"]):
                own = {name: value for name, value in written.items() if name not in ("marks_ms", "end")}
                self._write(own | {"released": sent}, fresh=False)

    def _write(self, own: dict[str, Any], *, fresh: bool, marks_ms: Sequence[int] = ()) -> memoryview | None:
        file = self._file
        if file is None or not file.is_writer:
            # given up; or forked while this record was being made, so forget() was not called
            return None
        # a fresh lease never gets the row of the lease that is recorded now
        row = self._row ^ fresh
        text = json.dumps(self._common | own | {"row": row}).encode()
        # a pending renewal may follow
        if len(text) > TEXT_BYTES - RENEWAL_ID_BYTES:
            log.debug(
                "a crash record of %d bytes is too long; the lease ends by its ttl if this process is killed",
                len(text),
            )
            self.clear()
            return None
        try:
            if fresh:
                marks = memoryview(array("q", (*marks_ms, *[0] * (LANES - len(marks_ms)))))
                # checked directly before each store: a fork that bypasses Python calls no forget()
                if GUARD.is_reset:
                    self._rows[row][:] = marks
            self._publish(text)
            self._row = row
            file.touch()
            return self._rows[row]
        except (ValueError, IndexError):
            # forget() was called: this is a forked child
            return None

    def _publish(self, text: bytes) -> None:
        side = self._side ^ 1
        if GUARD.is_reset:
            self._texts[side][: len(text)] = text
        # one store of 8 bytes: either the old text counts or the new one
        if GUARD.is_reset:
            self._header[0] = binascii.crc32(text) << 32 | side << 16 | len(text)
        self._side = side

    def write_pending(self, renewal_id: str) -> None:
        """Record the id of a renewal that is about to be sent, in the lease that is recorded."""
        file = self._file
        # forget() releases the memory
        with contextlib.suppress(ValueError):
            if file is not None and file.is_writer and (size := self._header[0] & 0xFFFF):
                text = bytes(self._texts[self._side][:size])
                self._publish(text.replace(_NO_PENDING, _PENDING % renewal_id.encode(), 1))

    def clear(self) -> None:
        """Record that nothing is held any more."""
        with contextlib.suppress(ValueError):
            if GUARD.is_reset:
                self._header[0] = 0

    def forget(self) -> None:
        """Release the page, in a forked child: it is the parent's, and no call that goes on here may write to it."""
        self._file = None
        for view in (self._header, *self._texts, *self._rows):
            with contextlib.suppress(BufferError):
                view.release()
        # a row that a range of ticks still refers to is not released
        self._rows = []

    def give_up(self) -> None:
        """Release the memory for another generator. A lease that is still recorded stays so if there is room."""
        file, self._file = self._file, None
        with contextlib.suppress(ValueError):
            if file is not None and file.is_writer and GUARD.is_reset:
                file.close(records_lease=self._header[0] != 0)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # a generator that got no lease may be dropped without close(). At exit, modules may be gone, and others will
        # see that the process has ended
        if not is_finalizing() and hasattr(self, "_file"):
            self.give_up()

    def read(self) -> dict[str, Any] | None:
        """Return the credentials that were written last, with ``marks_ms`` and ``end``; None if nothing is held.

        Raises ValueError, LookupError: they are damaged.
        """
        checksum, place = divmod(self._header[0], 1 << 32)
        side, size = divmod(place, 1 << 16)
        if not size:
            return None
        text = bytes(self._texts[side][:size])
        if binascii.crc32(text) != checksum:
            raise ValueError("the checksum is wrong")
        written: dict[str, Any] = json.loads(text)
        marks_ms = tuple(self._rows[written["row"]][: written["lanes"]])
        return written | {"marks_ms": marks_ms, "end": self._header[1]}


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

    def __init__(self, store: Store, new_record: Callable[[Store], CrashRecord | None]) -> None:
        self._store, self._open_record = store, new_record
        self._serials = itertools.count(1)
        self.oldest = 0
        self.latest: HeldLease | None = None
        self._lost_lease: HeldLease | None = None
        # the serial and the token of a claim
        self._asked = (0, "")
        self.record: CrashRecord | None = None
        self.lent = False

    def lend(self) -> None:
        """Let another program make the ids of the lease, in its first lane only.

        Nobody here knows which times that program used. So no lease is recorded: another process would release it
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
    def lost_lease(self) -> HeldLease | None:
        """A lease that was lost, whose outage lane ids may still be made of; None if there is none."""
        lost = self._lost_lease
        return lost if lost is not None and lost.serial >= self.oldest else None

    @property
    def lane_until_ms(self) -> int:
        """End of the outage lane in which ids go on if Redis does not reply, ms since 1970; 0 if there is none.

        That of the lease, or of one that was lost. It may stay closed if the clock of this host was set.
        """
        return max((each.lease.lane_until_ms for each in (self.held, self.lost_lease) if each), default=0)

    def keep_lane(self, lost: HeldLease) -> None:
        """Keep the outage lane of *lost*, unless it was not open yet and there is another lost lease."""
        lease, other = lost.lease, self.lost_lease
        was_open = lease.opens[-1] < lease.until
        if not self.lent and lease.outage_until > lease.opens[-1] and (was_open or other is None):
            # recorded nowhere: nobody can release it
            self._lost_lease = lost._replace(marks=None)

    def drop_lost_lease(self) -> None:
        """Keep no outage lane of a lost lease."""
        self._lost_lease = None

    @property
    def token(self) -> str:
        """The token of a claim that has no reply yet, to be sent again; empty if there is none."""
        serial, token = self._asked
        return token if serial >= self.oldest else ""

    def set_token(self, token: str, serial: int | None = None) -> None:
        """Store the *token* of the claim with *serial*; by default one that is not void now."""
        self._asked = (self.oldest if serial is None else serial, token)

    def open_record(self, serial: int) -> CrashRecord | None:
        """Return where the claim with *serial* is recorded; None if nowhere.

        Called before the token is made: a child that is forked after that has no record of its own in which the
        token, which is its parent's, would be released when the child is killed.
        """
        record = self.record
        if record is None:
            record = self._new_record()
            # a child that was forked meanwhile does not get the record of its parent
            if serial >= self.oldest:
                self.record = record
        return record

    def record_claim(self, record: CrashRecord | None, token: str, owner: str) -> None:
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
        # checked after the record was read: a child that was forked before has another record, and a void lease
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

    def record_taken(self, record: CrashRecord | None, taken: HeldLease) -> HeldLease:
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
        # this comes first: whatever a call that goes on here stores from now on is void
        self.make_void()
        record, self.record = self.record, None
        if record is not None:
            record.forget()
        self.latest = self._lost_lease = None

    def close(self) -> None:
        """Release the crash record's memory; a lease that is still recorded stays so as long as there is room."""
        record, self.record = self.record, None
        if record is not None:
            record.give_up()

    def _new_record(self) -> CrashRecord | None:
        return self._open_record(self._store)
