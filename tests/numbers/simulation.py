"""Schedules of faults for segment generators: 8 processes, one or several servers that lose what they knew.

One seed decides everything, on every build of Python. The scripts are the library's own text, run by the Redis in
memory of tests/lab/simulation.

The checker accepts repeated numbers only where nobody can prevent them: Redis' memory was rolled back in place, and no
process had shown yet that it forgot them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snowredis.numbers.protocol import Opened, OpenRequest
from snowredis.numbers.stores import TagStore, tag_keys
from tests.lab.simulation.base import Schedule
from tests.lab.simulation.network import Network
from tests.lab.simulation.world import START_US
from tests.numbers.simulated_faults import FAULTS, FAULTY_US
from tests.numbers.simulated_process import SegmentProcess, TagRedis

SLACK_MS = 3_000
PROCESSES = 8
HEALED_US = 33_000_000
# what lets Redis forget without a sign
IN_PLACE = "rollback"
NOISE = ("loss", "delay", "duplicate", "reorder")
LOSSES = ("wipe", "snapshot", "failover", "split", "again", "failback", "ahead", IN_PLACE)
OTHERS = ("pause", "crash", "down", "close", "fork", "bypass", "suspended", "signal", "rights")
CLASSES = (*NOISE, *LOSSES, *OTHERS)


class Violation(AssertionError):
    """A number came twice, or no numbers came."""


class Checker:
    """Looks for repeated numbers."""

    def __init__(self, sim: SegmentSimulation) -> None:
        self._sim = sim
        self.emitted: dict[int, SegmentProcess] = {}
        self.count = 0
        self.complaints: list[str] = []
        # index of a server -> the numbers that it forgot in place
        self.forgotten: dict[int, range] = {}
        # the next number of each server, as any server process of it said
        self.tops = [0] * len(sim.networks)

    def emit(self, process: SegmentProcess, number: int) -> None:
        self.count += 1
        first = self.emitted.setdefault(number, process)
        if self._sim.last_made is not None:
            self._sim.last_made[process.name] = self._sim.world.now_us
        if self.count == len(self.emitted) + self._repeated:
            return
        self._repeated += 1
        index = (number - 1) % len(self._sim.networks)
        if number not in self.forgotten.get(index, ()):
            self.complain(f"{number} was made by {first.name} and {process.name}")

    _repeated = 0

    def complain(self, what: str) -> None:
        self.complaints.append(what)

    def answered(self, index: int, reply: Sequence[str]) -> None:
        if reply[0] == "granted":
            self.tops[index] = max(self.tops[index], int(reply[2]))

    def check(self) -> None:
        if self.complaints:
            raise Violation(self.complaints[0])


class Person(TagStore):
    """Somebody who creates and opens a tag on whichever server is the master."""

    def __init__(self, sim: SegmentSimulation, index: int) -> None:
        super().__init__("sim", slack_ms=sim.slack_ms, random_bytes=sim.random.randbytes)
        self.where, self._sim, self._index = f"server {index}", sim, index
        self._was_created = False

    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        network = self._sim.networks[self._index]
        reply: Sequence[str] = network.master.eval(script.source, keys, args)
        return reply

    def open_if_closed(self) -> None:
        """Open the tag if it is closed, where numbers end; that is the truth."""
        server = self._sim.networks[self._index].master
        tag = server.data.get(tag_keys("sim")[0], {})
        step, first = len(self._sim.networks), self._index + 1
        if not server.up or server.refused or (tag and (tag["closed_until"] == "0" or tag.get("o:") == tag["losses"])):
            return
        # once it was created, it is not new
        truth = max(first + step * self._was_created, self._sim.checker.tops[self._index])
        # a number that this server hands out
        truth += (first - truth) % step
        if not tag or tag["stride"] == "0":
            reply = self.send(OpenRequest("create", from_number=truth, stride=step))
            self._was_created = self._was_created or isinstance(reply, Opened)
        else:
            self.send(OpenRequest("open", from_number=truth))


class SegmentSimulation(Schedule[SegmentProcess]):
    """One schedule.

    Args:
        seed: decides everything.
        classes: of faults; by default the seed draws some.
    """

    def __init__(
        self,
        seed: int,
        classes: Sequence[str] | None = None,
        *,
        traced: bool = False,
    ) -> None:
        super().__init__(seed, traced=traced)
        random = self.random
        if classes is None:
            classes = random.sample(CLASSES, random.randint(2, 6))
        if IN_PLACE in classes:
            # once, and nothing else: if the history that repeated numbers is lost, too, nobody can tell
            classes = [name for name in classes if name == IN_PLACE or name not in LOSSES]
        self.classes, self.slack_ms = classes, SLACK_MS
        self.step, self.max_step = 10, random.choice((1, 10, 40))
        self.step = min(self.step, self.max_step)
        self.preempt, self.gap_us = 0.1, random.choice((700_000, 1_500_000))
        self.networks: list[Any] = [None] * random.choice((1, 1, 2, 3))
        self.last_made: dict[str, int] | None = None
        self.checker = Checker(self)
        for index in range(len(self.networks)):
            server = TagRedis(self, index, f"redis{index}")
            server.history = []
            network = self.networks[index] = Network(self.world, [server], self.fired)
            network.answered = lambda server, name, reply, index=index: self.checker.answered(index, reply)  # type: ignore[misc]
        self.persons = [Person(self, index) for index in range(len(self.networks))]

    def emit(self, process: SegmentProcess, made: int) -> None:
        self.checker.emit(process, made)

    @property
    def living(self) -> list[SegmentProcess]:
        return [process for process in self.processes if process.alive]

    def start_one(self) -> None:
        SegmentProcess(self, self.new_host()).run()

    def _operate(self) -> None:
        for person in self.persons:
            person.open_if_closed()
        while True:
            self.world.sleep(self.random.randint(500_000, 4_000_000))
            for person in self.persons:
                person.open_if_closed()

    # --- the schedule ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the schedule. Raises Violation."""
        try:
            self.world.spawn(None, self._operate)
            for _ in range(PROCESSES):
                self.start_one()
            time_us = START_US
            while time_us < START_US + FAULTY_US:
                time_us += round(self.random.expovariate(1 / 1_500_000))
                fault = FAULTS[self.random.choice(self.classes)]
                self.world.at(time_us, lambda fault=fault: None if self.healed else fault(self))  # type: ignore[misc]
            self.world.run(START_US + FAULTY_US)
            self.heal()
            self.world.run(START_US + HEALED_US)
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
        self.last_made = {}

    def _check_progress(self) -> None:
        assert self.last_made is not None
        for process in self.living:
            made_us = self.last_made.get(process.name, 0)
            if made_us < self.world.now_us - 10_000_000 and not process.generator.closed:
                raise Violation(f"{process.name} makes no numbers: {process.errors}")
