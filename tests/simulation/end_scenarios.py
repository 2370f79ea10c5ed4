"""Schedules that need the rules about the end of a pool, and about what a person does with it.

A ttl of 6 s, ticks of 1 s, one worker id, a reserve of a minute. Redis starts again from what was on its disk.
"""

from __future__ import annotations

from dataclasses import replace

from snowredis.snowflake.administration import EndReply, Ends
from snowredis.snowflake.protocol import PoolConfig
from tests.simulation.pool_faults import AtTheServer
from tests.simulation.process import Process
from tests.simulation.rules import RULES
from tests.simulation.scenarios import shows
from tests.simulation.stage import Stage

RESERVE_MS = 60_000
# after everything that was reserved at the beginning
LATER_MS = 70_000


class Ended(Stage):
    """A pool, a person at its server, and the layout that the person wants."""

    def __init__(self, off: str | None) -> None:
        super().__init__(off=off, worker_bits=0, outage_ms=RESERVE_MS)
        self._unkept = RULES[off].unkept if off is not None else ()
        self.with_pool()
        self.master.save()
        self.new = self.config.with_layout(replace(self.config.layout, worker_bits=1, sequence_bits=3))
        self.configs.append(self.new)

    def person(self, config: PoolConfig | None = None) -> AtTheServer:
        return AtTheServer(self, self.master, config or self.config, self._unkept)

    def end(self, in_ms: int = 0) -> EndReply:
        """Give the pool an end, after which it has the new layout; 0: the earliest."""
        at_ms = self.redis_now_ms + in_ms if in_ms else 0
        return self.person().end(self.redis_now_ms, layout=self.new.layout, at_ms=at_ms)

    def living(self) -> Process:  # type: ignore[override]
        """Return a process that has made an id."""
        process = self.process()
        self.make(process)
        return process

    def go_on(self, process: Process, until_ms: int) -> None:
        """Let *process* renew its lease until shortly before a time."""
        while self.redis_now_ms < until_ms - 2_000:
            self.wait(2_000)
            self.beat(process)

    def take_turns(self, old: Process, seconds: int) -> Process:
        """Let a process of the new layout, which is returned, and an old one make ids in turn."""
        new = self.process(config=self.new)
        for _ in range(seconds):
            self.begin(new, lambda process: process.make(1))
            self.make(old)
            self.wait(1_000)
        return new

    def wait_until(self, ms: int) -> None:
        self.wait(max(0, ms - self.redis_now_ms))

    def need(self, process: Process) -> Stage:
        """Let *process* make an id, and fail if it cannot."""
        self.make(process)
        if not self.checker.made.get(process.name):
            self.checker.fail(f"{process.name} makes no id: {process.errors}")
        return self


@shows("end of grants")
def a_holder_that_renews_its_lease_until_the_end(off: str | None) -> Stage:
    stage = Ended(off)
    end_ms = stage.redis_now_ms + LATER_MS
    stage.end(LATER_MS)
    old = stage.living()
    stage.go_on(old, end_ms)
    stage.cut_off(old)
    stage.wait_until(end_ms + 500)
    return stage.need(stage.take_turns(old, 4))


@shows("end of outage lanes")
def a_holder_that_goes_on_in_its_outage_lane_until_the_end(off: str | None) -> Stage:
    stage = Ended(off)
    end_ms = stage.redis_now_ms + LATER_MS
    stage.end(LATER_MS)
    old = stage.living()
    stage.go_on(old, end_ms - 20_000)
    stage.cut_off(old)
    stage.wait_until(end_ms + 500)
    return stage.need(stage.take_turns(old, 4))


@shows("start at the end")
def a_new_layout_and_a_host_whose_clock_is_behind(off: str | None) -> Stage:
    stage = Ended(off)
    end_ms = stage.redis_now_ms + LATER_MS
    stage.end(LATER_MS)
    old = stage.living()
    stage.go_on(old, end_ms)
    stage.make(old)
    stage.cut_off(old)
    stage.wait_until(end_ms + 100)
    new = stage.process(config=stage.new)
    stage.set_clock(new, end_ms - 4_000)
    for _ in range(12):
        stage.begin(new, lambda process: process.make(1))
        stage.wait(1_000)
    return stage.need(new)


