"""Pools of tests."""

from __future__ import annotations

import contextlib
from typing import Any

import snowredis
from snowredis.snowflake.protocol import pool_keys


def open_outage_lanes(pool: Any) -> None:
    """Let a pool (a store, a WorkerPool) have its outage lanes at once, as one that is older than outage_reserve."""
    if hasattr(pool, "model"):
        pool.model.data[pool_keys(pool.config.name)[0]]["is_new"] = "1"
        return
    name, client = (
        (pool.name, pool.client) if isinstance(pool, snowredis.WorkerPool) else (pool.config.name, pool._client)
    )
    client.hset(pool_keys(name)[0], "is_new", 1)


def new_pool(url: Any, pool: str, **options: Any) -> None:
    """Delete a pool and create it as new, as a person does once, so that no worker waits for a floor."""
    seen = snowredis.WorkerPool(url, pool)
    with contextlib.closing(seen), contextlib.closing(snowredis.connect(url, pool=pool, **options)) as ids:
        # no way for anybody but tests: what WorkerPool.delete() leaves makes newcomers wait
        seen.client.delete(*pool_keys(pool))
        seen.create(ids._config)
        open_outage_lanes(seen)
