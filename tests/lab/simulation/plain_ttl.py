"""Plain TTL lease as most systems have it, for comparison: SET NX PX with the worker id in the key, and a heartbeat.

No reservation, no mark, no floor: the holder goes on until a renewal tells it that the key is not its
own. Runs on the same world, network and faults, so that what the checker finds in the product's
schedules can be held against what it finds here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snowredis.errors import PoolExhausted, StoreUnavailable
from snowredis.servers.scripts import Script
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.lab.simulation.checker import Checker, Emission
from tests.lab.simulation.process import Process
from tests.lab.simulation.schedule import Result, Simulation
from tests.lab.simulation.stand_ins import Host

# what it has an answer to in principle: no fork, no clone, no loss of what Redis knew
PLAIN_FAULTS = ("pause", "starve", "loss", "delay", "down")

_NOW = "local t = redis.call('TIME') local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)\n"
# KEYS[1] hash  worker id -> "owner|lease end"; ARGV owner, ttl, capacity
_CLAIM = (
    _NOW
    + """
for worker = 0, tonumber(ARGV[3]) - 1 do
  local held = redis.call('HGET', KEYS[1], worker)
  if not held or tonumber(string.match(held, '|(%d+)$')) <= now then
    redis.call('HSET', KEYS[1], worker, ARGV[1] .. '|' .. (now + ARGV[2]))
    return { 'ok', '', '', '', '', '', tostring(worker) }
  end
end
return { 'full', '', '', '', '', '' }
"""
)
# ARGV owner, ttl, worker
_RENEW = (
    _NOW
    + """
local held = redis.call('HGET', KEYS[1], ARGV[3])
if held and string.match(held, '^(.*)|') ~= ARGV[1] then return { 'lost', '', '', '', '', '' } end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[1] .. '|' .. (now + ARGV[2]))
return { 'ok', '', '', '', '', '' }
"""
)


class PlainGenerator:
    """Generator of ids of one worker id; refuses only a clock that went back."""

    def __init__(self, process: PlainProcess) -> None:
        self._process = process
        self.worker: int | None = None
        self.closed = False
        self._tick, self._sequence = -1, 0

    def _ask(self, name: str, source: str, last: int) -> list[str]:
        process = self._process
        args: Sequence[str | int] = (process.name, process.config.ttl_ms, last)
        return process.sim.network.call(process, name, source, ("plain",), args)

    def _beat(self) -> float:
        try:
            if self.worker is not None and self._ask("renew", _RENEW, self.worker)[0] == "lost":
                self.worker = None
        except StoreUnavailable:
            pass
        return self._process._first_beat_s()

    def resume(self) -> None:
        """Do nothing: it is never suspended."""

    def next_ids(self, count: int) -> list[int]:
        return [self.next_id() for _ in range(count)]

    def next_id(self) -> int:
        layout = self._process.config.layout
        while True:
            worker = self.worker
            if worker is None:
                reply = self._ask("claim", _CLAIM, layout.workers)
                if reply[0] != "ok":
                    raise PoolExhausted("plain", layout.workers, 0)
                worker = self.worker = int(reply[6])
            tick = layout.tick_at(self._process.clock.time_ns() // 1_000_000)
            if tick > self._tick:
                self._tick, self._sequence = tick, 0
            elif tick == self._tick and self._sequence + 1 < layout.sequences:
                self._sequence += 1
            else:
                self._process.clock.sleep(0.05)
                continue
            return layout.compose(tick=tick, worker=worker, sequence=self._sequence)

    def close(self) -> None:
        """Do nothing: the key expires."""
        self.closed = True


class _Never:
    held: Any = True


class PlainProcess(Process):
    """Process with such a generator; it has no lease that the checker could know."""

    def __init__(self, sim: Simulation, host: Host, config: PoolConfig | None = None) -> None:
        self._bare(sim, host, config or sim.config)
        self.generator: Any = PlainGenerator(self)
        self.lease_manager: Any = _Never()

    def _first_beat_s(self) -> float:
        return self.config.heartbeat_ms / 1000

    def new_locks(self) -> None:
        """Do nothing: it has no locks."""

    def ask(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> list[str]:
        """Do nothing: there is no pool to create."""
        return ["ok", "0", "", "0", "0", ""]


class PlainChecker(Checker):
    """Checker that looks only for repeated ids: there are no reservations."""

    def emit(self, process: Process, an_id: int) -> None:
        self.made[process.name] = self.made.get(process.name, 0) + 1
        before = self._remember(an_id, Emission(process.name, self._world.now_us))
        if self._world.trace is not None:
            self._world.note("%s: id %d", process.name, an_id)
        if before is not None:
            self.duplicates += 1
            self.fail(f"{process.name} repeated id {an_id} of {before.who}")


def plain_schedule(seed: int, classes: Sequence[str] = PLAIN_FAULTS, *, traced: bool = False) -> Result:
    """Run the schedule of *seed* with a plain TTL lease under the faults *classes*."""
    sim = Simulation(seed, classes, traced=traced)
    sim.process_class = PlainProcess
    sim.checker = PlainChecker(sim.world)
    return sim.run()
