"""Several processes of a host in one: the shipped code, C and Python, stopped before each access to what they share.

A process is a greenlet with a generator of its own. All have one page, and one Redis in memory, whose clock only moves
when nothing else can. Which process goes on at each step is up to a schedule. A process that is not scheduled any more
was killed there, or is stopped.
"""

from __future__ import annotations

import itertools
import mmap
import random
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import greenlet

from snowredis.core.layout import Layout
from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.process.fork import ForkGuard
from snowredis.process.liveness import ProcessName
from snowredis.snowflake import host_lease, host_members, host_page, lease_manager
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.testing import ManualClock, memory_pool

# few worker ids, and few ids a tick: whatever is used twice is an id that is made twice
LAYOUT = Layout(timestamp_bits=41, backup_bits=2, sequence_bits=2, tick_ms=1, epoch_ms=1735689600000)
TTL_MS = 600
MEMBERS = 3


class Action(NamedTuple):
    """What a process, or time, does: a method of Process or of Stage, and its argument."""

    name: str
    value: int = 0


Cast = dict[str, tuple[Action, ...]]
# returns which process goes on, or None at the end; given those that can, and before which step each is stopped
Schedule = Callable[[list[int], dict[int, str]], int | None]


class SteppedStore:
    """The store of one process: a step before each request, and after each reply."""

    shared = True

    def __init__(self, store: Any, step: Callable[[str], object]) -> None:
        self._store, self._step = store, step
        self.away = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if name not in ("claim", "renew", "release"):
            return value

        def call(*args: Any) -> Any:
            self._step(f"send {name}")
            if self.away:
                raise StoreUnavailable("memory", "away")
            reply = value(*args)
            self._step(f"reply {name}")
            return reply

        return call


