"""Pools of tests."""

import contextlib
import itertools
from typing import Any

import snowredis
from snowredis.snowflake.protocol.pool_config import pool_keys

_numbers = itertools.count(1)


def new_pool(url: Any, pool: str = "", **options: Any) -> str:
    """Delete a pool and create it as new, as a person does once, so that no worker waits for a floor; return its name.

    *pool*: by default another name at each call.
    """
    pool = pool or f"pool{next(_numbers)}"
    seen = snowredis.WorkerPool(url, pool)
    with contextlib.closing(seen), contextlib.closing(snowredis.connect(url, pool=pool, **options)) as ids:
        # no way for anybody but tests: what WorkerPool.delete() leaves makes newcomers wait
        seen.client.delete(*pool_keys(pool))
        seen.create(ids._config)
    return pool
