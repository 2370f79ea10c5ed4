"""A Redis that is killed, and comes back empty or from its snapshot, after a person changed a pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, PoolNotFound
from snowredis.snowflake.administration import Ends, PoolAdministration
from snowredis.snowflake.protocol import PoolConfig, pool_keys
from snowredis.snowflake.replies import Renewed, Settling
from tests.snowflake.lease.conftest import wall_ms
from tests.support.holder import Holder
from tests.support.servers import PROGRAM, RedisServer

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no redis-server or valkey-server on PATH")
DAY_MS = 24 * 3600 * 1000
OLD = Layout(timestamp_bits=41, backup_bits=2, worker_bits=3, sequence_bits=10)
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


# --- create and delete ------------------------------------------------------------------------------


def test_a_person_who_creates_a_pool_after_a_loss_says_that_no_process_could_make_ids(own_server: RedisServer) -> None:
    store = store_at(own_server)
    store.create(wall_ms())
    Holder(store, wall_ms).claim()
    own_server.restart()
    created = store.create(wall_ms())
    heir = Holder(store, wall_ms).claim(wait_ms=0)
    assert set(heir.lanes_ms) == {created.redis_ms}
    assert heir.outage_ms > heir.until_ms


def test_a_process_of_before_is_not_hidden_by_a_person_who_creates_the_pool_after_a_loss(
    own_server: RedisServer,
) -> None:
    """It is another pool: what the process has is not behind the floors."""
    store = store_at(own_server)
    store.create(wall_ms())
    living = Holder(store, wall_ms).claim()
    own_server.restart()
    store.create(wall_ms())
    assert living.ask_renew().alarm is not None
    assert isinstance(Holder(store, wall_ms).ask_claim(), Settling)


def test_after_delete_a_crash_brings_the_pool_not_back(kept: RedisServer) -> None:
    store_at(kept).create(wall_ms())
    holder = Holder(store_at(kept), wall_ms).claim()
    kept.save()
    assert holder.release("1000")
    ends = store_at(kept).end(wall_ms())
    assert isinstance(ends, Ends)
    kept.restart()
    with pytest.raises(PoolNotFound):
        snowredis.WorkerPool(kept.url, "orders").info()
    reply = Holder(store_at(kept, LONGER), wall_ms).ask_claim()
    # the server is another one, too
    assert isinstance(reply, Settling)
    assert reply.floor_ms > ends.end_ms == holder.until_ms


def test_a_backup_of_before_the_end_brings_no_pool_back_that_grants_what_the_next_one_did(kept: RedisServer) -> None:
    """A person restored it. The next pool had the same settings, and its worker goes on."""
    store = store_at(kept)
    store.create(wall_ms())
    kept.save()
    backup = (kept.directory / "dump.rdb").read_bytes()
    store.end(wall_ms())
    living = Holder(store, wall_ms).claim()
    kept.kill()
    (kept.directory / "dump.rdb").write_bytes(backup)
    kept.start()
    newcomer = Holder(store_at(kept), wall_ms).ask_claim()
    assert isinstance(newcomer, Settling)
    assert newcomer.floor_ms >= living.until_ms
    assert living.ask_renew().adopted


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
    store_at(own_server).end(wall_ms())
    late_ms = 2_000
    other.ask_claim()
    assert own_server.client().exists(KEY)
