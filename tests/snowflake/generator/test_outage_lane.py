"""Generators go on in the outage lane while Redis is unavailable: on a test clock; tests/web has a real server."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from snowredis.core.lanes import ClockRules
from snowredis.core.layout import Layout
from snowredis.errors import LeaseExpired
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.lease import context
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.testing import ManualClock
from tests.support.lua_store import LuaStore

DAY_MS = 24 * 3600 * 1000
TTL_MS = 30_000
OUT = 3
CONFIG = PoolConfig(name="orders", ttl_ms=TTL_MS, outage_reserve_ms=DAY_MS)


class Fleet:
    """Generators of one pool on one test clock."""

    def __init__(self, config: PoolConfig = CONFIG) -> None:
        self.clock = ManualClock()
        self.redis = LuaStore.on_clock(config, self.clock.server_time_ms).create_old()
        self.layout = config.layout
        self.ids: list[int] = []

    def generator(self, **options: Any) -> SnowflakeGenerator:
        return SnowflakeGenerator(self.redis, clock=self.clock, **options)

    def make(self, ids: SnowflakeGenerator, count: int = 1) -> int:
        """Make ids, which must be greater than those that this generator made before; return the namespace."""
        for _ in range(count):
            self.ids.append(ids.next_id())
        assert len(set(self.ids)) == len(self.ids)
        return self.layout.decode(self.ids[-1]).backup

    def beat(self, *generators: SnowflakeGenerator, ms: int = 5_000) -> None:
        """Let a heartbeat's time pass."""
        self.clock.advance(ms)
        for ids in generators:
            ids._beat()


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def ids(fleet: Fleet) -> Iterator[SnowflakeGenerator]:
    with fleet.generator() as ids:
        yield ids
        fleet.redis.away = False


def test_ids_go_on_for_a_day_in_the_highest_namespace_and_in_order(fleet: Fleet, ids: SnowflakeGenerator) -> None:
    assert fleet.make(ids, 3) == 0
    assert not ids.in_outage_lane
    fleet.redis.away = True
    for _ in range(24 * 12 - 1):
        fleet.beat(ids, ms=300_000)
        assert fleet.make(ids, 2) == OUT
    assert fleet.ids == sorted(fleet.ids)
    assert ids.in_outage_lane


def test_the_first_id_of_the_outage_lane_is_later_than_ids_that_were_borrowed() -> None:
    """The last ticks of the ordinary reservation are used before the clock shows them."""
    layout = Layout(backup_bits=2, worker_bits=2, sequence_bits=1)
    fleet = Fleet(PoolConfig(name="borrowed", layout=layout, ttl_ms=TTL_MS, outage_reserve_ms=DAY_MS))
    ids = fleet.generator(rules=ClockRules(max_ahead_ms=1_000))
    made = ids.next_ids(1)
    fleet.redis.away = True
    fleet.clock.advance(TTL_MS - 500)
    while layout.decode(made[-1]).backup != OUT:
        made += ids.next_ids(10)
    assert made == sorted(made)


def test_they_end_with_the_reservation_of_the_outage_lane(fleet: Fleet, ids: SnowflakeGenerator) -> None:
    fleet.make(ids)
    assert ids.lease is not None
    until_ms = ids.lease.outage_until_ms
    fleet.redis.away = True
    fleet.clock.advance(TTL_MS)
    assert fleet.make(ids) == OUT
    fleet.clock.advance(until_ms - fleet.clock.server_time_ms() - 1)
    assert fleet.make(ids) == OUT
    assert ids.ready
    fleet.clock.advance(1)
    with pytest.raises(LeaseExpired, match="it is away") as caught:
        fleet.make(ids)
    assert caught.value.retry
    assert (ids.ready, ids.in_outage_lane) == (False, False)
    fleet.redis.away = False
    fleet.clock.advance(500)
    assert fleet.make(ids) == 0


def test_the_lease_goes_on_when_redis_is_back(fleet: Fleet, ids: SnowflakeGenerator) -> None:
    fleet.make(ids)
    fleet.redis.away = True
    fleet.beat(ids, ms=3_600_000)
    assert fleet.make(ids) == OUT
    fleet.redis.away = False
    assert fleet.make(ids) == OUT
    fleet.beat(ids)
    assert not ids.in_outage_lane
    assert fleet.make(ids) == 0
    assert fleet.ids == sorted(fleet.ids)
    assert {fleet.layout.decode(an_id).worker for an_id in fleet.ids} == {0}
    # it goes on a second time
    fleet.redis.away = True
    fleet.beat(ids, ms=3_600_000)
    assert fleet.make(ids) == OUT
    assert fleet.ids == sorted(fleet.ids)


