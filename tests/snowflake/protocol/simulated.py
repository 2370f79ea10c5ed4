"""A pool on a simulated server, whose time and identity a test can change; all clocks are right at first."""

from typing import Any

from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from tests.lab.simulation.pool_faults import AtTheServer
from tests.lab.simulation.stage import Stage
from tests.support.holder import Holder, create


class SimPool:
    """A pool that a person created a moment ago."""

    def __init__(self, config: PoolConfig | None = None, **settings: Any) -> None:
        self.stage = Stage(**settings)
        self.config = config or self.stage.config
        self.store = self.person(self.config)
        create(self.store, self.now_ms())
        # so that the beginning of the pool is not now
        self.stage.wait(10)

    def person(self, config: PoolConfig) -> AtTheServer:
        return AtTheServer(self.stage, self.stage.master, config)

    def pass_ms(self, ms: int) -> None:
        """Step the clock of the server; nothing else happens."""
        self.stage.master.offset_us += ms * 1000

    def now_ms(self) -> int:
        return self.stage.master.now_us // 1000

    def holder(self, config: PoolConfig | None = None) -> Holder:
        return Holder(self.person(config or self.config), self.now_ms)

    @property
    def stored(self) -> dict[str, str]:
        fields: dict[str, str] = self.stage.master.data.get(pool_keys(self.config.name)[0], {})
        return fields

    def restart(self) -> None:
        """Let the server become another one, with all data."""
        self.stage.master.restart(self.stage.master.copy_data())
