"""The fast path: the ids that are current, and when they are. Here in Python, and in _fastpath.c the same in C.

A *block* is one tick's ids, as an iterator, with the wall clock window in which they are current. Taking
one is a look at the clock and one step of the iterator. Neither takes a lock (in Python, free-threaded
builds do), and neither decides anything: id_allocator.py publishes blocks and seals them, by _supersede(), which
is one step whatever comes in: a signal handler, another thread, a fork, a tracer.

The one place that chooses: C where it was built, unless SNOWREDIS_PURE is set when this is imported.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import sys
import sysconfig
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from snowredis.runtime.clock import SYSTEM, Clock

# on free-threaded builds range iterators are not atomic, so the fast path takes the lock there
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

# start and end of the window (s since 1970), the ids that are left, and the fork guard's ``alive``
Block = tuple[float, float, Iterator[int], Any]


class Published(NamedTuple):
    """A block, and what whoever publishes the next one has to know.

    Attributes:
        block: read by the fast path.
        state: of id_allocator.py.
        successor: the Published that came after this one, under the key "next"; filled in Python only.
    """

    block: Block
    state: Any
    successor: dict[str, Published]


def make_next_id(now: Callable[[], float], *, locked: bool) -> Callable[[Any], int]:
    """The public method, with its clock bound: an attribute look-up less a call."""

    def next_id(self: FastPath) -> int:
        """Make one id. Thread-safe, and safe in signal handlers and finalizers.

        Returns:
            An int, 0 < id < 2**63: greater than every id that this generator made before, unless another
            namespace or worker id came into use since: the clock went back, or the lease was lost.

        Raises:
            LeaseExpired: the reserved time ran out while Redis was away; LeaseLost: and the worker id too.
            PoolExhausted, StoreUnavailable, LayoutMismatch: no worker id could be claimed.
            ClockMovedBack, ClockSkewed: what the clock shows cannot be used.
            GeneratorClosed: after close().

        Blocks:
            at the first call, for the claim; at the layout's ceiling, to the next tick; on a clock that
            went back, up to clock_tolerance_ms.
        """
        start, end, ids, alive = self._block
        if start <= now() < end and alive:
            for an_id in ids:
                return an_id
        return self._next_slow()

    def next_id_locked(self: FastPath) -> int:
        with self._lock:
            start, end, ids, alive = self._block
            if start <= now() < end and alive:
                for an_id in ids:
                    return an_id
        return self._next_slow()

    if not locked:
        return next_id
    next_id_locked.__doc__ = next_id.__doc__
    next_id_locked.__name__, next_id_locked.__qualname__ = next_id.__name__, next_id.__qualname__
    return next_id_locked


class PureFastPath:
    """What a generator makes ids from."""

    __slots__ = ("_block", "_last")

    _block: Block
    _last: Published
    _clock: Clock
    _lock: threading.RLock

    def __new__(cls, *args: Any, clock: Clock = SYSTEM, **kwargs: Any) -> Self:
        # a clock of its own means a next_id of its own: the fast path has its clock bound in
        if clock is SYSTEM or "next_id" in cls.__dict__:
            return super().__new__(cls)
        namespace = {"__slots__": (), "next_id": make_next_id(clock.time, locked=FREE_THREADED)}
        return super().__new__(type(cls.__name__, (cls,), namespace))

    next_id = make_next_id(time.time, locked=FREE_THREADED)

    def __next__(self) -> int:
        return self.next_id()

    def __iter__(self) -> Self:
        return self

    def _next_slow(self) -> int:
        """The next id when the current block has none: claims, waits and renews as need be."""
        raise NotImplementedError

    @property
    def _published(self) -> Published:
        """What is current."""
        published = self._last
        # whoever published something may not have come to the stores below yet, or may come to them late
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
        """Make *new* current in the place of *old*, and take away the ids that *old* has left, if they are others.

        ``marks[place]`` is raised to *mark_ms* before anybody can have the new ids.

        Returns:
            False if *old* is not current any more; nothing is published then.
        """
        if marks is not None:
            try:
                # one line without a call: neither a handler nor a tracer of lines comes in between
                marks[place] = mark_ms if marks[place] < mark_ms else marks[place]  # noqa: FURB136 - max() is a call
            except ValueError:
                # a forked child let go of its parent's marks
                return False
        # one step of the interpreter: a comparison and a store would let a tracer's callback in between
        if old is not None and old.successor.setdefault("next", new) is not new:
            return False
        # where these come late, what they store was replaced and emptied: the slow path finds what is current
        self._last = new
        self._block = new.block
        if old is not None and old.block[2] is not new.block[2]:
            exhaust(old.block[2])
        return True

    def _use_clock(self, now: Callable[[], float] | None) -> None:
        """What to ask for the time, in s; None for the system's clock. Here it is bound into next_id()."""

    def _id_now(self) -> int:
        """An id of the current block, or 0."""
        if FREE_THREADED:
            return next(iter(self._take_now(1)), 0)
        start, end, ids, alive = self._block
        if start <= self._clock.time() < end and alive:
            for an_id in ids:
                return an_id
        return 0

    def _take_now(self, count: int) -> list[int]:
        """A list of up to *count* ids of the current block."""
        with self._lock if FREE_THREADED else contextlib.nullcontext():
            start, end, ids, alive = self._block
            if start <= self._clock.time() < end and alive:
                return list(itertools.islice(ids, count))
        return []

    def _fill_now(self, buffer: memoryview) -> int:
        """Write ids of the current block into a buffer; how many."""
        taken = self._take_now(len(buffer))
        buffer[: len(taken)] = memoryview(array("q", taken))
        return len(taken)


def _pure_ids(low: int, stop: int, step: int) -> Iterator[int]:
    return iter(range(low, stop, step))


def _pure_exhaust(ids: Iterator[int]) -> None:
    """Leave nothing, in one step of the interpreter."""
    jump = getattr(ids, "__setstate__", None)
    if jump is not None:
        # a range iterator stops at its end, however far it is told to go. Not by what is left: until Python 3.11 it
        # counts from its beginning, and would go back where somebody took ids meanwhile
        jump(sys.maxsize)
    collections.deque(ids, maxlen=0)


# low, stop, step -> the ids of a block; and what leaves none of them, not even for whoever has read the block
make_ids: Callable[[int, int, int], Iterator[int]]
exhaust: Callable[[Any], None]

if TYPE_CHECKING:
    FastPath = PureFastPath
    IMPLEMENTATION = ""
    make_ids, exhaust = _pure_ids, _pure_exhaust
else:
    _fastpath = None
    if not os.environ.get("SNOWREDIS_PURE"):
        with contextlib.suppress(ImportError):
            from snowredis.runtime import _fastpath
    if _fastpath is None:
        FastPath, IMPLEMENTATION, make_ids, exhaust = PureFastPath, "python", _pure_ids, _pure_exhaust
    else:
        FastPath, IMPLEMENTATION, make_ids, exhaust = (
            _fastpath.FastPath,
            "c",
            _fastpath.Ids,
            _fastpath.Ids.exhaust,
        )

# never open, and nothing in it
SEALED: Block = (1.0, 0.0, make_ids(0, 0, 1), False)
