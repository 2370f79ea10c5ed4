"""Estimate when all worker ids of a pool will be leased, from its events. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import correlation, linear_regression

from snowredis.core.as_json import TimeMs
from snowredis.monitor.events import Event
from snowredis.monitor.snapshot import PoolInfo, WorkerInfo

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
