"""A Redis that is killed, and comes back empty or from its snapshot, after a person changed a pool."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch
from snowredis.snowflake.administration import Changing, PoolAdministration
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from snowredis.snowflake.replies import Granted, Renewed
from tests.lease.conftest import wall_ms
from tests.support.holder import Holder
from tests.support.pools import open_outage_lanes
from tests.support.servers import PROGRAM, RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no redis-server or valkey-server on PATH")
DAY_MS = 24 * 3600 * 1000
OLD = Layout(timestamp_bits=41, backup_bits=2, worker_bits=3, sequence_bits=10)
NEW = Layout(timestamp_bits=41, backup_bits=2, worker_bits=6, sequence_bits=7)
CONFIG = PoolConfig(name="orders", layout=OLD, ttl_ms=600, outage_reserve_ms=DAY_MS)
LONGER, SHORTER = (
    PoolConfig(name="orders", layout=OLD, ttl_ms=ttl, outage_reserve_ms=DAY_MS) for ttl in (2_000, 1_000)
)
KEY = pool_keys("orders")[0]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that writes snapshots by itself, but not within this test."""
    server = RedisServer(tmp_path, "--save", "3600 1")
    server.start()
    yield server
    server.kill()


def store_at(server: RedisServer, config: PoolConfig = CONFIG) -> PoolAdministration:
    return PoolAdministration(server.url, config)


def claimed(store: PoolAdministration) -> Holder:
    """Claim after the wait for the floor."""
    holder = Holder(store, wall_ms)
    replies = []

    def is_granted() -> bool:
        replies.append(holder.ask_claim())
        return isinstance(replies[-1], Granted)

    eventually(is_granted, "a lease", 10)
    return holder.claim()


# --- plan and undo ----------------------------------------------------------------------------------


def test_a_plan_that_was_undone_does_not_come_back_after_a_crash(kept: RedisServer) -> None:
    store = store_at(kept)
    store.create(wall_ms())
    assert isinstance(store.change_layout(NEW, wall_ms() + 2 * DAY_MS, wall_ms()), Changing)
    store.change_layout(OLD, wall_ms() + 1, wall_ms())
    kept.restart()
    assert kept.client().exists(KEY)
    assert kept.client().hget(KEY, "next_signature") is None


def test_a_change_that_comes_back_waits_for_all_lanes_that_may_have_been_granted_since(kept: RedisServer) -> None:
    """A person restored a backup in which the plan was not undone yet."""
    store = store_at(kept)
    store.create(wall_ms())
    open_outage_lanes(store)
    assert isinstance(store.change_layout(NEW, wall_ms() + 700, wall_ms()), Changing)
    kept.save()
    backup = (kept.directory / "dump.rdb").read_bytes()
    store.change_layout(OLD, wall_ms() + 1, wall_ms())
    cut_off = Holder(store, wall_ms).claim()
    assert cut_off.outage_ms > wall_ms() + DAY_MS - 60_000
    kept.kill()
    (kept.directory / "dump.rdb").write_bytes(backup)
    kept.start()
    heir = Holder(store_at(kept, CONFIG.with_layout(NEW)), wall_ms)

    def is_changed() -> bool:
        with contextlib.suppress(LayoutMismatch):
            heir.ask_claim()
            return True
        return False

    eventually(is_changed, "the planned moment", 10)
    assert heir.ask_claim().floor_ms >= cut_off.outage_ms


# --- create -----------------------------------------------------------------------------------------


def test_a_pool_that_is_created_after_a_loss_grants_no_outage_lane_that_may_be_in_use(own_server: RedisServer) -> None:
    """As --help said: no process made an id in this pool for ttl + max-clock-lead + redis-skew. One was idle."""
    store = store_at(own_server)
    store.create(wall_ms())
    open_outage_lanes(store)
    cut_off = Holder(store, wall_ms).claim()
    own_server.restart()
    store.create(wall_ms())
    heir = Holder(store, wall_ms).claim()
    assert heir.worker == cut_off.worker
    assert heir.lanes_ms[0] == 0
    assert heir.lanes_ms[-1] >= cut_off.outage_ms


