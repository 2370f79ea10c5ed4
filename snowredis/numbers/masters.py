"""Take numbers: from one server, or alternately from several independent ones, whose numbers lie between each other.

A process shows each server how far it knows the numbers to be handed out, so that a server that forgot some notices it.
A reply that is lost leaves a gap. Blocks as the stores do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from snowredis.errors import ConfigError, SnowredisError, StoreUnavailable
from snowredis.numbers import protocol
from snowredis.numbers.formats import EVER, MAX_NUMBER, Period
from snowredis.numbers.protocol import GrantedNumbers, NumbersClosed, NumbersExhausted
from snowredis.process.clock import Clock
from snowredis.process.threads import with_lock

GROWTH = 10
SHRINK = 2
# how long a segment shall last; Leaf, of Meituan, has the same
LASTS_S = 900.0
# a server that handed out nothing is not asked again for this time, if another one does
AWAY_S = 10.0


class Steps:
    """Sizes of the segments of one generator: they follow the consumption, so that each lasts for LASTS_S.

    Args:
        step: size of the first segment, and the least of any, 1 or more.
        max_step: the most.

    Raises ConfigError for values that cannot work.
    """

    def __init__(self, step: int, max_step: int) -> None:
        if max_step < step:
            raise ConfigError(f"max_step={max_step} is less than step={step}. Raise max_step.")
        self.step, self.max_step = step, max_step
        self.begin()

    def begin(self) -> None:
        """Begin with the first size."""
        self.size = self.step
        self._fetched_s: float | None = None

    def next_size(self, now_s: float) -> int:
        """Return how many numbers to ask for at *now_s*, a monotonic clock; the segment before is being used up."""
        if self._fetched_s is None:
            return self.size
        lasted_s = max(now_s - self._fetched_s, 1e-6)
        target = self.size * LASTS_S / lasted_s
        size = min(max(target, self.size / SHRINK), self.size * GROWTH)
        return int(min(max(size, self.step), self.max_step))

    def fetched(self, size: int, now_s: float) -> None:
        """Note that a segment of *size* numbers came at *now_s*."""
        self.size = min(max(size, self.step), self.max_step)
        self._fetched_s = now_s


@dataclass(slots=True)
class SegmentCounts:
    """Counters of one generator in one process; they only grow. Not exact if threads count at once.

    Attributes:
        segments: segments that were fetched.
        waits: times that a caller waited for a segment, the first one included.
        failures: requests that failed.
        closed: replies that the tag is closed.
    """

    segments: int = 0
    waits: int = 0
    failures: int = 0
    closed: int = 0


class Master:
    """One server of a tag, as one process knows it. Thread-safe.

    Args:
        store: the tag there.
        options: of the command that creates the tag.
        first_from: of tags with periods: Calendar.first_from().

    Attributes:
        away_until_s: until when others are asked before it.
        granted: the newest numbers that it handed out to this process; None without any.
    """

    def __init__(
        self,
        store: Any,
        first_from: Callable[[Period, int], int] = lambda period, _: period.first_ms,
        options: str = "",
    ) -> None:
        self.store, self._first_from, self._options = store, first_from, options
        self.away_until_s = 0.0
        self.granted: GrantedNumbers | None = None
        # text around the numbers of the newest period -> the next one after the highest that is known to be handed out
        self.seen: dict[str, int] = {}
        # guards ``seen``; never held while Redis is asked
        self._lock = threading.RLock()

    def take(self, wanted: int, period: Period = EVER, least: int = 1, highest: int = MAX_NUMBER) -> Any:
        """Take *wanted* numbers of *period*, or as many as are left, but not fewer than *least*.

        Returns GrantedNumbers, or OtherPeriod. Raises NumbersClosed, NumbersExhausted, ConfigError, StoreUnavailable.
        """
        tag, seen = self.store.tag, self.seen.get(period.around, 0)
        reply = self.store.send(protocol.TakeRequest(period, seen, wanted, least, highest))
        self._note_seen(period.around, reply.next)
        if isinstance(reply, protocol.Shut):
            wait_ms = self._first_from(period, reply.since_ms) - reply.redis_ms if period.label else 0
            raise NumbersClosed(tag, reply.reason, reply.next, period.label, wait_ms, self._options)
        if isinstance(reply, protocol.Exhausted):
            raise NumbersExhausted(tag, min(highest, reply.next - 1 + reply.left), period.label, reply.left)
        return reply

    def after_fork(self) -> None:
        """In a forked child: use no lock and no connection of the parent."""
        self._lock = threading.RLock()
        self.store.after_fork()

    @with_lock
    def _note_seen(self, around: str, following: int) -> None:
        self.seen = {around: max(self.seen.get(around, 0), following)}


class Masters:
    """The servers of one tag."""

    def __init__(self, stores: Sequence[Any], steps: Steps, counts: SegmentCounts, clock: Clock) -> None:
        self.all = [Master(store) for store in stores]
        self._steps, self.counts, self._clock = steps, counts, clock
        # the index of the one that is asked next
        self._next = 0

    def fetch(self, wanted: int) -> range:
        """Fetch a segment for callers that need *wanted* numbers at once; it may have fewer.

        Raises:
            NumbersClosed, NumbersExhausted, StoreUnavailable: no server hands out a segment.
            ConfigError: a server has the tag with other settings.
            ConfigError: two servers hand out the same numbers.
        """
        now_s, count = self._clock.monotonic(), len(self.all)
        size = max(self._steps.next_size(now_s), min(wanted, self._steps.max_step))
        errors: list[SnowredisError] = []
        from_next = [(self._next + i) % count for i in range(count)]
        for index in sorted(from_next, key=lambda index: self.all[index].away_until_s > now_s):
            master = self.all[index]
            try:
                granted: GrantedNumbers = master.take(size)
            except (NumbersClosed, NumbersExhausted, StoreUnavailable) as error:
                master.away_until_s = self._clock.monotonic() + AWAY_S
                self.counts.failures += 1
                self.counts.closed += isinstance(error, NumbersClosed)
                errors.append(error)
                continue
            self._refuse_same_numbers(master, granted)
            master.away_until_s, master.granted, self._next = 0.0, granted, index + 1
            self._steps.fetched(granted.count, self._clock.monotonic())
            self.counts.segments += 1
            return granted.numbers
        # closed, else away, else exhausted
        raise min(errors, key=lambda error: (isinstance(error, NumbersExhausted), isinstance(error, StoreUnavailable)))

    def _refuse_same_numbers(self, master: Master, granted: GrantedNumbers) -> None:
        """Raise ConfigError if another server may hand out the numbers that *master* has *granted*."""
        others = [other.granted for other in self.all if other is not master and other.granted is not None]
        stride = granted.stride
        same = any((granted.first - other.first) % min(stride, other.stride) == 0 for other in others)
        if same or stride < len(self.all):
            raise ConfigError(
                f"the {len(self.all)} servers of the tag {master.store.tag!r} hand out the same numbers, since it was "
                f"created with the same start, or with a stride below {len(self.all)}. This segment was not used. "
                "Create another tag on each server, with start 1, 2, … and one stride."
            )
