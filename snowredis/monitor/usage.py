"""Use of a pool over time: the last day in points of a minute, and an estimate of when the pool will be full. Pure.

UsageHistory is bounded: 1,440 points take about 200 KB in Python and 60 KB as JSON. The service keeps one from the
readings that it makes anyway, so it costs Redis nothing. It begins anew when the service does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import correlation, linear_regression

from snowredis.core.as_json import TimeMs
from snowredis.monitor.events import Event
from snowredis.monitor.snapshot import PoolInfo, Snapshot, WorkerInfo

# a shorter past does not allow an estimate for days
MIN_SPAN_MS = 10 * 60 * 1000
MIN_CLAIMS = 8
SAMPLES = 48
# below this share of explained variance, the use has no trend
MIN_FIT = 0.5
# a pool that lasts longer than this does not grow
FAR_MS = 10 * 365 * 86_400_000


@dataclass(frozen=True, slots=True)
class Forecast:
    """Estimate of when the pool will be full if it continues to grow as it did.

    Attributes:
        used_up_ms: ms since 1970; None if it does not grow, or if that is unknown.
        known: whether the events allow an estimate.
        per_day: growth in worker ids a day; None if unknown.
        reason: text for people.
        layout_end_ms: first ms since 1970 that does not fit the layout.
        layout_left_ms: time until then.
    """

    used_up_ms: TimeMs | None
    known: bool
    per_day: float | None
    reason: str
    layout_end_ms: TimeMs
    layout_left_ms: int


def forecast_of(events: Sequence[Event], workers: Sequence[WorkerInfo], info: PoolInfo) -> Forecast:
    """Fit a straight line to the number of leased worker ids since the oldest event.

    Args:
        workers: all, also those whose lease ended.
    """

    def forecast(reason: str, *, used_up_ms: int | None = None, per_day: float | None = None) -> Forecast:
        end_ms = info.layout_end_ms
        return Forecast(used_up_ms, per_day is not None, per_day, reason, end_ms, end_ms - info.now_ms)

    if info.free <= 0:
        return forecast("all worker ids are leased", used_up_ms=info.now_ms, per_day=0.0)
    claims = [event for event in events if event.kind == "claimed"]
    if not claims:
        return forecast("unknown: no claim is left in the events")
    span_ms = info.now_ms - events[0].at_ms
    if span_ms < MIN_SPAN_MS or len(claims) < MIN_CLAIMS:
        return forecast(
            f"unknown: the events of {max(0, span_ms) // 1000} s with {len(claims)} claims are too few"
        )
    slope, fit = _fit_line(*_samples(events, workers, info))
    per_day = slope * 86_400_000
    if per_day < 0.01 or (fit >= MIN_FIT and info.free / slope > FAR_MS):
        return forecast("it does not grow", per_day=per_day)
    if fit < MIN_FIT:
        return forecast("unknown: its use has no trend")
    left_ms = int(info.free / slope)
    return forecast(
        f"at {per_day:,.1f} more worker ids a day, as since the oldest event",
        used_up_ms=info.now_ms + left_ms,
        per_day=per_day,
    )


def _samples(
    events: Sequence[Event], workers: Sequence[WorkerInfo], info: PoolInfo
) -> tuple[list[float], list[int]]:
    """Return SAMPLES times, in ms since the oldest event, and the number of leases at each."""
    changes: list[tuple[int, int]] = []
    begun: set[int] = set()
    # leased before the oldest event
    before = 0
    for event in events:
        if event.kind in ("claimed", "adopted", "returned") and event.worker not in begun:
            begun.add(event.worker)
            changes.append((event.at_ms, 1))
        elif event.kind in ("released", "expired", "reclaimed"):
            if event.worker in begun:
                begun.discard(event.worker)
            else:
                before += 1
            changes.append((event.at_ms, -1))
    for worker in workers:
        if worker.worker in begun and not worker.alive:
            changes.append((worker.lease_end_ms, -1))
        elif worker.alive and worker.worker not in begun:
            before += 1
    changes.sort()
    times_ms = [at_ms for at_ms, _ in changes]
    used = list(accumulate((change for _, change in changes), initial=before))
    first_ms = events[0].at_ms
    step_ms = (info.now_ms - first_ms) / SAMPLES
    limits_ms = [number * step_ms for number in range(1, SAMPLES + 1)]
    return limits_ms, [used[bisect_right(times_ms, first_ms + limit_ms)] for limit_ms in limits_ms]


def _fit_line(times_ms: list[float], used: list[int]) -> tuple[float, float]:
    """Return the slope of the least-squares line, and the share of the variance that it explains."""
    if len(set(used)) == 1:
        return 0.0, 1.0
    return linear_regression(times_ms, used).slope, correlation(times_ms, used) ** 2


# --- the last day -----------------------------------------------------------------------------------

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
