"""Size of the next segment, and counters and status of one SegmentGenerator. Pure.

A segment is to last for a period. Leaf doubles the step if a segment lasted for less than 15 minutes, and halves it if
it lasted for more than 30. Here the step follows the consumption at once, at most GROWTH times up and SHRINK times down
a fetch.

Source:
    Meituan Leaf, SegmentIDGenImpl.updateSegmentFromDb.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from snowredis.errors import ConfigError, shown

GROWTH = 10
SHRINK = 2


class Steps:
    """Sizes of the segments of one generator.

    Args:
        step: size of the first segment, and the least of any, 1 or more.
        max_step: the most.
        period_s: how long a segment shall last.

    Raises ConfigError for values that cannot work.
    """

    def __init__(self, step: int, max_step: int, period_s: float) -> None:
        if max_step < step:
            raise ConfigError(f"max_step={max_step} is less than step={step}. Raise max_step.")
        if not period_s > 0:
            raise ConfigError(f"period must be more than 0 s, not {shown(period_s)}")
        self.step, self.max_step, self.period_s = step, max_step, period_s
        self.size = step
        self._fetched_s: float | None = None

    def next_size(self, now_s: float) -> int:
        """Return how many numbers to ask for at *now_s*, a monotonic clock; the segment before is being used up."""
        if self._fetched_s is None:
            return self.size
        lasted_s = max(now_s - self._fetched_s, 1e-6)
        target = self.size * self.period_s / lasted_s
        wish = min(max(target, self.size / SHRINK), self.size * GROWTH)
        return int(min(max(wish, self.step), self.max_step))

    def fetched(self, size: int, now_s: float) -> None:
        """Note that a segment of *size* numbers came at *now_s*."""
        self.size = min(max(size, self.step), self.max_step)
        self._fetched_s = now_s

    def after_fork(self) -> None:
        """Begin again."""
        self.size, self._fetched_s = self.step, None


@dataclass(slots=True)
class SegmentCounts:
    """Counters of one generator; they only grow, but begin again in a forked child. Not exact if threads count at once.

    Attributes:
        segments: segments that were fetched.
        prefetch_hits: times that the next segment was there when one was used up.
        waits: times that a caller waited for a segment, the first one included.
        longest_wait_s: the longest of these waits, s.
        reports: requests that only told Redis which numbers are used.
        failures: requests that failed.
        closed: replies that the tag is closed.
        alarms: replies that numbers of this process may have been handed out twice.
        copied: replies that this process is a copy of another.
        dropped: about how many numbers were not used, because others may have them, or of a fork or suspend().
    """

    segments: int = 0
    prefetch_hits: int = 0
    waits: int = 0
    longest_wait_s: float = 0.0
    reports: int = 0
    failures: int = 0
    closed: int = 0
    alarms: int = 0
    copied: int = 0
    dropped: int = 0

    def clear(self) -> None:
        """Begin again at 0, in a forked child."""
        for field in fields(self):
            setattr(self, field.name, field.default)


@dataclass(frozen=True, slots=True)
class SegmentStatus:
    """State of one generator at a moment.

    Attributes:
        tag: its tag.
        made: about how many numbers this generator made in this process.
        left: about how many numbers it has at hand, prefetched ones included.
        step: how many numbers the newest segment has.
        tag_rate: numbers a second that Redis hands out to all processes; None if that is not known yet.
        next_number: the lowest number that Redis has not handed out; None if that is not known yet.
        remaining: how many numbers of the range are not handed out; None if that is not known.
        used_up_in_s: when the range is used up at that rate, s; None if it is not known, or never.
        counts: the counters.
    """

    tag: str
    made: int
    left: int
    step: int
    tag_rate: float | None
    next_number: int | None
    remaining: int | None
    used_up_in_s: float | None
    counts: SegmentCounts