def test_no_living_worker_pauses_when_redis_comes_back_empty_nor_in_the_next_outage(
    fleet: Fleet, ids: SnowflakeGenerator
) -> None:
    """The new lease waits for the floor, and has no outage lane for a day; the old outage lane goes on meanwhile."""
    fleet.make(ids)
    fleet.redis.away = True
    fleet.beat(ids, ms=3_600_000)
    assert fleet.make(ids) == OUT
    fleet.redis.away = False
    fleet.redis.model.wipe()
    namespaces = []
    for _ in range(50):
        fleet.beat(ids, ms=1_000)
        before_ms = fleet.clock.server_time_ms()
        namespaces.append(fleet.make(ids))
        # it did not wait
        assert fleet.clock.server_time_ms() - before_ms < 10
    assert namespaces[0] == OUT
    assert namespaces[-1] == 0
    fleet.redis.away = True
    for _ in range(10):
        fleet.beat(ids, ms=3_600_000)
        assert fleet.make(ids) == OUT
    assert fleet.ids == sorted(fleet.ids)


def test_it_stays_closed_if_the_clocks_of_the_host_differ(fleet: Fleet, ids: SnowflakeGenerator) -> None:
    """A snapshot of the machine was resumed."""
    fleet.make(ids)
    fleet.redis.away = True
    fleet.clock.advance(1_000)
    fleet.clock.step(3_600_000)
    assert not ids.ready
    with pytest.raises(LeaseExpired, match=r"The outage lane stays closed until Redis replies"):
        ids.next_id()
    fleet.redis.away = False
    fleet.clock.step(-3_600_000)
    fleet.clock.advance(500)
    assert fleet.make(ids) == 0


@pytest.mark.parametrize(
    ("at_the_claim", "at_the_renewal", "in_the_outage", "opens"),
    [
        # the process was restored from a checkpoint on another machine
        ("this", "this", "another", False),
        # a process that goes on elsewhere, and renewed its lease there, is no copy
        ("before", "after", "after", True),
        # without a free descriptor, or in another root directory, nothing is known, and nothing differs
        ("", "", "", True),
        ("", "this", "this", True),
        ("this", "", "", True),
    ],
)
def test_it_opens_unless_the_boot_is_another_than_at_the_last_renewal(
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    at_the_claim: str,
    at_the_renewal: str,
    in_the_outage: str,
    opens: bool,
) -> None:
    boot_id = at_the_claim
    monkeypatch.setattr(context, "boot_id", lambda: boot_id)
    ids = fleet.generator()
    fleet.make(ids)
    boot_id = at_the_renewal
    ids._beat()
    fleet.redis.away = True
    boot_id = in_the_outage
    fleet.clock.advance(TTL_MS)
    if opens:
        assert fleet.make(ids) == OUT
    else:
        with pytest.raises(LeaseExpired, match="stays closed"):
            ids.next_id()


def test_a_small_clock_step_in_the_middle_of_an_outage_stops_nobody(fleet: Fleet, ids: SnowflakeGenerator) -> None:
    fleet.make(ids)
    fleet.redis.away = True
    fleet.clock.advance(3_600_000)
    assert fleet.make(ids) == OUT
    # as drift may be in an hour; small steps back are waited for
    fleet.clock.step(4_000)
    assert fleet.make(ids) == OUT
    fleet.clock.step(-3_000)
    assert fleet.make(ids) == OUT
    assert fleet.ids == sorted(fleet.ids)


def test_opening_and_its_end_are_logged(
    fleet: Fleet, ids: SnowflakeGenerator, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.make(ids)
    fleet.redis.away = True
    with caplog.at_level(logging.WARNING, "snowredis"):
        for _ in range(12):
            fleet.beat(ids)
            fleet.make(ids)
    texts = [record.getMessage() for record in caplog.records if "outage lane" in record.getMessage()]
    assert len(texts) == 1
    assert "outage lane of worker id 0, until 2026-01-0" in texts[0]


def test_without_an_outage_reserve_ids_end_with_the_ordinary_reservation() -> None:
    fleet = Fleet(PoolConfig(name="plain", ttl_ms=TTL_MS, outage_reserve_ms=0))
    ids = fleet.generator()
    fleet.make(ids)
    fleet.redis.away = True
    fleet.clock.advance(TTL_MS)
    with pytest.raises(LeaseExpired):
        ids.next_id()
    for _ in range(8):
        fleet.redis.away = False
        fleet.clock.step(-10_000)
        assert fleet.make(ids) <= OUT
    assert not ids.in_outage_lane
