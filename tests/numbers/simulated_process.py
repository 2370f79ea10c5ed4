"""A process of the simulation: the shipped SegmentGenerator, with its thread, locks, clock and network simulated."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from snowredis.numbers.buffer import Threads
from snowredis.numbers.masters import Steps
from snowredis.numbers.segments import SegmentGenerator
from snowredis.numbers.stores import TagStore, tag_keys
from tests.lab.simulation.base import SimulatedProcess
from tests.lab.simulation.redis_model import RedisModel
from tests.lab.simulation.stand_ins import Host, SimClock, SimGuard
from tests.lab.simulation.world import SimLock, Task

if TYPE_CHECKING:
    from tests.numbers.simulation import SegmentSimulation

# index of an argument of take.lua
SEEN = 9


class TagRedis(RedisModel):
    """A server that judges itself: it hands out nothing that a process has shown to be handed out."""

    def __init__(self, sim: SegmentSimulation, index: int, name: str) -> None:
        super().__init__(sim.world, name)
        self._sim, self.index = sim, index
        # the highest number that a process showed, since memory was rolled back in place
        self.shown = 0

    @property
    def next_number(self) -> int:
        tag = self._of(tag_keys("sim")[0])
        return max(int(tag.get("n:", 0)), int(tag.get("start", 1)))

    def eval(self, source: str, keys: Sequence[str], args: Sequence[str | int]) -> list[str]:
        before = self.next_number
        reply = super().eval(source, keys, args)
        if "\n-- take: " in source and reply[0] != "unidentified":
            self.shown = max(self.shown, int(args[SEEN]))
            if reply[0] == "granted" and (int(args[SEEN]) > before or int(reply[3]) < self.shown):
                self._sim.checker.complain(f"{self.name} handed out {reply[3]}, though it was shown {self.shown}")
        return reply


class SimTagStore(TagStore):
    """A server as one process reaches it."""

    def __init__(self, process: SegmentProcess, index: int) -> None:
        super().__init__("sim", random_bytes=process.random_bytes)
        self.where = f"server {index}"
        self._process, self._index = process, index

    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        network = self._process.sim.networks[self._index]
        reply: Sequence[str] = network.call(self._process, script.name, script.source, keys, args)
        return reply

    def after_fork(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to close."""


class SegmentClock(SimClock):
    """Tasks give way where the monotonic clock is read."""

    def monotonic(self) -> float:
        self._process.interrupted()
        return super().monotonic()

    def time_ns(self) -> int:
        return self._process.world.now_us * 1000


class SimWaitedLock:
    """A lock whose release ends one wait for it."""

    def __init__(self, process: SegmentProcess) -> None:
        self._world, self._is_held = process.world, False
        self._task: Task | None = None

    def locked(self) -> bool:
        return self._is_held

    def acquire(self, blocking: bool = True, timeout: float = 0) -> bool:
        if self._is_held and timeout:
            self._task = self._world.current
            self._world.block(max(1, round(timeout * 1e6)))
            self._task = None
        was_held, self._is_held = self._is_held, True
        return not was_held

    def release(self) -> None:
        self._is_held = False
        if self._task is not None:
            self._world.wake(self._task)


class SimThreads(Threads):
    def __init__(self, process: SegmentProcess) -> None:
        self._process = process
        self.new_lock = lambda: SimWaitedLock(process)
        self.ident = lambda: id(process.world.current)
        self.sleep = lambda seconds: process.world.sleep(max(1, round(seconds * 1e6)))

    def start(self, run: Callable[[], None]) -> None:
        self._process.world.spawn(self._process, run)


class SegmentProcess(SimulatedProcess):
    """One process. *like*: the process that it is a fork or clone of."""

    def __init__(self, sim: SegmentSimulation, host: Host, like: SegmentProcess | None = None) -> None:
        super().__init__(sim, host)
        # what happens at the next interruption
        self.armed: Callable[[], None] | None = None
        self.guard = SimGuard(self)  # type: ignore[arg-type]
        self.generator = SegmentGenerator(
            [SimTagStore(self, index) for index in range(len(sim.networks))],
            Steps(sim.step, sim.max_step, 2.0),
            wait_s=5.0,
            clock=SegmentClock(self),  # type: ignore[arg-type]
            guard=self.guard,
            threads=SimThreads(self),
        )
        self.new_locks()
        if like is not None:
            self._copy(like)
        sim.processes.append(self)

    def _copy(self, other: SegmentProcess) -> None:
        """Have the memory of *other*, but no thread."""
        mine, theirs = self.generator, other.generator
        numbers, was_reset = theirs._block
        mine._block = (copy.copy(numbers), self.guard.is_reset if was_reset else b"")
        mine._published = theirs._published
        mine._buffer.ready = deque(theirs._buffer.ready)
        mine._buffer._is_ahead = theirs._buffer._is_ahead
        for master, original in zip(mine._masters.all, theirs._masters.all, strict=True):
            master.seen, master.granted = original.seen, original.granted
        mine._suspended = theirs._suspended

    def random_bytes(self, count: int) -> bytes:
        return self.world.random.getrandbits(8 * count).to_bytes(count, "big")

    def new_locks(self) -> None:
        # the other one is held for no step of a schedule: so schedules are the same on builds without a GIL
        self.generator._lock = SimLock(self.world, self.interrupted)

    def interrupted(self) -> None:
        """Let other tasks run, perhaps, and what is armed happen."""
        world = self.world
        if not self.alive or world.current is None or world.current.owner is not self:
            return
        world.tick()
        if self.armed is not None:
            action, self.armed = self.armed, None
            action()
        if world.random.random() < self.sim.preempt:
            world.sleep(world.random.choice((0, 1, 30, 400, 3_000)))

    def run(self) -> None:
        for _ in range(2):
            self.world.spawn(self, self.make_on)

    def fork(self, *, bypass: bool = False) -> SegmentProcess:
        """Return a forked child; with *bypass*, no hook of Python runs in it."""
        child = SegmentProcess(self.sim, self.host, self)
        if bypass:
            child.guard.is_reset.value = 0
        else:
            child.guard.reset_in_child(child.generator)
            child.guard.recover()
        return child

    def clone(self) -> SegmentProcess:
        """Return a copy that nobody tells of: of a suspended process."""
        return SegmentProcess(self.sim, self.sim.new_host(), self)
