"""Crash records: what a parent process needs to give a killed child's lease back, in memory that both share.

A process that was killed cannot release its lease, and nobody else knows what it used: its worker id
would be unavailable until the reservation has passed. So a child of a server such as gunicorn records,
in a page that its parent made before the fork, the credentials of its leases (credentials.py), and before each
tick's ids are published, how far that lane is used. The kernel keeps the page when it kills the child.

The child writes in such an order that whatever it was doing when it died, what can be read is valid and
on the safe side. The parent reads only when it has reaped the child, so that no more ids are made, and
passes the credentials to reclaimer.py.
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
from typing import Any

from snowredis.lease.model import Store
from snowredis.lease.stats import WorkerStats
from snowredis.reclaim import credentials
from snowredis.runtime.fork import GUARD
from snowredis.runtime.lease import HeldLease

log = logging.getLogger("snowredis")

# a process that has more generators than this keeps the others to itself
GENERATORS = 8
# 6 backup bits are the most that a layout has
LANES = 64
# one generator's part of the page: a header, two texts in turn, two rows of marks in turn
HEADER_BYTES = 8
MARKS_BYTES = LANES * 8
TEXT_BYTES = 1532
RECORD_BYTES = HEADER_BYTES + 2 * TEXT_BYTES + 2 * MARKS_BYTES


class CrashRecord:
    """One generator's part of the page: a CrashRecorder. One writer at a time: whoever talks to the store.

    A process that this child forks shares the page, too, and may be in the middle of any of these methods: it
    calls forget(), after which a store is an error, and no store comes in the child of a child.
    """

    __slots__ = ("_common", "_header", "_page", "_records", "_row", "_rows", "_texts", "_turn")

    def __init__(self, records: CrashRecords, page: memoryview, store: Store | None = None) -> None:
        self._records, self._page = records, page
        self._common = {} if store is None else credentials.of_store(store)
        self._header = page[:HEADER_BYTES].cast("q")
        self._texts = [page[HEADER_BYTES + i * TEXT_BYTES :][:TEXT_BYTES] for i in (0, 1)]
        marks = page[HEADER_BYTES + 2 * TEXT_BYTES :].cast("q")
        self._rows = [marks[i * LANES :][:LANES] for i in (0, 1)]
        self._turn = self._row = 0

    def write_claim(self, token: str, owner: str) -> None:
        self._write(credentials.of_claim(token, owner), fresh=True)

    def write_lease(self, held: HeldLease, stats: WorkerStats, *, fresh: bool) -> memoryview | None:
        return self._write(credentials.of_lease(held, stats), fresh=fresh)

    def _write(self, own: dict[str, Any], *, fresh: bool) -> memoryview | None:
        if not self._records.is_writer:
            # forked while this record was being made, so forget() was not called
            return None
        # of a fresh lease never the row that what is written there now belongs to
        row = self._row ^ fresh
        text = json.dumps(self._common | own | {"row": row}).encode()
        if len(text) > TEXT_BYTES:
            log.debug(
                "a crash record of %d bytes does not fit; the lease ends by its ttl if we are killed",
                len(text),
            )
            self.clear()
            return None
        turn, no_marks = self._turn ^ 1, memoryview(bytes(MARKS_BYTES)).cast("q")
        try:
            # looked at directly before each store: a fork that bypasses Python calls no forget()
            if fresh and GUARD.alive:
                self._rows[row][:] = no_marks
            if GUARD.alive:
                self._texts[turn][: len(text)] = text
            # one store of 8 bytes: either the old text counts or the new one
            if GUARD.alive:
                self._header[0] = turn << 32 | len(text)
        except ValueError:
            # forgotten: this is a child by now
            return None
        self._turn, self._row = turn, row
        return self._rows[row]

    def clear(self) -> None:
        """Record that nothing is held any more."""
        with contextlib.suppress(ValueError):
            if GUARD.alive:
                self._header[0] = 0

    def forget(self) -> None:
        """In a forked child: the page is the parent's, so no call that goes on here may store to it."""
        for view in (self._header, *self._texts, *self._rows):
            with contextlib.suppress(BufferError):
                view.release()

    def give_up(self) -> None:
        """Leave this part to another generator, unless the parent has still a lease to give back."""
        with contextlib.suppress(ValueError):
            if not self._header[0]:
                self._records.free.append(self._page)

    def read(self) -> dict[str, Any] | None:
        """Return the credentials that were written last, with the marks; None if nothing is held."""
        turn, size = divmod(self._header[0], 1 << 32)
        if not size:
            return None
        written: dict[str, Any] = json.loads(bytes(self._texts[turn][:size]))
        return written | {"marks_ms": tuple(self._rows[written["row"]][: written["lanes"]])}


class CrashRecords:
    """The page of one child: made by the parent before the fork, written by the child, read when it is dead."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, GENERATORS * RECORD_BYTES)
        view = memoryview(self._map)
        self._parts = [view[i * RECORD_BYTES :][:RECORD_BYTES] for i in range(GENERATORS)]
        self._writer_pid = 0
        self.free: list[memoryview] = []

    def adopt(self) -> None:
        """In the child, once: let this process write here, and none of its own children."""
        self._writer_pid = os.getpid()
        self.free = list(self._parts)

    @property
    def is_writer(self) -> bool:
        return self._writer_pid == os.getpid()

    def new_record(self, store: Store) -> CrashRecord | None:
        """Return a part for one generator of *store*.

        None if no other process can reach the store, no part is left, or this process is not the one that adopted.
        """
        if not self.is_writer or not store.urls:
            return None
        try:
            return CrashRecord(self, self.free.pop(), store)
        except IndexError:
            return None

    def read(self) -> list[dict[str, Any]]:
        """In the parent, when the child is dead: return the credentials of its leases, and clear them. Never raises."""
        found = []
        for part in self._parts:
            record = CrashRecord(self, part)
            try:
                written = record.read()
            except (ValueError, LookupError, TypeError):
                log.exception("could not read a killed process' crash record; its lease ends by its ttl")
                written = None
            if written is not None:
                found.append(written)
            record.clear()
        return found
