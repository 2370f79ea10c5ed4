"""A private redis-server, and pools that a person says are new."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.lease.model import PoolConfig
from snowredis.monitor.pool import WorkerPool
from tests.support.servers import RedisServer

_numbers = itertools.count(1)


def make_pool(server: RedisServer, *, layout: Layout | str | None = None, ttl_ms: int = 30_000) -> str:
    """Create a pool and return its name."""
    name = f"pool{next(_numbers)}"
    config = PoolConfig(name=name, layout=resolve_layout(layout), ttl_ms=ttl_ms)
    assert WorkerPool(server.url, name).create(config, time.time_ns() // 1_000_000)
    return name


@pytest.fixture
def new_pool(server: RedisServer) -> Callable[..., str]:
    def make(**options: Any) -> str:
        return make_pool(server, **options)

    return make


def eventually(condition: Callable[[], object], limit_s: float = 10.0) -> None:
    """Poll until *condition* holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
