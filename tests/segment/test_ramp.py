"""The growth of the step at the first start, on a simulated clock: loops of every speed, Redis at every distance.

The prefetcher's thread gets its turn, as in CPython, when the loop waits, or after a switch interval.
"""

from __future__ import annotations

import itertools

import pytest

from snowredis.numbers.counts import FETCHES, Steps
from snowredis.numbers.model import TagConfig, TakeRequest
from snowredis.numbers.replies import TakeReply
from snowredis.numbers.segments import SegmentGenerator
from snowredis.numbers.settings import DEFAULT_MAX_STEP, DEFAULT_PERIOD_S, DEFAULT_STEP
from snowredis.testing import memory_pool
from tests.segment.simulated_process import SimClock, SimThreads, SimWaiter
from tests.simulation.stand_ins import SimGuard
from tests.simulation.world import SimLock, World

# of CPython: sys.getswitchinterval()
TURN_US = 5_000


class TurnWaiter(SimWaiter):
    """A wait of the loop, in which the thread gets its turn."""

    threads: TurnThreads

    def wait(self, seconds: float) -> None:
        self.threads.go()
        super().wait(seconds)


class TurnThreads(SimThreads):
    """The prefetcher's thread, which waits for its turn."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)  # type: ignore[arg-type]

        def waiter() -> TurnWaiter:
            made = TurnWaiter(process)  # type: ignore[arg-type]
            made.threads = self
            return made

        self.new_waiter = waiter

    def go(self) -> None:
        super().wake()

    def wake(self) -> None:
        self._woken = True
        self._process.world.after(TURN_US, self.go)


class SlowStore:
    """A tag in memory, in *distance_us*."""

    where = "far"
    urls = ()

    def __init__(self, world: World, distance_us: int) -> None:
        self.config = TagConfig(tag="t")
        self._world, self._distance_us = world, distance_us
        self._store = memory_pool().tag_store(self.config)
        self.sizes: list[int] = []

    def take(self, request: TakeRequest) -> TakeReply:
        self._world.sleep(self._distance_us)
        if request.wanted:
            self.sizes.append(request.wanted)
        return self._store.take(request)

    def close(self) -> None:
        """Nothing to close."""


class Process:
    """A process that makes numbers in a loop."""

    def __init__(self, distance_us: int, **steps: int) -> None:
        self.world = World(1)
        self.name, self.alive, self.paused_until_us = "p", True, 0
        self.store = SlowStore(self.world, distance_us)
        self.generator = SegmentGenerator(
            [self.store],  # type: ignore[list-item]
            Steps(steps.get("step", DEFAULT_STEP), steps.get("max_step", DEFAULT_MAX_STEP), DEFAULT_PERIOD_S),
            clock=SimClock(self),  # type: ignore[arg-type]
            guard=SimGuard(self),  # type: ignore[arg-type]
            random_bytes=self.world.random.randbytes,
            threads=lambda: TurnThreads(self),
        )
        self.generator._lock = SimLock(self.world)  # type: ignore[assignment]

    def interrupted(self) -> None:
        """Nothing comes in between."""

    def loop(self, count: int, at_once: int, us: int) -> None:
        """Make *count* numbers, *at_once* in *us*, one at a time."""

        def run() -> None:
            next_id = self.generator.next_id
            for _ in range(count // at_once):
                for _ in range(at_once):
                    next_id()
                self.world.sleep(us)

        self.world.spawn(self, run)
        while not self.generator.status.made >= count:
            self.world.run(self.world.now_us + 1_000_000)

    def batch(self, count: int) -> None:
        """Make *count* numbers in one call."""
        self.world.spawn(self, lambda: self.generator.next_ids(count))
        self.world.run(self.world.now_us + 10_000_000)

    def close(self) -> None:
        self.world.close()


@pytest.mark.parametrize("distance_us", [100, 1_000, 5_000, 30_000])
def test_a_tight_loop_waits_for_the_first_two_segments_only(distance_us: int) -> None:
    process = Process(distance_us, max_step=10_000_000)
    # 40 ns a number
    process.loop(3_000_000, 100, 4)
    assert process.generator.counts.waits == 2
    # what it got is what it needs to wait no more, and not the most that there is
    needed = FETCHES * (distance_us + TURN_US) * 25
    assert needed * 0.99 <= process.store.sizes[1] <= needed * 1.5
    process.close()


def test_the_default_max_step_bounds_what_a_tight_loop_gets() -> None:
    process = Process(30_000)
    process.loop(3_000_000, 100, 4)
    assert max(process.store.sizes) == DEFAULT_MAX_STEP
    process.close()


@pytest.mark.parametrize(("at_once", "us"), [(1, 100), (1, 10_000), (10, 1_000_000)])
def test_a_loop_that_never_waits_gets_no_larger_segments_than_its_rate_says(at_once: int, us: int) -> None:
    process = Process(1_000)
    process.loop(5_000, at_once, us)
    assert process.generator.counts.waits == 1
    sizes = process.store.sizes
    assert all(after <= 10 * before for before, after in itertools.pairwise(sizes))
    rate = at_once / us * 1e6
    # ten times the first step, before the rate is known
    assert max(sizes) <= max(10 * DEFAULT_STEP, 10 * rate * DEFAULT_PERIOD_S)
    process.close()


def test_a_large_batch_says_nothing_about_the_rate() -> None:
    process = Process(1_000)
    process.batch(2_500)
    # 10 times the first step as before, though the batch used up 1,000 numbers in no time
    assert process.store.sizes == [2_500, 25_000]
    process.close()


def test_a_loop_that_becomes_tight_after_an_hour_waits_once() -> None:
    process = Process(1_000)
    process.loop(150, 1, 20_000_000)
    before = process.generator.counts.waits
    process.loop(3_000_000, 100, 4)
    assert process.generator.counts.waits - before <= 2
    process.close()
