"""Fixtures of the tests of monitoring: a test clock and a pool on it, and names of processes."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from snowredis.process.names import owner_text
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import RedisStore
from snowredis.testing import ManualClock
from snowredis.worker_pool import WorkerPool
from tests.support.fake_pool import FakePool
from tests.support.holder import Holder
from tests.support.servers import RedisServer

# a new pool, with these constants -> the pool, and what makes holders of it
Scripted: TypeAlias = Callable[..., tuple[WorkerPool, Callable[[], Holder]]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fake(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> FakePool:
    return FakePool(monkeypatch, clock)


@pytest.fixture
def each_generator_is_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the generators of this process name themselves as if each was in a process of its own."""

    def own_pid(host: str, pid: int, label: str, **more: Any) -> str:
        return owner_text(host, int(more["generator"][-5:], 16) % 10**6, label, **more)

    monkeypatch.setattr("snowredis.snowflake.lease.requests.owner_text", own_pid)


@pytest.fixture
def scripted(server: RedisServer, pool_name: str) -> Iterator[Scripted]:
    """Create a pool in Redis whose processes are holders: each of their calls is one of the test."""
    with contextlib.ExitStack() as stack:

        def create(**constants: Any) -> tuple[WorkerPool, Callable[[], Holder]]:
            config = PoolConfig(name=pool_name, **constants)
            seen = stack.enter_context(contextlib.closing(WorkerPool(server.url, pool_name)))
            store = stack.enter_context(contextlib.closing(RedisStore(server.url, config)))
            seen.create(config)
            return seen, lambda: Holder(store, lambda: time.time_ns() // 1_000_000)

        yield create
