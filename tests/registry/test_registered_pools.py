"""Pools of a registry: which processes may make ids, whatever one of the two Redis servers forgets."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Any

import pytest

import snowredis
from snowredis.errors import ConfigError, LayoutMismatch, LeaseExpired, ShardNumberRefused, StoreUnavailable
from snowredis.registry.registration import RegisteredStore, open_registered
from snowredis.registry.registry import RedisRegistry, Registry, RegistryStatus, registry_key
from snowredis.servers.scripts import text_of
from snowredis.snowflake.protocol import pool_keys
from snowredis.testing import memory_pool
from tests.registry.conftest import LAYOUT, PLACE
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

TTL_S = 0.3


class Shards:
    """Pools at *url* with numbers of a registry at *registry_url*."""

    def __init__(self, url: Any, registry_url: Any) -> None:
        self.url, self.registry_url = url, registry_url
        self.registry: Registry = RedisRegistry(registry_url, "world", PLACE)
        self.settings: dict[str, Any] = {
            "layout": LAYOUT,
            "registry": "world",
            "registry_url": registry_url,
            "ttl": TTL_S,
        }

    def create(self, pool: str, wanted: int | None = None, url: Any = None) -> int:
        """Create the pool; return its number."""
        with contextlib.closing(self.registered(pool, wanted, url)) as registered:
            registered.register(lambda: time.time_ns() // 1_000_000)
            return registered.config.datacenter

    def registered(self, pool: str, wanted: int | None = None, url: Any = None) -> RegisteredStore:
        settings = self.settings | {"pool": pool, "datacenter": "auto" if wanted is None else wanted}
        return open_registered(url or self.url, settings)

    def connect(self, pool: str, **others: Any) -> snowredis.SnowflakeGenerator:
        url = others.pop("url", self.url)
        return snowredis.connect(url, pool=pool, **self.settings | {"datacenter": "auto"} | others)


@pytest.fixture
def shards(own_server: RedisServer) -> Shards:
    shards = Shards(own_server.url, own_server.url)
    shards.registry.create(first=1)
    return shards


def test_a_pool_makes_ids_with_its_number(shards: Shards) -> None:
    assert [shards.create(pool) for pool in ("a", "b", "a")] == [1, 2, 1]
    for pool, number in (("a", 1), ("b", 2)):
        for datacenter in ("auto", 0, number):
            with shards.connect(pool, datacenter=datacenter) as ids:
                assert {ids.decode(an_id).datacenter for an_id in ids.next_ids(3)} == {number}


def test_leases_are_recorded_whatever_the_pool_was_opened_with(shards: Shards, own_server: RedisServer) -> None:
    by_url, by_client = (shards.registered("a", url=server) for server in (own_server.url, own_server.client()))
    assert by_url.locator == by_client.locator != ""


def test_only_who_knows_the_number_may_use_the_pool(shards: Shards) -> None:
    shards.create("a")
    with snowredis.connect(shards.url, pool="old", layout=LAYOUT, ttl=TTL_S) as old:
        old.claim()
    for pool, others, message in (
        ("a", {"datacenter": 5}, r"pool 'a', registry 'world'.*the pool has the number 1, and datacenter is 5 here"),
        ("a", {"registry": "other"}, r"the pool has a number of the registry 'world'. Use registry='world'"),
        (
            "b",
            {},
            r"it has no number there, and no pool of this name is at unix://.* Create it with: snowredis pool create b",
        ),
        ("old", {}, r"the pool exists, but was created without a registry"),
    ):
        with pytest.raises(ShardNumberRefused, match=message), shards.connect(pool, **others) as ids:
            ids.next_id()
    with pytest.raises(LayoutMismatch, match=r'use datacenter="auto" and registry=\'world\''):
        snowredis.connect(shards.url, pool="a", layout=LAYOUT, ttl=TTL_S).claim()
    with pytest.raises(ConfigError, match="has no datacenter bits"):
        snowredis.connect(shards.url, pool="a", datacenter="auto")
    with pytest.raises(ConfigError, match="is in memory, where there is no registry"):
        snowredis.connect(memory_pool(), pool="a", layout=LAYOUT, datacenter="auto")
    with pytest.raises(ShardNumberRefused, match="the pool exists, but was created without a registry"):
        shards.create("old")


def test_a_number_is_not_used_before_it_was_confirmed(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("registry", "it is away")

    with monkeypatch.context() as broken:
        broken.setattr("snowredis.registry.registry.Registry.confirm", silent)
        with pytest.raises(StoreUnavailable):
            shards.create("a")
        with pytest.raises(StoreUnavailable, match="it is away"), shards.connect("a") as ids:
            ids.claim()
    # whoever can confirm it may use it
    with shards.connect("a") as ids:
        ids.claim()
    with monkeypatch.context() as broken:
        broken.setattr("snowredis.registry.registry.Registry.confirm", silent)
        with shards.connect("a") as ids:
            assert ids.decode(ids.next_id()).datacenter == 1


def test_of_two_pools_that_got_one_number_after_a_loss_one_is_refused(shards: Shards, own_server: RedisServer) -> None:
    shards.create("a")
    with shards.connect("a") as ids:
        ids.next_id()
    client = own_server.client()
    client.delete(registry_key("world"))
    # a person who is mistaken: the registry is not new
    shards.registry.create(first=1)
    assert shards.create("b") == 1
    with (
        pytest.raises(ShardNumberRefused, match="has given 1 to pool 'b', with another registration"),
        shards.connect("a") as ids,
    ):
        ids.next_id()
    with pytest.raises(ShardNumberRefused, match="has given 1 to pool 'b', with another registration"):
        shards.create("a")
    with shards.connect("b") as ids:
        assert ids.decode(ids.next_id()).datacenter == 1


def test_a_pool_that_the_registry_forgot_is_known_again_when_a_process_starts(
    shards: Shards, own_server: RedisServer
) -> None:
    for pool in ("a", "b"):
        shards.create(pool)
    with shards.connect("a") as ids:
        # it has seen 2
        ids.claim()
    own_server.client().delete(registry_key("world"))
    with shards.connect("a") as ids:
        assert ids.decode(ids.next_id()).datacenter == 1
    with pytest.raises(ShardNumberRefused, match="its Redis had no such registry, which pools created again"):
        shards.create("c")
    assert shards.registry.open().status is RegistryStatus.OPENED
    assert shards.create("c") == 3


def test_a_lost_pool_is_created_again_by_its_processes_or_by_a_person(shards: Shards, own_server: RedisServer) -> None:
    shards.settings["ttl"] = 5.0
    client = own_server.client()
    shards.create("a")
    shards.create("b")
    key = pool_keys("b")[0]
    with shards.connect("b") as living:
        living.next_id()
        client.delete(*pool_keys("b"))
        # at another address, or just after a loss
        with pytest.raises(StoreUnavailable, match="it has no pool 'b', whose number 2 of registry 'world' was"):
            shards.connect("b").claim()
        assert living._lease_manager.send_renewal(living._lifecycle.stats())
        signature, noted = (text_of(each or b"") for each in client.hmget(key, "signature", "highest_number"))
        assert (noted, "registry=world/" in signature) == ("2", True)
        assert living.decode(living.next_id()).datacenter == 2
    client.delete(*pool_keys("b"))
    with pytest.raises(StoreUnavailable, match="free 2 --registry world, then snowredis pool create b --datacenter 2 "):
        shards.connect("b").claim()
    for wanted in (None, 2):
        with pytest.raises(ShardNumberRefused, match="another pool of this name has the number 2"):
            shards.create("b", wanted)
    found = shards.registry.find("b")
    assert found is not None
    assert shards.registry.free(2, confirmed_ms=found[1].confirmed_ms).status is RegistryStatus.FREED
    assert shards.create("b", wanted=2) == 2
    with shards.connect("b") as ids:
        assert ids.decode(ids.next_id()).datacenter == 2


def test_a_pool_that_was_lost_with_its_registry_is_created_again_by_a_claim(
    shards: Shards, own_server: RedisServer
) -> None:
    shards.create("a")
    with shards.connect("a") as living:
        living.claim()
        own_server.kill()
        # too long for an adoption
        time.sleep(2 * TTL_S)
        own_server.start()
        eventually(living.next_id, "an id", ignored=(StoreUnavailable, LeaseExpired))
        assert living.counts.leases_lost == 1
        with shards.connect("a") as ids:
            assert ids.decode(ids.next_id()).datacenter == 1


def test_a_pool_of_the_same_name_in_another_redis_gets_no_number(shards: Shards, server: RedisServer) -> None:
    shards.create("a")
    with pytest.raises(ShardNumberRefused, match="another pool of this name has the number 1: host"):
        shards.create("a", url=server.url)
    # a wrong URL creates no second pool with the number
    with pytest.raises(StoreUnavailable, match="Else check the URL"):
        shards.connect("a", url=server.url).claim()
    assert not server.client().exists(pool_keys("a")[0])


def test_a_creation_that_was_not_finished_is_finished(shards: Shards, own_server: RedisServer) -> None:
    shards.registry.take("a", "aa", wanted=None, where="")
    with pytest.raises(ShardNumberRefused, match=r"its creation was not finished\. Finish it with: snowredis pool"):
        shards.connect("a").claim()
    assert shards.create("a") == 1
    assert shards.create("b") == 2


def test_a_fork_keeps_the_number(server: RedisServer) -> None:
    shards = Shards(server.url, server.url)
    shards.settings |= {"registry": "forks", "ttl": 5.0}
    RedisRegistry(server.url, "forks", PLACE).create(first=3)
    shards.create("forked")
    with shards.connect("forked") as ids:
        mine = ids.decode(ids.next_id())
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.write(write, b"%d" % ids.next_id())
            finally:
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
    shards.registry.create(first=1)
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
    assert shards.create("r3") == 3
    assert shards.registry.open().status is RegistryStatus.OPENED
    assert shards.create("r4") == 4
