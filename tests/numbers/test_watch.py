"""A tag seen from outside: open, closed on all or some servers, used up, made with other settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.numbers.administration import TagInfo
from snowredis.numbers.protocol import ClosedReason, TagConfig
from snowredis.numbers.watch import ALARM_MS, SOON_S, TagState, TagWatch, tag_state
from snowredis.testing import memory_pool

ONE = TagConfig(tag="t", maximum=1000)
TWO = [TagConfig(tag="t", maximum=1000, share=(index, 2)) for index in (0, 1)]


def info(config: TagConfig, position: int = 100, reason: ClosedReason | None = None) -> TagInfo:
    return TagInfo("r", True, config, position, config.number_at(position), reason)


def state_of(
    configs: list[TagConfig],
    infos: list[TagInfo],
    *errors: SnowredisError,
    rate: float | None = None,
    steady: bool = True,
) -> TagState:
    return tag_state("t", configs, infos, errors, rate=rate, steady=steady)


def test_an_open_tag_says_how_many_numbers_remain_and_for_how_long() -> None:
    state = state_of([ONE], [info(ONE)], rate=0.001)
    assert (state.state, state.level, state.next_number, state.remaining) == ("open", "ok", 101, 900)
    assert state.used_up_in_s == pytest.approx(900_000)
    assert state_of([ONE], [info(ONE)], rate=0.0).used_up_in_s is None


def test_the_end_of_a_range_is_announced_once_the_rate_is_steady_and_said_when_it_is_there() -> None:
    rate = 1.01 * 900 / SOON_S
    assert state_of([ONE], [info(ONE)], rate=rate).level == "warning"
    assert state_of([ONE], [info(ONE)], rate=rate, steady=False).level == "ok"
    assert state_of([ONE], [info(ONE)], rate=rate / 1.1).level == "ok"
    end = state_of([ONE], [info(ONE, 1000)], rate=rate)
    assert (end.state, end.level, end.remaining) == ("used up", "critical", 0)
    assert end.commands == ["snowredis numbers change t --maximum N"]


def test_a_closed_tag_says_why_and_what_opens_it() -> None:
    closed = state_of([ONE], [info(ONE, reason=ClosedReason.OTHER_SERVER)], rate=5.0)
    assert (closed.state, closed.level, closed.next_number, closed.remaining) == (
        *("closed", "critical"),
        *(None, None),
    )
    assert "Redis was restarted" in closed.text
    assert "reported numbers up to 100" in closed.text
    assert closed.commands == ["snowredis numbers open t --from N"]
    config = TagConfig(tag="t", start=5, maximum=99, durability="assured", failover_slack_ms=1500)
    options = " --start 5 --maximum 99 --durability assured --failover-slack 1.5"
    assert state_of([config], [TagInfo("r", False)]).commands == [
        f"snowredis numbers open t --from N{options}",
        f"snowredis numbers create t{options}",
    ]


def test_of_several_servers_some_may_be_closed_away_or_others() -> None:
    open_, away = info(TWO[0]), StoreUnavailable("other", "no reply")
    partly = state_of(TWO, [open_, info(TWO[1], reason=ClosedReason.ROLLED_BACK)])
    assert (partly.state, partly.level, partly.next_number) == ("partly closed", "warning", 201)
    unknown = state_of(TWO, [open_], away)
    assert (unknown.state, unknown.level, unknown.remaining) == ("partly unknown", "warning", None)
    assert "no reply" in unknown.text
    assert state_of(TWO, [], away, away).state == "unknown"
    other = state_of([ONE], [open_])
    assert (other.state, other.level) == ("other settings", "critical")
    assert "place in the list of servers is 1 of 2 in the tag, 1 of 1 here" in other.text


def test_numbers_that_came_twice_are_named() -> None:
    alarmed = TagInfo("r", True, ONE, 100, 101, alarms=1, alarm=(5, 9, 0))
    assert (state_of([ONE], [alarmed]).state, state_of([ONE], [alarmed]).level) == ("alarm", "critical")
    assert state_of([ONE], [replace(alarmed, last_ms=ALARM_MS + 1)]).level == "ok"
    assert "the numbers 5 to 9 may have been handed out twice" in state_of([ONE], [alarmed]).text


def test_a_tag_in_memory_is_watched_too() -> None:
    pool = memory_pool()
    watch = TagWatch({"url": pool, "tag": "t"})
    assert (watch.read().state, watch.read().next_number) == ("open", 1)
    watch.close()
    watch = TagWatch({"url": memory_pool(new=False), "tag": "t"})
    assert watch.read(2.0).state == "closed"
    watch.close()
