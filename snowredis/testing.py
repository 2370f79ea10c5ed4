"""Tools for your own tests: a clock that you control, a pool without Redis, and the generator of the process.

    clock = ManualClock()
    ids = snowredis.connect(memory_pool(clock=clock))
    clock.step(-5_000)      # the wall clock goes back; ids go on, in another namespace
    with use(ids):
        snowredis.next_id()     # made by ids

snowredis.integrations.pytest has fixtures of these for pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from snowredis.connection import connect
from snowredis.errors import LayoutMismatch
from snowredis.process.clock import Clock, now_ms
from snowredis.process_generator import use
from snowredis.settings import MEMORY_POOL, Settings
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.protocol.memory_store import MemoryStore
from snowredis.snowflake.protocol.pool_config import PoolConfig

if TYPE_CHECKING:
    from snowredis.numbers.stores import MemoryTag

__all__ = ["ManualClock", "MemoryPool", "memory_pool", "use"]

# 2026-01-01T00:00:00Z
DEFAULT_START_MS = 1767225600000


class ManualClock:
    """A test clock that only moves when it is told to. sleep() advances it and returns at once.

    advance() lets time pass; step() sets the wall clock while no time passes. step() does not affect a pool of
    memory_pool(), as it would not affect a Redis on another host.
    """

    background = False

    def __init__(self, start_ms: int = DEFAULT_START_MS) -> None:
        self._passed_ns = start_ms * 1_000_000
        self._offset_ns = 0

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
        """Set the wall clock *ms* forward, or back if negative."""
        self._offset_ns += round(ms * 1e6)

    def server_time_ms(self) -> int:
        """Return the time that a Redis with a correct clock shows, ms since 1970."""
        return self._passed_ns // 1_000_000


class MemoryPool:
    """Pools in this process' memory, for snowredis.connect() in place of a URL, any number of times."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock
        self._stores: dict[str, MemoryStore] = {}
        self._tags: dict[str, MemoryTag] = {}

    def memory_store(self, config: PoolConfig) -> MemoryStore:
        """Return the store of the pool *config.name*. Raises LayoutMismatch if it was opened with other settings."""
        store = self._stores.setdefault(config.name, MemoryStore(config, self._server_time_ms))
        if store.config.signature != config.signature:
            raise LayoutMismatch(config.name, store.config.signature, config.signature)
        return store

    def tag_store(self, tag: str) -> MemoryTag:
        """Return the store of the tag."""
        from snowredis.numbers.stores import MemoryTag

        return self._tags.setdefault(tag, MemoryTag(tag, self._server_time_ms))

    def _server_time_ms(self) -> int:
        return int(getattr(self.clock, "server_time_ms", now_ms)())

    def connect(self, **settings: Unpack[Settings]) -> SnowflakeGenerator:
        """Return a generator as snowredis.connect() does, with this pool; its name is "test" by default."""
        settings.setdefault("pool", MEMORY_POOL)
        return connect(self, **settings)


def memory_pool(*, clock: Clock | None = None) -> MemoryPool:
    """Return a pool without Redis, for one process.

    Args:
        clock: clock of the pool and of its generators; by default the system's.
    """
    return MemoryPool(clock)
