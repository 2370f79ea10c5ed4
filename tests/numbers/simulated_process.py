"""A process of the simulation: the shipped SegmentGenerator, with its thread, locks, clock and network simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from snowredis.errors import SnowredisError
from snowredis.numbers.counts import Steps
from snowredis.numbers.fetcher import TagClient
from snowredis.numbers.path import NumberRange
from snowredis.numbers.protocol import TagConfig
from snowredis.numbers.segments import Published, SegmentGenerator
from snowredis.numbers.stores import ScriptTagStore
from snowredis.numbers.waiting import Threads
from tests.simulation.stand_ins import Host, SimGuard
from tests.simulation.world import START_US, SimLock, Task

if TYPE_CHECKING:
    from tests.numbers.simulation import SegmentSimulation


class SimTagStore(ScriptTagStore):
    """A server as one process reaches it."""

    def __init__(self, process: SegmentProcess, index: int, config: TagConfig) -> None:
        super().__init__(config, random_bytes=process.random_bytes)
        self.where = f"server {index}"
        self._process, self._index = process, index

    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        network = self._process.sim.networks[self._index]
        return network.call(self._process, script.name, script.source, keys, args)

    def close(self) -> None:
        """Nothing to close."""


class SimClock:
    background = True

    def __init__(self, process: SegmentProcess) -> None:
        self._process = process

    def monotonic(self) -> float:
        self._process.interrupted()
        return 1000 + (self._process.world.now_us - START_US) / 1e6

    def time_ns(self) -> int:
        return self._process.world.now_us * 1000

    def time(self) -> float:
        return self._process.world.now_us / 1e6

    def sleep(self, seconds: float) -> None:
        self._process.world.sleep(max(1, round(seconds * 1e6)))


class SimWaiter:
    def __init__(self, process: SegmentProcess) -> None:
        self._world = process.world
        self._task: Task | None = None
        self._notified = False

    def wait(self, seconds: float) -> None:
        if not self._notified:
            self._task = self._world.current
            self._world.block(max(1, round(seconds * 1e6)))
            self._task = None

    def notify(self) -> None:
        self._notified = True
        if self._task is not None:
            self._world.wake(self._task)


class SimThreads(Threads):
    def __init__(self, process: SegmentProcess) -> None:
        self._process = process
        self._sleeper: Task | None = None
        self._woken = False
        self.new_waiter = lambda: SimWaiter(process)
        self.new_lock = lambda: SimLock(process.world)

    def start(self, run: Callable[[], None]) -> None:
        self._process.world.spawn(self._process, run)

    def ident(self) -> int:
        return id(self._process.world.current)

    def sleep(self, seconds: float) -> None:
        world = self._process.world
        if not self._woken:
            self._sleeper = world.current
            world.block(max(1, round(seconds * 1e6)))
            self._sleeper = None
        self._woken = False

    def wake(self) -> None:
        self._woken = True
        if self._sleeper is not None:
            self._process.world.wake(self._sleeper)


class SegmentProcess:
    """One process. *like*: the process that it is a fork or clone of."""

    def __init__(self, sim: SegmentSimulation, host: Host, like: SegmentProcess | None = None) -> None:
        self.sim, self.world, self.host = sim, sim.world, host
        self.name = sim.new_name()
        self.alive, self.paused_until_us = True, 0
        self.suspended = False
        # what happens at the next interruption
        self.armed: Callable[[], None] | None = None
        self.errors: dict[str, int] = {}
        self.guard = SimGuard(self)  # type: ignore[arg-type]
        stores = [SimTagStore(self, index, config) for index, config in enumerate(sim.configs)]
        self.generator = SegmentGenerator(
            stores,
            Steps(sim.step, sim.max_step, 2.0),
            bound=sim.bound,
            wait_s=5.0,
            clock=SimClock(self),
            guard=self.guard,
            random_bytes=self.random_bytes,
            threads=lambda: SimThreads(self),
        )
        # number -> when this process was told to drop it, us
        self.dropped: dict[int, int] = {}
        self._drop: Callable[[int, int], None] = self.generator._fetcher._drop
        self.generator._fetcher._drop = self._drop_and_note
        self.new_locks()
        if like is not None:
            self._copy(like)
        sim.processes.append(self)

    def _copy(self, other: SegmentProcess) -> None:
        """Have the memory of *other*, but no thread."""
        mine, theirs = self.generator, other.generator
        published, left, _ = theirs._position
        if published.segment is not None:
            first = published.first + (published.size - left) * published.stride
            rest = published.segment.rest
            alive = self.guard.alive
            if rest is not None:
                rest = rest._replace(alive=alive, segment=Published(published.segment.segment, None))
            copied = Published(published.segment.segment, rest)
            mine._supersede(mine._position[0], NumberRange(first, published.stride, left, alive, copied))
        mine._prefetcher.ready = deque(theirs._prefetcher.ready)
        mine._prefetcher._hungry = theirs._prefetcher._hungry
        for client, original in zip(mine._fetcher._clients, theirs._fetcher._clients, strict=True):
            for name, value in vars(original).items():
                if name not in ("store", "_random_name", "_owner"):
                    setattr(client, name, value)
        mine._suspended = theirs._suspended

    def _drop_and_note(self, server: int, from_position: int) -> None:
        segments = list(self.generator._prefetcher.ready)
        published = self.generator._position[0].segment
        segments += [published.segment] if published is not None else []
        for segment in segments:
            if segment.server == server and segment.until_position > from_position:
                for i in range(segment.until_position - segment.from_position):
                    self.dropped[segment.first + i * segment.stride] = self.world.now_us
        self._drop(server, from_position)

    @property
    def forgot(self) -> bool:
        """True if it does not report which segments it had."""
        return not self.alive or self.generator.closed or self.suspended

    def random_bytes(self, count: int) -> bytes:
        return self.world.random.getrandbits(8 * count).to_bytes(count, "big")

    def new_locks(self) -> None:
        self.generator._lock = SimLock(self.world, self.interrupted)  # type: ignore[assignment]

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
            self.world.spawn(self, self._make)

    def _make(self) -> None:
        random = self.world.random
        while not self.generator.closed:
            self.world.sleep(round(random.expovariate(1 / self.sim.gap_us)))
            self.make(random.choice((1, 1, 2, 5)))

    def make(self, count: int = 1) -> None:
        """Make some numbers, if possible."""
        try:
            if count == 5:
                for number in self.generator.next_ids(count):
                    self.sim.checker.emit(self, number)
                return
            for _ in range(count):
                self.sim.checker.emit(self, self.generator.next_id())
        except SnowredisError as error:
            name = type(error).__name__
            self.errors[name] = self.errors.get(name, 0) + 1
            if self.world.trace is not None:
                self.world.note("%s: %s: %s", self.name, name, error)

    def crash(self) -> None:
        """Kill the process as kill -9 does. If one of its own tasks calls this, that task ends here."""
        self.alive = False
        me = self.world.current
        self.world.kill_tasks(self)
        if me is not None and me.owner is self:
            self.world.block()

    def fork(self, *, bypass: bool = False) -> SegmentProcess:
        """Return a forked child; with *bypass*, no hook of Python runs in it."""
        child = SegmentProcess(self.sim, self.host, self)
        if bypass:
            child.guard.alive.value = 0
        else:
            child.guard.reset_in_child(child.generator)
            child.guard.recover()
        return child

    def clone(self) -> SegmentProcess:
        """Return a copy that nobody tells of: of a suspended process."""
        clone = SegmentProcess(self.sim, self.sim.new_host(), self)
        # the copied thread goes on
        if self.generator._prefetcher._run_token is not None:
            clone.generator._prefetcher.wake()
        return clone

    @property
    def clients(self) -> Sequence[TagClient]:
        return self.generator._fetcher._clients


class Operator:
    """A person who opens closed tags: a sender of requests."""

    def __init__(self, sim: SegmentSimulation) -> None:
        self.sim, self.name, self.host = sim, "operator", sim.new_host()
        self.alive, self.paused_until_us = True, 0

    def random_bytes(self, count: int) -> bytes:
        return self.sim.world.random.getrandbits(8 * count).to_bytes(count, "big")
