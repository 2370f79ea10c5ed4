"""Schedules that need the rules about what a person does with a pool, and about lanes that pass from pool to pool.

A ttl of 6 s, ticks of 1 s, one worker id, a reserve of a minute. Redis starts again from what was on its disk.
"""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.pool_faults import AtTheServer
from tests.simulation.process import Process
from tests.simulation.rules import RULES
from tests.simulation.scenarios import shows
from tests.simulation.stage import Stage

RESERVE_MS = 60_000


class Planned(Stage):
    """A pool, a person at its server, and the layout that the person plans."""

    def __init__(self, off: str | None) -> None:
        super().__init__(off=off, worker_bits=0, outage_ms=RESERVE_MS)
        self._unkept = RULES[off].unkept if off is not None else ()
        self.with_pool()
        self.master.save()
        layout = replace(self.config.layout, worker_bits=1, sequence_bits=3)
        self.new = replace(self.config, layout=layout)
        self.longer = replace(self.config, ttl_ms=40_000, max_clock_lead_ms=-1, redis_skew_ms=-1)
        self.configs += [self.new, self.longer]

    def person(self, config: object = None) -> AtTheServer:
        return AtTheServer(self, self.master, config or self.config, self._unkept)  # type: ignore[arg-type]

    def plan(self, in_ms: int) -> None:
        self.person().change_layout(self.new.layout, self.redis_now_ms + in_ms, self.redis_now_ms)

    def undo(self) -> None:
        self.person().change_layout(self.config.layout, 0, self.redis_now_ms)

    def delete(self) -> None:
        self.person().delete(self.redis_now_ms)

    def need(self, process: Process, what: str) -> Stage:
        """Let *process* make an id, and fail if it cannot."""
        self.make(process)
        if not self.checker.made.get(process.name):
            self.checker.fail(f"{what}: {process.errors}")
        return self

    def in_a_lane(self) -> Process:
        """Return a process that has an outage lane, and does not reach Redis any more."""
        process = self.process()
        self.make(process)
        self.cut_off(process)
        return process


@shows("R9 plan on disk")
def a_crash_after_a_change(off: str | None) -> Stage:
    stage = Planned(off)
    stage.plan(1_000)
    stage.wait(8_100)
    new = stage.process(config=stage.new)
    stage.make(new)
    stage.master.crash()
    old = stage.process()
    stage.begin(old, lambda process: process.make(1))
    stage.wait(15_000)
    stage.cut_off(new)
    stage.make(new, old)
    return stage


@shows("R9 undo on disk")
def a_crash_after_an_undone_plan(off: str | None) -> Stage:
    stage = Planned(off)
    stage.plan(1_000)
    stage.undo()
    stage.master.crash()
    stage.wait(10_000)
    return stage.need(stage.process(), "the plan is carried out")


@shows("R9 floor of a change after a loss")
def a_backup_with_a_plan_that_was_undone(off: str | None) -> Stage:
    """The moment has passed when the loss is noticed."""
    stage = Planned(off)
    stage.plan(1_000)
    backup = stage.master.copy_data()
    stage.undo()
    old = stage.in_a_lane()
    stage.master.restart(backup)
    stage.wait(3_000)
    new = stage.process(config=stage.new)
    stage.make(new)
    stage.wait(10_000)
    stage.make(old, new)
    return stage


@shows("R9 moment of a change after a loss")
def a_backup_with_a_plan_for_later_that_was_undone(off: str | None) -> Stage:
    stage = Planned(off)
    stage.plan(20_000)
    backup = stage.master.copy_data()
    stage.undo()
    old = stage.in_a_lane()
    stage.master.restart(backup)
    stage.begin(stage.process(), lambda process: process.make(1))
    stage.wait(29_000)
    new = stage.process(config=stage.new)
    stage.make(new, old, new)
    return stage


@shows("R9 floor of a change that was made")
def a_crash_after_a_change_whose_processes_live(off: str | None) -> Stage:
    """The change is made again. A lease of the new layout shows that the plan was not undone."""
    stage = Planned(off)
    stage.plan(1_000)
    stage.wait(8_100)
    living = stage.process(config=stage.new)
    stage.make(living)
    stage.beat(living)
    stage.master.crash()
    stage.beat(living, living)
    newcomer = stage.process(config=stage.new)
    stage.begin(newcomer, lambda process: process.make(1))
    for _ in range(9):
        stage.wait(1_000)
        stage.beat(living)
    return stage.need(newcomer, "newcomers wait for outage lanes that nobody has")


@shows("R9 kept floor of a change")
def a_redis_whose_clock_is_set_back_after_a_change(off: str | None) -> Stage:
    """It was ahead. The floor of the new layout stays above the outage lanes of the old one."""
    stage = Planned(off)
    stage.master.offset_us = 20_000_000
    stage.plan(76_000)
    old = stage.process()
    stage.make(old)
    for _ in range(27):
        stage.wait(2_000)
        stage.beat(old)
    stage.cut_off(old)
    stage.wait(2_100)
    return _two_layouts(stage, old)


