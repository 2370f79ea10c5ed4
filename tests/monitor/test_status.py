"""The verdict about a pool: each bad moment by itself, several at once, and a quiet day."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.core.values import time_text
from snowredis.errors import PoolNotFound, StoreUnavailable
from snowredis.monitor.conditions import LEVELS, Condition, answers, status_of, status_without
from snowredis.monitor.lease import Lease, Owner, counted, greatest_holder
from snowredis.monitor.pool import PoolInfo, Refusal, Snapshot
from snowredis.snowflake.protocol.pool_config import PoolConfig

NOW_MS = 1_795_300_000_000
TTL_MS = 30_000
HOUR_MS = 3_600_000
YEAR_MS = 366 * 86_400_000
LAYOUT = Layout()
CONFIG = PoolConfig(name="orders", ttl_ms=TTL_MS, outage_reserve_ms=0)
WITH_LANES = PoolConfig(name="orders", ttl_ms=TTL_MS)


def info(**values: Any) -> PoolInfo:
    base = PoolInfo(
        name="orders", layout=LAYOUT, config=CONFIG, now_ms=NOW_MS,
        created_ms=NOW_MS - YEAR_MS, floor_ms=0, incarnation=f"{NOW_MS - YEAR_MS}-ab", capacity=100, used=10, free=90,
        peak=10, claims=10,
    )  # fmt: skip
    return replace(base, **values)


def worker(number: int, **values: Any) -> Lease:
    base = Lease(
        number, "alive", Owner(f"web-{number}", 100, outage=1), claimed_ms=NOW_MS - 60_000, renewed_ms=NOW_MS - 1_000,
        end_ms=NOW_MS + 29_000, until_ms=NOW_MS + 29_000, ids_made=1, ids_per_second=1,
    )  # fmt: skip
    return base._replace(**values)


def died(number: int, ago_ms: int) -> Lease:
    return Lease(number, "died", Owner(f"web-{number}", 100, "api"), end_ms=NOW_MS - ago_ms, until_ms=NOW_MS)


def expired(number: int, ago_ms: int, **values: Any) -> Lease:
    base = Lease(
        number, "expired", Owner(f"web-{number}", 100, "api", outage=1), claimed_ms=NOW_MS - HOUR_MS,
        renewed_ms=NOW_MS - ago_ms - TTL_MS, end_ms=NOW_MS - ago_ms, until_ms=NOW_MS - ago_ms, ids_made=5,
    )  # fmt: skip
    return base._replace(**values)


FLEET = tuple(worker(number) for number in range(10))
SUSPECT = worker(3, state="silent", renewed_ms=NOW_MS - 20_000, end_ms=NOW_MS + 10_000)
# a process that may live in its outage lane
IN_LANE = {"outage_until_ms": NOW_MS + HOUR_MS}
QUIET = Snapshot(info(), FLEET)


def test_a_quiet_pool_is_ok() -> None:
    status = status_of(QUIET)
    assert (status.level, status.headline, status.conditions) == ("ok", "10 workers alive", ())
    assert status_of(Snapshot(info(used=0, free=100), ())).headline == "no worker is alive"


@pytest.mark.parametrize(
    ("snapshot", "code", "level", "text"),
    [
        (
            replace(QUIET, info=info(alarms=1, alarm_from_ms=NOW_MS - 9_000, alarm_until_ms=NOW_MS)),
            "alarm", "critical", r"may have been repeated.*2026-\S+Z to 2026-\S+Z",
        ),
        (replace(QUIET, info=info(alarms=1, alarm_from_ms=1, alarm_until_ms=2)), "alarm", "ok", "may have been"),
        (
            replace(QUIET, info=info(floor_ms=NOW_MS + 12_001, floor_reason="other-server")),
            "floor", "warning", r"served in 12.0 s, at 2026-\S+Z: another server process",
        ),
        (
            replace(QUIET, ended=(expired(5, 1_000), expired(6, 2_000))),
            "silent", "warning", r"2 workers \(5 on web-5:100, .* have no ids until they reach Redis",
        ),
        (
            replace(QUIET, ended=(expired(5, 1_000, **IN_LANE),)),
            "silent", "warning", r"1 worker .* if they live, the last of them has ids until 2026-\S+Z",
        ),
        (
            replace(QUIET, ended=tuple(expired(n, n * 60_000) for n in range(9))),
            "silent", "critical", "9 workers",
        ),
        (
            replace(QUIET, living=(*FLEET[:9], SUSPECT)),
            "silent", "warning", r"1 worker \(3 on web-3:100\) sent no heartbeat since 2026.* has ids until 2026",
        ),
        (replace(QUIET, info=info(used=95, free=5)), "full", "warning", "95 of 100 worker ids are leased: nearly all$"),
        (replace(QUIET, info=info(used=60, free=40)), "full", "ok", "a reload .* needs twice as many"),
        (
            replace(QUIET, living=(*FLEET[:9], worker(9, clock_offset_ms=-9_000))),
            "clocks", "warning", r"9 on web-9:100.* by up to -9,000 ms",
        ),
        (
            replace(QUIET, info=info(now_ms=LAYOUT.end_ms - 40 * 86_400_000)),
            "layout-ends", "warning", "ends in 40 days",
        ),
        (replace(QUIET, info=info(now_ms=LAYOUT.end_ms - 86_400_000)), "layout-ends", "critical", "ends in 1 day,"),
        (replace(QUIET, info=info(now_ms=LAYOUT.end_ms)), "layout-ends", "critical", "no ids can be made"),
        (
            replace(QUIET, info=info(end_ms=NOW_MS + 9_000, end_counts=True)),
            "ends", "ok", "was deleted, and ends at 2026.* create it",
        ),
        (
            replace(QUIET, info=info(end_ms=NOW_MS + 24 * HOUR_MS)),
            "ends", "warning", "2026.* does not count yet.* All processes stop then, and none starts there, until",
        ),
        (replace(QUIET, info=info(end_ms=NOW_MS + 9)), "ends", "critical", "All processes stop then"),
        (replace(QUIET, info=info(end_ms=NOW_MS - 9)), "ends", "critical", "not count yet.* All processes are ref"),
    ],
)  # fmt: skip
def test_each_bad_moment_is_named_with_its_time_and_what_to_do(
    snapshot: Snapshot, code: str, level: str, text: str
) -> None:
    status = status_of(snapshot)
    (condition,) = status.conditions
    assert (condition.code, condition.level, status.level) == (code, level, level)
    assert re.search(text, condition.text)
    assert condition.advice
    assert re.search(r"\d{13}", condition.text) is None
    assert status.headline != ""


def test_a_process_that_a_neighbor_found_dead_is_listed_and_no_alarm() -> None:
    """The children of an ordinary `with Pool(4)` are such: their parent ends them."""
    ended = tuple(died(number, number) for number in range(12))
    status = status_of(replace(QUIET, ended=ended))
    assert (status.level, status.conditions) == ("ok", ())
    assert status.headline == "10 workers alive; 12 died in the last hour"


def test_while_no_lease_is_valid_before_the_floor_the_verdict_is_critical() -> None:
    """This is the state after an outage of Redis that was longer than the reservations."""
    raised = f"{NOW_MS - 10_000}-ab"
    down = info(floor_ms=NOW_MS + 30_000, floor_reason="other-server", incarnation=raised, used=0, free=100)
    for ended in ((), (worker(7, state="silent", end_ms=NOW_MS - 1, until_ms=NOW_MS - 1),)):
        snapshot = Snapshot(down, (), ended)
        first = status_of(snapshot).conditions[0]
        assert (first.code, first.level) == ("floor", "critical")
        assert f"no worker can make ids until {time_text(NOW_MS + 30_000)}" in first.text
        assert "without a pause" not in f"{first.text}{first.advice}"
        assert not snapshot.makes_ids
    # within one heartbeat, those that Redis has forgotten may be adopted
    just_raised = replace(down, incarnation=f"{NOW_MS - 9_999}-ab")
    assert status_of(Snapshot(just_raised, ())).level == "warning"
    assert status_of(Snapshot(down, FLEET[:1])).level == "warning"
    assert Snapshot(down, FLEET[:1]).makes_ids
    # a new pool waits, but nothing is down
    assert status_of(Snapshot(replace(down, claims=0), ())).level == "warning"
    assert not Snapshot(info(free=0, now_ms=LAYOUT.end_ms), FLEET).makes_ids


def test_a_pool_that_refuses_everybody_is_not_ok() -> None:
    refused = info(mismatches=3, mismatch_ms=NOW_MS - 1_000, mismatch_by="web-1:7 (api)")
    (condition,) = status_of(replace(QUIET, info=refused)).conditions
    assert (condition.code, condition.level, condition.count) == ("mismatch", "warning", 3)
    assert "3 claims so far, the last at 2026-" in condition.text
    assert "by web-1:7 (api)" in condition.text
    (condition,) = status_of(Snapshot(refused, ())).conditions
    assert (condition.level, "No worker is alive" in condition.text) == ("critical", True)
    old = replace(refused, mismatch_ms=NOW_MS - 300_001)
    assert status_of(Snapshot(old, ())).conditions == ()


def test_a_floor_promises_nothing_of_workers_that_redis_does_not_know() -> None:
    waiting = info(floor_ms=NOW_MS + 20_000, incarnation=f"{NOW_MS - 1_000}-ab", used=0, free=100)
    (condition,) = status_of(Snapshot(waiting, ())).conditions
    assert (condition.code, "without a pause" in condition.advice) == ("floor", False)
    (condition,) = status_of(Snapshot(waiting, FLEET)).conditions
    assert "10 workers with a valid lease go on without a pause" in condition.advice
    without = tuple(each._replace(state="no-ids") for each in FLEET)
    condition = next(each for each in status_of(Snapshot(waiting, without)).conditions if each.code == "floor")
    assert condition.advice == "wait"
    (condition,) = status_of(Snapshot(replace(waiting, created_ms=NOW_MS + 1), ())).conditions
    assert "the clock of Redis was set back" in condition.text


def test_processes_of_containers_with_one_host_name_and_the_same_pid_are_several() -> None:
    leases = [worker(n, owner=Owner("web", 1, generator=f"abcde{n % 3}-{n:06}")) for n in range(4)]
    assert (counted(leases), greatest_holder(leases)) == ("3 processes with 4 worker ids", ("web:1", 2))


def test_silence_is_judged_by_the_processes_of_that_hour() -> None:
    """9 of 1,000 short jobs did not release, which is no reason to wake anybody."""
    ended = tuple(expired(number, number * 60_000) for number in range(9))
    assert status_of(replace(QUIET, ended=ended, claims=1_000)).level == "warning"
    assert status_of(replace(QUIET, ended=ended, claims=90)).level == "critical"


def test_alerts_and_page_have_the_same_severities() -> None:
    """An alert of one level of a condition has the severity of that name."""
    rules = (Path(__file__).parents[2] / "docs" / "alerts.yml").read_text("utf-8")
    found = re.findall(r'condition=~?"[\w|-]+"}\) == (\d)\n        labels: {severity: (\w+)}', rules)
    assert len(found) == 7
    assert all(LEVELS[int(level)] == severity for level, severity in found)


def test_a_full_pool_says_how_much_of_it_may_be_dead_and_when_that_is_over() -> None:
    status = status_of(Snapshot(info(used=100, free=0), (*FLEET, SUSPECT)))
    full = next(condition for condition in status.conditions if condition.code == "full")
    assert "100 of 100 worker ids are leased, 1 of them by processes that renew no more" in full.text
    assert "let processes end in order" in full.advice
    assert f"available at {time_text(SUSPECT.end_ms)}" in full.text
    assert status.headline == "pool full; 1 silent"


def test_the_greatest_holder_of_a_full_pool_is_named_with_its_label() -> None:
    greedy = [worker(number, owner=Owner("job-1", 7, "import")) for number in range(50, 82)]
    (full,) = status_of(Snapshot(info(used=42, free=0, capacity=42), (*FLEET, *greedy))).conditions
    assert "42 of 42 worker ids are leased, 32 of them by job-1:7 (import): new workers are refused" in full.text
    assert full.advice.startswith("let the threads of that process share one generator")
    assert "idle" not in full.advice


@pytest.mark.parametrize(
    ("snapshot", "restart", "deploy"),
    [
        (QUIET, "only if it is back within 29.0 s: 10 of 10 workers can have no ids", "yes: it needs 20 worker ids"),
        (
            replace(QUIET, living=tuple(worker(n, outage_until_ms=NOW_MS + 36_000_000) for n in range(3))),
            "yes: all 3 workers go on for 10.0 h", "yes: it needs 6 worker ids (3 living and as many new)",
        ),
        (
            # another client, which does not go on in its outage lane
            replace(QUIET, living=(worker(1, owner=Owner("js", 1), outage_until_ms=NOW_MS + 36_000_000),)),
            "only if it is back within 29.0 s: 1 of 1 worker", "yes: it needs 2",
        ),
        (
            replace(QUIET, living=(worker(1), worker(2, outage_until_ms=NOW_MS + 36_000_000))),
            "1 of 2 workers can have no ids after that; the others go on for 10.0 h", "yes: it needs 4",
        ),
        (replace(QUIET, info=info(free=10)), "only if", "yes: it needs 20 worker ids (10 living and as many new), and"),
        (replace(QUIET, info=info(free=4)), "only if", "only if at most 4 new workers start before old ones end"),
        (replace(QUIET, info=info(free=0)), "only if", "no: it needs 20 worker ids (10 living and as many new), and"),
        (replace(QUIET, info=info(floor_ms=NOW_MS + 12_000)), "only if", "not yet: new workers wait for 12.0 s more"),
        (replace(QUIET, refusal=Refusal("full", NOW_MS)), "unknown: Redis", "no: Redis takes no renewals"),
        # all renew no more, and may make ids in their outage lanes
        (Snapshot(info(), (), tuple(expired(n, 1_000, **IN_LANE) for n in range(7))), "unknown: Redis", "no: Redis"),
        # Redis is back after an outage: workers that it forgot have not called yet
        (
            Snapshot(info(config=WITH_LANES, incarnation=f"{NOW_MS - 1_000}-a", floor_ms=NOW_MS + 34_000)),
            "unknown: Redis", "not yet: new workers wait for 34.0 s more",
        ),
        # a person created the pool just now
        (
            Snapshot(info(config=WITH_LANES, incarnation=f"{NOW_MS - 1_000}-a", floor_ms=NOW_MS - 1_000)),
            "yes: no worker makes ids", "yes: it needs 0",
        ),
        (
            Snapshot(info(config=WITH_LANES), lanes_until_ms=NOW_MS + 9_000),
            "unknown: Redis", "yes: it needs 0",
        ),
        (Snapshot(info(), ()), "yes: no worker makes ids", "yes: it needs 0"),
    ],
)  # fmt: skip
def test_what_people_ask_before_they_restart_something_has_an_answer(
    snapshot: Snapshot, restart: str, deploy: str
) -> None:
    first, second = answers(snapshot)
    assert (first.question, second.question) == ("restart", "deploy")
    assert restart in first.text
    assert "gets no ids until 35.0 s after Redis is back" in first.text
    assert deploy in second.text
    words = {"yes": "yes", "no": "no", "unknown": "unknown", "if": "only if"}
    assert first.text.startswith(words[first.answer])
    assert second.text.startswith((words[second.answer], "not yet"))


@pytest.mark.parametrize("left_ms", [-9, 9, 24 * HOUR_MS])
def test_nothing_is_restarted_before_an_end_counts_that_stops_all_processes(left_ms: int) -> None:
    for answer in answers(replace(QUIET, info=info(end_ms=NOW_MS + left_ms))):
        assert (answer.answer, answer.text[:4]) == ("no", "no: ")
        assert "all processes are refused from then on. Repeat it first: snowredis pool delete orders" in answer.text


def test_while_some_workers_wait_for_a_floor_in_outage_lanes_nobody_knows_how_long_all_go_on() -> None:
    floors = (info(config=WITH_LANES, floor_ms=floor_ms) for floor_ms in (NOW_MS + 10_000, NOW_MS))
    found = [answers(Snapshot(floor, FLEET, lanes_until_ms=NOW_MS + HOUR_MS))[0].answer for floor in floors]
    assert found == ["unknown", "if"]


def test_the_worst_comes_first_with_times_in_utc() -> None:
    alarmed = info(alarms=1, alarm_from_ms=1, alarm_until_ms=NOW_MS, floor_ms=NOW_MS + 1_000)
    status = status_of(Snapshot(alarmed, FLEET, ended=(expired(1, 0),)))
    levels = [LEVELS.index(condition.level) for condition in status.conditions]
    assert levels == sorted(levels, reverse=True)
    assert status.headline == "ids may have been repeated; new workers wait; 1 silent"
    assert f"1970-01-01T00:00:00.001Z to {time_text(NOW_MS)}" in status.conditions[0].text


def test_what_cannot_be_read_is_never_ok() -> None:
    away, gone = StoreUnavailable("here", "refused"), PoolNotFound("orders")
    for error in (away, gone):
        never = status_without(error, None, failed_since_ms=NOW_MS, now_ms=NOW_MS, last_read_ms=0)
        assert (never.level, never.stale_since_ms) == ("unknown", NOW_MS)
        lost = status_without(error, QUIET, failed_since_ms=NOW_MS, now_ms=NOW_MS, last_read_ms=NOW_MS)
        assert lost.level == "critical"


def test_a_redis_that_refuses_or_is_slow_is_not_called_away() -> None:
    refused, slow = StoreUnavailable("here", "WRONGPASS", code="wrong-password"), StoreUnavailable("here", "Timeout")
    slow.timed_out = True
    loading, broken = StoreUnavailable("here", "LOADING"), StoreUnavailable("here", "peak is no number", code="broken")
    loading.replied = True
    for error, headline in (
        (refused, "Redis refuses this user"),
        (slow, "Redis does not answer in time"),
        (loading, "Redis replies with an error"),
        (broken, "Redis replies with an error"),
    ):
        status = status_without(error, QUIET, failed_since_ms=NOW_MS, now_ms=NOW_MS, last_read_ms=NOW_MS)
        assert status.headline == headline
        assert status.conditions[0].text.startswith(f"{headline} since 20")
        assert "get Redis running" not in status.conditions[0].advice
        assert "do not restart workers: those with ids go on" in status.conditions[0].advice


@pytest.mark.parametrize(
    ("later_ms", "text"),
    [
        (4_000, "the 2 workers that were alive then have ids for about 6.0 s more"),
        (20_000, "some of the 2 workers that were alive then have no ids any more, the last for about 9.0 s"),
        (40_000, "the 2 workers that were alive then have no ids any more, unless they reach Redis"),
    ],
)
def test_while_redis_is_away_it_says_how_long_ids_last(later_ms: int, text: str) -> None:
    last = replace(QUIET, living=(worker(1), SUSPECT._replace(until_ms=NOW_MS + 10_000)))
    error = StoreUnavailable("here", "refused")
    status = status_without(error, last, failed_since_ms=NOW_MS, now_ms=NOW_MS + later_ms, last_read_ms=NOW_MS)
    assert text in status.conditions[0].text


WITH_OUTAGE_LANES = info(config=WITH_LANES)


def test_workers_with_outage_lanes_have_ids_for_long_and_that_is_no_critical_state() -> None:
    workers = tuple(worker(number, outage_until_ms=NOW_MS + 24 * HOUR_MS) for number in range(2))
    last, error = Snapshot(WITH_OUTAGE_LANES, workers), StoreUnavailable("here", "refused")

    def after(hours: int) -> Condition:
        now_ms = NOW_MS + hours * HOUR_MS
        status = status_without(error, last, failed_since_ms=NOW_MS, now_ms=now_ms, last_read_ms=NOW_MS)
        return status.conditions[0]

    text = "the 2 workers that were alive then have ids for about 22.0 h more"
    assert (after(2).level, text in after(2).text) == ("warning", True)
    assert after(23).level == "critical"
    assert status_of(last).level == "ok"


def test_a_lane_that_opens_after_a_gap_is_none_and_that_of_a_lost_lease_is_one() -> None:
    """For a day after a loss, the lane of a new lease begins where those of before may end."""
    late = worker(1, outage_from_ms=NOW_MS + HOUR_MS, outage_until_ms=NOW_MS + 2 * HOUR_MS)
    error = StoreUnavailable("here", "refused")
    times = dict.fromkeys(("failed_since_ms", "now_ms", "last_read_ms"), NOW_MS)
    away = status_without(error, Snapshot(WITH_OUTAGE_LANES, (late,)), **times)
    assert (away.level, "for about 29.0 s more" in away.conditions[0].text) == ("critical", True)
    kept = late._replace(owner=late.owner._replace(lane_until_ms=NOW_MS + 2 * HOUR_MS))
    assert status_without(error, Snapshot(WITH_OUTAGE_LANES, (kept,)), **times).level == "warning"
    # a client that does not say that it goes on in the lane is promised nothing
    open_lane = worker(1, outage_until_ms=NOW_MS + 2 * HOUR_MS)
    other = open_lane._replace(owner=Owner("js", 7))
    for lease, level in ((open_lane, "warning"), (other, "critical")):
        assert status_without(error, Snapshot(WITH_OUTAGE_LANES, (lease,)), **times).level == level


def test_with_outage_lanes_the_workers_of_before_make_ids_while_new_ones_wait_for_the_floor() -> None:
    waiting = replace(WITH_OUTAGE_LANES, floor_ms=NOW_MS + 20_000, incarnation=f"{NOW_MS - 20_000}-ab")
    snapshot = Snapshot(waiting, (), lanes_until_ms=NOW_MS + 1)
    assert [condition.code for condition in status_of(snapshot).conditions] == ["floor"]
    assert snapshot.makes_ids
    # they say so at their next heartbeat, and until then they may
    early = replace(waiting, incarnation=f"{NOW_MS - TTL_MS // 7}-ab", floor_ms=NOW_MS + TTL_MS)
    assert Snapshot(early, ()).makes_ids
    over = replace(snapshot, lanes_until_ms=NOW_MS)
    assert [condition.code for condition in status_of(over).conditions] == ["floor"]
    assert status_of(over).headline == "no worker can make ids"
    assert not over.makes_ids
    new = Snapshot(replace(waiting, claims=0), ())
    assert not new.makes_ids
