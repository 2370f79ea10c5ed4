"""Numbers of the current segment, taken one after the other.

Taking a number reads no clock and takes no lock: it checks that this process was not forked, and that numbers are left.
All else is left to the slow path, which publishes the next segment by _supersede(): one indivisible step for signal
handlers, other threads, forks and tracers.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import threading
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from snowredis.kinds.base import GeneratorBase
from snowredis.process.fork import ForkGuard
from snowredis.process.threads import FREE_THREADED, exhaust


class Segment(NamedTuple):
    """Numbers that only this process may use: those of a segment, or of a part of one.

    Attributes:
        server: index of the server that handed them out.
        numbers: the numbers.
    """

    server: int
    numbers: range


def no_numbers() -> Segment:
    """Return a new segment without numbers."""
    return Segment(-1, range(0))


# the current segment, about how many numbers it has left, and about how many were taken so far in all
Position = tuple[Segment, int, int]
# the numbers that are left, and the fork guard's ``is_reset``: read by next_id()
Block = tuple[Iterator[int], Any]
# the block, its segment, how many numbers were taken before, and under the key "next" what replaced it
Current = tuple[Block, Segment, int, dict[str, Any]]


class SegmentPath(GeneratorBase[int]):
    """Take numbers of the current segment. The base class of SegmentGenerator, which has the other names."""

    __slots__ = ("_block", "_last")

    _block: Block
    _last: Current
    _guard: ForkGuard
    # reentrant; held by the fast path where FREE_THREADED
    _lock: threading.RLock
    _next_slow: Callable[[], int]

    def __init__(self) -> None:
        self._block = (iter(()), b"")
        self._last = (self._block, no_numbers(), 0, {})

    def next_id(self) -> int:
        """Make one number. Thread-safe, and safe in signal handlers and finalizers.

        Returns:
            An int, from the tag's start to its maximum, which no other call returns, here or elsewhere.

        Raises:
            NumbersClosed: the tag is closed, and the segments that this process has are used up.
            NumbersExhausted: there is no number.
            StoreUnavailable, NumbersDiffer: there is no segment left, and Redis hands out none.
            GeneratorClosed: after close().

        Blocks:
            at the first call, for a round trip to Redis; afterwards only if segments are used up faster than they are
            fetched, or while Redis does not reply.
        """
        numbers, is_reset = self._block
        if is_reset:
            for number in numbers:
                return number
        return self._next_slow()

    def _next_id_locked(self) -> int:
        taken = self._take_now(1)
        return taken[0] if taken else self._next_slow()

    if FREE_THREADED:
        _next_id_locked.__doc__ = next_id.__doc__
        next_id = _next_id_locked

    @property
    def _current(self) -> Current:
        current = self._last
        # a caller that publishes may be interrupted before its stores, or ended by an error
        while current[-1]:
            exhaust(current[0][0])
            current = current[-1]["next"]
        if self._block is not current[0]:
            # _last is stored first: otherwise, a signal handler in between would see numbers left, and take none
            self._last = current
            self._block = current[0]
        return current

    @property
    def _position(self) -> Position:
        """The current segment, about how many numbers it has left, and about how many were taken so far."""
        (numbers, _), segment, before, _ = self._current
        left = operator.length_hint(numbers)
        return segment, left, before + len(segment.numbers) - left

    def _supersede(self, old: Segment, new: Segment) -> bool:
        """Replace the segment *old* by *new*; what was left of *old* is not taken any more. *new* must be a new object.

        Returns:
            False if *old* is not current any more; nothing is published then.
        """
        current = self._current
        if current[1] is not old:
            return False
        numbers = current[0][0]
        block = (iter(new.numbers), self._guard.is_reset)
        taken = current[2] + len(old.numbers) - operator.length_hint(numbers)
        opened: Current = (block, new, taken, {})
        # one step of the interpreter: a comparison and a store would let a tracer's callback in between
        if current[-1].setdefault("next", opened) is not opened:
            return False
        # exhausted before the stores: until then, other readers of _current exhaust it, too
        exhaust(numbers)
        # if these run late, what they store was superseded and exhausted: _current finds the right one
        self._last = opened
        self._block = block
        return True

    def _take_now(self, count: int) -> list[int]:
        """Take up to *count* numbers of the current segment; return a list."""
        with self._lock if FREE_THREADED else contextlib.nullcontext():
            numbers, is_reset = self._block
            return list(itertools.islice(numbers, count)) if is_reset else []

    def _fill_now(self, buffer: memoryview) -> int:
        """Write numbers of the current segment into a buffer of int64; return how many."""
        with self._lock if FREE_THREADED else contextlib.nullcontext():
            numbers, is_reset = self._block
            # one call of C, like list() above
            taken = array("q", itertools.islice(numbers, len(buffer)) if is_reset else ())
        buffer[: len(taken)] = memoryview(taken)
        return len(taken)
