"""Counters of one SegmentGenerator, for people: the command line, metrics and pages show it."""

from __future__ import annotations

from dataclasses import dataclass, fields


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
        remaining: how many numbers of the range are not handed out; None for a cyclic tag, or if that is not known.
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
