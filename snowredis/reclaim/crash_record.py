"""A crash record: what a parent process needs to give a killed child's lease back, in memory that both share.

A process that was killed cannot release its lease, and nobody else knows what it used: its worker id
would be of no use until the reservation has passed. So a child of a server such as gunicorn writes down,
in a page that its parent made before the fork, by what right it holds which worker id, and before each
tick's ids are published, how far that lane is used. The kernel keeps the page when it kills the child.

The child writes in such an order that whatever it was doing when it died, what can be read is valid and
on the safe side. The parent reads only when it has reaped the child, so that nothing is made any more, and
hands it to reclaimer.py.
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
from dataclasses import fields
from typing import Any

from snowredis.core.presets import layout_spec
from snowredis.lease.model import Store
from snowredis.runtime.fork import GUARD

log = logging.getLogger("snowredis")

# a process that has more generators than this keeps the others to itself
GENERATORS = 8
# 6 backup bits are the most that a layout has
LANES = 64
# of a claim that was not answered yet
UNKNOWN_WORKER = -1
# one generator's part of the page: a header, two texts in turn, two rows of marks in turn
HEADER_BYTES = 8
MARKS_BYTES = LANES * 8
TEXT_BYTES = 1532
RECORD_BYTES = HEADER_BYTES + 2 * TEXT_BYTES + 2 * MARKS_BYTES


class CrashRecord:
    """One generator's part of the page, in the child. One writer at a time: whoever talks to the store.

    A process that this child forks shares the page, too, and may be in the middle of any of these methods: it
    calls forget(), after which a store is an error, and no store comes in the child of a child.
    """

    __slots__ = ("_header", "_page", "_row", "_rows", "_texts", "_turn", "_wills")

    def __init__(self, crash_records: CrashRecords, page: memoryview) -> None:
        self._wills, self._page = crash_records, page
        self._header = page[:HEADER_BYTES].cast("q")
        self._texts = [page[HEADER_BYTES + i * TEXT_BYTES :][:TEXT_BYTES] for i in (0, 1)]
        marks = page[HEADER_BYTES + 2 * TEXT_BYTES :].cast("q")
        self._rows = [marks[i * LANES :][:LANES] for i in (0, 1)]
        self._turn = self._row = 0

    def write(self, right: dict[str, Any], *, fresh: bool) -> memoryview | None:
        """Say by what right which worker id is held; of a *fresh* lease no lane was used yet.

        Returns:
            where its marks belong: ms of each lane's first unused tick, 0 for a lane never used. They may be
            stored from anywhere, and only ever grow within a lease. None if nothing could be written down.
        """
        # of a fresh lease never the row that what is written there now belongs to
        row = self._row ^ fresh
        text = json.dumps(right | {"row": row}).encode()
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
        """Nothing is held any more."""
        with contextlib.suppress(ValueError):
            if GUARD.alive:
                self._header[0] = 0

    def forget(self) -> None:
        """In a forked child: the page is the parent's, whatever a call that goes on here was about to store."""
        for view in (self._header, *self._texts, *self._rows):
            with contextlib.suppress(BufferError):
                view.release()

    def give_up(self) -> None:
        """The generator is closed: another may have this part, unless the parent has still something to do."""
        with contextlib.suppress(ValueError):
            if not self._header[0]:
                self._wills.free.append(self._page)

    @property
    def right(self) -> dict[str, Any] | None:
        """What was written last; None if nothing is held."""
        turn, size = divmod(self._header[0], 1 << 32)
        if not size:
            return None
        found: dict[str, Any] = json.loads(bytes(self._texts[turn][:size]))
        return found | {"marks_ms": tuple(self._rows[found["row"]][: found["lanes"]])}


class CrashRecords:
    """The page of one child: made by the parent before the fork, written by the child, read when it is dead."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, GENERATORS * RECORD_BYTES)
        view = memoryview(self._map)
        self._parts = [view[i * RECORD_BYTES :][:RECORD_BYTES] for i in range(GENERATORS)]
        self._writer_pid = 0
        self.free: list[memoryview] = []

    def adopt(self) -> None:
        """In the child, once: it is this process that writes here, and none of its own children."""
        self._writer_pid = os.getpid()
        self.free = list(self._parts)

    def new_record(self) -> CrashRecord | None:
        """A part for one generator; None if there is none left, or this process is not the one that adopted."""
        if self._writer_pid != os.getpid():
            return None
        try:
            return CrashRecord(self, self.free.pop())
        except IndexError:
            return None

    def read(self) -> list[dict[str, Any]]:
        """In the parent, when the child is dead: what it held, for the executor. Never raises; nothing is left here."""
        rights = []
        for part in self._parts:
            record = CrashRecord(self, part)
            try:
                right = record.right
            except (ValueError, LookupError, TypeError):
                log.exception("could not read what a killed process held; its lease ends by its ttl")
                right = None
            if right is not None:
                rights.append(right)
            record.clear()
        return rights


def address_of(store: Store) -> dict[str, Any] | None:
    """What to write down so that another process can reach *store*; None if it cannot."""
    if not store.urls:
        return None
    config = store.config
    settings = {item.name: getattr(config, item.name) for item in fields(config)}
    return {"urls": store.urls, "config": settings | {"layout": layout_spec(config.layout)}}
