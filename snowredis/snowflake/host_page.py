"""The memory that the processes of one host share with lease="host": words, members, credentials; a file on tmpfs.

*The word* is the last id. Whoever replaces it by compare-exchange has taken what lies in between, so it is the mark,
too: no process has to record anything before it uses an id. It says all that is fixed in an id: worker id, namespace,
datacenter. With the sign bit it is *sealed*: nobody takes ids, and the last one is still known. Each seal makes a value
that the word never had, so that only the last process that sealed can open it again.

*The limit* is the end of the reservation. It carries the number of the turn that has set it, and is only set in the
turn whose number it carries: what another turn was told of another lease never gets there.

*The turn* is a lock that can be taken away. Who has it claims, renews, changes the namespace, or releases. It has a new
number each time. Who takes it *fences* limit and credentials with that number first: from then on no earlier turn can
change them, whether its process was killed, is stopped, or runs.

*Credentials* (those of crash_record.py) are written to another slot than the current one, then the header refers to it,
with a checksum. They are in the page before they are sent to Redis (R5, R6), so the next turn repeats what the last one
began.

Knows nothing of leases and Redis: host_lease.py does. Needs the fast path in C, which knows HostPage, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from snowredis.process.fork import GUARD
from snowredis.process.liveness import ProcessName, has_ended, own_name
from snowredis.snowflake.fast_path import load_c
from snowredis.snowflake.record_files import map_memory, open_directory, view_memory

# offsets of the words; the first four as in _fastpath.c
WORD, LIMIT, MADE, TURN, HEADER, ATTEMPT, INODE = 0, 64, 136, 192, 200, 208, 216
# processes of one host, each with its pid and its start
MEMBERS, MOST_MEMBERS = 256, 480
# credentials: with 64 lanes they take about 2.5 KB. Eight, so that a process which stops in the middle of writing one
# is unlikely to write to the current one when it goes on
SLOTS, SLOT_BYTES, SLOT_COUNT = 4096, 3072, 8
PAGE_BYTES = SLOTS + SLOT_COUNT * SLOT_BYTES

# what a file name begins with; another layout of the page has another number
PREFIX = "host1"
SEALED_BIT = 1 << 63
_PID_BITS, _OWNER_BITS = 22, 16
# bits of a turn's number that limit and header carry, above the others
_LIMIT_BITS, _LIMIT_TURN_BITS = 44, 20
_HEADER_BITS, _HEADER_TURN_BITS = 36, 28
_LENGTH = struct.Struct("<I")
# how often the process that has the turn is looked at, by those who wait
LOOK_S = 0.05

_c: Any = load_c("snowredis.snowflake._fastpath")


class TurnOver(Exception):
    """Another process or thread has taken the turn: what was about to be written is void."""

    def __str__(self) -> str:
        return "another process of this host goes on with it"


class HostRefused(Exception):
    """This process cannot share a lease with others of its host; str() says why."""


class Turn:
    """The right to change a page, until another process takes it away.

    Attributes:
        word: value of the word TURN as long as this is the turn.
        number: counts the turns of the page.
        thread, generation: the only ones that may use it: not a forked child, nor a handler in another thread.
    """

    def __init__(self, word: int) -> None:
        self.word, self.number = word, word >> _OWNER_BITS
        self.thread, self.generation = threading.get_ident(), GUARD.generation


class HostPage:
    """One generator's access to the page of its host.

    Args:
        memory: PAGE_BYTES, shared, never unmapped.
        own: the name of this process.
        patience_s: how long another process may have one turn before it is taken away.
        path: of the file, for its time; "" for none.
    """

    def __init__(self, memory: memoryview, own: ProcessName, patience_s: float, path: str = "") -> None:
        self.memory, self._own, self._patience_s, self._path = memory, own, patience_s, path
        self._index = -1
        self._turn: Turn | None = None
        # a turn of another process, since when it has been seen, and when that process was looked at last
        self._seen_turn, self._seen_s, self._looked_s = 0, 0.0, 0.0
        # the zeros of a new file are a valid id
        self.swap(WORD, 0, SEALED_BIT)

    def load(self, offset: int) -> int:
        """Return a word."""
        return int(_c.page_load(self.memory, offset))

    def swap(self, offset: int, old: int, new: int) -> bool:
        """Replace a word if it is *old*; return whether it was."""
        return bool(_c.page_swap(self.memory, offset, old, new))

    @property
    def limit_ms(self) -> int:
        """The end of what may be opened by the word, ms since 1970."""
        return self.load(LIMIT) & (1 << _LIMIT_BITS) - 1

    # --- members ----------------------------------------------------------------------------------

    def join(self) -> None:
        """Become a member. Raises HostRefused if there are too many."""
        name = int(self._own.started) << _PID_BITS | self._own.pid
        for index in range(MOST_MEMBERS):
            offset = MEMBERS + 8 * index
            before = self.load(offset)
            if (not before or self._is_dead(before)) and self.swap(offset, before, name):
                self._index = index
                return
        raise HostRefused(f"{MOST_MEMBERS} processes share its lease already")

    def leave(self) -> bool:
        """Be no member any more; return True if no other member is alive."""
        offset = MEMBERS + 8 * self._index
        self.swap(offset, self.load(offset), 0)
        return not any(True for _ in self._living())

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the living members."""
        return tuple(sorted({member & (1 << _PID_BITS) - 1 for member in self._living()}))

    def _living(self) -> Iterator[int]:
        for offset in range(MEMBERS, MEMBERS + 8 * MOST_MEMBERS, 8):
            member = self.load(offset)
            if member and not self._is_dead(member):
                yield member

    def _is_dead(self, member: int) -> bool:
        pid, started = member & (1 << _PID_BITS) - 1, str(member >> _PID_BITS)
        if pid == self._own.pid:
            return started != self._own.started
        return has_ended(ProcessName(self._own.namespace, pid, started), self._own)

    # --- turns ------------------------------------------------------------------------------------

    def take_turn(self) -> Turn | None:
        """Take the turn, and fence limit and header; return None if another process or thread has it."""
        word = self.load(TURN)
        if word & (1 << _OWNER_BITS) - 1 and not self._may_take_away(word):
            return None
        turn = Turn((word >> _OWNER_BITS) + 1 << _OWNER_BITS | self._index + 1)
        if not self.swap(TURN, word, turn.word):
            return None
        self._turn = turn
        try:
            self._fence(LIMIT, _LIMIT_BITS, _LIMIT_TURN_BITS, turn)
            self._fence(HEADER, _HEADER_BITS, _HEADER_TURN_BITS, turn)
        except TurnOver:
            return None
        return turn

    def _may_take_away(self, word: int) -> bool:
        """Return whether the process with the turn *word* has ended, or has had it for too long."""
        mine, now_s = self._turn, time.monotonic()
        if mine is not None and mine.word == word and mine.thread == threading.get_ident():
            # this is a signal handler, which has interrupted that turn
            return True
        if word != self._seen_turn:
            self._seen_turn, self._seen_s, self._looked_s = word, now_s, now_s - LOOK_S
        if now_s - self._seen_s > self._patience_s:
            return True
        if now_s - self._looked_s < LOOK_S:
            return False
        self._looked_s = now_s
        index = (word & (1 << _OWNER_BITS) - 1) - 1
        # in a damaged word, there is no such member
        member = self.load(MEMBERS + 8 * index) if index < MOST_MEMBERS else 0
        return member != 0 and self._is_dead(member)

    def _fence(self, offset: int, bits: int, turn_bits: int, turn: Turn) -> None:
        number = turn.number & (1 << turn_bits) - 1
        while True:
            old = self.load(offset)
            # a later one has been here: this process was stopped since it took the turn
            if number - (old >> bits) & 1 << turn_bits - 1:
                raise TurnOver
            if self.swap(offset, old, number << bits | old & (1 << bits) - 1):
                return

    def free(self, turn: Turn) -> None:
        """Give the turn back, if it was not taken away."""
        self.swap(TURN, turn.word, turn.number << _OWNER_BITS)
        if self._turn is turn:
            self._turn = None

    @property
    def has_turn(self) -> bool:
        """Return whether this thread has the turn, as far as it knows."""
        turn = self._turn
        return turn is not None and turn.thread == threading.get_ident() and turn.generation == GUARD.generation

    def mine(self) -> Turn:
        """Return the turn of this thread. Raises TurnOver if it has none."""
        turn = self._turn
        if turn is None or not self.has_turn or self.load(TURN) != turn.word:
            raise TurnOver
        return turn

    def forget_turn(self) -> None:
        """Have no turn, in a forked child: it is the parent's, as is the membership."""
        self._turn, self._index = None, -1

    # --- in a turn --------------------------------------------------------------------------------

    def seal(self, step: int, sequence_mask: int, tick: int) -> int:
        """Let nobody take ids; return the new word. Raises TurnOver.

        Args:
            step: from one id of a tick to the next; *sequence_mask*, *tick*: as bits of an id.
        """
        while True:
            self.mine()
            word = self.load(WORD)
            sealed = word | SEALED_BIT
            if word & SEALED_BIT:
                # a value that no other process waits for
                is_full = word & sequence_mask == sequence_mask
                sealed = (word & ~sequence_mask) + tick if is_full else word + step
            if self.swap(WORD, word, sealed):
                return sealed

    def open(self, sealed: int, an_id: int) -> None:
        """Replace the word, which must still be *sealed*. Raises TurnOver."""
        self.mine()
        if not self.swap(WORD, sealed, an_id):
            raise TurnOver

    def set_limit(self, limit_ms: int) -> None:
        """Set the limit for the word that is open, or about to be opened, in this turn. Raises TurnOver."""
        number = self.mine().number & (1 << _LIMIT_TURN_BITS) - 1
        old = self.load(LIMIT)
        if old >> _LIMIT_BITS != number or not self.swap(LIMIT, old, number << _LIMIT_BITS | limit_ms):
            raise TurnOver

    def write(self, change: Callable[[dict[str, Any] | None], dict[str, Any] | None]) -> None:
        """Replace the credentials by what *change* makes of them. Raises TurnOver: nothing may be sent then."""
        number = self.mine().number & (1 << _HEADER_TURN_BITS) - 1
        header = self.load(HEADER)
        before = None
        with contextlib.suppress(ValueError):
            # if they are damaged, the worker id that they named is available again when its lease ends
            before = self.read(header)
        credentials = change(before)
        text = json.dumps(credentials, separators=(",", ":")).encode() if credentials else b""
        slot = ((header >> 32 & 0xF) + 1) % SLOT_COUNT
        if header >> _HEADER_BITS != number or len(text) > SLOT_BYTES - _LENGTH.size:
            raise TurnOver
        begin = SLOTS + slot * SLOT_BYTES
        self.memory[begin : begin + _LENGTH.size + len(text)] = _LENGTH.pack(len(text)) + text
        self.mine()
        if not self.swap(HEADER, header, number << _HEADER_BITS | slot << 32 | zlib.crc32(text)):
            raise TurnOver

    def read(self, header: int | None = None) -> dict[str, Any] | None:
        """Return the credentials to which *header* refers, by default the current ones; None if there are none.

        Raises ValueError: they are damaged. A process that was stopped while it wrote them has gone on meanwhile.
        """
        if header is None:
            header = self.load(HEADER)
        # of a damaged header, any slot
        begin = SLOTS + (header >> 32 & 0xF) % SLOT_COUNT * SLOT_BYTES
        slot = bytes(self.memory[begin : begin + SLOT_BYTES])
        (length,) = _LENGTH.unpack_from(slot)
        text = slot[_LENGTH.size : _LENGTH.size + length]
        if zlib.crc32(text) != header & 0xFFFFFFFF:
            raise ValueError("the credentials of the host are damaged")
        credentials: dict[str, Any] | None = json.loads(text) if text else None
        return credentials

    # --- who renews -------------------------------------------------------------------------------

    def note_attempt(self) -> None:
        """Note that this process talks to Redis now: it goes on to renew, and the others wait for it."""
        now_ms = time.monotonic_ns() // 1_000_000
        self.swap(ATTEMPT, self.load(ATTEMPT), now_ms << _OWNER_BITS | self._index + 1)
        if self._path:
            # for those who remove old files
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def is_due(self, heartbeat_ms: int) -> bool:
        """Return whether this process has to renew: it did so last, or that one has missed a heartbeat."""
        at_ms, owner = divmod(self.load(ATTEMPT), 1 << _OWNER_BITS)
        passed_ms = time.monotonic_ns() // 1_000_000 - at_ms
        return passed_ms >= heartbeat_ms * (0.7 if owner == self._index + 1 else 1.7)


