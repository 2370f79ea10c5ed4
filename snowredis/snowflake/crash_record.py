"""Crash records: the data with which another process gives the lease of a dead process back, in memory that both see.

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
import json
import logging
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from snowredis.process.exit import End
from snowredis.process.fork import GUARD
from snowredis.snowflake.lease import HeldLease
from snowredis.snowflake.protocol import ClaimRequest, ReleaseRequest, Store, WorkerStats
from snowredis.snowflake.replies import Granted, Released, Seen

log = logging.getLogger("snowredis")

# the worker id of a claim that has no reply yet
UNKNOWN_WORKER = -1


def of_claim(token: str, owner: str) -> dict[str, Any]:
    """Return the part for a claim that is under way."""
    return {"worker": UNKNOWN_WORKER, "token": token, "owner": owner, "stats": ""}


def of_lease(held: HeldLease, stats: WorkerStats) -> dict[str, Any]:
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


def release(store: Store, credentials: dict[str, Any]) -> int | None:
    """Release the lease of a process that has ended, in one attempt.

    Blocks:
        for one round trip to Redis, two for a claim without a reply.

    Returns:
        the worker id, or None if it was not leased any more.

    Raises:
        StoreUnavailable: Redis did not reply; call again.
    """
    now_ms = time.time_ns() // 1_000_000
    worker, renewal_id = credentials["worker"], credentials.get("renewal_id", "")
    until_ms, outage_until_ms = credentials.get("until_ms", 0), credentials.get("outage_until_ms", 0)
    if worker == UNKNOWN_WORKER:
        # ended before the reply came: the same claim again has the same result
        claim = ClaimRequest(credentials["token"], now_ms, now_ms, 0, credentials["owner"])
        reply = store.claim(claim, Seen())
        if not isinstance(reply, Granted):
            return None
        worker, renewal_id = reply.worker, reply.renewal_id
        until_ms, outage_until_ms = reply.until_ms, reply.outage_until_ms
    request = ReleaseRequest(
        worker=worker,
        token=credentials["token"],
        renewal_id=renewal_id,
        pending_renewal_id=credentials.get("pending_renewal_id", ""),
        caller_ms=now_ms,
        held_until_ms=until_ms,
        held_outage_ms=outage_until_ms,
        marks_ms=tuple(credentials["marks_ms"]),
        stats=WorkerStats.from_text(credentials["stats"]),
        # a claim without a reply made no ids, so nothing died
        reclaimed=credentials["worker"] != UNKNOWN_WORKER and credentials["end"] == End.KILLED,
    )
    return worker if isinstance(store.release(request, Seen()), Released) else None


# 6 backup bits are the most that a layout has
LANES = 64
RENEWAL_ID_BYTES = 32
# how a text of json.dumps() shows a renewal id that is pending
_PENDING = b'"pending_renewal_id": "%s"'
_NO_PENDING = _PENDING % b""
# one record: a header, the end of the process, two texts in turn, two rows of marks in turn
HEADER_BYTES = 16
MARKS_BYTES = LANES * 8
# two pages in all
TEXT_BYTES = 3576
RECORD_BYTES = HEADER_BYTES + 2 * TEXT_BYTES + 2 * MARKS_BYTES


class PageOwner(Protocol):
    """The file of a crash record."""

    @property
    def is_writer(self) -> bool:
        """Return whether this process may write to the page: false in a child of the process that got it."""

    def touch(self) -> None:
        """Show that the page is still in use; called at each claim and heartbeat."""

    def take_back(self, page: memoryview, *, records_lease: bool) -> None:
        """Take the page back: its generator makes no more ids.

        Args:
            records_lease: a lease could not be released, or a claim has no reply. The page is kept for the processes
                that give it back after the end of this process, unless room is needed.
        """


def read_page(page: bytes) -> dict[str, Any] | None:
    """Return the credentials in a copy of a dead process' record; None if it held nothing.

    Raises ValueError, LookupError, TypeError: the copy is damaged.
    """
    return CrashRecord(None, memoryview(bytearray(page))).read()


class CrashRecord:
    """One generator's crash record: a CrashRecorder. One writer at a time: the thread that talks to the store.

    A process that this one forks shares the page, too, and may be in the middle of any of these methods: it
    calls forget(), after which writing raises an error, so that nothing is written by a child.

    Args:
        owner: the file that the page belongs to.
        page: RECORD_BYTES of memory.
        common: what all credentials that are written here contain.
    """

    __slots__ = ("_common", "_header", "_owner", "_page", "_row", "_rows", "_texts", "_turn")

    def __init__(self, owner: PageOwner | None, page: memoryview, common: dict[str, Any] | None = None) -> None:
        self._page, self._common = page, common or {}
        self._header = page[:HEADER_BYTES].cast("Q")
        self._texts = [page[HEADER_BYTES + i * TEXT_BYTES :][:TEXT_BYTES] for i in (0, 1)]
        marks = page[HEADER_BYTES + 2 * TEXT_BYTES :].cast("q")
        self._rows = [marks[i * LANES :][:LANES] for i in (0, 1)]
        self._turn = self._row = 0
        # last: what an interruption left half made gives nothing up
        self._owner = owner

    def write_claim(self, token: str, owner: str) -> None:
        """Record that a claim is under way."""
        self._write(of_claim(token, owner), fresh=True)

    def write_lease(self, held: HeldLease, stats: WorkerStats, *, fresh: bool) -> memoryview | None:
        """Record the lease *held*; return where its marks belong, or None. See CrashRecorder."""
        return self._write(of_lease(held, stats), fresh=fresh, marks_ms=held.marks_before_ms)

    def note_release(self, token: str | None, *, sent: bool) -> None:
        """Record whether a release may have been sent, of the lease with *token*, or any: nobody may take it over."""
        with contextlib.suppress(ValueError, LookupError):
            if (written := self.read()) and token in (None, written["token"]):
                own = {name: value for name, value in written.items() if name not in ("marks_ms", "end")}
                self._write(own | {"released": sent}, fresh=False)

    def _write(self, own: dict[str, Any], *, fresh: bool, marks_ms: Sequence[int] = ()) -> memoryview | None:
        owner = self._owner
        if owner is None or not owner.is_writer:
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
                if GUARD.alive:
                    self._rows[row][:] = marks
            self._publish(text)
            self._row = row
            owner.touch()
            return self._rows[row]
        except (ValueError, IndexError):
            # forget() was called: this is a forked child
            return None

    def _publish(self, text: bytes) -> None:
        turn = self._turn ^ 1
        if GUARD.alive:
            self._texts[turn][: len(text)] = text
        # one store of 8 bytes: either the old text counts or the new one
        if GUARD.alive:
            self._header[0] = binascii.crc32(text) << 32 | turn << 16 | len(text)
        self._turn = turn

    def write_pending(self, renewal_id: str) -> None:
        """Record the id of a renewal that is about to be sent, in the lease that is recorded."""
        owner = self._owner
        # forget() releases the memory
        with contextlib.suppress(ValueError):
            if owner is not None and owner.is_writer and (size := self._header[0] & 0xFFFF):
                text = bytes(self._texts[self._turn][:size])
                self._publish(text.replace(_NO_PENDING, _PENDING % renewal_id.encode(), 1))

    def clear(self) -> None:
        """Record that nothing is held any more."""
        with contextlib.suppress(ValueError):
            if GUARD.alive:
                self._header[0] = 0

    def forget(self) -> None:
        """Release the page, in a forked child: it is the parent's, and no call that goes on here may write to it."""
        self._owner = None
        for view in (self._header, *self._texts, *self._rows):
            with contextlib.suppress(BufferError):
                view.release()
        # one that a range of ticks still refers to is not released
        self._rows = []

    def give_up(self) -> None:
        """Release this part for another generator. Later calls do nothing."""
        owner, self._owner = self._owner, None
        with contextlib.suppress(ValueError):
            if owner is not None and owner.is_writer and GUARD.alive:
                owner.take_back(self._page, records_lease=self._header[0] != 0)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # a generator that got no lease may be dropped without close(). At exit, modules may be gone, and others will
        # see that the process has ended
        if not is_finalizing() and hasattr(self, "_owner"):
            self.give_up()

    def read(self) -> dict[str, Any] | None:
        """Return the credentials that were written last, with ``marks_ms`` and ``end``; None if nothing is held.

        Raises ValueError, LookupError: they are damaged.
        """
        checksum, place = divmod(self._header[0], 1 << 32)
        turn, size = divmod(place, 1 << 16)
        if not size:
            return None
        text = bytes(self._texts[turn][:size])
        if binascii.crc32(text) != checksum:
            raise ValueError("the checksum is wrong")
        written: dict[str, Any] = json.loads(text)
        marks_ms = tuple(self._rows[written["row"]][: written["lanes"]])
        return written | {"marks_ms": marks_ms, "end": self._header[1]}
