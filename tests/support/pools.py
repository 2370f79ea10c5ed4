"""Pools of tests."""

from __future__ import annotations

import time
from typing import Any

import snowredis


def new_pool(url: Any, pool: str, **options: Any) -> None:
    """Say that a pool is new, as a person does once, so that nobody waits for a floor; it is gone before that."""
    with snowredis.connect(url, pool=pool, **options) as ids:
        store = ids._keeper.store
        client = getattr(store, "_client", None)
        if client is not None:
            client.delete(*(f"snowredis:{{{pool}}}{part}" for part in ("", ":leases", ":events")))
        store.create(time.time_ns() // 1_000_000)
