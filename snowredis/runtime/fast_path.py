"""The fast path: take the next id of the current block. Written twice: here in Python, and in _fastpath.c in C.

A *block* holds one tick's ids, as an iterator, and the window of wall clock time in which they are current. Taking an
id reads the clock and advances the iterator by one step. Neither takes a lock (except in Python on
free-threaded builds) and neither decides anything. id_allocator.py publishes and seals blocks through _supersede(),
which is one indivisible step for signal handlers, other threads, forks and tracers.

This module chooses the implementation: C if it was built, unless SNOWREDIS_PURE is set when this is imported.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import itertools
import os
import sys
import sysconfig
import threading
import time
import warnings
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

# range iterators are not atomic on free-threaded builds, so the Python fast path takes the lock there
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

# start and end of the window (s since 1970), the ids that are left, the fork guard's ``alive`` (bytes-like; false in a
# forked child that was not reset), and the clock (s since 1970)
Block = tuple[float, float, Iterator[int], Any, Callable[[], float]]


class Published(NamedTuple):
    """A block, with the data for the next block.

    Attributes:
        block: read by the fast path.
        state: of id_allocator.py, the only module that uses it.
        successor: the Published that replaced this one, under the key "next"; filled in Python only.
    """

    block: Block
    state: Any
    successor: dict[str, Published]


class PureFastPath:
    """Take ids of the current block. The base class of Generator, which provides _lock and _next_slow().

    Names with an underscore are private to this package: users see them on Generator.
    """

    __slots__ = ("_block", "_last")

    _block: Block
    _last: Published
    # reentrant; held for every step of the slow path, and by the fast path where FREE_THREADED
    _lock: threading.RLock
    # makes an id when the current block has none: claims, waits and renews as needed
    _next_slow: Callable[[], int]

    def next_id(self) -> int:
        """Make one id. Thread-safe, and safe in signal handlers and finalizers.

        Returns:
            An int, 0 < id < 2**63: greater than every id that this generator made before, unless another
            namespace or worker id came into use since: the clock went back, or the lease was lost.

        Raises:
            LeaseExpired: the reservation ended while Redis did not reply.
            LeaseLost: the lease was lost, and no other worker id could be claimed.
            PoolExhausted, StoreUnavailable, LayoutMismatch: no worker id could be claimed.
            ClockMovedBack, ClockSkewed, LayoutError: the clock shows a time that cannot be used.
            GeneratorClosed, GeneratorSuspended: after close(), or suspend().

        Blocks:
            at the first call, for the claim, as claim(); when the sequence of a tick is exhausted, until the
            next tick; after the clock went back, for clock_tolerance_ms at most, or max_wait_ms if
            clock_policy is "wait"; when the reservation ended, for one round trip to Redis.
        """
        start, end, ids, alive, now = self._block
        if start <= now() < end and alive:
            for an_id in ids:
                return an_id
        return self._next_slow()

    def _next_id_locked(self) -> int:
        return self._id_now() or self._next_slow()

    if FREE_THREADED:
        _next_id_locked.__doc__ = next_id.__doc__
        next_id = _next_id_locked

    def __next__(self) -> int:
        return self.next_id()

    def __iter__(self) -> Self:
        return self

    @property
    def _published(self) -> Published:
        """The current Published."""
        published = self._last
        # a publisher may have been interrupted before it stored to _last, or may store to it late
        while (successor := published.successor.get("next")) is not None:
            published = successor
        return published

    def _supersede(
        self,
        old: Published | None,
        new: Published,
        marks: memoryview | None = None,
        place: int = 0,
        mark_ms: int = 0,
    ) -> bool:
        """Replace *old* by *new* as the current Published, and exhaust the ids of *old* unless *new* has the same.

        *new* must not have been published before: a cycle of successors would have no end. ``marks[place]`` is raised
        to *mark_ms* before anybody can take the new ids.

        Returns:
            False if *old* is not current any more; nothing is published then.
        """
        if marks is not None:
            try:
                # one line without a call: neither a handler nor a tracer of lines comes in between
                marks[place] = mark_ms if marks[place] < mark_ms else marks[place]  # noqa: FURB136 - max() is a call
            except ValueError:
                # a forked child released its parent's marks
                return False
        # one step of the interpreter: a comparison and a store would let a tracer's callback in between
        if old is not None and old.successor.setdefault("next", new) is not new:
            return False
        # if these run late, the block that they store was superseded and exhausted: the slow path finds the current one
        self._last = new
        self._block = new.block
        if old is not None and old.block[2] is not new.block[2]:
            exhaust(old.block[2])
        return True

    def _id_now(self) -> int:
        """Take an id of the current block; 0 if it has none."""
        if FREE_THREADED:
            return next(iter(self._take_now(1)), 0)
        start, end, ids, alive, now = self._block
        if start <= now() < end and alive:
            for an_id in ids:
                return an_id
        return 0

    def _take_now(self, count: int) -> list[int]:
        """Take up to *count* ids of the current block; return a list."""
        with self._lock if FREE_THREADED else contextlib.nullcontext():
            start, end, ids, alive, now = self._block
            if start <= now() < end and alive:
                return list(itertools.islice(ids, count))
        return []

    def _fill_now(self, buffer: memoryview) -> int:
        """Write ids of the current block into a buffer of int64; return how many."""
        taken = self._take_now(len(buffer))
        buffer[: len(taken)] = memoryview(array("q", taken))
        return len(taken)


def _pure_ids(low: int, stop: int, step: int) -> Iterator[int]:
    return iter(range(low, stop, step))


def _pure_exhaust(ids: Iterator[int]) -> None:
    """Remove all ids from *ids*, in one step of the interpreter."""
    jump = getattr(ids, "__setstate__", None)
    if jump is not None:
        # a range iterator stops at its end, however large the position is. Not the number of ids left: until Python
        # 3.11 the position counts from the beginning, and would go back if another thread took ids meanwhile
        jump(sys.maxsize)
    collections.deque(ids, maxlen=0)


def _load_c() -> Any:
    """Return the C module; None if it was not built, or does not load."""
    name = "snowredis.runtime._fastpath"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != name:
            warnings.warn(
                f"{name} was built but does not load, so ids are made in pure Python, which is slower: {error}. "
                "Reinstall snowredis, or set SNOWREDIS_PURE=1 to use pure Python without this warning.",
                RuntimeWarning,
                stacklevel=2,
            )
        return None


# takes low, stop and step; returns an iterator, the ids of a block
make_ids: Callable[[int, int, int], Iterator[int]]
# removes all ids from a block's iterator, also for a thread that has read the block already
exhaust: Callable[[Any], None]

if TYPE_CHECKING:
    FastPath = PureFastPath
    IMPLEMENTATION = ""
    make_ids, exhaust = _pure_ids, _pure_exhaust
else:
    _c = None if os.environ.get("SNOWREDIS_PURE") else _load_c()
    if _c is None:
        FastPath, IMPLEMENTATION, make_ids, exhaust = PureFastPath, "python", _pure_ids, _pure_exhaust
    else:
        FastPath, IMPLEMENTATION, make_ids, exhaust = _c.FastPath, "c", _c.Ids, _c.Ids.exhaust

# a block that is never current and has no ids
SEALED: Block = (1.0, 0.0, make_ids(0, 0, 1), b"", time.time)
