"""Tests that freeze the time, by freezegun and by time-machine: ids go on, in memory and on a test clock."""

import datetime as dt
from contextlib import AbstractContextManager
from typing import Any

import pytest

import snowredis
from snowredis.snowflake.ids.fast_path import IMPLEMENTATION
from snowredis.testing import ManualClock, memory_pool, use


def frozen(library: str, year: int) -> AbstractContextManager[Any]:
    moment = dt.datetime(year, 1, 1, tzinfo=dt.UTC)
    if library == "freezegun":
        found: Any = pytest.importorskip("freezegun").freeze_time(moment)
        return found
    if IMPLEMENTATION != "c":
        pytest.skip("time-machine freezes the clock of the implementation in Python")
    travel: Any = pytest.importorskip("time_machine").travel(moment, tick=library.endswith("ticking"))
    return travel


@pytest.mark.parametrize("library", ["freezegun", "time-machine", "time-machine, ticking"])
@pytest.mark.parametrize("year", [2020, 2026, 2031])
@pytest.mark.parametrize("manual", [True, False])
def test_ids_go_on_while_a_test_freezes_the_time(library: str, year: int, manual: bool) -> None:
    before = [snowredis.connect(memory_pool(clock=ManualClock() if manual else None))]
    made = before[0].next_ids(2)
    with frozen(library, year):
        inside = snowredis.connect(memory_pool(clock=ManualClock() if manual else None))
        for ids in (inside, *before):
            with use(ids):
                # more than one tick of the layout has
                made += [snowredis.next_id(), *snowredis.next_ids(3000)]
    made += before[0].next_ids(2)
    assert made[:2] + made[-3003:] == sorted(made[:2] + made[-3003:])
    assert all(each.ready for each in (inside, *before))
