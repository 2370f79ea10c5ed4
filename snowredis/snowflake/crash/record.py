"""The crash record of one generator: what other processes need if this one is killed.

A process that was killed cannot release its lease: its worker id would be unavailable until the lease ends. So each
process records the credentials of its lease in a file in memory (files.py): when it claims, when Redis grants or
renews, and when it releases. In an outage it also records, before it makes ids of the outage lane, until when it may
have used that lane. The kernel keeps the file when the process ends. The record also says how the process ended, as far
as a process can tell: that is what tells a death (kill -9, a crash) from an end that somebody chose (process/exit.py).

Each change is one store of 8 bytes, so what can be read is valid, whatever the process was doing when it ended. Other
processes read only after that (sweep.py).
"""

from __future__ import annotations

import binascii
import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from snowredis.process.exit import End
from snowredis.process.fork import GUARD
from snowredis.process.log import log
from snowredis.snowflake.protocol.messages import NO_STATS, NO_TERMS, Terms, WorkerStats

# the form of the text; a text of another version of snowredis is no record
FORMAT = 1
# made once: json.dumps() would make an encoder at each heartbeat
_encode = json.JSONEncoder(ensure_ascii=False).encode


class Credentials(NamedTuple):
    """Content of a crash record: a lease, or a claim that has no reply yet. All times are ms since 1970.

    Attributes:
        token, terms, pending_renewal_id: as requests present them; NO_TERMS: of a claim without a reply.
        owner: of a claim without a reply: its argument.
        clocks_s: as in HeldLease.
        stats: of the process.
        released: whether a release may have been sent.
        inode: tells the file from a copy of it.
        outage_used_ms: the outage lane may have been used before this time, and not from it on; 0: it was not used.
        end: how the process ended, an End.
    """

    token: str
    terms: Terms = NO_TERMS
    pending_renewal_id: str = ""
    owner: str = ""
    clocks_s: tuple[float, float] = (0.0, 0.0)
    stats: WorkerStats = NO_STATS
    released: bool = False
    inode: str = ""
    outage_used_ms: int = 0
    end: int = End.KILLED

    def pack(self) -> bytes:
        """Return the text that is recorded."""
        return _encode((FORMAT, *self)).encode()

    @classmethod
    def parse(cls, text: bytes) -> Credentials | None:
        """Return what pack() made a text of; None if another version of snowredis did.

        Raises ValueError, LookupError, TypeError: the text is damaged.
        """
        number, *fields = json.loads(text)
        if number != FORMAT:
            return None
        found = cls(*fields)
        (wall_s, steady_s), terms = found.clocks_s, Terms(*found.terms)
        terms = terms._replace(lanes_ms=tuple(terms.lanes_ms))
        return found._replace(terms=terms, clocks_s=(wall_s, steady_s), stats=WorkerStats(*found.stats))


# one page: checksum, place and length of the text that counts; the end of the process; outage_used_ms; two texts
PAGE_BYTES = 4096
HEADER_BYTES = 24
TEXT_BYTES = (PAGE_BYTES - HEADER_BYTES) // 2


def read_page(page: bytes) -> Credentials | None:
    """Return the credentials in a copy of a record; None if it holds nothing.

    Raises ValueError, LookupError, TypeError: the copy is damaged.
    """
    return CrashRecord(None, memoryview(bytearray(page))).read()


class CrashRecord:
    """Record of what other processes need if this process is killed.

    One writer at a time: the thread that talks to the store. Any thread calls note_outage_use(). No method blocks or
    raises. A process that this one forks shares the page, too, and may be in the middle of any of these methods. It
    calls forget(), after which a write raises an error, so that a child writes nothing.

    Args:
        file: a RecordFile of files.py, to which the page belongs; None: nothing is written.
        page: PAGE_BYTES of memory.
        inode: of the file.
    """

    __slots__ = ("_file", "_header", "_inode", "_side", "_texts")

    def __init__(self, file: Any, page: memoryview, inode: str = "") -> None:
        self._inode, self._side = inode, 0
        self._header = page[:HEADER_BYTES].cast("Q")
        self._texts = [page[HEADER_BYTES + i * TEXT_BYTES :][:TEXT_BYTES] for i in (0, 1)]
        # set last: a record that an interruption left half made gives nothing up
        self._file = file

    def write(self, credentials: Credentials) -> bool:
        """Record *credentials*; return whether that was possible."""
        file = self._file
        if file is None or not file.is_writer:
            # given up; or forked while this record was being made, so forget() was not called
            return False
        text = credentials._replace(inode=self._inode).pack()
        if len(text) > TEXT_BYTES:
            log.debug("a crash record of %d bytes is too long; after a kill, the lease ends by its ttl", len(text))
            self.clear()
            return False
        try:
            self._publish(text)
            file.touch()
        except (ValueError, IndexError):
            # forget() was called: this is a forked child
            return False
        return True

    def _publish(self, text: bytes) -> None:
        side = self._side ^ 1
        # checked directly before each store: a fork that bypasses Python calls no forget()
        if GUARD.is_reset:
            self._texts[side][: len(text)] = text
        # one store of 8 bytes: either the old text counts or the new one
        if GUARD.is_reset:
            self._header[0] = binascii.crc32(text) << 32 | side << 16 | len(text)
        self._side = side

    def note_release(self, token: str | None, *, sent: bool) -> bool:
        """Record whether a release may have been sent, of the lease with *token*, or any: nobody may take it over.

        Return false if that lease is not recorded here, or not any more.
        """
        with contextlib.suppress(ValueError, LookupError):
            if (written := self.read()) and token in (None, written.token):
                return self.write(written._replace(released=sent))
        return False

    def note_outage_use(self, until_ms: int) -> None:
        """Record, before they are made, that ids of an outage lane may be made before *until_ms*.

        Of any lease: the value is never lowered, so it holds for each lease that is recorded here. The caller holds the
        generator's lock.
        """
        header = self._header
        with contextlib.suppress(ValueError):
            if GUARD.is_reset and self._file is not None:
                # one line without a call: no signal handler that does the same comes in between
                header[2] = until_ms if header[2] < until_ms else header[2]  # noqa: FURB136 - max() is a call

    def clear(self) -> None:
        """Record that nothing is held any more."""
        with contextlib.suppress(ValueError):
            if GUARD.is_reset:
                self._header[0] = 0

    def forget(self) -> None:
        """Release the page, in a forked child: it is the parent's, and no call that goes on here may write to it."""
        self._file = None
        for view in (self._header, *self._texts):
            with contextlib.suppress(BufferError):
                view.release()

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

    def read(self) -> Credentials | None:
        """Return what was written last; None if nothing is held, or another version of snowredis wrote it.

        Raises ValueError, LookupError, TypeError: it is damaged.
        """
        checksum, place = divmod(self._header[0], 1 << 32)
        side, size = divmod(place, 1 << 16)
        if not size:
            return None
        text = bytes(self._texts[side][:size])
        if binascii.crc32(text) != checksum:
            raise ValueError("the checksum is wrong")
        written = Credentials.parse(text)
        return written and written._replace(outage_used_ms=self._header[2], end=self._header[1])


# a generator has this one before its first claim, in a forked child, and where there is no place for files
NO_RECORD = CrashRecord(None, memoryview(bytearray(PAGE_BYTES)))
