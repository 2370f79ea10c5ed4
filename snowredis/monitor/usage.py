"""Use of a pool in the last day, in points of a minute. Pure.

UsageHistory is bounded: 1,440 points take about 200 KB in Python and 60 KB as JSON. The service keeps one from the
readings that it makes anyway, so it costs Redis nothing. It begins anew when the service does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from snowredis.core.as_json import TimeMs
from snowredis.monitor.snapshot import Snapshot

STEP_MS = 60_000
POINTS = 24 * 60


@dataclass(frozen=True, slots=True)
class UsagePoint:
    """Use of a pool in one step of time.

    Attributes:
        at_ms: the begin of the step, ms since 1970.
        living: most workers alive in it; None: nothing could be read.
        ids_per_second: mean over the readings; None: nothing could be read.
        deaths: how many more deaths than at the end of the step before, less processes that returned; None: unknown.
    """

    at_ms: TimeMs
    living: int | None = None
    ids_per_second: int | None = None
    deaths: int | None = None


class UsageHistory:
    """Points of the last day, the newest of them still growing. One caller at a time.

    Args:
        step_ms: length of a step.
        points: how many are kept.
    """

    def __init__(self, step_ms: int = STEP_MS, points: int = POINTS) -> None:
        self._step_ms = step_ms
        self._done: deque[UsagePoint] = deque(maxlen=points - 1)
        self._at_ms: int | None = None
        self._living: list[int] = []
        self._rates: list[int] = []
        # the counter of deaths at the last reading, and at the end of the last step
        self._deaths: int | None = None
        self._deaths_before: int | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Add a reading."""
        self._go_to(snapshot.info.now_ms)
        healthy = (worker for worker in snapshot.workers if worker.state == "healthy")
        self._living.append(len(snapshot.workers))
        # the last rate of a silent worker is out of date
        self._rates.append(sum(worker.ids_per_second for worker in healthy))
        counted = snapshot.info.deaths - snapshot.info.returned
        if self._deaths_before is None or counted < self._deaths_before:
            self._deaths_before = counted
        self._deaths = counted

    def go_to(self, now_ms: int) -> None:
        """Note that it is *now_ms*, while the pool cannot be read: steps without a reading are gaps."""
        if self._at_ms is not None:
            self._go_to(now_ms)

    def points(self) -> list[UsagePoint]:
        """Return the points, the oldest first; also those of steps in which nothing could be read."""
        return [*self._done, *([] if self._at_ms is None else [self._point(self._at_ms)])]

    def _go_to(self, now_ms: int) -> None:
        at_ms = now_ms - now_ms % self._step_ms
        if self._at_ms is None:
            self._at_ms = at_ms
        # a clock that went back adds to the step that is open
        missed = min((at_ms - self._at_ms) // self._step_ms, (self._done.maxlen or 0) + 1)
        if missed <= 0:
            return
        self._done.append(self._point(self._at_ms))
        self._deaths_before = self._deaths
        self._living, self._rates = [], []
        self._done.extend(UsagePoint(at_ms - left * self._step_ms) for left in range(missed - 1, 0, -1))
        self._at_ms = at_ms

    def _point(self, at_ms: int) -> UsagePoint:
        if not self._living:
            return UsagePoint(at_ms)
        deaths = None if self._deaths is None else self._deaths - (self._deaths_before or 0)
        return UsagePoint(at_ms, max(self._living), round(sum(self._rates) / len(self._rates)), deaths)
