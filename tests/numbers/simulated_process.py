"""A process of the simulation: the shipped SegmentGenerator, with its thread, locks, clock and network simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from snowredis.numbers.fetcher import Steps, TagClient
from snowredis.numbers.segments import SegmentGenerator
from snowredis.numbers.settings import TagConfig
from snowredis.numbers.stores import ScriptTagStore
from snowredis.numbers.waiting import Threads
from tests.simulation.base import SimulatedProcess
from tests.simulation.stand_ins import Host, SimClock, SimGuard
from tests.simulation.world import SimLock, Task

if TYPE_CHECKING:
    from tests.numbers.simulation import SegmentSimulation


# a number that was taken before a drop is made within this time
TAKEN_US = 100_000
# indexes of arguments of take.lua
CLIENT, REQUEST_ID = 7, 9


class SimTagStore(ScriptTagStore):
    """A server as one process reaches it."""

    def __init__(self, process: SegmentProcess, index: int, config: TagConfig) -> None:
        super().__init__(config, random_bytes=process.random_bytes)
        self.where = f"server {index}"
        self._process, self._index = process, index

    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        sim, process = self._process.sim, self._process
        reply = sim.networks[self._index].call(process, script.name, script.source, keys, args)
        if script.name == "take":
            if reply[0] == "granted":
                sim.checker.granted(self._index, str(args[CLIENT]), reply)
            if process.copies is not None:
                process.copies.heard(process, self._index, str(args[REQUEST_ID]), reply)
        return reply

    def close(self) -> None:
        """Nothing to close."""


class SegmentClock(SimClock):
    """Tasks give way where the monotonic clock is read."""

    def monotonic(self) -> float:
        self._process.interrupted()
        return super().monotonic()

    def time_ns(self) -> int:
        return self._process.world.now_us * 1000


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


class Copies:
    """A process and a clone of it that was made while it ran.

    Nobody can prevent that both make the same numbers of a server until it granted one of them a segment, and the other
    one has asked it, too: the server calls that one a copy, and it drops what it has.
    """

    def __init__(self, process: SegmentProcess) -> None:
        # a request that is under way is one of both
        self._pending = {client._request_id for client in process.clients}
        # by server: who was granted a segment first, and when the other one got a reply, us
        self._owners: dict[int, SegmentProcess] = {}
        self._told_us: dict[int, int] = {}

    def heard(self, process: SegmentProcess, server: int, request_id: str, reply: Sequence[str]) -> None:
        if server not in self._owners:
            if reply[0] == "granted" and request_id not in self._pending:
                self._owners[server] = process
        elif process is not self._owners[server]:
            self._told_us.setdefault(server, process.world.now_us)

    def excuse(self, second: SegmentProcess, server: int, at_us: int) -> bool:
        """Return whether it was not to be prevented that *second* made a number of the other one."""
        told_us = self._told_us.get(server)
        return told_us is None or second is self._owners[server] or at_us <= told_us + TAKEN_US


class SegmentProcess(SimulatedProcess):
    """One process. *like*: the process that it is a fork or clone of."""

    def __init__(self, sim: SegmentSimulation, host: Host, like: SegmentProcess | None = None) -> None:
        super().__init__(sim, host)
        self.suspended = False
        self.copies: Copies | None = None
        # what happens at the next interruption
        self.armed: Callable[[], None] | None = None
        self.guard = SimGuard(self)  # type: ignore[arg-type]
        stores = [SimTagStore(self, index, config) for index, config in enumerate(sim.configs)]
        self.generator = SegmentGenerator(
            stores,
            Steps(sim.step, sim.max_step, 2.0),
            wait_s=5.0,
            clock=SegmentClock(self),  # type: ignore[arg-type]
            guard=self.guard,
            random_bytes=self.random_bytes,
            threads=lambda: SimThreads(self),
        )
        # number -> when this process was told to drop it, us
        self.dropped: dict[int, int] = {}
        self.generator._fetcher._drop = lambda: self._drop_and_note
        self.new_locks()
        if like is not None:
            self._copy(like)
        sim.processes.append(self)

    def _copy(self, other: SegmentProcess) -> None:
        """Have the memory of *other*, but no thread."""
        mine, theirs = self.generator, other.generator
        segment, left, _ = theirs._position
        if left:
            mine._supersede(mine._position[0], segment._replace(numbers=segment.numbers[-left:]))
        mine._prefetcher.ready = deque(theirs._prefetcher.ready)
        mine._prefetcher._fetches_ahead = theirs._prefetcher._fetches_ahead
        for client, original in zip(mine._fetcher._clients, theirs._fetcher._clients, strict=True):
            for name, value in vars(original).items():
                if name not in ("store", "_random_name", "_owner"):
                    setattr(client, name, value)
        mine._suspended = theirs._suspended

    def _drop_and_note(self, server: int, from_number: int) -> None:
        segments = [self.generator._position[0], *self.generator._prefetcher.ready]
        for segment in segments:
            if segment.server == server and segment.numbers[-1] >= from_number:
                self.dropped |= dict.fromkeys(segment.numbers, self.world.now_us)
        self.generator._drop(server, from_number)

    @property
    def forgot(self) -> bool:
        """True if it does not report which segments it had."""
        return not self.alive or self.generator.closed or self.suspended

    def random_bytes(self, count: int) -> bytes:
        return self.world.random.getrandbits(8 * count).to_bytes(count, "big")

    def new_locks(self) -> None:
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
