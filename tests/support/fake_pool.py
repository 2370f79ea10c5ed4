"""A pool on the shipped scripts, in a Redis of this process and on a test clock: no server, no sleep."""

from types import SimpleNamespace
from typing import Any

import fakeredis
import pytest

import snowredis
from snowredis.embedded import install_info
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.protocol.pool_config import pool_keys
from snowredis.testing import ManualClock
from snowredis.worker_pool import WorkerPool
from tests.support.holder import create


class FakePool:
    """A pool that its first generator creates as new."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: ManualClock | None = None) -> None:
        install_info()
        self.clock, self.client = clock or ManualClock(), fakeredis.FakeRedis()
        # what the command TIME reads
        right = SimpleNamespace(time=lambda: self.clock.server_time_ms() / 1000)
        monkeypatch.setattr("fakeredis.commands_mixins.server_mixin.time", right)
        self.view = WorkerPool(self.client, "test")

    def connect(self, **settings: Any) -> SnowflakeGenerator:
        """Return a generator on the test clock, unless *settings* have another one."""
        named: dict[str, Any] = {"pool": "test", "clock": self.clock}
        ids = snowredis.connect(self.client, **named | settings)
        if not self.client.exists(pool_keys("test")[0]):
            create(ids._lease_manager.store, self.clock.server_time_ms())
        return ids