class Process:
    """One process of the host, or of another one: its generator, and what it is going to do."""

    def __init__(self, stage: Stage, number: int, name: str, actions: tuple[Action, ...]) -> None:
        self.stage, self.label = stage, name
        # a thread of the process before
        before: Process | None = stage.processes[-1] if name.startswith("thread") else None
        self.name: ProcessName = before.name if before else ProcessName("stage", number, "1")
        self.store: SteppedStore = before.store if before else SteppedStore(stage.memory, stage.step)
        self.ids: SnowflakeGenerator = (
            before.ids
            if before
            else SnowflakeGenerator(
                cast(Any, self.store),
                clock=stage.clock,
                sequence_start="zero",
                guard=ForkGuard(),
                lease="process" if name.startswith("other") else "host",
            )
        )
        # as if a thread called beat(): then an outage lane stays open
        thread: Any = types.SimpleNamespace(stop=bool, join=bool)
        self.ids._lifecycle._heartbeat = thread
        self.greenlet = greenlet.greenlet(lambda: self._run(actions))
        self.refused = 0

    def _run(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if action.name != "take":
                self.stage.step("begin")
            try:
                getattr(self, action.name)(action.value)
            except SnowredisError as error:
                self.refused += 1
                self.stage.errors[f"{self.label} {action.name} {type(error).__name__}"] += 1

    def take(self, count: int) -> None:
        """Make ids, without what no process does before its first try."""
        for _ in range(count):
            self.stage.made.append(self.ids.next_id())

    def beat(self, _: int) -> None:
        """Do what the heartbeat thread does, whoever's turn it is to renew."""
        counts = self.ids.counts
        before = counts.renewals + counts.leases_lost
        for _ in range(6):
            self.ids._lifecycle._failing = True
            self.ids._beat()
            if counts.renewals + counts.leases_lost > before:
                return
            self.stage.clock.sleep(host_members.PAUSE_S)

    def back(self, ms: int) -> None:
        """Set the clock of all hosts back, but not that of Redis."""
        self.stage.clock.step(-ms)

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.stage.clock.advance(ms)

    def close(self, _: int) -> None:
        """End as processes do that end by themselves."""
        self.ids.close()

    def away(self, yes: int) -> None:
        """Let this process reach Redis no more, or again."""
        self.store.away = bool(yes)


_current: Stage | None = None


def step_of_running(name: str) -> None:
    """Stop the process that runs. What the C code calls."""
    if _current is not None:
        _current.step(name)


class Stage:
    """One run of some processes under one schedule.

    Args:
        cast: what each process does. One called "other" is of another host, "thread" a thread of the one before.
        workers: how many worker ids there are, 1 or 2.
        choose: returns which of the processes, named by their index, goes on; the one before is the first of them.

    Attributes:
        made: all ids.
    """

    def __init__(self, cast: Cast, choose: Schedule, workers: int = 1) -> None:
        self.clock = ManualClock()
        config_pool = memory_pool(clock=self.clock)
        first = config_pool.connect(layout=replace(LAYOUT, worker_bits=workers - 1), ttl=TTL_MS / 1000, claim_timeout=0)
        self.memory: Any = first._lease_manager.store
        self.page = memoryview(mmap.mmap(-1, host_page.PAGE_BYTES))
        self.made: list[int] = []
        self.errors = Counter[str]()
        global _current  # noqa: PLW0603 - one stage at a time
        _current = self
        self._choose, self._main = choose, greenlet.getcurrent()
        self._running: Process | None = None
        self._patch()
        self.processes: list[Process] = []
        for number, (name, actions) in enumerate(cast.items(), 1):
            self.processes.append(Process(self, number, name, actions))

    def _patch(self) -> None:
        """Let the code see the page, the processes and the clock of this stage."""

        def open_page(host: host_lease.Host) -> host_page.HostPage:
            host._name = "stage"
            process = next(each for each in self.processes if each.ids._lease_manager is host.leases)
            return host_page.HostPage(self.page, process.name, TTL_MS / 6000)

        for module, name, value in (
            (host_lease.Host, "_open_page", open_page),
            (lease_manager, "boot_id", lambda: "boot"),
            (host_page, "has_ended", lambda *_: False),
        ):
            setattr(module, name, value)
        clock = types.SimpleNamespace(
            monotonic=self.clock.monotonic,
            monotonic_ns=lambda: int(self.clock.monotonic() * 1e9),
            sleep=self.clock.sleep,
        )
        # greenlets are threads, for turns
        host_page.threading = types.SimpleNamespace(get_ident=lambda: id(greenlet.getcurrent()))  # type: ignore[assignment, attr-defined]
        host_page.time = host_members.time = clock  # type: ignore[assignment, attr-defined]
        host_page.MOST_MEMBERS = MEMBERS
        # what waits looks again when the patience with the turn is half over
        host_members.PAUSE_S = TTL_MS / 12000

    def step(self, name: str) -> None:
        """Stop the process that runs, before it does what *name* says."""
        if self._running is not None:
            self._main.switch(name)

    def prepare(self, state: str) -> None:
        """Let all processes of the host join and claim; let one of them make an id, too, if *state* is "open".

        If it is "alone", no other host has a worker id.
        """
        for process in self.processes:
            if state and not process.label.startswith(("other", "new")):
                process.ids.claim()
        if state == "open":
            self.made.append(self.processes[0].ids.next_id())
        if self.memory.config.capacity > 1 and state != "alone":
            # of another host, too: when both leases have ended, that of this host is the first to be leased again
            self.clock.advance(1)
            Process(self, 99, "other", ()).ids.claim()

    @property
    def lost(self) -> int:
        """How many leases were lost that nobody else had."""
        return sum(process.ids.counts.leases_lost for process in self.processes)

    def run(self) -> None:
        """Run until all processes have ended, or the schedule has ended."""
        left = dict(enumerate(self.processes))
        now, steps = 0, dict.fromkeys(left, "")
        while left:
            order = [now, *left] if now in left else [*left]
            chosen = self._choose(list(dict.fromkeys(order)), steps)
            if chosen is None:
                return
            now = chosen
            process = self._running = left[now]
            steps[now] = process.greenlet.switch() or ""
            self._running = None
            if process.greenlet.dead:
                del left[now]

    @property
    def repeated(self) -> list[int]:
        """Ids that were made more than once."""
        return [an_id for an_id, count in Counter(self.made).items() if count > 1]


# steps that write nothing
READS = ("load", "word", "limit")
# steps after which a run is over: those of processes that wait for a stopped one, again and again
MOST_STEPS = 3000


def planned(plan: tuple[tuple[int, int], ...]) -> Schedule:
    """Return a schedule: a process goes on until it is before its write, or request, of that number; then the next."""
    left, done, step = list(plan), Counter[int](), itertools.count()

    def choose(order: list[int], steps: dict[int, str]) -> int | None:
        if next(step) >= MOST_STEPS:
            return None

        def is_over(process: int, most: int) -> bool:
            # where it only reads, it goes on: what it has read is outdated by its next write
            return process not in order or (done[process] >= most and steps[process] not in READS)

        while left and is_over(*left[0]):
            left.pop(0)
        chosen = left[0][0] if left else order[0]
        done[chosen] += steps[chosen] not in READS
        return chosen

    return choose


def at_random(seed: int, often: float) -> Schedule:
    """Return a schedule that changes to another process at random, and kills some: it never lets them go on."""
    source, step = random.Random(seed), itertools.count()
    killed: set[int] = set()

    def choose(order: list[int], _: dict[int, str]) -> int | None:
        if next(step) >= MOST_STEPS:
            return None
        if source.random() < often / 20:
            killed.add(order[0])
        alive = [each for each in order if each not in killed]
        if not alive:
            return None
        return source.choice(alive) if source.random() < often else alive[0]

    return choose
