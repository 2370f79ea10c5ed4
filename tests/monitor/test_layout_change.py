"""A living pool gets another layout: old processes stop, new ones start, nobody repeats an id, whois goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import ConfigError, LayoutMismatch
from snowredis.monitor.pool import LayoutPeriod
from snowredis.process.clock import now_ms
from snowredis.snowflake.protocol import PoolConfig
from snowredis.worker_pool import change_layout, check_change
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

OLD = Layout(timestamp_bits=41, backup_bits=2, worker_bits=10, sequence_bits=10)
# more workers, fewer ids
NEW = Layout(timestamp_bits=41, backup_bits=1, worker_bits=12, sequence_bits=9)
# two bits less: the same numbers come again at other times
LOWER = Layout(timestamp_bits=41, backup_bits=0, worker_bits=10, sequence_bits=10)
TTL_S = 0.4


@pytest.fixture
def pool(server: RedisServer, request: pytest.FixtureRequest) -> Iterator[snowredis.WorkerPool]:
    name = f"change-{abs(hash(request.node.name))}"
    with closing(snowredis.WorkerPool(server.url, name)) as pool:
        # without outage lanes, the end can be near
        pool.create(PoolConfig(name=name, layout=OLD, ttl_ms=round(TTL_S * 1000), outage_reserve_ms=0))
        yield pool


def test_old_processes_stop_new_ones_start_and_old_ids_are_still_known(
    pool: snowredis.WorkerPool, server: RedisServer
) -> None:
    def connect(layout: Layout, label: str) -> Any:
        settings: dict[str, Any] = {"pool": pool.name, "ttl": TTL_S, "outage_reserve": 0}
        return contextlib.closing(snowredis.connect(server.url, layout=layout, label=label, **settings))

    with connect(OLD, "old") as old, connect(OLD, "gone") as gone, connect(NEW, "new") as new:
        gone_id, made = gone.next_id(), old.next_ids(2000)
        gone.close()
        planned = change_layout(pool, NEW, delay_ms=1500)
        assert planned.sorted
        info = pool.info()
        assert (info.layout, info.changes_ms) == (OLD, planned.at_ms)
        with pytest.raises(LayoutMismatch, match="The pool changes to these settings at 20"):
            new.claim()
        # until the moment nobody is disturbed
        made += old.next_ids(100)

        refusals: list[str] = []

        def refused() -> bool:
            try:
                made.append(old.next_id())
            except LayoutMismatch as error:
                refusals.append(f"{error}")
            return bool(refusals)

        eventually(refused, "the old layout is refused", 10)
        assert "The layout of the pool was changed: start this process again with the new one" in refusals[0]
        new_ids = new.next_ids(2000)
        with connect(OLD, "late") as late, pytest.raises(LayoutMismatch, match="Use the layout of the pool"):
            late.next_id()
        assert min(new_ids) > max(made)
        assert OLD.decode(max(made)).timestamp_ms < planned.at_ms <= NEW.decode(min(new_ids)).timestamp_ms
        assert new.lease.worker == 0
        info = pool.info()
        assert info.layout == NEW
        assert [(each.layout, each.from_ms, each.until_ms) for each in info.layouts] == [
            (OLD, 0, planned.at_ms),
            (NEW, planned.at_ms, None),
        ]
        found = pool.whois_all([made[0], made[-1], gone_id, new_ids[0]])
        assert [each.maker and each.maker.label for each in found] == ["old", "old", "gone", "new"]
        assert [(each.certainty, each.reason) for each in found if each.certainty != "certain"] == []
        assert found[0].parts == OLD.decode(made[0])


def test_a_change_waits_for_the_outage_lanes(server: RedisServer) -> None:
    """A process that does not reach Redis may make ids of the old layout there."""
    name, day_ms = f"lanes-{TTL_S}", 86_400_000
    with closing(snowredis.WorkerPool(server.url, name)) as pool:
        pool.create(PoolConfig(name=name, layout=OLD, ttl_ms=round(TTL_S * 1000)))
        with snowredis.connect(server.url, pool=name, layout=OLD, ttl=TTL_S) as ids:
            ids.next_id()
            with pytest.raises(ConfigError, match=r"reservations beyond that moment.*Plan it for 20.* or later"):
                change_layout(pool, NEW, delay_ms=1500)
            assert pool.info().changes_ms == 0
            # as soon as possible
            planned = change_layout(pool, NEW, delay_ms=0)
            assert planned.at_ms >= pool.info().now_ms + day_ms - 60_000
            assert ids.next_id()


def test_a_change_that_could_repeat_ids_is_refused(pool: snowredis.WorkerPool) -> None:
    info = pool.info()
    for layout, message in (
        (LOWER, "can be equal: .* of them, for example .*Nothing was changed"),
        (OLD, "has this layout already"),
    ):
        with pytest.raises(ConfigError, match=message):
            change_layout(pool, layout, delay_ms=1000)
    assert pool.info().layouts == info.layouts
    # the same bits in the same places
    assert check_change(info, Layout(timestamp_bits=41, backup_bits=2, worker_bits=8, sequence_bits=12), info.now_ms)


def test_a_pool_that_was_deleted_may_have_had_another_datacenter(server: RedisServer) -> None:
    """Its datacenter 10 is 5 in a layout that has these bits one further left."""
    made_ms = now_ms()
    old = Layout(datacenter_bits=5, backup_bits=0, worker_bits=5, sequence_bits=12)
    # half of the timestamp, in an hour
    epoch_ms = made_ms + 3_600_000 - (made_ms - old.epoch_ms) // 2
    new = Layout(
        timestamp_bits=40, datacenter_bits=5, backup_bits=0, worker_bits=5, sequence_bits=13, epoch_ms=epoch_ms
    )
    with closing(snowredis.WorkerPool(server.url, "deleted")) as pool:
        pool.create(PoolConfig(name="deleted", layout=old, datacenter=10))
        pool.delete()
        pool.create(PoolConfig(name="deleted", layout=old, datacenter=5))
        with pytest.raises(ConfigError, match=r"can be equal"):
            check_change(pool.info(), new, made_ms + 3_500_000)


def test_no_end_is_set_that_was_not_proved(server: RedisServer) -> None:
    """Ids of the new layout equal old ones two hours from now, when the outage lanes end, and not before."""
    hour_ms = 3_600_000
    old = Layout(timestamp_bits=40, backup_bits=2, worker_bits=10, sequence_bits=11, epoch_ms=now_ms() - hour_ms)
    new = Layout(
        timestamp_bits=41, backup_bits=2, worker_bits=10, sequence_bits=10, epoch_ms=now_ms() - 2 * hour_ms - 60_000
    )
    with closing(snowredis.WorkerPool(server.url, "proved")) as pool:
        pool.create(PoolConfig(name="proved", layout=old, outage_reserve_ms=2 * hour_ms))
        check_change(pool.info(), new, now_ms())
        with closing(snowredis.connect(server.url, pool="proved", layout=old, outage_reserve=7_200)) as ids:
            ids.next_id()
            with pytest.raises(ConfigError, match="Nothing was changed"):
                change_layout(pool, new, delay_ms=0)
        info = pool.info()
        assert (info.end_ms, [period.layout for period in info.layouts]) == (0, [old])


def test_a_planned_change_cannot_be_moved_or_taken_back(pool: snowredis.WorkerPool) -> None:
    with pytest.raises(ConfigError, match="over a year"):
        change_layout(pool, NEW, delay_ms=367 * 86_400_000)
    first = change_layout(pool, NEW, delay_ms=60_000)
    assert [each.layout for each in pool.info().layouts] == [OLD, NEW]
    assert change_layout(pool, NEW, delay_ms=90_000).at_ms == first.at_ms
    with pytest.raises(ConfigError, match=r"already ends at .* An end cannot be changed"):
        change_layout(pool, Layout(timestamp_bits=41, backup_bits=1, worker_bits=11, sequence_bits=10), delay_ms=90_000)
    with pytest.raises(ConfigError, match=r"already ends at .* An end cannot be changed; nothing was deleted"):
        pool.delete()
    info = pool.info()
    assert ([each.layout for each in info.layouts], info.changes_ms) == ([OLD, NEW], first.at_ms)


def test_a_name_that_was_deleted_often_is_read_and_its_layout_changes(
    pool: snowredis.WorkerPool, server: RedisServer
) -> None:
    config = PoolConfig(name=pool.name, layout=OLD, ttl_ms=round(TTL_S * 1000), outage_reserve_ms=0)
    for _ in range(80):
        assert pool.delete().over
        pool.create(config)
    with closing(snowredis.connect(server.url, pool=pool.name, layout=OLD, ttl=TTL_S, outage_reserve=0)) as ids:
        an_id = ids.next_id()
        assert [worker.worker for worker in pool.workers()] == [OLD.decode(an_id).worker]
        assert pool.whois(an_id).certainty == "certain"
        planned = change_layout(pool, NEW, delay_ms=60_000)
    periods = pool.info().layouts
    assert [period.layout for period in periods] == [*[OLD] * 81, NEW]
    assert [period.from_ms for period in periods] == [0, *(period.until_ms for period in periods[:-1])]
    assert periods[-1].from_ms == planned.at_ms
    with pytest.raises(ConfigError, match="can be equal"):
        check_change(pool.info(), LOWER, pool.info().now_ms)


def test_a_layout_that_a_pool_had_is_compared_while_another_change_is_planned(pool: snowredis.WorkerPool) -> None:
    day_ms = 86_400_000
    info = pool.info()
    start_ms = info.now_ms - 100 * day_ms
    first = replace(OLD, epoch_ms=start_ms)
    second = Layout(timestamp_bits=39, backup_bits=2, worker_bits=12, sequence_bits=10, epoch_ms=start_ms)
    # its ids are those of the first layout 30 days before; it ends before they reach those of the second one
    third = Layout(timestamp_bits=35, backup_bits=2, worker_bits=10, sequence_bits=10, epoch_ms=start_ms + 30 * day_ms)
    had = LayoutPeriod(first, 0, info.now_ms - day_ms)
    changed = replace(
        info,
        layout=second,
        signature=PoolConfig(name=pool.name, layout=second).signature,
        layouts=(had, LayoutPeriod(second, had.until_ms or 0, None)),
    )
    planned_ms = info.now_ms + 3_600_000
    planned = replace(
        changed,
        layouts=(had, LayoutPeriod(second, had.until_ms or 0, planned_ms), LayoutPeriod(NEW, planned_ms, None)),
        changes_ms=planned_ms,
    )
    for each in (changed, planned):
        with pytest.raises(ConfigError, match=f"ids of the layout {first}, .* can be equal"):
            check_change(each, third, info.now_ms)


@pytest.mark.parametrize(("layout", "reserve_ms"), [(OLD, -1), (OLD, 0), (OLD, 50_000), (NEW, -1), (NEW, 0)])
def test_the_options_of_a_pool_open_it_whatever_its_outage_reserve(
    server: RedisServer, layout: Layout, reserve_ms: int
) -> None:
    name = f"options{abs(hash((layout, reserve_ms)))}"
    with closing(snowredis.WorkerPool(server.url, name)) as pool:
        pool.create(PoolConfig(name=name, layout=layout, outage_reserve_ms=reserve_ms))
        with snowredis.connect(server.url, pool=name, **pool.info().options) as ids:
            assert ids.next_id() > 0