@shows("not before marks")
def an_end_before_the_end_of_an_outage_lane(off: str | None) -> Stage:
    stage = Ended(off)
    old = stage.living()
    stage.cut_off(old)
    stage.end(8_000)
    stage.wait(8_100)
    stage.take_turns(old, 4)
    return stage


@shows("not before floors")
def an_end_after_a_loss(off: str | None) -> Stage:
    """Redis has forgotten a holder that goes on in its outage lane."""
    stage = Ended(off)
    old = stage.living()
    stage.cut_off(old)
    stage.master.wipe()
    stage.begin(stage.process(), lambda process: process.make(1))
    stage.wait(100)
    stage.end(10_000)
    stage.wait(10_100)
    stage.take_turns(old, 4)
    return stage


@shows("end once")
def an_end_that_is_set_again(off: str | None) -> Stage:
    """Then Redis comes back from a snapshot of before."""
    stage = Ended(off)
    end_ms = stage.redis_now_ms + LATER_MS
    stage.end(LATER_MS)
    backup = stage.master.copy_data()
    stage.end(2 * LATER_MS)
    old = stage.living()
    stage.go_on(old, end_ms)
    stage.cut_off(old)
    stage.master.restart(backup)
    stage.wait_until(end_ms + 500)
    return stage.need(stage.take_turns(old, 9))


@shows("end on every copy")
def a_crash_after_an_end(off: str | None) -> Stage:
    """Redis comes back from what was on its disk, after the pool of the new layout began."""
    stage = Ended(off)
    stage.living().crash()
    reply = stage.end()
    assert isinstance(reply, Ends)
    stage.wait_until(reply.end_ms + 100)
    new = stage.process(config=stage.new)
    stage.need(new)
    stage.master.crash()
    old = stage.process()
    stage.begin(old, lambda process: process.make(1))
    stage.wait(20_000)
    stage.cut_off(new)
    stage.make(new)
    stage.begin(old, lambda process: process.make(1))
    stage.wait(1_000)
    return stage


@shows("settings that may start")
def a_stray_process_that_comes_first_after_an_end(off: str | None) -> Stage:
    """Its layout was never compared with that of the pool before."""
    stage = Ended(off)
    reply = stage.end()
    assert isinstance(reply, Ends)
    stage.wait_until(reply.end_ms + 100)
    stray = stage.process(config=replace(stage.config, ttl_ms=7_000))
    stage.make(stray)
    return stage.need(stage.process(config=stage.new))


@shows("refused processes create nothing")
def a_stray_process_that_comes_first_after_a_loss(off: str | None) -> Stage:
    stage = Ended(off)
    worker, stray = stage.process(), stage.process(config=replace(stage.config, outage_reserve_ms=0))
    stage.make(worker, stray)
    stage.master.wipe()
    stage.wait(1_500)
    stage.make(stray)
    stage.beat(worker)
    stage.wait(1_000)
    stage.beat(worker)
    if worker.lease_manager.held is None:
        stage.checker.fail("a living worker lost its lease")
    return stage


@shows("outage lane while Redis is behind")
def a_redis_whose_clock_is_behind(off: str | None) -> Stage:
    """It comes back after an outage. Its renewals reach no further than the caller's clock shows already."""
    stage = Ended(off)
    holder = stage.living()
    stage.master.up = False
    stage.wait(8_000)
    stage.make(holder)
    stage.master.up, stage.master.offset_us = True, -30_000_000
    before = stage.checker.made[holder.name]
    for _ in range(3):
        stage.make(holder)
        stage.beat(holder)
    if stage.checker.made[holder.name] < before + 3:
        stage.checker.fail(f"the outage lane is closed: {holder.errors}")
    return stage


@shows("clocks agree in the outage lane")
def a_snapshot_in_an_outage(off: str | None) -> Stage:
    """The copy is resumed two hours later, where there is no Redis, either."""
    stage = Ended(off)
    one = stage.living()
    stage.cut_off(one)
    stage.wait(8_000)
    stage.make(one)
    two = one.clone()
    stage.cut_off(two)
    stage.set_clock(two, stage.redis_now_ms + 10_000)
    stage.beat(two)
    stage.make(two)
    if stage.checker.made.get(two.name):
        stage.checker.fail("a copy of a machine goes on in the outage lane")
    return stage
