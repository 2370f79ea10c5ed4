"""Pools of tests."""

from __future__ import annotations

import contextlib
from typing import Any

import snowredis


def new_pool(url: Any, pool: str, **options: Any) -> None:
    """Say that a pool is new, as a person does once, so that nobody waits for a floor; it is gone before that."""
    seen = snowredis.WorkerPool(url, pool)
    with contextlib.closing(seen), snowredis.connect(url, pool=pool, **options) as ids:
        with contextlib.suppress(snowredis.PoolNotFound):
            seen.delete(force=True)
        seen.create(ids._config)
