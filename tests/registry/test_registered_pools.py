"""Pools of a registry: which processes may make ids, whatever one of the two Redis servers forgets."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

import snowredis
from snowredis.errors import ConfigError, LayoutMismatch, ShardNumberRefused, StoreUnavailable
from snowredis.snowflake import registered_store
from snowredis.snowflake.registered_store import open_registered, open_registry, owner_of
from snowredis.snowflake.registration import Registered, register
from snowredis.snowflake.registry import ALIVE_MS, Registry, Status
from snowredis.testing import ManualClock, MemoryPool, memory_pool
from tests.registry.conftest import LAYOUT, PLACE
from tests.support.servers import RedisServer

TTL_S = 0.3


class Shards:
    """Pools at *url* with numbers of a registry at *registry_url*."""

    def __init__(self, url: Any, registry_url: Any) -> None:
        self.url, self.registry_url = url, registry_url
        self.registry: Registry = open_registry(registry_url, "world", PLACE)
        self.settings: dict[str, Any] = {
            "layout": LAYOUT,
            "registry": "world",
            "registry_url": registry_url,
            "ttl": TTL_S,
        }

    def create(self, pool: str, wanted: int | None = None, url: Any = None) -> Registered:
        config, servers, registry = open_registered(url or self.url, self.settings | {"pool": pool})
        return register(
            config,
            servers,
            registry,
            wanted=wanted,
            owner=owner_of(servers),
            now_ms=lambda: time.time_ns() // 1_000_000,
        )

    def connect(self, pool: str, **others: Any) -> snowredis.Generator:
        url = others.pop("url", self.url)
        return snowredis.connect(url, pool=pool, **self.settings | {"datacenter": "auto"} | others)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryPool:
    return memory_pool(clock=clock)


@pytest.fixture
def shards(memory: MemoryPool) -> Shards:
    shards = Shards(memory, memory)
    shards.registry.create(durability="detect", first=1)
    return shards


def test_a_pool_makes_ids_with_its_number(shards: Shards) -> None:
    assert [shards.create(pool).config.datacenter for pool in ("a", "b", "a")] == [1, 2, 1]
    for pool, number in (("a", 1), ("b", 2)):
        for datacenter in ("auto", 0, number):
            with shards.connect(pool, datacenter=datacenter) as ids:
                assert {ids.decode(an_id).datacenter for an_id in ids.next_ids(3)} == {number}


def test_only_who_knows_the_number_may_use_the_pool(shards: Shards, memory: MemoryPool) -> None:
    shards.create("a")
    snowredis.connect(memory, pool="old", layout=LAYOUT, ttl=TTL_S).claim()
    for pool, others, message in (
        (
            "a",
            {"datacenter": 5},
            r"pool 'a', registry 'world'.*the pool has the number 1, and datacenter is 5 here",
        ),
        ("a", {"registry": "other"}, r"the pool has a number of the registry 'world'. Use registry='world'"),
        (
            "b",
            {},
            r"it has no number there, and no pool of this name is at memory. Create it with: snowredis pool create b",
        ),
        ("old", {}, r"the pool exists, but was created without a registry"),
    ):
        with pytest.raises(ShardNumberRefused, match=message), shards.connect(pool, **others) as ids:
            ids.next_id()
    with pytest.raises(LayoutMismatch, match=r'use datacenter="auto" and registry=\'world\''):
        snowredis.connect(memory, pool="a", layout=LAYOUT, ttl=TTL_S).claim()
    with pytest.raises(ConfigError, match="has no datacenter bits"):
        snowredis.connect(memory, pool="a", datacenter="auto")
    with pytest.raises(ShardNumberRefused, match="the pool exists and has no number of a registry"):
        shards.create("old")


def test_a_number_is_not_used_before_it_was_confirmed(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("registry", "it is away")

    with monkeypatch.context() as broken:
        broken.setattr("snowredis.snowflake.registry_stores.MemoryRegistry.confirm", silent)
        with pytest.raises(StoreUnavailable):
            shards.create("a")
        with pytest.raises(StoreUnavailable, match="it is away"), shards.connect("a") as ids:
            ids.claim()
    # whoever can confirm it may use it
    shards.connect("a").claim()
    with monkeypatch.context() as broken:
        broken.setattr("snowredis.snowflake.registry_stores.MemoryRegistry.confirm", silent)
        with shards.connect("a") as ids:
            assert ids.decode(ids.next_id()).datacenter == 1


def test_a_pool_whose_number_was_given_to_another_one_is_stopped(
    shards: Shards, memory: MemoryPool, clock: ManualClock
) -> None:
    shards.create("a")
    ids = shards.connect("a")
    ids.next_id()
    memory.memory_registry("world").wipe()
    # a person who is mistaken: the registry is not new
    shards.registry.create(durability="detect", first=1)
    other = shards.create("b").config
    assert other.datacenter == 1
    store = ids._lease_manager.store
    store._monotonic = lambda: time.monotonic() + 2 * registered_store.CONFIRM_EVERY_S  # type: ignore[attr-defined]
    clock.advance(TTL_S * 1000 / 4)
    ids._beat()
    with pytest.raises(ShardNumberRefused, match="has given 1 to pool 'b', with another registration"):
        ids.next_id()
    assert ids.lease is None
    assert shards.connect("b").next_id()


def test_a_lost_pool_gets_its_number_back(shards: Shards, memory: MemoryPool, clock: ManualClock) -> None:
    shards.create("a")
    shards.create("b")
    store = memory._stores["b"]
    living = shards.connect("b")
    living.next_id()
    memory._stores["b"].wipe()
    # at another address, or just after a loss: somebody is alive
    with pytest.raises(StoreUnavailable, match="which is alive: its number 2 was confirmed 0 s ago, host"):
        shards.connect("b").claim()
    assert living._lease_manager.renew(living._lifecycle.stats())
    assert (store.stored("highest_number"), "registry=world/" in store.stored("signature")) == ("2", True)
    living.close()
    store.wipe()
    clock.advance(ALIVE_MS + 1)
    lost_ms = clock.server_time_ms()
    with shards.connect("b") as ids:
        parts = ids.decode(ids.next_id())
    assert parts.datacenter == 2
    assert parts.timestamp_ms >= lost_ms + TTL_S * 1000


def test_a_deleted_pool_is_created_again_only_with_its_number(shards: Shards, memory: MemoryPool) -> None:
    registered = shards.create("a").config
    assert shards.registry.retire(1, registered.registration).status is Status.RETIRED
    del memory._stores["a"]
    with pytest.raises(
        ShardNumberRefused, match=r"the pool was deleted. To use it again: .* --datacenter 1 "
    ):
        shards.connect("a").claim()
    with pytest.raises(ShardNumberRefused, match="another pool of this name has the number 1"):
        shards.create("a")
    assert shards.create("a", wanted=1).config.datacenter == 1
    assert shards.connect("a").next_id()


def test_a_fork_keeps_the_number(server: RedisServer) -> None:
    shards = Shards(server.url, server.url)
    shards.settings |= {"registry": "forks", "ttl": 5.0}
    open_registry(server.url, "forks", PLACE).create(durability="detect", first=3)
    shards.create("forked")
    with shards.connect("forked") as ids:
        mine = ids.decode(ids.next_id())
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(write, b"%d" % ids.next_id())
            os._exit(0)
        os.waitpid(pid, 0)
        theirs = ids.decode(int(os.read(read, 30)))
        assert (mine.datacenter, theirs.datacenter) == (3, 3)
        assert mine.worker != theirs.worker


def test_when_the_registrys_redis_restarts_pools_go_on_and_a_person_opens_it(
    server: RedisServer, own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    shards = Shards(server.url, own_server.url)
    shards.settings["ttl"] = 5.0
    shards.registry.create(durability="detect", first=1)
    for pool in ("r1", "r2"):
        shards.create(pool)
    own_server.save()
    # this one is in no snapshot
    shards.create("r3")
    own_server.kill()
    with shards.connect("r3") as ids:
        assert ids.decode(ids.next_id()).datacenter == 3
    assert "pool r3: its number 3 was not confirmed, since registry world at " in caplog.text
    own_server.start()
    with pytest.raises(ShardNumberRefused, match="its Redis is another server process since then"):
        shards.create("r4")
    with shards.connect("r1") as ids:
        assert ids.decode(ids.next_id()).datacenter == 1
    assert shards.create("r3").config.datacenter == 3
    assert shards.registry.open().status is Status.OPENED
    assert shards.create("r4").config.datacenter == 4
    # a registry of whoever promises that nothing is lost does not close
    assured = open_registry(own_server.url, "assured", PLACE)
    assured.create(durability="assured", first=1)
    own_server.save()
    own_server.restart()
    assert assured.take("x", "aa", wanted=None, owner="").fields == ("1",)


def test_a_registry_that_was_rolled_back_is_closed_by_a_pool_that_saw_more(own_server: RedisServer) -> None:
    shards = Shards(own_server.url, own_server.url)
    shards.registry.create(durability="detect", first=1)
    shards.registry.take("a", "aa", wanted=None, owner="")
    client = own_server.client()
    before: Callable[[], Any] = lambda: client.hgetall("snowredis:registry:{world}")  # noqa: E731
    old = before()
    shards.registry.confirm("a", "aa", 1, highest=-1, first=True, owner="")
    shards.registry.take("b", "bb", wanted=None, owner="")
    client.delete("snowredis:registry:{world}")
    client.hset("snowredis:registry:{world}", mapping=old)
    reply = shards.registry.confirm("b", "bb", 2, highest=2, first=False, owner="")
    assert (reply.status, reply.closed) == (Status.CONFIRMED, "rolled-back")
    assert shards.registry.take("c", "cc", wanted=None, owner="").status is Status.CLOSED
