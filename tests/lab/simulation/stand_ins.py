"""Replacements of the clock, the store, the fork guard and the lease manager in a simulated process."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from snowredis.errors import SnowredisError
from snowredis.process.fork import ForkGuard
from snowredis.servers.scripts import Script
from snowredis.snowflake.crash.record import NO_RECORD, CrashRecord, Credentials
from snowredis.snowflake.crash.sweep import MOST_AT_CLAIM
from snowredis.snowflake.lease.context import PoolView
from snowredis.snowflake.lease.held import HeldLease, LeaseSlot
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.protocol.administration import Administration
from snowredis.snowflake.protocol.messages import WorkerStats
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.lab.simulation.world import START_US

if TYPE_CHECKING:
    from tests.lab.simulation.machines import Parent
    from tests.lab.simulation.process import Process


@dataclass
class Host:
    """A machine: its clock is the true time plus an offset."""

    name: str
    offset_us: int = 0


class SimClock:
    background = False

    def __init__(self, process: Process) -> None:
        self._process = process

    def _now_us(self) -> int:
        process = self._process
        early = process.interrupted()
        now_us = process.world.now_us + process.host.offset_us
        if not early:
            process.interrupted(readily=False)
        return now_us

    def time_ns(self) -> int:
        return self._now_us() * 1000

    def monotonic(self) -> float:
        return 1000 + (self._process.world.now_us - START_US) / 1e6

    def sleep(self, seconds: float) -> None:
        self._process.world.sleep(max(1, ceil(seconds * 1e6)))


class SimStore(Administration):
    where = "simulated"

    def __init__(self, process: Process | Parent, config: PoolConfig) -> None:
        super().__init__(config, random_bytes=process.random_bytes)
        self.process = process

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        return self.process.ask(script, keys, args)

    def close(self) -> None:
        """Nothing to close."""


class SimGuard(ForkGuard):
    def __init__(self, process: Process) -> None:
        super().__init__()
        # as where there is MADV_WIPEONFORK: false in a child that nobody told
        self.is_reset = ctypes.c_ubyte(1)
        self._process = process

    def _start(self) -> None:
        # no hook in this very interpreter
        self._pid = os.getpid()

    def _new_page(self) -> Any:
        return ctypes.c_ubyte(1)

    def recover(self) -> None:
        super().recover()
        self._process.new_locks()


class SimSlot(LeaseSlot):
    """Tells the checker what is believed."""

    process: Process | None = None

    def hold(self, held: HeldLease, stats: WorkerStats, *, fresh: bool = False) -> bool:
        kept = super().hold(held, stats, fresh=fresh)
        if kept and self.process is not None:
            self.process.sim.checker.believe(self.process, held)
        return kept

    def _new_record(self) -> CrashRecord:
        return NO_RECORD if self.process is None else self.process.new_record(self._store)


class SimDeadProcesses:
    """Looks for dead processes on the simulated machine."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def release(self, beat_s: float = 0.0) -> int:
        machines = self.process.sim.machines
        if machines is not None:
            with contextlib.suppress(SnowredisError):
                return machines.sweep(self.process, MOST_AT_CLAIM, self.process.lease_manager.conversation.run)
        return 0

    def take_over(self, accept: Callable[[Credentials], HeldLease | None]) -> HeldLease | None:
        machines = self.process.sim.machines
        return None if machines is None else machines.take_over(self.process, accept)

    def disown(self) -> None:
        machines = self.process.sim.machines
        if machines is not None:
            machines.disown(self.process)


class SimKeeper(LeaseManager):
    """Tells the checker what is released."""

    process: Process | None = None
    dead_class: type[SimDeadProcesses] = SimDeadProcesses
    slot_class: type[SimSlot] = SimSlot
    view_class: type[PoolView] = PoolView

    def _send_release(self, held: HeldLease, opened: str, stats: WorkerStats) -> bool:
        assert self.process is not None
        self.process.sim.checker.released(self.process, held, opened)
        return super()._send_release(held, opened, stats)

    def _owner(self, *, named: bool = True, taken_ms: int = 0, refused: str = "") -> str:
        assert self.process is not None
        return f'{{"host":"{self.process.host.name}","label":"{self.process.name}"}}'
