"""Schedules of faults for segment generators: 8 processes, one or several servers that lose what they knew.

One seed decides everything. The scripts are the library's own text, run by tests/simulation's Redis in memory.

The checker accepts repeated numbers only where nobody can prevent them: Redis' memory was rolled back in place, and an
alarm says so, or the process that could have told has ended, or was suspended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from snowredis.errors import SnowredisError
from snowredis.numbers.settings import TagConfig
from snowredis.numbers.tag_store import NotNew, OpenRequest
from tests.numbers.simulated_faults import FAULTS, FAULTY_US
from tests.numbers.simulated_process import TAKEN_US, Operator, SegmentProcess, SimTagStore
from tests.simulation.base import Schedule
from tests.simulation.network import Network
from tests.simulation.redis_model import RedisModel
from tests.simulation.world import START_US

SLACK_MS = 3_000
PROCESSES = 8
HEALED_US = 33_000_000
# after this time every process has reported
REPORTED_MS = 12_000
# what lets Redis forget without a sign
IN_PLACE = "rollback"
LATE, CHANGES = (
    ("delay", "duplicate", "reorder"),
    ("failover", "split", "moved", "again", "failback", "snapshot", "ahead"),
)
NOISE = ("loss", "delay", "duplicate", "reorder")
LOSSES = ("wipe", "evict", "snapshot", "failover", "split", "moved", "again", "failback", "ahead", IN_PLACE)
OTHERS = ("pause", "crash", "down", "close", "fork", "bypass", "suspended", "signal", "redis_clock", "rights")
CLASSES = (*NOISE, *LOSSES, *OTHERS)


class Violation(AssertionError):
    """A number came twice, or no numbers came."""


class Checker:
    """Looks for repeated numbers."""

    def __init__(self, sim: SegmentSimulation) -> None:
        self._sim = sim
        self.emitted: dict[int, SegmentProcess] = {}
        self.count = 0
        # number, who made it, who made it again, and when, us
        self.repeated: list[tuple[int, SegmentProcess, SegmentProcess, int]] = []
        # (server, from, until) of every segment that was handed out, by any server process; and of every alarm
        self.tops = [0] * len(sim.configs)
        self.alarms: list[tuple[int, int, int]] = []
        # numbers that a process made though it had dropped them
        self.kept: list[tuple[int, SegmentProcess]] = []
        # number -> names of the clients that were handed it
        self._clients: dict[int, set[str]] = defaultdict(set)

    def emit(self, process: SegmentProcess, number: int) -> None:
        self.count += 1
        first = self.emitted.setdefault(number, process)
        if self._sim.world.now_us > process.dropped.get(number, self._sim.world.now_us) + TAKEN_US:
            self.kept.append((number, process))
        if self._sim.last_made is not None:
            self._sim.last_made[process.name] = self._sim.world.now_us
        if first is not process or self.count != len(self.emitted) + len(self.repeated):
            self.repeated.append((number, first, process, self._sim.world.now_us))

    def granted(self, index: int, client: str, reply: Sequence[str]) -> None:
        config = self._sim.configs[index]
        for position in range(int(reply[5]), int(reply[6])):
            self._clients[config.number_at(position)].add(client)

    def answered(self, index: int, name: str, reply: Sequence[str]) -> None:
        if name == "take" and len(reply) > 5:
            if reply[0] == "granted":
                self.tops[index] = max(self.tops[index], int(reply[6]))
            if reply[4]:
                low, high = map(int, reply[4].split(" "))
                self.alarms.append((index, low, high))

    def check(self) -> None:
        rolled_back = self._sim.fired[IN_PLACE] > 0
        for number, first, second, at_us in self.repeated:
            copies, server = first.copies, (number - self._sim.configs[0].start) % len(self._sim.configs)
            if copies is not None and copies is second.copies and copies.excuse(second, server, at_us):
                continue
            told = any(
                self._sim.configs[index].number_at(low) <= number <= self._sim.configs[index].number_at(high - 1)
                for index, low, high in self.alarms
            )
            if not (rolled_back and (told or first.forgot or second.forgot)):
                raise Violation(f"{number} was made by {first.name} and {second.name}")
        for number, process in self.kept:
            raise Violation(f"{number} was made by {process.name}, which had dropped it")
        fired = self._sim.fired
        # a Redis that evicts has forgotten; a message that is late may come to a server with another history
        forgot = rolled_back or fired["evict"] or (any(map(fired.get, LATE)) and any(map(fired.get, CHANGES)))
        if self.alarms and not forgot:
            raise Violation(f"an alarm without a cause: {self.alarms}; {self._lost()} numbers were lost")

    def _lost(self) -> int:
        """Return how many numbers were dropped that no other process was handed."""
        return sum(
            number not in self.emitted and len(self._clients[number]) < 2
            for process in self._sim.processes
            for number in process.dropped
        )


class SegmentSimulation(Schedule[SegmentProcess]):
    """One schedule.

    Args:
        seed: decides everything.
        classes: of faults; by default the seed draws some.
        edit: changes a script's text: (name, source) -> source.
        reported: the person says of a closed tag that no number was handed out but those that processes reported, once
            all of them have; else where the numbers end.
    """

    def __init__(
        self,
        seed: int,
        classes: Sequence[str] | None = None,
        *,
        edit: Callable[[str, str], str] = lambda name, source: source,
        traced: bool = False,
        quiet: bool = False,
        reported: bool = False,
    ) -> None:
        super().__init__(seed, traced=traced)
        self.reported = reported
        random = self.random
        if classes is None:
            classes = random.sample(CLASSES, random.randint(2, 6))
        if IN_PLACE in classes:
            # once, and nothing else: if the history that repeated numbers is lost, too, nobody can tell
            classes = [name for name in classes if name == IN_PLACE or name not in LOSSES]
        self.classes = classes
        servers = 1 if quiet else random.choice((1, 1, 2, 3))
        slack_ms = SLACK_MS if not quiet else 0
        config = TagConfig(tag="sim", failover_slack_ms=slack_ms)
        self.configs = [replace(config, share=(index, servers)) for index in range(servers)]
        # in one schedule a process has fewer segments than it tells of with each request
        self.step, self.max_step = 10, random.choice((10, 40))
        self.preempt, self.gap_us = (0.0, 0) if quiet else (0.1, random.choice((700_000, 1_500_000)))
        self.networks: list[Network] = []
        self.last_made: dict[str, int] | None = None
        self.checker = Checker(self)
        for index in range(servers):
            server = RedisModel(self.world, f"redis{index}")
            server.history = []
            network = Network(self.world, [server], self.fired)
            network.edit = edit
            network.answered = lambda server, name, reply, index=index: self.checker.answered(  # type: ignore[misc]
                index, name, reply
            )
            self.networks.append(network)
        self.operator = Operator(self)

    def emit(self, process: SegmentProcess, made: int) -> None:
        self.checker.emit(process, made)

    @property
    def living(self) -> list[SegmentProcess]:
        return [process for process in self.processes if process.alive]

    def start_one(self) -> None:
        SegmentProcess(self, self.new_host()).run()

    # --- the person --------------------------------------------------------------------------------

    def open(self, index: int, how: Literal["create", "word"] = "word", position: int | None = None) -> None:
        """Say from where on nothing was handed out; the truth, unless another *position* is given."""
        store = SimTagStore(self.operator, index, self.configs[index])  # type: ignore[arg-type]
        truth = self.checker.tops[index] if position is None else position
        try:
            reply = store.open(OpenRequest(how, truth))
            if isinstance(reply, NotNew):
                store.open(OpenRequest("word", self.checker.tops[index]))
        except SnowredisError as error:
            self.say("the operator fails: %s", error)

    def _operate(self) -> None:
        for index in range(len(self.configs)):
            self.open(index, "create", 0)
        while True:
            self.world.sleep(self.random.randint(500_000, 4_000_000))
            for index, network in enumerate(self.networks):
                tag = network.master.data.get("snowredis:segment:{sim}", {})
                if self.reported:
                    closed_ms = int(tag.get("closed_at", self.world.now_us // 1000))
                    if tag.get("reason") and self.world.now_us // 1000 > closed_ms + REPORTED_MS:
                        self.open(index, "word", 0)
                elif tag.get("reason", "no-tag"):
                    self.open(index)

    # --- the schedule ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the schedule. Raises Violation."""
        try:
            self.world.spawn(self.operator, self._operate)
            for _ in range(PROCESSES):
                self.start_one()
            time_us = START_US
            while time_us < START_US + FAULTY_US:
                time_us += round(self.random.expovariate(1 / 1_500_000))
                fault = FAULTS[self.random.choice(self.classes)]
                self.world.at(time_us, lambda fault=fault: None if self.healed else fault(self))  # type: ignore[misc]
            self.world.run(START_US + FAULTY_US)
            self.heal()
            self.world.run(START_US + HEALED_US + (45_000_000 if self.reported else 0))
            self._check_progress()
            self.checker.check()
        finally:
            self.world.close()

    def heal(self) -> None:
        self.healed = True
        for network in self.networks:
            network.heal()
            network.master.up = True
            network.master.offset_us = 0
            network.master.refused.clear()
        for process in self.living:
            process.paused_until_us = 0
            if process.generator._suspended:
                # in a task: another one may hold the generator's lock
                self.world.spawn(process, process.generator.resume)
        if not self.living:
            self.start_one()
        # reports come every 10 s
        self.last_made = {}

    def _check_progress(self) -> None:
        assert self.last_made is not None
        for process in self.living:
            made_us = self.last_made.get(process.name, 0)
            if made_us < self.world.now_us - 10_000_000 and not process.generator.closed:
                raise Violation(f"{process.name} makes no numbers: {process.errors}")
