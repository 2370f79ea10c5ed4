"""SegmentGenerator: the numbers of one tag, in one process. The kind "segment"."""

from __future__ import annotations

import contextlib
import copy
import itertools
import operator
import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from snowredis.core.description import IdDescription
from snowredis.core.values import check_count
from snowredis.errors import ConfigError, GeneratorClosed, StoreUnavailable
from snowredis.kinds.base import GeneratorBase, IdKind
from snowredis.numbers.buffer import Buffer
from snowredis.numbers.formats import MAX_NUMBER
from snowredis.numbers.masters import Masters, SegmentCounts, Steps
from snowredis.numbers.settings import SEGMENT_SETTINGS, servers_of
from snowredis.process.clock import SYSTEM, Clock
from snowredis.process.fork import GUARD
from snowredis.process.threads import FREE_THREADED, exhaust, with_lock
from snowredis.settings import check_settings, required_url

# how long a caller waits for a segment
WAIT_S = 10.0

# the numbers that are left of a part of a segment, and the fork guard's ``is_reset``: read by next_id()
Block: TypeAlias = tuple[Iterator[int], Any]


_BITS, _DIGITS = MAX_NUMBER.bit_length(), len(str(MAX_NUMBER))
DESCRIPTION = IdDescription(
    "segment", int, _BITS, _DIGITS, sortable=True, guessable=True, leaks=("volume",), needs=("redis",)
)


