"""A Redis that is killed and comes back, empty or as it was, after a person ended a pool; or hides which one it is."""

import contextlib
import logging
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, PoolNotFound, StoreUnavailable
from snowredis.snowflake.protocol.administration import Ends, PoolAdministration
from snowredis.snowflake.protocol.messages import Granted, Renewed, Settling
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.snowflake.protocol.conftest import wall_ms
from tests.support.holder import Holder, create, fresh_hex
from tests.support.servers import RedisServer, redis_server, replicated

DAY_MS = 24 * 3600 * 1000
OLD = Layout(timestamp_bits=41, backup_bits=2, worker_bits=3, sequence_bits=10)
CONFIG = PoolConfig(name="orders", layout=OLD, ttl_ms=5_000, outage_reserve_ms=DAY_MS)
LONGER = PoolConfig(name="orders", layout=OLD, ttl_ms=10_000, outage_reserve_ms=DAY_MS)
# no restart of a server takes as long
USUAL = PoolConfig(name="orders", layout=OLD, outage_reserve_ms=DAY_MS)
PLAIN = PoolConfig(name="orders", layout=OLD, outage_reserve_ms=0)
KEY = pool_keys("orders")[0]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that writes snapshots by itself, but not within this test."""
    with redis_server(tmp_path, "--save", "3600 1") as server:
        yield server


def store_at(server: RedisServer, config: PoolConfig = CONFIG) -> PoolAdministration:
    return PoolAdministration(server.url, config)


# --- create and delete ------------------------------------------------------------------------------


def test_after_delete_a_crash_brings_the_pool_not_back(kept: RedisServer) -> None:
    create(store_at(kept), wall_ms())
    holder = Holder(store_at(kept), wall_ms).claim()
    kept.save()
    assert holder.release("1000")
    ends = store_at(kept).delete(wall_ms())
    assert isinstance(ends, Ends)
    kept.restart()
    with pytest.raises(PoolNotFound):
        snowredis.WorkerPool(kept.url, "orders").info()
    # the server is another one, too
    assert Holder(store_at(kept, LONGER), wall_ms).settling().floor_ms > ends.end_ms == holder.until_ms


def test_a_backup_of_before_the_end_brings_no_pool_back_that_grants_what_the_next_one_did(kept: RedisServer) -> None:
    """A person restored it. The next pool had the same settings, and its worker goes on."""
    store = store_at(kept, USUAL)
    create(store, wall_ms())
    kept.save()
    backup = (kept.directory / "dump.rdb").read_bytes()
    store.delete(wall_ms())
    living = Holder(store, wall_ms).claim()
    kept.kill()
    (kept.directory / "dump.rdb").write_bytes(backup)
    kept.start()
    assert Holder(store_at(kept, USUAL), wall_ms).settling().floor_ms >= living.until_ms
    assert living.ask_renew().adopted


# --- a pool that others create ----------------------------------------------------------------------


def test_a_process_that_the_pool_refused_does_not_create_it_with_its_own_settings(own_server: RedisServer) -> None:
    store = store_at(own_server, USUAL)
    create(store, wall_ms())
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


# --- an end: on every copy of the pool that can come back, before it counts ---------------------------


def end(server: RedisServer) -> Ends:
    """Give the pool an end."""
    store = store_at(server, PLAIN)
    reply = store.delete(wall_ms())
    store.close()
    assert isinstance(reply, Ends)
    return reply


@pytest.mark.parametrize("kept", [("--save", "3600 1"), ("--appendonly", "yes")])
def test_a_crash_right_after_the_end_was_set_does_not_forget_it(tmp_path: Path, kept: tuple[str, str]) -> None:
    with redis_server(tmp_path, *kept) as server:
        create(store_at(server, PLAIN), wall_ms())
        server.client().bgrewriteaof() if "appendonly" in kept[0] else server.save()
        held = Holder(store_at(server, PLAIN), wall_ms).claim()
        ends = end(server)
        assert ends.end_ms >= held.until_ms
        server.restart()
        assert server.client().hmget(KEY, "end", "over") == [str(ends.end_ms), "then"]


def test_a_server_that_keeps_nothing_on_disk_gets_no_snapshot(own_server: RedisServer) -> None:
    """It would find that snapshot at its next start, and take it for its state."""
    create(store_at(own_server, PLAIN), wall_ms())
    end(own_server)
    assert not list(own_server.directory.glob("*.rdb"))


def test_an_end_does_not_count_before_each_replica_has_it(tmp_path: Path) -> None:
    with replicated(tmp_path) as (master, replica):
        create(store_at(master, PLAIN), wall_ms())
        living = Holder(store_at(master, PLAIN), wall_ms).claim()
        replica.kill(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match=r"a replica does not have this. The pool ends at 20.* all the same"):
            end(master)
        set_ms, over = master.client().hmget(KEY, "end", "over")
        assert over is None
        # nothing reaches beyond it from now on, and no other is set
        assert isinstance(living.ask_renew(ahead_ms=10**9), Renewed)
        assert living.until_ms <= int(set_ms or 0)
        replica.kill(signal.SIGCONT)
        assert end(master).end_ms == int(set_ms or 0)
        assert master.client().hget(KEY, "over") == "then"
        assert replica.client().hget(KEY, "end") == set_ms


def test_an_end_that_redis_loses_before_it_counts_is_no_end(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store_at(own_server, PLAIN), wall_ms())
    changes = iter((lambda: None, lambda: own_server.client().hdel(KEY, "end")))
    lasting = PoolAdministration._lasting

    def after_a_loss(self: PoolAdministration, *args: Any, **options: Any) -> Any:
        next(changes)()
        return lasting(self, *args, **options)

    monkeypatch.setattr(PoolAdministration, "_lasting", after_a_loss)
    with pytest.raises(StoreUnavailable, match=r"it lost the end .* Repeat the command"):
        end(own_server)
    assert own_server.client().hmget(KEY, "end", "over") == [None, None]


def test_without_the_right_to_make_a_snapshot_the_end_counts_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path, "--save", "3600 1", "--rename-command", "BGSAVE", "") as server:
        create(store_at(server, PLAIN), wall_ms())
        with caplog.at_level(logging.WARNING, "snowredis"):
            end(server)
        assert "repeat this command" in caplog.text
        assert server.client().hget(KEY, "over")


# --- a server that does not show which it is -------------------------------------------------------


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis without INFO, for scripts and for clients."""
    with redis_server(tmp_path_factory.mktemp("silent"), "--rename-command", "INFO", "") as running:
        yield running