def test_a_pool_that_is_created_where_nothing_was_lost_has_its_outage_lanes_at_once(own_server: RedisServer) -> None:
    store = store_at(own_server)
    store.create(wall_ms())
    store.delete(wall_ms())
    store.create(wall_ms())
    open_outage_lanes(store)
    gone = Holder(store, wall_ms).claim()
    assert gone.release()
    store.delete(wall_ms())
    store.create(wall_ms())
    assert Holder(store, wall_ms).claim().lanes_ms[-1] == 0


def test_after_delete_and_create_a_crash_brings_no_older_pool_back(kept: RedisServer) -> None:
    store_at(kept).create(wall_ms())
    kept.save()
    store_at(kept).delete(wall_ms())
    store_at(kept, LONGER).create(wall_ms())
    kept.restart()
    assert kept.client().hget(KEY, "signature") == LONGER.signature


def test_after_delete_a_crash_brings_the_pool_not_back(kept: RedisServer) -> None:
    store_at(kept).create(wall_ms())
    kept.save()
    store_at(kept).delete(wall_ms())
    kept.restart()
    assert kept.client().hget(KEY, "signature") is None
    assert kept.client().hget(KEY, "floor") is not None


# --- a pool that others create ----------------------------------------------------------------------


def test_a_process_that_the_pool_refused_does_not_create_it_with_its_own_settings(own_server: RedisServer) -> None:
    store = store_at(own_server)
    store.create(wall_ms())
    worker = Holder(store, wall_ms).claim()
    stray = Holder(store_at(own_server, LONGER), lambda: wall_ms() + late_ms)
    late_ms = 0
    with pytest.raises(LayoutMismatch):
        stray.ask_claim()
    own_server.restart()
    late_ms = 2_000
    with pytest.raises(LayoutMismatch, match="does not know the pool any more"):
        stray.ask_claim()
    assert not own_server.client().exists(KEY)
    assert isinstance(worker.ask_renew(), Renewed)


def test_a_process_that_the_pool_refused_creates_it_after_a_person_deleted_it(own_server: RedisServer) -> None:
    store_at(own_server).create(wall_ms())
    other = Holder(store_at(own_server, LONGER), lambda: wall_ms() + late_ms)
    late_ms = 0
    with pytest.raises(LayoutMismatch):
        other.ask_claim()
    store_at(own_server).delete(wall_ms())
    late_ms = 2_000
    other.ask_claim()
    assert own_server.client().exists(KEY)


def test_a_wiped_pool_that_comes_back_with_a_shorter_reserve_learns_of_lanes_that_it_did_not_grant(
    own_server: RedisServer,
) -> None:
    store = store_at(own_server)
    store.create(wall_ms())
    open_outage_lanes(store)
    living, cut_off = Holder(store, wall_ms).claim(), Holder(store, wall_ms).claim()
    own_server.restart()
    other = store_at(own_server, replace(CONFIG, outage_reserve_ms=1_000))
    Holder(other, wall_ms).ask_claim()
    with pytest.raises(LayoutMismatch):
        living.ask_renew()
    heirs = [claimed(other), claimed(other)]
    eventually(lambda: wall_ms() > heirs[0].lanes_ms[0] + 1_200, "the shorter reserve", 10)
    for heir in heirs:
        heir.ask_renew()
    assert [heir.worker for heir in heirs] == [living.worker, cut_off.worker]
    assert min(heir.lanes_ms[-1] for heir in heirs) >= max(living.outage_ms, cut_off.outage_ms)


def test_a_worker_goes_on_in_its_outage_lane_if_a_stray_process_creates_the_lost_pool(own_server: RedisServer) -> None:
    store = store_at(own_server, SHORTER)
    store.create(wall_ms())
    open_outage_lanes(store)
    made: list[int] = []

    def until(condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            made.append(ids.next_id())
            return condition()

        eventually(is_so, what, 10)

    def connect(ttl: float) -> snowredis.SnowflakeGenerator:
        return snowredis.connect(own_server.url, pool="orders", layout=OLD, ttl=ttl, outage_reserve=DAY_MS / 1000)

    with connect(1) as ids:
        made.append(ids.next_id())
        own_server.kill()
        until(lambda: ids.in_outage_lane, "the outage lane")
        own_server.start()
        Holder(store_at(own_server, LONGER), wall_ms).ask_claim()
        until(lambda: ids.counts.leases_lost == 1, "the refusal")
        until(lambda: len(made) > 100, "more ids")
        assert OLD.decode(made[-1]).backup == 3
    assert len(set(made)) == len(made)
