"""SegmentGenerator: the numbers of one tag, in one process."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias

from snowredis.core.description import IdDescription
from snowredis.core.values import MAX_BATCH, check_count
from snowredis.errors import GeneratorClosed, GeneratorSuspended, StoreUnavailable
from snowredis.numbers.counts import SegmentCounts, SegmentStatus, Steps
from snowredis.numbers.fetcher import HEAD, Fetcher, Segment
from snowredis.numbers.path import NumberRange, SegmentPath
from snowredis.numbers.protocol import TagStore, describe
from snowredis.numbers.waiting import Prefetcher, Threads, again
from snowredis.process.clock import SYSTEM, Clock
from snowredis.process.fork import GUARD, ForkGuard
from snowredis.process.threads import with_lock
from snowredis.snowflake.fast_path import as_int64

WAIT_S = 10.0


class SegmentWait(NamedTuple):
    """Wait of *seconds* at most for a segment of *wanted* numbers."""

    prefetcher: Prefetcher
    seconds: float
    wanted: int


# what takes numbers, and yields where it has to wait
Waits: TypeAlias = Generator[SegmentWait, None, None]


class Published(NamedTuple):
    """The segment that a NumberRange is a part of.

    Attributes:
        segment: the segment.
        rest: the part that comes next; None if this is the last one.
    """

    segment: Segment
    rest: NumberRange | None


def nothing() -> NumberRange:
    """Return a new range without numbers."""
    return NumberRange(0, 1, 0, b"", None)


class SegmentGenerator(SegmentPath):
    """The numbers of one tag: short, and nearly in sequence. Made by snowredis.generator("segment", tag=...).

    Thread-safe, and safe in signal handlers. A forked child fetches segments of its own. Numbers of one process grow,
    unless several threads or a signal handler make them at once, there are several servers, or a batch failed, whose
    numbers are used next. A crash, a fork or close() leaves gaps: at most the segment in use and the next one.

    Args:
        stores: the tag on its server, or its shares on several.
        steps: sizes of its segments.
        prefetch: fetch segments before they are needed; else each one when a caller waits for it.
        wait_s: how long a caller waits for a segment.
        label: name of this process, for people.
        clock, guard, random_bytes, threads: replaced in tests.
    """

    def __init__(
        self,
        stores: Sequence[TagStore],
        steps: Steps,
        *,
        prefetch: bool = True,
        wait_s: float = WAIT_S,
        label: str = "",
        clock: Clock = SYSTEM,
        guard: ForkGuard = GUARD,
        random_bytes: Callable[[int], bytes] = os.urandom,
        threads: Callable[[], Threads] = Threads,
    ) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._stores, self._steps = tuple(stores), steps
        self._clock, self._guard, self._random_bytes, self._threads = clock, guard, random_bytes, threads
        self._wait_s, self._ahead = wait_s, prefetch
        self._closed = self._suspended = False
        self._counts = SegmentCounts()
        # counts what makes numbers of before unusable: drops, suspend(), forks
        self._era = 0
        # numbers that the parent made before this process was forked
        self._made_before = 0
        self._fetcher = Fetcher(
            self._stores,
            steps,
            self._counts,
            label=label,
            drop=_weakly(self._drop),
            start=threads().start,
            clock=clock,
            random_bytes=random_bytes,
        )
        self._prefetcher = Prefetcher(self._fetcher, clock, threads(), ahead=prefetch)
        self._supersede(self._position[0], nothing())
        guard.reset_in_child(self)
        # a thread that is forgotten with its generator ends
        self._to_stop = [self._prefetcher]
        weakref.finalize(self, _stop, self._to_stop).atexit = False

    # --- state -------------------------------------------------------------------------------------

    @property
    def tag(self) -> str:
        """The tag's name."""
        return self._stores[0].config.tag

    @property
    def description(self) -> IdDescription:
        """Return the description of its numbers."""
        config = self._stores[0].config
        return describe(config.maximum)

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._closed

    @property
    def counts(self) -> SegmentCounts:
        """Counters of this generator."""
        return self._counts

    @property
    def status(self) -> SegmentStatus:
        """Return what this generator has and knows at the moment. Does not block."""
        published, left, made = self._position
        rest = published.segment.rest if published.segment is not None else None
        at_hand = left + (rest.size if rest is not None else 0)
        at_hand += sum(s.until_position - s.from_position for s in list(self._prefetcher.ready))
        return self._fetcher.status(made=made - self._made_before, left=at_hand)

    # --- numbers -----------------------------------------------------------------------------------

    def next_ids(self, count: int) -> list[int]:
        """Make *count* numbers at once.

        Args:
            count: how many, 0 to 1,000,000.

        Returns:
            Exactly *count* ints, in the order in which next_id() would make them.

        Raises:
            As next_id(); nothing of the batch is returned then, and its numbers are not used.
        """
        count = check_count(count)
        while True:
            generation, era = self._guard.generation, self._era
            batch = self._take_now(count)
            if len(batch) < count:
                self._run(self._fill_up(batch, count, generation, era))
            # else forked in between: some of the numbers are the parent's
            if self._guard.alive and self._guard.generation == generation:
                return batch

    def fill(self, buffer: Any) -> None:
        """Fill a writable buffer of int64 with numbers: array('q'), numpy int64, or any contiguous one.

        Raises:
            ConfigError: numbers cannot be written to the buffer.
            As next_id(); some of the numbers are in the buffer then.
        """
        view = as_int64(buffer)
        while True:
            generation, filled = self._guard.generation, 0
            while filled < len(view):
                count = self._fill_now(view[filled : filled + MAX_BATCH])
                if not count:
                    self._run(self._waits(len(view) - filled))
                filled += count
            if self._guard.alive and self._guard.generation == generation:
                return

    async def anext_id(self) -> int:
        """Make one number. Async version of next_id(): does not block the event loop."""
        generation = self._guard.generation
        for number in self._take_now(1):
            if self._guard.alive and self._guard.generation == generation:
                return number
        return (await self.anext_ids(1))[0]

    async def anext_ids(self, count: int) -> list[int]:
        """Make *count* numbers at once. Async version of next_ids(): does not block the event loop.

        If it is canceled, its numbers are used by others.
        """
        count = check_count(count)
        while True:
            generation, era = self._guard.generation, self._era
            batch = self._take_now(count)
            if len(batch) < count:
                await self._run_async(self._fill_up(batch, count, generation, era))
            if self._guard.alive and self._guard.generation == generation:
                return batch

    def _next_slow(self) -> int:
        while True:
            generation = self._guard.generation
            self._run(self._waits(1))
            for number in self._take_now(1):
                # else forked in between: it is the parent's
                if self._guard.alive and self._guard.generation == generation:
                    return number

    def _fill_up(self, batch: list[int], count: int, generation: int, era: int) -> Waits:
        """Add numbers to *batch*, begun in *generation* and *era*. If that fails, others use all of them."""
        try:
            while len(batch) < count:
                part = self._take_now(count - len(batch))
                if not part:
                    yield from self._waits(count - len(batch))
                batch += part
        except BaseException:
            if self._guard.alive and self._guard.generation == generation:
                self._put_back(batch, era)
            raise

    @with_lock
    def _put_back(self, numbers: list[int], era: int) -> None:
        """Let others use *numbers* of a batch that failed, unless they were dropped since."""
        if era != self._era or self._closed or self._suspended:
            return
        start, stride = self._stores[0].config.start, self._stores[0].config.share[1]
        # those of other servers handed out none of these numbers
        servers = {store.config.share[0]: index for index, store in enumerate(self._stores) if store.knows_share}
        segments: list[Segment] = []
        for number in numbers:
            position, share = divmod(number - start, stride)
            server = servers[share]
            last = segments[-1] if segments else None
            if last is not None and (last.server, last.until_position) == (server, position):
                segments[-1] = last._replace(until_position=position + 1)
            else:
                segments.append(Segment(server, position, position + 1, number, stride))
        self._prefetcher.ready.extendleft(reversed(segments))

    def _waits(self, wanted: int) -> Waits:
        """Yield each wait until there are numbers to take: others may take them first. Raises as next_id().

        _run() and _run_async() wait: this is the same for threads and for coroutines.
        """
        if self._advance():
            return
        started_s = self._clock.monotonic()
        self._counts.waits += 1
        prefetcher, failures = self._prefetcher, self._prefetcher.failures
        while not self._advance(waited=True):
            if prefetcher is not self._prefetcher:
                # forked: a child begins again
                prefetcher, failures = self._prefetcher, self._prefetcher.failures
            left_s = self._wait_s - (self._clock.monotonic() - started_s)
            error = prefetcher.error
            if error is not None and (left_s <= 0 or prefetcher.failures > failures):
                raise again(error)
            if left_s <= 0:
                where = ", ".join(store.where for store in self._stores)
                raise StoreUnavailable(where, f"no segment came within {self._wait_s:g} s")
            yield SegmentWait(prefetcher, left_s, wanted)
        waited_s = self._clock.monotonic() - started_s
        self._counts.longest_wait_s = max(self._counts.longest_wait_s, waited_s)

    @staticmethod
    def _run(waits: Waits) -> None:
        with contextlib.closing(waits):
            for wait in waits:
                wait.prefetcher.wait(wait.seconds, wait.wanted)

    @staticmethod
    async def _run_async(waits: Waits) -> None:
        with contextlib.closing(waits):
            for wait in waits:
                await wait.prefetcher.wait_async(wait.seconds, wait.wanted)

    def _advance(self, *, waited: bool = False) -> bool:
        """Publish the next numbers that are here, if the current ones are used up. Returns False if there are none.

        Args:
            waited: the caller waited for them.
        """
        self._guard.check()
        return self._publish_next(waited)

    @with_lock
    def _publish_next(self, waited: bool) -> bool:
        if self._closed:
            raise GeneratorClosed(self.tag, "segment")
        if self._suspended:
            raise GeneratorSuspended(self.tag)
        # read before anything is taken: a call that goes on in a forked child finds another range then
        current, left, _ = self._position
        prefetcher = self._prefetcher
        if left:
            return True
        if current.segment is not None and current.segment.rest is not None:
            if self._supersede(current, current.segment.rest):
                prefetcher.fetch_ahead()
            return True
        try:
            segment = prefetcher.ready.popleft()
        except IndexError:
            return False
        head = self._head(segment)
        if self._supersede(current, head):
            self._counts.prefetch_hits += not waited
            # a process that makes one number with step=1 needs no second segment
            prefetcher.fetch_ahead(head.segment.rest is None and self._counts.segments > 1)
        else:
            prefetcher.ready.appendleft(segment)
        return True

    def _head(self, segment: Segment) -> NumberRange:
        """Return the first part of *segment*, with the rest."""
        count = segment.until_position - segment.from_position
        first = -(-count // HEAD)
        alive, stride = self._guard.alive, segment.stride
        rest = None
        if count > first:
            rest = NumberRange(segment.first + first * stride, stride, count - first, alive, Published(segment, None))
        return NumberRange(segment.first, stride, first, alive, Published(segment, rest))

    @with_lock
    def _drop(self, server: int, from_position: int) -> None:
        """Use no number of *server* from that position on, of all segments that are here."""
        self._era += 1
        ready = self._prefetcher.ready
        for segment in list(ready):
            if segment.server == server and segment.until_position > from_position:
                ready.remove(segment)
                self._counts.dropped += segment.until_position - segment.from_position
        current = self._position[0]
        if current.segment is not None:
            segment = current.segment.segment
            if segment.server == server and segment.until_position > from_position:
                self._seal()

    def _seal(self) -> None:
        """Let nobody take what is left of the current range and its rest."""
        while True:
            current, left, _ = self._position
            rest = current.segment.rest if current.segment is not None else None
            if self._supersede(current, nothing()):
                self._counts.dropped += left + (rest.size if rest is not None else 0)
                return

    # --- life --------------------------------------------------------------------------------------

    @with_lock
    def suspend(self) -> None:
        """Drop the numbers at hand before the machine is snapshotted; no numbers until resume().

        A clone of a running process has the same segments and makes the same numbers; a clone of one whose generators
        are suspended has none.
        """
        self._suspended = True
        self._era += 1
        self._seal()
        self._prefetcher.renew()
        self._steps.after_fork()

    @with_lock
    def resume(self) -> None:
        """Allow numbers again after suspend(). Does nothing if it was not suspended."""
        if self._suspended:
            self._prefetcher.renew()
            self._suspended = False

    @with_lock
    def close(self) -> None:
        """Stop making numbers; those at hand are not used by anybody. Idempotent, never raises, does not block."""
        if self._closed:
            return
        self._closed = True
        self._seal()
        self._prefetcher.stop()

    async def aclose(self) -> None:
        """Stop making numbers. Async version of close()."""
        self.close()

    async def __aenter__(self) -> Self:
        await self._run_async(self._waits(1))
        return self

    def _after_fork(self) -> None:
        """In a forked child: forget the parent's segments; the first number fetches one of its own."""
        self._lock = threading.RLock()
        self._era += 1
        self._seal()
        for store in self._stores:
            store.after_fork()
        self._steps.after_fork()
        # the parent counts what it made, and still has
        self._counts.clear()
        self._made_before = self._position[2]
        self._fetcher = self._fetcher.successor()
        self._prefetcher = Prefetcher(self._fetcher, self._clock, self._threads(), ahead=self._ahead)
        self._to_stop[:] = [self._prefetcher]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a segment generator cannot be pickled or copied: two copies would make the same numbers. "
            "Make one in each process."
        )

    def __repr__(self) -> str:
        state = " closed" if self._closed else " suspended" if self._suspended else ""
        return f"<snowredis.SegmentGenerator tag={self.tag!r}{state}>"


def _weakly(method: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Return a function that calls a method of an object, as long as the object exists."""
    weak = weakref.WeakMethod(method)

    def call(server: int, from_position: int) -> None:
        bound = weak()
        if bound is not None:
            bound(server, from_position)

    return call


def _stop(prefetchers: list[Prefetcher]) -> None:
    for prefetcher in prefetchers:
        prefetcher.stop()