@shows("R9 kept floor of a change after a loss")
def a_redis_whose_clock_is_set_back_after_a_backup_with_a_plan(off: str | None) -> Stage:
    """Nobody knows whether the plan was undone since, and until when there are outage lanes."""
    stage = Planned(off)
    stage.master.offset_us = 5_000_000
    stage.plan(6_000)
    backup = stage.master.copy_data()
    stage.undo()
    old = stage.in_a_lane()
    stage.master.restart(backup)
    stage.wait(3_000)
    return _two_layouts(stage, old)


@shows("R9 kept floor of other lanes")
def a_redis_whose_clock_is_set_back_after_delete_and_create(off: str | None) -> Stage:
    """The new pool has another layout."""
    stage = Planned(off)
    stage.master.offset_us = 5_000_000
    old = stage.in_a_lane()
    stage.delete()
    stage.person(stage.new).create(stage.redis_now_ms)
    return _two_layouts(stage, old)


def _two_layouts(stage: Planned, old: Process) -> Stage:
    """Let a process of the new layout come; set Redis' clock back; let both make ids."""
    new = stage.process(config=stage.new)
    stage.begin(new, lambda process: process.make(1))
    stage.wait(200)
    stage.master.offset_us = 0
    for _ in range(20):
        stage.begin(new, lambda process: process.make(1))
        stage.wait(1_000)
        stage.make(old)
    return stage


@shows("R9 create on disk")
def a_crash_after_delete_and_create(off: str | None) -> Stage:
    stage = Planned(off)
    stage.delete()
    stage.person(stage.longer).create(stage.redis_now_ms)
    holder = stage.process(config=stage.longer)
    stage.make(holder)
    stage.cut_off(holder)
    stage.master.crash()
    stray = stage.process()
    stage.begin(stray, lambda process: process.make(1))
    stage.wait(10_000)
    stage.make(holder, stray)
    return stage


@shows("R9 delete on disk")
def a_crash_after_delete(off: str | None) -> Stage:
    stage = Planned(off)
    stage.delete()
    holder = stage.process(config=stage.longer)
    stage.begin(holder, lambda process: process.make(1))
    stage.wait(1_000)
    stage.master.crash()
    stage.wait(50_000)
    return stage.need(holder, "the deleted pool is there again")


@shows("R9 outage floor of a new pool")
def a_lost_pool_that_a_person_creates(off: str | None) -> Stage:
    """Nobody made an id for a while. One process does not reach Redis."""
    stage = Planned(off)
    old = stage.in_a_lane()
    stage.wait(8_000)
    stage.master.wipe()
    # the word of the person is about the ordinary lanes
    stage.checker.lift(stage.redis_now_ms, 0)
    stage.person().create(stage.redis_now_ms)
    heir = stage.process()
    stage.make(heir)
    stage.cut_off(heir)
    stage.wait(12_000)
    stage.make(old, heir)
    return stage


@shows("R9 refused processes create nothing")
def a_stray_process_that_comes_first_after_a_loss(off: str | None) -> Stage:
    stage = Planned(off)
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


@shows("R9 lanes of a lost pool")
def a_pool_with_a_shorter_reserve_in_the_place_of_a_lost_one(off: str | None) -> Stage:
    """One worker is refused by it, and another one does not reach Redis."""
    stage = Planned(off)
    worker = stage.process()
    stage.make(worker)
    stage.master.wipe()
    short = replace(stage.config, outage_reserve_ms=8_000)
    stage.configs.append(short)
    heir = stage.process(config=short)
    stage.begin(heir, lambda process: process.make(1))
    stage.wait(100)
    stage.beat(worker)
    stage.cut_off(worker)
    for _ in range(12):
        stage.wait(1_000)
        stage.beat(heir)
    stage.cut_off(heir)
    stage.wait(7_000)
    stage.make(worker, heir)
    return stage


@shows("outage lane that passed on")
def a_worker_id_that_passed_to_two_others(off: str | None) -> Stage:
    """The first of them released it. Nothing was copied."""
    stage = Planned(off)
    first, second, third = (stage.process() for _ in range(3))
    stage.make(first)
    stage.wait(7_000)
    stage.make(second)
    stage.do(second, lambda process: process.generator.close())
    stage.make(third)
    stage.beat(first)
    stage.cut_off(first)
    stage.wait(6_000)
    before = stage.checker.made[first.name]
    stage.make(first)
    if stage.checker.made[first.name] == before:
        stage.checker.fail(f"it is told that it was copied: {first.errors}")
    return stage


@shows("outage lane while Redis is behind")
def a_redis_whose_clock_is_behind(off: str | None) -> Stage:
    """It comes back after an outage. Its renewals reach no further than the caller's clock shows already."""
    stage = Planned(off)
    holder = stage.process()
    stage.make(holder)
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
    stage = Planned(off)
    one = stage.in_a_lane()
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
