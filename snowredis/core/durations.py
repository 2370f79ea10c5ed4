"""Durations of one kind, counted in buckets: the content of a histogram. Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

# upper ends of the buckets, in seconds: from a round trip in one rack to the floor of a pool with a ttl of 100 s.
# One more bucket takes what is longer
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(slots=True)
class Durations:
    """Number and sum of the durations in each bucket. Approximate where several threads add at once; takes no lock.

    Attributes:
        counts, sums_s: of each bucket; both one longer than BOUNDS_S.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sums_s: list[float] = field(default_factory=lambda: [0.0] * (len(BOUNDS_S) + 1))

    def add(self, duration_s: float) -> None:
        """Count one duration."""
        bucket = bisect_left(BOUNDS_S, duration_s)
        self.counts[bucket] += 1
        self.sums_s[bucket] += duration_s
