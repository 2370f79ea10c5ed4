"""Parts that schedules of worker ids (schedule.py) and of numbers (tests/numbers/simulation.py) have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from snowredis.errors import SnowredisError
from tests.lab.simulation.network import Network
from tests.lab.simulation.redis_model import RedisModel
from tests.lab.simulation.stand_ins import Host
from tests.lab.simulation.world import TaskKilled, World

P = TypeVar("P", bound="SimulatedProcess")


class Schedule(ABC, Generic[P]):
    """One schedule: its world, processes and faults. One seed decides everything."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.world = World(seed, traced=traced)
        self.random = self.world.random
        self.fired: Counter[str] = Counter()
        self.processes: list[P] = []
        self.healed = False
        # between two calls of a process, us
        self.gap_us = 0
        self._names = self._hosts = 0

    @property
    @abstractmethod
    def living(self) -> Sequence[P]:
        """The processes that can make something."""

    @abstractmethod
    def emit(self, process: P, made: int) -> None:
        """Tell the checker that *process* made an id or a number."""

    def someone(self) -> P | None:
        living = self.living
        return self.random.choice(living) if living else None

    def new_name(self) -> str:
        self._names += 1
        return f"p{self._names}"

    def new_host(self) -> Host:
        self._hosts += 1
        return Host(f"h{self._hosts}")

    def say(self, what: str, *values: object) -> None:
        if self.world.trace is not None:
            self.world.note("*** " + what, *values)

    # --- faults of networks and servers --------------------------------------------------------------

    def disturb(self, network: Network, attribute: str, most: float, lasts_us: int) -> None:
        """Lose, delay, double or reorder messages for a while."""
        setattr(network, attribute, self.random.uniform(0.05, most))
        self.world.after(lasts_us, lambda: setattr(network, attribute, 0.0))

    def take_down(self, server: RedisModel, lasts_us: int) -> None:
        """Let a server be away for a while."""
        self.fired["down"] += 1
        self.say("%s is away", server.name)
        server.up = False
        self.world.after(lasts_us, lambda: setattr(server, "up", True))

    def promote(
        self, network: Network, new: RedisModel, *, lost_us: int, split_us: int = 0, come: Callable[[], object] = int
    ) -> None:
        """Let *new* take over from the master, without its last writes.

        Args:
            split_us: how long the old master goes on answering some clients.
            come: called when the new one is the master.
        """
        old, now_us = network.master, self.world.now_us
        new.data = old.data_at(now_us - lost_us)
        # to another replica of it that is behind it belongs what the old master did before
        new.history = [*old.history_until(now_us - lost_us), (now_us, new.copy_data())]
        network.servers.append(new)
        network.master = new
        self.say("%s takes over from %s", new.name, old.name)

        def end() -> None:
            old.up = False
            network.strayed.clear()

        come()
        if not split_us:
            end()
            return
        for process in self.living:
            if self.random.random() < 0.5:
                network.strayed[process.host.name] = old
        self.world.after(split_us, end)


class SimulatedProcess:
    """One process of a schedule. *generator* makes ids or numbers; it has ``closed``, next_id() and next_ids()."""

    generator: Any

    def __init__(self, sim: Schedule[Any], host: Host) -> None:
        self._begin(sim, host)

    def _begin(self, sim: Schedule[Any], host: Host) -> None:
        self.sim: Any = sim
        self.world, self.host, self.name = sim.world, host, sim.new_name()
        self.alive, self.paused_until_us = True, 0
        # error -> how often it was raised
        self.errors: dict[str, int] = {}

    def make_on(self) -> None:
        """Make something again and again, until the generator is closed: one thread of the process."""
        random = self.world.random
        while not self.generator.closed:
            self.world.sleep(round(random.expovariate(1 / self.sim.gap_us)))
            self.make(random.choice((1, 1, 2, 5)))

    def make(self, count: int = 1) -> None:
        """Make some ids or numbers, if possible; five are a batch."""
        try:
            self.begin_call()
            if count == 5:
                for made in self.generator.next_ids(count):
                    self.sim.emit(self, made)
                return
            for _ in range(count):
                self.begin_call()
                self.sim.emit(self, self.generator.next_id())
        except SnowredisError as error:
            name = type(error).__name__
            self.errors[name] = self.errors.get(name, 0) + 1
            if self.world.trace is not None:
                self.world.note("%s: %s: %s", self.name, name, error)

    def begin_call(self) -> None:
        """Note that a call of this task begins."""

    def crash(self) -> None:
        """Kill the process as kill -9 does. If one of its own tasks calls this, that task ends here."""
        self.alive = False
        me = self.world.current
        self.world.kill_tasks(self)
        if me is not None and me.owner is self:
            raise TaskKilled
