"""Schedules written by hand: processes that do what the test says, one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from snowredis.core.lanes import ClockRules
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.lab.simulation.machines import Machines
from tests.lab.simulation.process import Process
from tests.lab.simulation.redis_model import RedisModel
from tests.lab.simulation.rules import switch_off
from tests.lab.simulation.schedule import Simulation
from tests.lab.simulation.stand_ins import Host
from tests.lab.simulation.world import Task
from tests.support.holder import create

# a call on the stage that takes longer is not answered any more
LONGEST_S = 120


class Stage(Simulation):
    """A pool of two worker ids by default, with ticks of 1 s and a ttl of 6 s. Nothing happens by itself."""

    def __init__(
        self,
        *,
        off: str | None = None,
        tick_ms: int = 1000,
        slack_ms: int = 0,
        worker_bits: int = 1,
        outage_ms: int = 0,
        crash_records: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(1, classes=(), traced=True)
        if crash_records:
            self.machines = Machines(self)
            self.machines.starved = 0.0
        layout = replace(
            self.config.layout,
            backup_bits=int(outage_ms > 0),
            worker_bits=worker_bits,
            sequence_bits=4,
            tick_ms=tick_ms,
            worker_last=False,
        )
        self.config = PoolConfig(
            name="sim",
            layout=layout,
            ttl_ms=6000,
            failover_slack_ms=500 + slack_ms,
            outage_reserve_ms=outage_ms,
            **settings,
        )
        self.configs, self.preempt = [self.config], 0.0
        self.options = {"rules": ClockRules()}
        self.network.servers[0].offset_us = 0
        self.network.servers[0].history = []
        if off is not None:
            switch_off(self, off)

    @property
    def redis_now_ms(self) -> int:
        return self.world.now_us // 1000

    @property
    def master(self) -> RedisModel:
        return self.network.master

    def process(self, host: Host | None = None, config: PoolConfig | None = None) -> Process:
        return self.process_class(self, host or self.new_host(), config)

    def with_pool(self) -> Stage:
        self.do(self.process(), lambda process: create(process.store, self.redis_now_ms))
        return self

    def begin(self, process: Process, action: Callable[[Process], object]) -> Task:
        """Let a thread of *process* do something, and do not wait for it."""
        return self.world.spawn(process, lambda: action(process))

    def do(self, process: Process, action: Callable[[Process], object]) -> None:
        """Let a thread of *process* do something, and wait until it is done."""
        task = self.begin(process, action)
        for _ in range(LONGEST_S * 100):
            if task.greenlet.dead:
                return
            self.wait(10)
        raise AssertionError("it does not end")

    def make(self, *processes: Process, count: int = 1) -> None:
        """Let the processes make ids, one after the other."""
        for process in processes:
            self.do(process, lambda process: process.make(count))

    def beat(self, *processes: Process) -> None:
        for process in processes:
            self.do(process, lambda process: process.generator._beat())

    def wait(self, ms: int) -> None:
        self.world.run(self.world.now_us + ms * 1000)

    def set_clock(self, process: Process, time_ms: int) -> None:
        process.host.offset_us = time_ms * 1000 - self.world.now_us
