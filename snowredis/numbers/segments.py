"""SegmentGenerator: the numbers of one tag, in one process. The kind "segment"."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NoReturn, Self, TypeAlias

from snowredis.core.description import IdDescription
from snowredis.core.values import MAX_BATCH, as_int64, check_count
from snowredis.errors import GeneratorClosed, GeneratorSuspended, StoreUnavailable
from snowredis.kinds.base import IdKind
from snowredis.numbers.fetcher import Fetcher, SegmentCounts, SegmentStatus, Steps
from snowredis.numbers.path import Segment, SegmentPath, no_numbers
from snowredis.numbers.settings import SEGMENT_SETTINGS, Servers, with_defaults
from snowredis.numbers.tag_store import TagStore
from snowredis.numbers.waiting import Prefetcher, Threads, copy_of
from snowredis.process.clock import SYSTEM, Clock
from snowredis.process.fork import GUARD, ForkGuard
from snowredis.process.threads import with_lock
from snowredis.settings import required_url

WAIT_S = 10.0

# A generator function that takes numbers. Where it has to wait, it yields for what, for how many s at most, and how
# many numbers are wanted.
Waits: TypeAlias = Generator[tuple[Prefetcher, float, int], None, None]


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
            drop=weakref.WeakMethod(self._drop),
            start=threads().start,
            clock=clock,
            random_bytes=random_bytes,
        )
        self._prefetcher = Prefetcher(self._fetcher, clock, threads(), ahead=prefetch)
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
        return describe(self._stores[0].config.maximum)

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
        _, left, made = self._position
        left += sum(len(segment.numbers) for segment in list(self._prefetcher.ready))
        return self._fetcher.status(made=made - self._made_before, left=left)

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
        return self._guard.in_one_process(lambda: self._batch(count))

    def fill(self, buffer: Any) -> None:
        """Fill a writable buffer of int64 with numbers: array('q'), numpy int64, or any contiguous one.

        Raises:
            ConfigError: numbers cannot be written to the buffer.
            As next_id(); some of the numbers are in the buffer then.
        """
        view = as_int64(buffer)
        self._guard.in_one_process(lambda: self._fill(view))

    async def anext_id(self) -> int:
        """Make one number. Async version of next_id(): does not block the event loop."""
        return (await self.anext_ids(1))[0]

    async def anext_ids(self, count: int) -> list[int]:
        """Make *count* numbers at once. Async version of next_ids(): does not block the event loop.

        If it is canceled, its numbers are used by others.
        """
        count = check_count(count)
        while True:
            generation, batch = self._guard.generation, list[int]()
            await self._run_async(self._fill_up(batch, count))
            # after a fork in between, some of the numbers are the parent's
            if self._guard.is_still(generation):
                return batch

    def _next_slow(self) -> int:
        return self._guard.in_one_process(lambda: self._batch(1)[0])

    def _batch(self, count: int) -> list[int]:
        batch: list[int] = []
        self._run(self._fill_up(batch, count))
        return batch

    def _fill(self, view: memoryview) -> None:
        filled = 0
        while filled < len(view):
            count = self._fill_now(view[filled : filled + MAX_BATCH])
            if not count:
                self._run(self._waits(len(view) - filled))
            filled += count

    def _fill_up(self, batch: list[int], count: int) -> Waits:
        """Add numbers to the empty *batch*. If that fails, others use all of them."""
        generation, era = self._guard.generation, self._era
        try:
            while len(batch) < count:
                part = self._take_now(count - len(batch))
                if not part:
                    yield from self._waits(count - len(batch))
                batch += part
        except BaseException:
            if self._guard.is_still(generation):
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
            first = number
            if segments and segments[-1].numbers.stop == number:
                first = segments.pop().numbers.start
            server = servers[(number - start) % stride]
            segments.append(Segment(server, range(first, number + stride, stride)))
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
        while not self._advance():
            if prefetcher is not self._prefetcher:
                # forked: a child begins again
                prefetcher, failures = self._prefetcher, self._prefetcher.failures
            left_s = self._wait_s - (self._clock.monotonic() - started_s)
            error = prefetcher.error
            if error is not None and (left_s <= 0 or prefetcher.failures > failures):
                raise copy_of(error)
            if left_s <= 0:
                where = ", ".join(store.where for store in self._stores)
                raise StoreUnavailable(where, f"no segment came within {self._wait_s:g} s")
            yield prefetcher, left_s, wanted
        waited_s = self._clock.monotonic() - started_s
        self._counts.longest_wait_s = max(self._counts.longest_wait_s, waited_s)

    @staticmethod
    def _run(waits: Waits) -> None:
        with contextlib.closing(waits):
            for prefetcher, seconds, wanted in waits:
                prefetcher.wait(seconds, wanted)

    @staticmethod
    async def _run_async(waits: Waits) -> None:
        with contextlib.closing(waits):
            for prefetcher, seconds, wanted in waits:
                await prefetcher.wait_async(seconds, wanted)

    def _advance(self) -> bool:
        """Publish the next numbers that are here, if the current ones are used up. Returns False if there are none."""
        self._guard.check()
        return self._publish_next()

    @with_lock
    def _publish_next(self) -> bool:
        if self._closed:
            raise GeneratorClosed(self.tag, "segment")
        if self._suspended:
            raise GeneratorSuspended(self.tag)
        # read before anything is taken: a call that goes on in a forked child finds another segment then
        current, left, made = self._position
        prefetcher = self._prefetcher
        if left:
            return True
        try:
            segment = prefetcher.ready.popleft()
        except IndexError:
            return False
        if self._supersede(current, segment):
            # a process that makes one number with step=1 needs no second segment
            prefetcher.fetch_ahead(not prefetcher.ready and made > self._made_before)
        else:
            prefetcher.ready.appendleft(segment)
        return True

    @with_lock
    def _drop(self, server: int, from_number: int) -> None:
        """Use no number of *server* from that one on, of all segments that are here."""
        self._era += 1

        def has_some(segment: Segment) -> bool:
            return segment.server == server and segment.numbers[-1] >= from_number

        ready = self._prefetcher.ready
        for segment in filter(has_some, list(ready)):
            ready.remove(segment)
            self._counts.dropped += len(segment.numbers)
        if has_some(self._position[0]):
            self._seal()

    def _seal(self) -> None:
        """Let nobody take what is left of the current segment."""
        while True:
            current, left, _ = self._position
            if self._supersede(current, no_numbers()):
                self._counts.dropped += left
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


def _stop(prefetchers: list[Prefetcher]) -> None:
    for prefetcher in prefetchers:
        prefetcher.stop()


def describe(maximum: int) -> IdDescription:
    """Return the description of the numbers of a tag that ends at *maximum*."""
    bits, length = max(1, maximum.bit_length()), len(str(maximum))
    return IdDescription(
        "segment", int, bits, length, sortable=True, guessable=True, leaks=("volume",), needs=("redis",)
    )


def open_generator(url: Servers | None, **settings: Any) -> SegmentGenerator:
    """Return a generator of the numbers of a tag; *settings* are those of SEGMENT_SETTINGS.

    Connects to nothing yet, but starts embedded://. Raises ConfigError for a setting, or a combination, that cannot
    work.
    """
    # loads redis-py
    from snowredis.numbers.stores import open_stores

    used, url = with_defaults(settings), required_url(url)
    steps = Steps(used["step"], used["max_step"], used["period"])
    stores = open_stores(url, used)
    clock = getattr(url, "clock", None) or SYSTEM
    return SegmentGenerator(stores, steps, prefetch=used["prefetch"], label=used["label"], clock=clock)


def _describe(settings: Mapping[str, Any]) -> IdDescription:
    return describe(settings.get("maximum", SEGMENT_SETTINGS["maximum"].default))


SEGMENT = IdKind(
    name="segment",
    summary="short numbers, nearly in sequence, for one business tag; handed out by Redis in segments",
    settings=SEGMENT_SETTINGS,
    describe=_describe,
    open=lambda settings: open_generator(**{"url": None, **settings}),
)
