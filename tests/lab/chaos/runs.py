"""Files in which ids are recorded: one for each process, a page with its state, then runs of consecutive ids.

A run is written before its ids count as handed on, with one system call, so that neither kill -9 nor
anything else hides an id. The page is shared memory: whoever watches reads it without asking.
"""

from __future__ import annotations

import mmap
import os
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = mmap.PAGESIZE
MAGIC = int.from_bytes(b"SNOWRUNS", "little")
# numbers at the start of the page, 8 bytes each
W_MAGIC, W_SLOT, W_KIND, W_PID, W_STARTED_MS, W_COUNTED, W_LAST_MS, W_ERRORS = range(8)
# the name of the last error
ERROR_AT, ERROR_BYTES = 64, 64
KINDS = (
    "worker",
    "os.fork",
    "fork inside next_ids",
    "fork in C",
    "multiprocessing",
    "clone of a suspended process",
    # Node processes have these instead
    "thread",
)
# kinds of children in which CPython's own locks, which another thread held at the fork, are never released; and a child
# that hangs since before it recorded its kind
UNRECORDED = "unknown"
IN_C = ("fork in C", "clone of a suspended process", UNRECORDED)
# how a forked child ends: releases its worker id, leaves without a word, dies
ENDINGS = ("close", "leave", "kill")
# numbers a run: first id, how many ids, when it was written in ms of the chaos run
COLUMNS = 3

Run = tuple[int, int]


class DisorderError(Exception):
    """A batch was not strictly increasing."""


def runs_of(batch: list[int]) -> list[Run]:
    """Cut a strictly increasing batch into runs (first id, how many). Every single id is compared.

    Raises DisorderError.
    """
    runs: list[Run] = []
    start = 0
    while start < len(batch):
        first = batch[start]
        if batch[-1] - first == len(batch) - 1 - start:
            stop = len(batch)
        else:
            # in a batch that increases, an id less its place never falls: it stands still along a run
            places = range(start, len(batch))
            stop = start + bisect_right(places, first - start, key=lambda place: batch[place] - place)
        part = batch if (start, stop) == (0, len(batch)) else batch[start:stop]
        if part != list(range(first, first + len(part))) or not part:
            raise DisorderError(f"{len(batch)} ids from {batch[0]} on are not strictly increasing")
        runs.append((first, len(part)))
        start = stop
    return runs


class Recorder:
    """Writes the runs of one process; a forked child gets a file of its own with its first run."""

    def __init__(self, directory: Path, slot: int, began_ns: int) -> None:
        self._directory, self._slot, self._began_ns = directory, slot, began_ns
        self._file = -1
        self.open(0)

    def now_ms(self) -> int:
        return (time.monotonic_ns() - self._began_ns) // 1_000_000

    def open(self, kind: int) -> None:
        if self._file >= 0:
            os.close(self._file)
        self.pid = os.getpid()
        path = self._directory / f"{self._slot:02}-{self.pid}-{time.monotonic_ns()}.runs"
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, PAGE)
        self._page = mmap.mmap(self._file, PAGE)
        self._words = memoryview(self._page)[:ERROR_AT].cast("q")
        for word, value in (
            (W_SLOT, self._slot),
            (W_KIND, kind),
            (W_PID, self.pid),
            (W_STARTED_MS, self.now_ms()),
            # last: now the page can be read
            (W_MAGIC, MAGIC),
        ):
            self._words[word] = value

    def record(self, runs: list[Run]) -> None:
        """Write *runs*; when this returns, their ids count."""
        now_ms = self.now_ms()
        data = array("q")
        for first, count in runs:
            data.extend((first, count, now_ms))
        if os.write(self._file, data.tobytes()) != len(data) * data.itemsize:
            raise OSError("a run was written in part: is the disk full?")
        self._words[W_COUNTED] += sum(count for _, count in runs)
        self._words[W_LAST_MS] = now_ms

    def note(self, error: Exception) -> None:
        """Record why there are no ids."""
        name = type(error).__name__.encode()[:ERROR_BYTES]
        self._page[ERROR_AT : ERROR_AT + ERROR_BYTES] = name.ljust(ERROR_BYTES, b"\0")
        self._words[W_ERRORS] += 1

    def crashed(self, text: str) -> None:
        (self._directory / f"{self._slot:02}-{os.getpid()}.crash").write_text(text)


@dataclass(frozen=True, slots=True)
class Status:
    """State of one process, from the page of its file."""

    slot: int
    kind: str
    pid: int
    started_ms: int
    counted: int
    last_ms: int
    errors: int
    error: str


def read_status(path: Path) -> Status | None:
    """Return the state; None if the process has only just created the file."""
    with path.open("rb") as file:
        page = file.read(ERROR_AT + ERROR_BYTES)
    if len(page) < ERROR_AT + ERROR_BYTES:
        return None
    words = array("q", page[:ERROR_AT])
    if words[W_MAGIC] != MAGIC:
        return None
    error = page[ERROR_AT:].rstrip(b"\0").decode()
    slot, kind, pid, started_ms, counted, last_ms, errors = words[1:]
    return Status(slot, KINDS[kind], pid, started_ms, counted, last_ms, errors, error)


@dataclass(frozen=True, slots=True)
class RecordedRuns:
    """The runs of a file, in the order in which they were written; a column an attribute."""

    firsts: memoryview[int]
    counts: memoryview[int]
    written_ms: memoryview[int]

    @property
    def columns(self) -> tuple[memoryview[int], memoryview[int], memoryview[int]]:
        return self.firsts, self.counts, self.written_ms

    def rows(self) -> Iterator[tuple[int, int, int]]:
        return zip(*self.columns, strict=True)


def read_runs(path: Path) -> RecordedRuns:
    """Read a file. A last run that was written in part is left out."""
    data = memoryview(path.read_bytes())[PAGE:]
    words = data[: len(data) // (8 * COLUMNS) * (8 * COLUMNS)].cast("q")
    return RecordedRuns(words[::COLUMNS], words[1::COLUMNS], words[2::COLUMNS])
