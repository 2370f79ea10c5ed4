"""The use of a pool over the last day: one point a minute, gaps where nothing was read, bounded."""

from __future__ import annotations

from dataclasses import replace

from snowredis.monitor.snapshot import Snapshot
from snowredis.web.feed import STEP_MS, UsageHistory
from snowredis.web.records import UsagePoint
from tests.monitor.test_status import FLEET, QUIET, info

START_MS = 1_795_300_020_000


def reading(at_ms: int, *, living: int = 10, deaths: int = 0) -> Snapshot:
    return replace(QUIET, info=info(now_ms=at_ms, expired=deaths), workers=FLEET[:living])


def test_a_minute_is_one_point_and_one_without_a_reading_is_a_gap() -> None:
    history = UsageHistory()
    assert history.points() == []
    history.go_to(START_MS)
    assert history.points() == []
    # counters from before it was started are not deaths of this minute
    history.add(reading(START_MS, deaths=7))
    history.add(reading(START_MS + 30_000, living=4, deaths=9))
    history.add(reading(START_MS + STEP_MS, deaths=10))
    history.go_to(START_MS + 3 * STEP_MS + 5)
    history.add(reading(START_MS + 4 * STEP_MS, living=1, deaths=12))
    assert history.points() == [
        UsagePoint(START_MS, 10, 7, 2),
        UsagePoint(START_MS + STEP_MS, 10, 10, 1),
        UsagePoint(START_MS + 2 * STEP_MS),
        UsagePoint(START_MS + 3 * STEP_MS),
        UsagePoint(START_MS + 4 * STEP_MS, 1, 1, 2),
    ]
    # Redis lost its counters, and its clock went back
    history.add(reading(START_MS, deaths=1))
    assert history.points()[-1] == UsagePoint(START_MS + 4 * STEP_MS, 10, 6, 0)


def test_it_keeps_so_many_points_and_no_more() -> None:
    history = UsageHistory(points=5)
    for step in range(20):
        history.add(reading(START_MS + step * STEP_MS))
    assert [point.at_ms for point in history.points()] == [START_MS + step * STEP_MS for step in range(15, 20)]
    history.go_to(START_MS + 10**9 * STEP_MS)
    assert [point.living for point in history.points()] == [None] * 5
