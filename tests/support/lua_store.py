"""A pool whose scripts run in this process, on the Redis of the simulation and on a clock of the test."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from snowredis.errors import StoreUnavailable
from snowredis.servers.scripts import Script
from snowredis.snowflake.protocol.administration import Administration
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.lab.simulation.redis_model import RedisModel
from tests.support.holder import create


class ClockOfTest:
    """The world of one server: its time is that of *server_time_ms*."""

    trace = None

    def __init__(self, server_time_ms: Callable[[], int]) -> None:
        self._server_time_ms, self.random = server_time_ms, random.Random(1)

    @property
    def now_us(self) -> int:
        return self._server_time_ms() * 1000


class LuaStore(Administration):
    """A store that can lose its data, and be away. No other process can reach it."""

    where, shared = "simulated", False

    def __init__(self, config: PoolConfig, model: RedisModel) -> None:
        super().__init__(config)
        self.model, self.away = model, False

    @classmethod
    def on_clock(cls, config: PoolConfig, server_time_ms: Callable[[], int]) -> LuaStore:
        """Return a store on a server of its own."""
        world: Any = ClockOfTest(server_time_ms)
        return cls(config, RedisModel(world, "redis"))

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        if self.away:
            raise StoreUnavailable(self.where, "it is away")
        return self.model.eval(script.source, keys, args)

    def create_old(self) -> LuaStore:
        """Create the pool as one whose floors have passed long ago: the clock of a test may go back behind now."""
        create(self, self.model.now_us // 1000)
        self.model.data[self._keys[0]]["lost_at"] = "0"
        return self

    def close(self) -> None:
        """Nothing to close."""
