"""The fast path in Python, for where _fastpath.c was not built or is not wanted. What it does: fast_path.py."""

from __future__ import annotations

import contextlib
import itertools
import threading
from array import array
from collections.abc import Callable, Iterator
from typing import Any, Self

from snowredis.core.lanes import SEALED, Position, TickRange, first_sequence
from snowredis.process.threads import FREE_THREADED, PAST_END, exhaust

# start and end of a tick's window of wall clock time (ns since 1970), the ids that are left, TickRange.is_reset, and
# time_ns of the clock
Block = tuple[int, int, Iterator[int], Any, Callable[[], int]]

NO_IDS: Iterator[int] = iter(())

# The current tick of a range, in Python. Not a NamedTuple, which takes longer to make:
#   block: read by next_id()
#   ticks: the range
#   tick: SEALED if the range is sealed
#   first_id, size: the tick's first id, and how many it has from there on
#   made: about how many ids were made before this tick
#   successors: first the OpenTick that replaced this one, then those that came too late to do so. An OpenTick that is
#     appended is the first or not in one step of the interpreter
OpenTick = tuple[Block, TickRange, int, int, int, int, list["OpenTick"]]


class PureFastPath:
    """Take ids of the current range. Base of SnowflakeGenerator, which provides _lock and the methods named below.

    Names with an underscore are private to this package: users see them on SnowflakeGenerator.
    """

    __slots__ = ("_block", "_last")

    _block: Block
    _last: OpenTick
    # a reentrant lock, held for every step of the slow path, and by the fast path if FREE_THREADED
    _lock: threading.RLock
    # makes an id when the fast path cannot: claims, waits and renews as needed
    _next_slow: Callable[[], int]
    # makes an id with the gene of a key
    _next_with_gene: Callable[..., int]

    def next_id(self, *, gene: int | str | bytes | None = None) -> int:
        """Make one id. Thread-safe, and safe in signal handlers and finalizers.

        Args:
            gene: a key, int, str or bytes, of which the id has the gene: Layout.gene_of().

        Returns:
            An int, 0 < id < 2**63: greater than every id that this generator made before, unless another
            namespace or worker id came into use since: the clock went back, or the lease was lost.

        Raises:
            LeaseExpired: the reservation ended while Redis did not reply.
            LeaseLost: the lease was lost, and no other worker id could be claimed.
            PoolExhausted, StoreUnavailable, LayoutMismatch: no worker id could be claimed.
            ClockMovedBack, ClockSkewed, LayoutError: the clock shows a time that cannot be used.
            GeneratorClosed: after close(), or suspend().

        Blocks:
            at the first call, for the claim, as claim(); when the sequence of a tick is exhausted, until the
            next tick; after the clock went back, for max_wait_ms at most; when the reservation ended, for one
            round trip to Redis.
        """
        if gene is not None:
            return self._next_with_gene(gene=gene)
        start, end, ids, is_reset, now = self._block
        if start <= now() < end and is_reset:
            for an_id in ids:
                return an_id
        for an_id in self._open_tick():
            return an_id
        return self._next_slow()

    def _next_id_locked(self, *, gene: int | str | bytes | None = None) -> int:
        if gene is not None:
            return self._next_with_gene(gene=gene)
        return self._id_now() or self._next_slow()

    if FREE_THREADED:
        _next_id_locked.__doc__ = next_id.__doc__
        next_id = _next_id_locked

    def __next__(self) -> int:
        return self.next_id()

    def __iter__(self) -> Self:
        return self

    @property
    def _position(self) -> Position:
        """The current TickRange, the last id (SEALED if it is sealed), and about how many ids were made."""
        (_, _, ids, _, _), ticks, tick, first_id, size, made, _ = self._current
        if tick == SEALED:
            return ticks, SEALED, made
        # at least the first id: the thread that opened the tick may not have taken it yet
        taken = max(1, size - ids.__length_hint__())  # type: ignore[attr-defined]
        return ticks, first_id + (taken - 1 << ticks.sequence_shift), made + taken

    @property
    def _current(self) -> OpenTick:
        current = self._last
        # a publisher may have been interrupted before it stored to _last, for good by an error; or may store to it late
        while current[-1]:
            exhaust(current[0][2])
            current = current[-1][0]
        return current

    def _supersede(self, old: TickRange | None, tick: int, new: TickRange) -> bool:
        """Replace the range *old*, in which *tick* was opened last, by *new*, and take the first id of *new*.

        The ids of *old* are exhausted, also for a thread that is taking one. *new* must not have been published before.

        Returns:
            False if *old* and *tick* are not current any more; nothing is published then.
        """
        current = None if old is None else self._current
        if current is not None and (current[1] is not old or current[2] != tick):
            return False
        made = 0 if old is None else self._position[2]
        first_id, first_tick, size, step = new.first_id, SEALED, 0, 1 << new.sequence_shift
        start_ns, end_ns, ids = 1, 0, iter(range(0))
        if first_id != SEALED:
            first_tick, stop = first_id >> new.timestamp_shift, (first_id | new.sequence_mask) + step
            size, ids = (stop - first_id) // step, iter(range(first_id + step, stop, step))
            start_ns = (new.epoch_ms + first_tick * new.tick_ms) * 1_000_000
            start_ns, end_ns = start_ns - new.early_ns, start_ns + new.tick_ms * 1_000_000
        block: Block = (start_ns, end_ns, ids, new.is_reset, new.clock.time_ns)
        opened: OpenTick = (block, new, first_tick, first_id, size, made, [])
        if current is not None:
            # one step of the interpreter: a comparison and a store would let a tracer's callback in between
            current[-1].append(opened)
            if current[-1][0] is not opened:
                return False
            # done before the stores: until then, each reader of what is current exhausts them, too
            exhaust(current[0][2])
        # if these run late, the block that they store was superseded and exhausted: _open_tick() finds the current one
        self._last = opened
        self._block = block
        return True

    def _open_tick(self, count: int = 1) -> Iterator[int]:
        """Return the ids of the clock's tick; open it first if it is a later one of the range, for *count* ids.

        No ids are left in it if only the slow path can tell how to go on. Most programs make fewer ids than there are
        ticks: this is written for speed. After a pause, each function and object that it uses has to be fetched from
        memory, so it calls few.
        """
        current = self._last
        if current[-1]:
            current = self._current
        (_, _, old_ids, is_reset, now), ticks, last_tick, _, size, made, successors = current
        if last_tick == SEALED:
            return NO_IDS
        now_ns, tick_ms = now(), ticks.tick_ms
        tick = (now_ns // 1_000_000 - ticks.epoch_ms) // tick_ms
        if tick <= last_tick or now_ns >= ticks.limit_ns or not is_reset:
            # equal: another thread opened it meanwhile
            return old_ids if tick == last_tick and is_reset else NO_IDS
        start_ns, first_id = (ticks.epoch_ms + tick * tick_ms) * 1_000_000, tick << ticks.timestamp_shift | ticks.low
        step, left = 1 << ticks.sequence_shift, old_ids.__length_hint__()  # type: ignore[attr-defined]
        stop, spread = (first_id | ticks.sequence_mask) + step, ticks.spread
        if spread:
            first = opening(ticks, tick, last_tick, size - left, left)
            # a batch that fits the tick is not divided
            first_id += first * step if count <= spread + 1 - first else 0
        all_ids = range(first_id, stop, step)
        ids = iter(all_ids)
        block = (start_ns, start_ns + tick_ms * 1_000_000, ids, is_reset, now)
        made += size - left
        opened: OpenTick = (block, ticks, tick, first_id, len(all_ids), made, [])
        # the steps of _supersede(). Whoever seals from the first one on exhausts the ids
        successors.append(opened)
        if successors[0] is not opened:
            return NO_IDS
        old_ids.__setstate__(PAST_END)  # type: ignore[attr-defined]
        self._last = opened
        self._block = block
        return ids if is_reset else NO_IDS

    def _id_now(self) -> int:
        """Take an id of the clock's tick; 0 if only the slow path can make one."""
        if FREE_THREADED:
            return next(iter(self._take_now(1)), 0)
        start, end, ids, is_reset, now = self._block
        if start <= now() < end and is_reset:
            for an_id in ids:
                return an_id
        for an_id in self._open_tick():
            return an_id
        return 0

    def _take_now(self, count: int) -> list[int]:
        """Take up to *count* ids of the clock's tick; return a list."""
        with self._lock if FREE_THREADED else contextlib.nullcontext():
            start, end, ids, is_reset, now = self._block
            if start <= now() < end and is_reset and (taken := list(itertools.islice(ids, count))):
                return taken
            return list(itertools.islice(self._open_tick(count), count))

    def _fill_now(self, buffer: memoryview) -> tuple[int, int, int]:
        """Write ids of the clock's tick into a buffer of int64; return how many, the first and the last."""
        taken = self._take_now(len(buffer))
        buffer[: len(taken)] = memoryview(array("q", taken))
        return (len(taken), taken[0], taken[-1]) if taken else (0, 0, 0)


def opening(ticks: TickRange, tick: int, last_tick: int, used: int, left: int) -> int:
    """Return the first sequence of a tick after one with *used* ids, of which *left* sequences were left.

    A process that uses up its ticks has all of each: the next one begins at 0. One that makes many ids begins near 0,
    and so does not wait at the end of a tick.
    """
    is_busy = used > ticks.spread >> 2
    if not left and (is_busy or tick == last_tick + 1):
        return 0
    return first_sequence(tick, ticks.spread >> 7 if is_busy else ticks.spread, ticks.salt)


# next_id() of the process calls this, which bind() sets: the method of its generator, or a function that makes one
_bound: Callable[[], int]


def bind(generator: PureFastPath | None, unbound: Callable[[], int], /) -> None:
    """Let next_id() make ids with *generator*, or call *unbound* if that is None."""
    global _bound  # noqa: PLW0603 - a module's attribute is the fastest place
    _bound = unbound if generator is None else generator.next_id


def next_id() -> int:
    """Make one id with the generator of this process. See SnowflakeGenerator.next_id()."""
    return _bound()
