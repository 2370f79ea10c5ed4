"""Parents that release the leases of killed children as gunicorn's do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.snowflake import crash_record as credentials
from snowredis.snowflake import reclaimer
from snowredis.snowflake.scripts import Script
from tests.simulation.machines import CheckedStore
from tests.simulation.stand_ins import Host

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.schedule import Simulation


class Reclaimer:
    """Process that releases the lease of one dead child."""

    def __init__(self, sim: Simulation, dead: Process, record: dict[str, Any]) -> None:
        self.sim, self.world, self.host = sim, sim.world, Host(dead.host.name, dead.host.offset_us)
        self.name = f"reclaimer of {dead.name}"
        # as it travels between the two
        self._record = json.loads(json.dumps(record))

    def random_bytes(self, count: int) -> bytes:
        return self.world.random.randbytes(count)

    def ask(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> list[str]:
        return self.sim.network.call(self, script.name, script.source, keys, args)

    def run(self) -> None:
        """Do what reclaimer.serve() does, with a store of the simulation."""
        config = credentials.config_of(self._record)
        store = CheckedStore(self, config)
        until_us = self.world.now_us + config.ttl_ms * 1000
        with contextlib.suppress(SnowredisError):
            while True:
                try:
                    given_back = credentials.release(store, self._record)
                except StoreUnavailable:
                    if self.world.now_us > until_us:
                        return
                else:
                    self.sim.fired["reclaim"] += given_back is not None
                    return
                self.world.sleep(round(reclaimer.RETRY_S * 1e6))


def reclaim_from(sim: Simulation, dead: Process) -> None:
    """Let the parent reap *dead* some time after it was killed."""
    if sim.machines is not None:
        sim.machines.die(dead)
    records = dead.crash_records
    if records is None:
        return

    def reap() -> None:
        for record in records.read():
            sim.world.spawn(None, Reclaimer(sim, dead, record).run)

    sim.before_heal(sim.random.choice((0, 1_000, sim.random.randint(0, 2 * sim.ttl_us))), reap)
