"""Fixtures: a manual clock, a pool in memory, and pools that were created in a private redis-server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import REQUESTS
from snowredis.testing import ManualClock, MemoryPool, memory_pool
from snowredis.worker_pool import WorkerPool
from tests.lab.interrupts.points import stop_watching
from tests.support.servers import RedisServer

_numbers = itertools.count(1)


@pytest.fixture(autouse=True, scope="module")
def full_speed_afterwards() -> Iterator[None]:
    """Undo what Points leave in a process on Python 3.12 and later."""
    yield
    stop_watching()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(clock: ManualClock) -> MemoryPool:
    return memory_pool(clock=clock)


def requests_to(store: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets each request of that name that *store* is asked from now on."""
    sent, ask = [], store.ask

    def recorded(request: Any) -> Any:
        sent.extend([request] if REQUESTS[type(request)][0] == name else [])
        return ask(request)

    monkeypatch.setattr(store, "ask", recorded)
    return sent


def make_pool(
    server: RedisServer, *, layout: Layout | str | None = None, ttl_ms: int = 30_000, outage_reserve_ms: int = -1
) -> str:
    """Create a pool and return its name."""
    name = f"pool{next(_numbers)}"
    config = PoolConfig(name=name, layout=resolve_layout(layout), ttl_ms=ttl_ms, outage_reserve_ms=outage_reserve_ms)
    pool = WorkerPool(server.url, name)
    assert pool.create(config)
    return name


@pytest.fixture
def new_pool(server: RedisServer) -> Callable[..., str]:
    def make(**options: Any) -> str:
        return make_pool(server, **options)

    return make