class SegmentGenerator(GeneratorBase[int]):
    """The numbers of one tag: short, and nearly in sequence. Made by snowredis.generator("segment", tag=...).

    Thread-safe, and safe in signal handlers. A forked child fetches segments of its own. Numbers of one process grow,
    unless several threads or a signal handler make them at once, there are several servers, or a batch failed, whose
    numbers are used next. A crash, a fork or close() leaves gaps: at most the segment in use and the next one.

    Taking a number reads no clock and takes no lock: it checks that this process was not forked, and that numbers are
    left. Each part of a segment becomes one iterator, so that no number is taken twice, whoever publishes it when.

    Args:
        stores: the tag on its server, or on several that hand out numbers between each other.
        steps: sizes of its segments; with 1 as the most, each one is fetched when a caller waits for it.
        clock: replaced in tests.

    Attributes:
        tag: the tag's name.
        steps: the sizes of its segments.
        counts: its counters.
    """

    description = DESCRIPTION

    def __init__(self, stores: Sequence[Any], steps: Steps, clock: Clock = SYSTEM) -> None:
        self._block: Block = (iter(()), b"")
        self._stores, self.steps, self._clock = tuple(stores), steps, clock
        self.tag = str(stores[0].tag)
        self._is_ahead = steps.max_step > 1
        self._closed = self._suspended = False
        self.counts = SegmentCounts()
        # numbers of all parts that were published, without those that were dropped
        self._published = 0
        self._masters = Masters(self._stores, steps, self.counts, clock)
        self._new_locks()
        self._buffer = Buffer(self._masters.fetch, clock)
        GUARD.reset_in_child(self)

    def _new_locks(self) -> None:
        # reentrant; the second one is held while numbers are taken, where range iterators are not atomic
        self._lock, self._taking = threading.RLock(), threading.RLock()

    # --- state -------------------------------------------------------------------------------------

    @property
    def made(self) -> int:
        """About how many numbers this generator made in this process."""
        return self._published - operator.length_hint(self._block[0])

    @property
    def left(self) -> int:
        """About how many numbers it has at hand, prefetched ones included."""
        return operator.length_hint(self._block[0]) + sum(map(len, list(self._buffer.ready)))

    @property
    def remaining(self) -> int | None:
        """Count of the tag's numbers that are not handed out; None if that is not known."""
        known = [master.granted.left for master in self._masters.all if master.granted is not None]
        return sum(known) if len(known) == len(self._stores) else None

    # --- numbers -----------------------------------------------------------------------------------

    def next_id(self) -> int:
        """Make one number. Thread-safe, and safe in signal handlers and finalizers.

        Returns:
            An int, from the tag's start to its maximum, which no other call returns, here or elsewhere.

        Raises:
            NumbersClosed: the tag is closed, and the segments that this process has are used up.
            NumbersExhausted: there is no number.
            StoreUnavailable, ConfigError: there is no segment left, and Redis hands out none.
            GeneratorClosed: after close().

        Blocks:
            at the first call, for a round trip to Redis; afterwards only if segments are used up faster than they are
            fetched, or while Redis does not reply.
        """
        numbers, is_reset = self._block
        if is_reset:
            for number in numbers:
                return number
        return self.next_ids(1)[0]

    def _next_id_locked(self) -> int:
        taken = self._take_now(1)
        return taken[0] if taken else self.next_ids(1)[0]

    if FREE_THREADED:
        _next_id_locked.__doc__ = next_id.__doc__
        next_id = _next_id_locked

    def next_ids(self, count: int) -> list[int]:
        """Make *count* numbers at once.

        Args:
            count: how many, 0 to 1,000,000.

        Returns:
            Exactly *count* ints, in the order in which next_id() would make them.

        Raises:
            As next_id(); nothing of the batch is returned then, and its numbers are used next.
        """
        count = check_count(count)
        return GUARD.in_one_process(lambda: self._batch(count))

    async def anext_id(self) -> int:
        """Make one number. Async version of next_id(): does not block the event loop.

        A call that is canceled while it waits may leave a gap.
        """
        taken = self._take_now(1)
        return taken[0] if taken else await super().anext_id()

    def _take_now(self, count: int) -> list[int]:
        """Take up to *count* numbers that are here."""
        with self._taking if FREE_THREADED else contextlib.nullcontext():
            numbers, is_reset = self._block
            return list(itertools.islice(numbers, count)) if is_reset else []

    def _batch(self, count: int) -> list[int]:
        """Return *count* numbers. If that fails, others use those that were taken."""
        batch, buffer = list[int](), self._buffer
        try:
            while len(batch) < count:
                part = self._take_now(count - len(batch))
                if not part:
                    self._wait(count - len(batch))
                batch += part
        except BaseException:
            if batch and buffer is self._buffer and GUARD.is_reset:
                self._published -= len(batch)
                buffer.ready.appendleft(batch)
            raise
        return batch

    def _wait(self, wanted: int) -> None:
        """Wait until there are numbers to take: others may take them first. Raises as next_id()."""
        if self._advance():
            return
        started_s = self._clock.monotonic()
        self.counts.waits += 1
        buffer, failures = self._buffer, self._buffer.failures
        while not self._advance():
            if buffer is not self._buffer:
                # forked: a child begins again
                buffer, failures = self._buffer, self._buffer.failures
            left_s = WAIT_S - (self._clock.monotonic() - started_s)
            error = buffer.error
            if error is not None and (left_s <= 0 or buffer.failures > failures):
                raise copy.copy(error) from error.__cause__
            if left_s <= 0:
                where = ", ".join(store.where for store in self._stores)
                raise StoreUnavailable(where, f"no segment came within {WAIT_S:g} s")
            buffer.wait(left_s, wanted)

    def _advance(self) -> bool:
        """Publish the next part that is here, if the current one is used up. Returns False if there is none."""
        GUARD.check()
        found, is_ahead = self._publish_next()
        if is_ahead:
            self._buffer.fetch_ahead()
        return found

    @with_lock
    def _publish_next(self) -> tuple[bool, bool]:
        """Return whether there are numbers, and whether the next segment is to be fetched."""
        if self._closed:
            raise GeneratorClosed(self.tag, "segment")
        if self._suspended:
            raise GeneratorClosed(self.tag, "segment", suspended=True)
        # read before the part is taken: a child that is forked here has another guard's flag, and another buffer
        buffer, is_reset = self._buffer, GUARD.is_reset
        numbers, was_reset = self._block
        if was_reset and operator.length_hint(numbers):
            return True, False
        try:
            part = buffer.ready.popleft()
        except IndexError:
            return False, False
        new = iter(part)
        self._published += len(part)
        self._block = (new, is_reset)
        if buffer is not self._buffer:
            # a signal handler called suspend() or close(), or forked
            exhaust(new)
            return False, False
        return True, self._is_ahead and not buffer.ready

    # --- life --------------------------------------------------------------------------------------

    def _drop_all(self) -> Buffer:
        """Use nothing of what is at hand, or under way. Returns the buffer that is void."""
        old, self._buffer = self._buffer, Buffer(self._masters.fetch, self._clock)
        old.is_void = True
        # what is published later, by a caller that this interrupted, is dropped by that caller
        numbers, _ = self._block
        self._block = (iter(()), b"")
        self._published -= operator.length_hint(numbers)
        exhaust(numbers)
        return old

    @with_lock
    def suspend(self) -> None:
        """Drop the numbers at hand before the machine is snapshotted; no numbers until resume().

        A clone of a running process has the same segments and makes the same numbers; a clone of one whose generators
        are suspended has none.
        """
        self._suspended = True
        self._drop_all().end_waits()
        self.steps.begin()

    @with_lock
    def resume(self) -> None:
        """Allow numbers again after suspend(). Does nothing if it was not suspended."""
        self._suspended = False

    @with_lock
    def close(self) -> None:
        """Stop making numbers; those at hand are not used by anybody. Idempotent, never raises, does not block."""
        if self._closed:
            return
        self._closed = True
        self._drop_all().end_waits()
        for store in self._stores:
            store.close()

    def _after_fork(self) -> None:
        """In a forked child: forget the parent's segments; the first number fetches one of its own."""
        self._new_locks()
        self._drop_all()
        for master in self._masters.all:
            master.after_fork()
        self.steps.begin()
        # the parent counts what it made, and still has
        self.counts = self._masters.counts = SegmentCounts()
        self._published = 0


def open_generator(url: Any = None, **settings: Any) -> SegmentGenerator:
    """Return a generator of the numbers of a tag; *settings* are those of SEGMENT_SETTINGS.

    Connects to nothing yet, but starts embedded://. Raises ConfigError for a setting, or a combination, that cannot
    work.
    """
    # loads redis-py
    from snowredis.numbers.stores import open_tag_store

    defaults = {name: setting.default for name, setting in SEGMENT_SETTINGS.items()}
    used, url = defaults | check_settings(settings, SEGMENT_SETTINGS, " of segments"), required_url(url)
    stores = [open_tag_store(server, used["tag"], min_replicas=used["min_replicas"]) for server in servers_of(url)]
    places = [store.where if store.where != "memory" else id(store) for store in stores]
    if not stores or len(set(places)) < len(places):
        raise ConfigError(
            f"url names {'a server twice' if stores else 'no server'}. Name each independent server once."
        )
    steps = Steps(used["step"], used["max_step"])
    return SegmentGenerator(stores, steps, getattr(url, "clock", None) or SYSTEM)


SEGMENT = IdKind(
    name="segment",
    summary="short numbers, nearly in sequence, for one business tag; handed out by Redis in segments",
    settings=SEGMENT_SETTINGS,
    describe=lambda _: DESCRIPTION,
    open=lambda settings: open_generator(**settings),
)
