"""Pools on real servers that lose acknowledged writes, or that hide such a loss."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.errors import StoreUnavailable
from snowredis.snowflake.protocol.messages import Created, Granted, Renewed, Settling
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.snowflake.protocol.conftest import wall_ms
from tests.support.holder import Holder, create, fresh_hex
from tests.support.servers import RedisServer, redis_server

LAYOUT = Layout(timestamp_bits=41, backup_bits=1, worker_bits=4, sequence_bits=10)
CONFIG = PoolConfig(name="orders", layout=LAYOUT, ttl_ms=5_000)


def open_holder(server: RedisServer, config: PoolConfig) -> Holder:
    return Holder(RedisStore(server.url, config), wall_ms)


def created(server: RedisServer, config: PoolConfig) -> None:
    assert isinstance(create(RedisStore(server.url, config), wall_ms()), Created)


# --- a server that does not show which it is -------------------------------------------------------


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis without INFO, for scripts and for clients."""
    with redis_server(tmp_path_factory.mktemp("silent"), "--rename-command", "INFO", "") as running:
        yield running


# the bound: it must not be asked again and again
@pytest.mark.timeout(10)
def test_a_server_without_info_is_refused_at_once_and_holds_nothing(silent: RedisServer) -> None:
    with contextlib.closing(snowredis.connect(silent.url, pool="orders", layout=LAYOUT)) as ids:
        for make in (ids.claim, ids.next_id):
            with pytest.raises(StoreUnavailable, match="refuses INFO inside scripts") as caught:
                make()
    assert caught.value.code == "info-refused"
    for remedy in ("allow it for the user", 'durability="assured"', 'durability="none"', "nothing was claimed"):
        assert remedy in str(caught.value)
    assert silent.client().exists(*pool_keys("orders")) == 0


@pytest.mark.parametrize("durability", ["assured", "none"])
def test_whoever_says_what_stands_in_is_served_by_a_server_without_info(silent: RedisServer, durability: Any) -> None:
    config = replace(CONFIG, name=durability, durability=durability)
    created(silent, config)
    holder = open_holder(silent, config).claim()
    assert isinstance(holder.ask_renew(), Renewed)
    assert holder.release()


# --- what each durability makes of a restart -------------------------------------------------------


@pytest.mark.parametrize("durability", ["detect", "assured", "none"])
def test_after_a_restart_from_a_snapshot_newcomers_start_where_durability_says(
    own_server: RedisServer, durability: str
) -> None:
    config = replace(CONFIG, durability=durability)
    created(own_server, config)
    holder = open_holder(own_server, config).claim()
    own_server.save()
    own_server.restart()
    began = wall_ms()
    answer = open_holder(own_server, config).ask_claim()
    if durability == "detect":
        assert isinstance(answer, Settling)
        assert answer.floor_ms >= began + config.floor_ms
        return
    assert isinstance(answer, Granted)
    floor_ms = began + config.floor_ms if durability == "none" else 0
    assert min(answer.terms.lanes_ms) >= floor_ms
    # the record is there, and young enough
    holder.store = RedisStore(own_server.url, config)
    assert holder.ask_renew().adopted is False


# --- constants of the pool -------------------------------------------------------------------------


def test_min_replicas_does_not_hide_why_a_server_is_refused(server: RedisServer) -> None:
    store = RedisStore(server.url, replace(CONFIG, name=f"few{fresh_hex()[-6:]}"), min_replicas=1)
    server.client().hset(pool_keys(store.config.name)[0], mapping={"signature": store.config.signature})
    with pytest.raises(StoreUnavailable):
        Holder(store, wall_ms).ask_claim()
