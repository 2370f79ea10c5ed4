"""A will: what a parent process needs to give a killed child's lease back, in memory that both share.

A process that was killed cannot release its lease, and nobody else knows what it used: its worker id
would be of no use until the reservation has passed. So a child of a server such as gunicorn writes down,
in a page that its parent made before the fork, by what right it holds which worker id, and before each
tick's ids are published, how far that lane is used. The kernel keeps the page when it kills the child.

The child writes in such an order that whatever it was doing when it died, what can be read is valid and
on the safe side. The parent reads only when it has reaped the child, so that nothing is made any more, and
hands it to executor.py.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
from dataclasses import fields
from typing import Any

from snowredis.core.presets import layout_spec
from snowredis.lease.model import Store

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
WILL_BYTES = HEADER_BYTES + 2 * TEXT_BYTES + 2 * MARKS_BYTES


class Will:
    """One generator's part of the page, in the child. One writer at a time: whoever talks to the store.

    Attributes:
        marks: ms of each lane's first unused tick, 0 for a lane never used. Those of the lease with serial s
            begin at (s % 2) * LANES; they may be stored from anywhere, and only ever grow within a lease.
    """

    __slots__ = ("_header", "_page", "_texts", "_turn", "_wills", "marks")

    def __init__(self, wills: Wills, page: memoryview) -> None:
        self._wills, self._page = wills, page
        self._header = page[:HEADER_BYTES].cast("q")
        self._texts = [page[HEADER_BYTES + i * TEXT_BYTES :][:TEXT_BYTES] for i in (0, 1)]
        self.marks = page[HEADER_BYTES + 2 * TEXT_BYTES :].cast("q")
        self._turn = 0

    def write(self, serial: int, right: dict[str, Any], *, fresh: bool) -> None:
        """Say by what right which worker id is held; of a *fresh* lease no lane was used yet."""
        row = serial % 2
        if fresh:
            self.marks[row * LANES : (row + 1) * LANES] = memoryview(bytes(MARKS_BYTES)).cast("q")
        text = json.dumps(right | {"row": row}).encode()
        if len(text) > TEXT_BYTES:
            log.debug(
                "a will of %d bytes does not fit; the lease ends by its ttl if we are killed", len(text)
            )
            return self.clear()
        self._turn ^= 1
        self._texts[self._turn][: len(text)] = text
        # one store of 8 bytes: either the old text counts or the new one
        self._header[0] = self._turn << 32 | len(text)
        return None

    def clear(self) -> None:
        """Nothing is held any more."""
        self._header[0] = 0

    def give_up(self) -> None:
        """The generator is closed: another may have this part, unless the parent has still something to do."""
        if not self._header[0]:
            self._wills.free.append(self._page)

    @property
    def right(self) -> dict[str, Any] | None:
        """What was written last; None if nothing is held."""
        turn, size = divmod(self._header[0], 1 << 32)
        if not size:
            return None
        found: dict[str, Any] = json.loads(bytes(self._texts[turn][:size]))
        at = found["row"] * LANES
        return found | {"marks_ms": tuple(self.marks[at : at + found["lanes"]])}


class Wills:
    """The page of one child: made by the parent before the fork, written by the child, read when it is dead."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, GENERATORS * WILL_BYTES)
        view = memoryview(self._map)
        self._parts = [view[i * WILL_BYTES :][:WILL_BYTES] for i in range(GENERATORS)]
        self._writer_pid = 0
        self.free: list[memoryview] = []

    def adopt(self) -> None:
        """In the child, once: it is this process that writes here, and none of its own children."""
        self._writer_pid = os.getpid()
        self.free = list(self._parts)

    def new_will(self) -> Will | None:
        """A part for one generator; None if there is none left, or this process is not the one that adopted."""
        if self._writer_pid != os.getpid():
            return None
        try:
            return Will(self, self.free.pop())
        except IndexError:
            return None

    def read(self) -> list[dict[str, Any]]:
        """In the parent, when the child is dead: what it held, for the executor. Never raises; nothing is left here."""
        rights = []
        for part in self._parts:
            will = Will(self, part)
            try:
                right = will.right
            except (ValueError, LookupError, TypeError):
                log.exception("could not read what a killed process held; its lease ends by its ttl")
                right = None
            if right is not None:
                rights.append(right)
            will.clear()
        return rights


def address_of(store: Store) -> dict[str, Any] | None:
    """What to write down so that another process can reach *store*; None if it cannot."""
    if not store.urls:
        return None
    config = store.config
    settings = {item.name: getattr(config, item.name) for item in fields(config)}
    return {"urls": store.urls, "config": settings | {"layout": layout_spec(config.layout)}}
