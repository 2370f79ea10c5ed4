"""One fixture for stores on the Redis of the simulation and on a real redis-server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from snowredis.core.layout import Layout
from snowredis.snowflake.protocol.memory_store import MemoryStore
from snowredis.snowflake.protocol.messages import Created, Exists, Store
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import RedisStore
from snowredis.testing import ManualClock
from tests.lab.chaos.shim import StepClock
from tests.support.holder import Holder, create, fresh_hex
from tests.support.lua_store import LuaStore
from tests.support.servers import RedisServer, stepped_server

SMALL = Layout(timestamp_bits=41, backup_bits=1, worker_bits=2, sequence_bits=10)
# no test on a busy machine takes as long
TTL_MS = 60_000
CONFIG = PoolConfig(name="contract", layout=SMALL, ttl_ms=TTL_MS)


@dataclass
class Place:
    """A store and its time. *elapse* steps the clock of its server by some ms; no time passes else, or little."""

    store: Store
    now_ms: Callable[[], int]
    elapse: Callable[[int], None]
    wipe: Callable[[], object]
    config: PoolConfig

    def holder(self) -> Holder:
        return Holder(self.store, self.now_ms)

    def created(self) -> Place:
        # a pool in memory is there
        assert isinstance(create(self.store, self.now_ms()), Exists if self.in_memory else Created)
        return self

    @property
    def in_memory(self) -> bool:
        return isinstance(self.store, MemoryStore)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def really_wait(ms: int) -> None:
    time.sleep(ms / 1000)


@pytest.fixture
def config() -> PoolConfig:
    """Constants of the pools below; a file of tests may have others."""
    return CONFIG


@pytest.fixture(params=["model", "redis"])
def place(request: pytest.FixtureRequest, config: PoolConfig) -> Iterator[Place]:
    yield from open_place(request, config)


@pytest.fixture(params=["model", "redis", "memory"])
def pool(request: pytest.FixtureRequest, config: PoolConfig) -> Iterator[Place]:
    """A pool that a person created, and one in memory."""
    for place in open_place(request, config):
        yield place.created()


@pytest.fixture
def lossy(place: Place) -> Place:
    """A pool that a person created, and that can lose its data."""
    return place.created()


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory, step_library: Path) -> Iterator[tuple[RedisServer, StepClock]]:
    with stepped_server(tmp_path_factory.mktemp("stepped"), step_library) as found:
        yield found


@pytest.fixture(params=["model", "redis"])
def forgetful(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A pool with durability="none"."""
    yield from open_place(request, replace(CONFIG, durability="none"))


def open_place(request: pytest.FixtureRequest, config: PoolConfig) -> Iterator[Place]:
    if request.param == "model":
        clock = ManualClock()
        simulated = LuaStore.on_clock(config, clock.server_time_ms)
        yield Place(simulated, clock.server_time_ms, clock.advance, simulated.model.wipe, config)
        return
    if request.param == "memory":
        clock = ManualClock()
        yield Place(MemoryStore(config, clock.server_time_ms), clock.server_time_ms, clock.advance, bool, config)
        return
    server, stepped = request.getfixturevalue("stepped")
    stepped.set(0)

    def now_ms() -> int:
        return wall_ms() + round(stepped.offset_s * 1000)

    def step(ms: int) -> None:
        stepped.set(stepped.offset_s + ms / 1000)

    config = replace(config, name=f"p{wall_ms()}")
    store = RedisStore(server.url, config)
    yield Place(store, now_ms, step, server.client().flushall, config)
    store.close()


def new_pool(server: RedisServer, config: PoolConfig) -> RedisStore:
    """Open a store of a new pool with a unique name, created as by a person."""
    store = RedisStore(server.url, replace(config, name=f"{config.name}{fresh_hex()[-6:]}"))
    assert isinstance(create(store, wall_ms()), Created)
    return store


def holder(store: RedisStore) -> Holder:
    return Holder(store, wall_ms)