# the bound: it must not be asked again and again
@pytest.mark.timeout(10)
def test_a_server_without_info_is_refused_at_once_and_holds_nothing(silent: RedisServer) -> None:
    with contextlib.closing(snowredis.connect(silent.url, pool="orders", layout=OLD)) as ids:
        for make in (ids.claim, ids.next_id):
            with pytest.raises(StoreUnavailable, match="refuses INFO inside scripts") as caught:
                make()
    assert caught.value.code == "info-refused"
    for remedy in ("allow it for the user", 'durability="assured"', 'durability="none"', "nothing was claimed"):
        assert remedy in str(caught.value)
    assert silent.client().exists(*pool_keys("orders")) == 0


@pytest.mark.parametrize("durability", ["assured", "none"])
def test_whoever_says_what_stands_in_is_served_by_a_server_without_info(silent: RedisServer, durability: Any) -> None:
    config = replace(PLAIN, name=durability, durability=durability)
    create(store_at(silent, config), wall_ms())
    holder = Holder(store_at(silent, config), wall_ms).claim()
    assert isinstance(holder.ask_renew(), Renewed)
    assert holder.release()


# --- what each durability makes of a restart -------------------------------------------------------


@pytest.mark.parametrize("durability", ["detect", "assured", "none"])
def test_after_a_restart_from_a_snapshot_newcomers_start_where_durability_says(
    own_server: RedisServer, durability: str
) -> None:
    config = replace(PLAIN, durability=durability)
    create(store_at(own_server, config), wall_ms())
    holder = Holder(store_at(own_server, config), wall_ms).claim()
    own_server.save()
    own_server.restart()
    began = wall_ms()
    answer = Holder(store_at(own_server, config), wall_ms).ask_claim()
    if durability == "detect":
        assert isinstance(answer, Settling)
        assert answer.floor_ms >= began + config.floor_ms
        return
    assert isinstance(answer, Granted)
    floor_ms = began + config.floor_ms if durability == "none" else 0
    assert min(answer.terms.lanes_ms) >= floor_ms
    # the record is there, and young enough
    holder.store = store_at(own_server, config)
    assert holder.ask_renew().adopted is False


def test_min_replicas_does_not_hide_why_a_server_is_refused(server: RedisServer) -> None:
    store = RedisStore(server.url, replace(PLAIN, name=f"few{fresh_hex()[-6:]}"), min_replicas=1)
    server.client().hset(pool_keys(store.config.name)[0], mapping={"signature": store.config.signature})
    with pytest.raises(StoreUnavailable):
        Holder(store, wall_ms).ask_claim()
