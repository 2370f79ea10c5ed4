"""The clock-back ladder, as a pure function."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowredis.core.lanes import (
    ClaimAnother,
    ClockRules,
    Lanes,
    NotOpen,
    RaiseClockBack,
    RenewLease,
    UseTick,
    Wait,
    closest_fit,
    decide,
)
from snowredis.settings import SETTINGS

FAR = 10**9


def rules(**options: Any) -> ClockRules:
    return ClockRules(**options)


def used(*opens: int, current: int = 0) -> Lanes:
    """Lanes that were all used up to these ticks."""
    return Lanes(opens, (True,) * len(opens), current)


def test_a_used_up_tick_borrows_ticks_up_to_the_bound() -> None:
    ahead = rules(max_ahead_ms=50)
    assert decide(used(101), 100.0, FAR, 1, ahead) == UseTick(0, 101)
    assert decide(used(150), 100.0, FAR, 1, ahead) == UseTick(0, 150)
    assert decide(used(151), 100.0, FAR, 1, ahead) == Wait(1.0, clock_back=False)
    assert decide(used(140), 100.0, 140, 1, ahead) == RenewLease(140)


def test_a_larger_step_back_takes_the_namespace_that_fits_closest() -> None:
    lanes = Lanes((1000, 300, 500, 900), (True, False, False, False), 0)
    assert decide(lanes, 600.0, FAR, 1, rules()) == UseTick(2, 600)


def test_of_namespaces_that_fit_alike_the_first_is_taken() -> None:
    assert closest_fit(Lanes((1000, 0, 0, 0), (True, False, False, False), 0), 600) == 1


def test_when_no_namespace_fits_another_worker_id_is_wanted() -> None:
    assert decide(used(1000, 900), 600.0, FAR, 1, rules()) == ClaimAnother(399)


def test_ids_go_on_from_the_last_tick_up_to_the_bound_and_then_wait_for_it() -> None:
    ahead = rules(policy="wait", max_wait_ms=0, max_ahead_ms=100)
    assert decide(used(1000, 0), 950.0, FAR, 1, ahead) == UseTick(0, 1000)
    assert decide(used(1000, 0), 800.0, FAR, 1, ahead) == RaiseClockBack(199)
    assert decide(used(1000, 0), 800.0, FAR, 1, rules(max_wait_ms=200, max_ahead_ms=100)) == Wait(
        100.0, clock_back=True
    )


def test_a_fresh_lease_takes_the_lane_that_is_open_and_else_waits() -> None:
    fresh = Lanes.fresh((500, 400))
    assert decide(fresh, 450.0, FAR, 1, rules()) == UseTick(1, 450)
    assert decide(fresh, 390.0, FAR, 1, rules()) == NotOpen(10.0)
    assert decide(fresh, 450.0, 440, 1, rules()) == RenewLease(450)


def test_lanes_refuse_a_tick_that_may_have_been_used() -> None:
    with pytest.raises(AssertionError, match="may have been used"):
        used(100).using(0, 99)


any_rules = st.builds(
    ClockRules,
    policy=st.sampled_from(SETTINGS["clock_policy"].kind.choices),
    max_wait_ms=st.integers(0, 50),
    max_ahead_ms=st.integers(0, 50),
)


@given(
    opens=st.lists(st.integers(0, 500), min_size=1, max_size=4),
    readings=st.lists(st.floats(0, 2_000), max_size=60),
    until=st.integers(0, 400),
    tick_ms=st.sampled_from([1, 7, 10]),
    which=any_rules,
)
def test_no_tick_is_used_twice_on_a_lane_whatever_the_clock_does(
    opens: list[int], readings: list[float], until: int, tick_ms: int, which: ClockRules
) -> None:
    lanes = Lanes.fresh(tuple(opens))
    taken: set[tuple[int, int]] = set()
    for now_ms in readings:
        decision = decide(lanes, now_ms, until, tick_ms, which)
        if isinstance(decision, UseTick):
            assert decision not in taken
            assert opens[decision.lane] <= decision.tick < until
            assert all(tick < decision.tick for lane, tick in taken if lane == decision.lane)
            taken.add(decision)
            lanes = lanes.using(*decision)
        elif isinstance(decision, Wait | NotOpen):
            assert decision.ms > 0


@given(readings=st.lists(st.floats(0, 2_000), max_size=60), which=any_rules.filter(lambda r: r.policy != "backup"))
def test_ticks_only_grow_unless_the_backup_policy_is_chosen(readings: list[float], which: ClockRules) -> None:
    lanes = Lanes.fresh((0, 0))
    last = -1
    for now_ms in readings:
        decision = decide(lanes, now_ms, FAR, 1, which)
        if isinstance(decision, UseTick):
            assert decision.tick > last
            last = decision.tick
            lanes = lanes.using(*decision)


@given(st.floats(0, 5_000), st.integers(1, 5_000), any_rules)
def test_waiting_as_long_as_told_leads_to_an_answer(now_ms: float, opens: int, which: ClockRules) -> None:
    lanes = used(opens)
    for _ in range(200):
        decision = decide(lanes, now_ms, FAR, 1, which)
        if not isinstance(decision, Wait):
            return
        now_ms += max(decision.ms, 0.001)
    raise AssertionError("it waits for ever")