# pages that are mapped, by path, device and inode: a program that connects often does not map one each time
_mapped: dict[tuple[str, int, int], memoryview] = {}


def open_page(name: str, patience_s: float) -> HostPage:
    """Open, or create, the page of this host for processes that agree in *name*. Raises HostRefused."""
    own, directory = own_name(), open_directory(make=True)
    if _c is None:
        raise HostRefused("it needs the fast path in C, and this process has none")
    if own is None or directory is None:
        raise HostRefused("there is no directory in /dev/shm that only this user can write to")
    path = directory.path_of(f"{PREFIX}.{name}.{own.namespace}")
    try:
        memory = _map(path)
    except (OSError, AttributeError) as error:
        raise HostRefused(str(error)) from None
    return HostPage(memory, own, patience_s, path)


def _map(path: str) -> memoryview:
    """Map the file. Raises OSError, HostRefused; AttributeError where there is no mmap()."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise HostRefused(f"{path} is a file of another user")
        if not _c.is_tmpfs(descriptor):
            raise HostRefused(f"{path} is not on tmpfs, so other machines might write to it")
        if status.st_size not in (0, PAGE_BYTES):
            raise HostRefused(f"{path} is damaged: it has {status.st_size} bytes. Remove it.")
        # else the first write to a full file system would end this process by SIGBUS
        os.posix_fallocate(descriptor, 0, PAGE_BYTES)
        key = path, status.st_dev, status.st_ino
        if key not in _mapped:
            _mapped[key] = view_memory(map_memory(descriptor, 0, PAGE_BYTES), PAGE_BYTES)
        memory = _mapped[key]
        # two files with one lease would make the same ids
        if not _c.page_swap(memory, INODE, 0, status.st_ino) and _c.page_load(memory, INODE) != status.st_ino:
            raise HostRefused(f"{path} is a copy of another file. Remove it.")
        return memory
    finally:
        os.close(descriptor)
