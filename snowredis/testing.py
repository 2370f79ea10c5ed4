"""For your own tests: a clock that moves only when told, a pool without a Redis, and ids made with it.

clock = ManualClock()
ids = snowredis.connect(memory_pool(clock=clock))
clock.step(-5_000)      # the wall clock goes back; ids go on, from another namespace
with use(ids):
    snowredis.next_id()     # of ids
"""

from __future__ import annotations

import time
from typing import Unpack

from snowredis.connection import Settings, connect
from snowredis.errors import LayoutMismatch
from snowredis.lease.memory_store import MemoryStore
from snowredis.lease.model import PoolConfig
from snowredis.process_generator import use
from snowredis.runtime.clock import Clock
from snowredis.runtime.generator import Generator

__all__ = ["ManualClock", "MemoryPool", "memory_pool", "use"]

# 2026-01-01T00:00:00Z
DEFAULT_START_MS = 1767225600000


class ManualClock:
    """A clock that only its owner moves. sleep() moves it, too, and returns at once.

    advance() is time passing; step() is the wall clock being set while no time passes. The pool of
    memory_pool() lives on the time that passed, as a Redis on another host does.
    """

    background = False

    def __init__(self, start_ms: int = DEFAULT_START_MS) -> None:
        self._passed_ns = start_ms * 1_000_000
        self._offset_ns = 0

    def time(self) -> float:
        # so that a whole ms is the very float that the same ms is elsewhere
        ms, ns = divmod(self.time_ns(), 1_000_000)
        return ms / 1000 + ns / 1e9

    def time_ns(self) -> int:
        return self._passed_ns + self._offset_ns

    def monotonic(self) -> float:
        return self._passed_ns / 1e9

    def sleep(self, seconds: float) -> None:
        self._passed_ns += max(1, round(seconds * 1e9))

    def advance(self, ms: float) -> None:
        """Let *ms* pass."""
        self._passed_ns += round(ms * 1e6)

    def step(self, ms: float) -> None:
        """Set the wall clock *ms* ahead, or back if negative."""
        self._offset_ns += round(ms * 1e6)

    def server_time_ms(self) -> int:
        """What a Redis with a good clock shows."""
        return self._passed_ns // 1_000_000


class MemoryPool:
    """A pool in this process' memory: give it to snowredis.connect() in place of a URL, as often as you like."""

    def __init__(self, clock: Clock | None = None, *, new: bool = True) -> None:
        self.clock = clock
        self._new = new
        self._stores: dict[str, MemoryStore] = {}

    def memory_store(self, config: PoolConfig) -> MemoryStore:
        """The store of pool *config.name*; LayoutMismatch if it was made with other settings."""
        store = self._stores.get(config.name)
        if store is None:
            server_time_ms = getattr(self.clock, "server_time_ms", None) or (
                lambda: time.time_ns() // 1_000_000
            )
            store = self._stores[config.name] = MemoryStore(config, server_time_ms, new=self._new)
        if store.config.signature != config.signature:
            raise LayoutMismatch(config.name, store.config.signature, config.signature)
        return store

    def connect(self, **settings: Unpack[Settings]) -> Generator:
        """Return snowredis.connect() to this pool; it is called "test" if no name is given."""
        settings.setdefault("pool", "test")
        return connect(self, **settings)


def memory_pool(*, clock: Clock | None = None, new: bool = True) -> MemoryPool:
    """A pool without a Redis, for one process.

    Args:
        clock: of the pool and of the generators made from it; default: the system's.
        new: false: the pool behaves as one that Redis may have forgotten, so the first worker waits for its floor.
    """
    return MemoryPool(clock, new=new)
