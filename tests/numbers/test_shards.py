"""Shard numbers: a new pool takes the next number of a tag, keeps it, and its processes read it there."""

from collections.abc import Callable
from typing import Any

import pytest

import snowredis
from snowredis import WorkerPool
from snowredis.cli import main
from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, LayoutMismatch, StoreUnavailable
from snowredis.numbers import create_tag
from snowredis.numbers.stores import tag_keys
from snowredis.testing import memory_pool
from tests.support.servers import RedisServer

LAYOUT = resolve_layout("game-shards")
# a pool that was deleted lasts as long as its last lease
TTL_S = 1


@pytest.fixture
def create(server: RedisServer, own_server: RedisServer) -> Callable[..., int]:
    """Create a pool by the command; its number is taken from the tag on another server. Returns the exit code."""

    def run(pool: str, *options: str) -> int:
        where = ("--url", server.url, "--numbers-url", own_server.url)
        settings = ("--layout", "game-shards", "--datacenter", "auto", "--ttl", str(TTL_S))
        return main(["pool", "create", pool, *settings, *where, *options])

    return run


def datacenter_of(url: str, pool: str) -> int:
    """Return the datacenter bits of an id of *pool*, whose process knows nothing but the pool."""
    with snowredis.connect(url, pool=pool, layout="game-shards", datacenter="auto", ttl=TTL_S) as ids:
        return LAYOUT.decode(ids.next_id()).datacenter


def test_a_pool_takes_the_next_number_and_keeps_it(
    create: Callable[..., int], server: RedisServer, own_server: RedisServer, tag: str
) -> None:
    s1, s2, s3, s4 = (f"{tag}-{number}" for number in range(1, 5))
    assert create(s1) == 1
    create_tag(own_server.url, "shards", layout="game-shards")
    assert [create(pool) for pool in (s1, s2, s1, s3)] == [0, 0, 0, 0]
    assert [datacenter_of(server.url, pool) for pool in (s1, s2, s3)] == [1, 2, 3]
    # processes need the pool only
    own_server.client().delete(*tag_keys("shards"))
    assert datacenter_of(server.url, s2) == 2
    other = snowredis.connect(server.url, pool=s2, layout="game-shards", datacenter=3, ttl=TTL_S)
    with pytest.raises(LayoutMismatch, match="datacenter is 2 in the pool, 3 here"):
        other.next_id()
    other.close()
    # what Redis forgot is not given again
    assert create(s4) == 1
    create_tag(own_server.url, "shards", layout="game-shards", start=4)
    assert create(s4) == 0
    assert datacenter_of(server.url, s4) == 4
    WorkerPool(server.url, s4).delete()
    assert create(s4, "--yes") == 0
    assert datacenter_of(server.url, s4) == 5


def test_a_process_creates_no_shard(own_server: RedisServer) -> None:
    settings: Any = {"pool": "s1", "layout": "game-shards", "datacenter": "auto", "claim_timeout": 0}
    ids = snowredis.connect(own_server.url, **settings)
    with pytest.raises(StoreUnavailable, match="has no pool 's1', whose shard number is needed"):
        ids.next_id()
    ids.close()
    assert not own_server.client().keys("*")
    with pytest.raises(ConfigError, match="a pool in memory has no shard number"):
        snowredis.connect(memory_pool(), **settings)
