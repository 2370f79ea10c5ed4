"""The table of the page on settings: with which of them the behavior of other systems is had."""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.testing import ManualClock, memory_pool

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


class Played:
    """A generator with the settings of a row, and what its clock and its ids do."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.clock = ManualClock()
        self.ids = snowredis.connect(memory_pool(clock=self.clock), **settings)
        self.newest = self.ids.next_id()

    def waits_ms(self, back_ms: int = 0, count: int = 1) -> int:
        """Set the clock back, make *count* ids, and return how long that took."""
        self.clock.step(-back_ms)
        before_s = self.clock.monotonic()
        made = self.ids.next_ids(count)
        self.newest = made[-1]
        return round((self.clock.monotonic() - before_s) * 1000)

    def refuses(self, back_ms: int) -> bool:
        """Set the clock back, and return whether the next id is refused at once."""
        self.clock.step(-back_ms)
        before_s = self.clock.monotonic()
        with pytest.raises(snowredis.ClockMovedBack):
            self.ids.next_id()
        return self.clock.monotonic() == before_s

    def behind_ms(self) -> int:
        """Return how far the newest id is ahead of the clock."""
        return self.ids.decode(self.newest).timestamp_ms - self.clock.time_ns() // 1_000_000


# the ids of one tick
TICK = snowredis.Layout().sequences


def twitter(played: Played) -> None:
    assert played.waits_ms(count=2 * TICK) >= 1
    assert played.refuses(1)


def jd(played: Played) -> None:
    assert played.waits_ms(count=2 * TICK) >= 1
    assert played.waits_ms(back_ms=5) == 5
    assert played.waits_ms(back_ms=6) == 0
    assert played.ids.decode(played.newest).backup > 0
    # the fourth namespace is for a Redis that is away; then another worker id
    worker = played.ids.decode(played.newest).worker
    for _ in range(2):
        assert played.waits_ms(back_ms=100) == 0
    assert played.ids.decode(played.newest).worker != worker


def shardingsphere(played: Played) -> None:
    assert played.waits_ms(count=2 * TICK) >= 1
    assert played.waits_ms(back_ms=10) == 10
    assert played.refuses(11)


def last_time_plus_one(played: Played) -> None:
    assert played.waits_ms(count=100 * TICK) == 0
    assert 90 <= played.behind_ms() <= 100
    assert played.waits_ms(back_ms=9_000, count=10) == 0
    assert 9_000 <= played.behind_ms() <= 9_200
    assert played.refuses(2_000)


def uid_generator(played: Played) -> None:
    assert played.waits_ms(count=900 * TICK) == 0
    assert 890 <= played.behind_ms() <= 900
    # what is borrowed is paid back
    assert played.waits_ms(count=200 * TICK) >= 90
    assert played.refuses(5_000)


PLAYS: dict[str, Callable[[Played], None]] = {
    "Twitter's Snowflake": twitter,
    "JD": jd,
    "ShardingSphere": shardingsphere,
    '"last time + 1"': last_time_plus_one,
    "uid-generator": uid_generator,
}


def settings_of_the_page() -> dict[str, dict[str, Any]]:
    section = PAGE.read_text("utf-8").partition("\n## A clock that goes back\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \| `([^`]+)` \|$", section, re.MULTILINE)
    calls = {system: ast.parse(f"f({text})", mode="eval").body for system, text in rows}
    return {
        system: {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        for system, call in calls.items()
        if isinstance(call, ast.Call)
    }


def test_each_row_of_the_page_is_played() -> None:
    assert settings_of_the_page().keys() == PLAYS.keys()


@pytest.mark.parametrize("system", PLAYS)
def test_the_behavior_of_another_system_is_had_with_the_settings_of_the_page(system: str) -> None:
    played = Played(settings_of_the_page()[system])
    PLAYS[system](played)
    played.ids.close()
