"""Schedules that need the rules of the outage lane: one worker id, ticks of 1 s, a reserve of a minute."""

from __future__ import annotations

from tests.simulation.process import Process
from tests.simulation.scenarios import shows
from tests.simulation.stage import Stage

RESERVE_MS = 60_000


def _stage(off: str | None) -> Stage:
    return Stage(off=off, worker_bits=0, outage_ms=RESERVE_MS).with_pool()


def _cut_off_until(stage: Stage, began_ms: int, *processes: Process) -> Stage:
    """Let the processes, which do not reach Redis any more, make ids of the same ticks, 20 s after *began_ms*."""
    stage.wait(max(0, began_ms + 20_000 - stage.redis_now_ms))
    now_ms = stage.redis_now_ms
    for process in processes:
        stage.cut_off(process)
    for process in processes:
        stage.set_clock(process, now_ms)
        stage.make(process)
    return stage


@shows("outage mark")
def an_heir_and_a_holder_that_does_not_reach_redis(off: str | None) -> Stage:
    """The holder goes on in the outage lane, and so would the heir of its worker id."""
    stage = _stage(off)
    holder, heir = stage.process(), stage.process()
    began_ms = stage.redis_now_ms
    stage.make(holder)
    stage.cut_off(holder)
    # 7 s
    stage.wait(7_000)
    stage.make(heir)
    return _cut_off_until(stage, began_ms, holder, heir)


@shows("outage floor")
def a_wipe_and_a_holder_that_does_not_reach_redis(off: str | None) -> Stage:
    """Redis has forgotten the holder, whose outage lane lasts longer than the floor for other lanes."""
    stage = _stage(off)
    holder, heir = stage.process(), stage.process()
    began_ms = stage.redis_now_ms
    stage.make(holder)
    stage.cut_off(holder)
    stage.master.wipe()
    stage.make(heir)
    return _cut_off_until(stage, began_ms, holder, heir)


@shows("outage lane adopts nothing")
def a_holder_whose_outage_lane_lasts_when_it_wakes_up_after_two_wipes(off: str | None) -> Stage:
    """Between the wipes its worker id belonged to another process."""
    stage = _stage(off)
    asleep, heir = stage.process(), stage.process()
    stage.make(asleep)
    stage.master.wipe()
    stage.make(heir)
    stage.beat(heir)
    stage.master.wipe()
    stage.beat(asleep)
    stage.cut_off(heir)
    stage.make(heir, asleep)
    return stage


@shows("copied outage lane")
def a_clone_that_is_told_so(off: str | None) -> Stage:
    """It does not go on in the outage lane that it shares with its original."""
    stage = _stage(off)
    one = stage.process()
    began_ms = stage.redis_now_ms
    stage.make(one)
    two = one.clone()
    stage.wait(1_000)
    stage.beat(one)
    # told that it was copied
    stage.beat(two)
    stage.wait(2_000)
    return _cut_off_until(stage, began_ms, one, two)


@shows("holder before")
def a_clone_whose_original_gave_the_outage_lane_back(off: str | None) -> Stage:
    """Somebody else has the worker id, and the outage lane: the clone is not told that it has one still."""
    stage = _stage(off)
    one, heir = stage.process(), stage.process()
    began_ms = stage.redis_now_ms
    stage.make(one)
    two = one.clone()
    stage.wait(1_000)
    stage.make(one)
    stage.do(one, lambda process: process.generator.close())
    stage.wait(1_000)
    stage.make(heir)
    stage.beat(two)
    stage.wait(2_000)
    return _cut_off_until(stage, began_ms, heir, two)


@shows("clocks agree")
def a_snapshot_that_is_resumed_where_there_is_no_redis(off: str | None) -> Stage:
    """Its wall clock was set when it was resumed, and its monotonic clock had stood still."""
    stage = _stage(off)
    one = stage.process()
    began_ms = stage.redis_now_ms
    stage.make(one)
    two = one.clone()
    stage.set_clock(two, stage.redis_now_ms + 9_000)
    _cut_off_until(stage, began_ms, one)
    stage.cut_off(two)
    stage.make(two)
    if stage.checker.made.get(two.name):
        stage.checker.fail("a copy of a machine goes on in the outage lane")
    return stage


@shows("lane that was opened")
def a_release_after_an_outage(off: str | None) -> Stage:
    """The next holder of the worker id has a clock that is behind, and comes to the same ticks in its own outage."""
    stage = _stage(off)
    one, heir = stage.process(), stage.process()
    began_ms = stage.redis_now_ms
    stage.make(one)
    stage.cut_off(one)
    # 14 s
    stage.wait(14_000)
    stage.make(one)
    del stage.network.strayed[one.host.name]
    stage.do(one, lambda process: process.generator.close())
    stage.set_clock(heir, began_ms + 6_500)
    stage.make(heir)
    stage.cut_off(heir)
    stage.wait(began_ms + 14_000 - heir.host.offset_us // 1000 - stage.redis_now_ms)
    stage.make(heir)
    return stage


@shows("first lane stays")
def a_worker_id_that_is_claimed_just_after_its_release(off: str | None) -> Stage:
    stage = Stage(off=off, worker_bits=0).with_pool()
    one, heir = stage.process(), stage.process()
    stage.make(one)
    now_ms = stage.redis_now_ms
    stage.do(one, lambda process: process.generator.close())
    stage.set_clock(heir, now_ms)
    stage.make(heir)
    return stage


@shows("seal")
def a_release_while_the_outage_lane_is_being_opened(off: str | None) -> Stage:
    """One thread is about to open it when Redis is back, and another says that it was never opened."""
    stage = _stage(off)
    one, heir = stage.process(), stage.process()
    began_ms = stage.redis_now_ms
    stage.make(one)
    stage.cut_off(one)
    stage.wait(7_000)
    stage.do(one, lambda process: process.generator._lifecycle.open_outage_lane())
    # between the reading of the last id and that of the clock
    one.armed = (2, lambda: stage.world.sleep(1_500_000))
    stage.begin(one, lambda process: process.make(1))
    stage.wait(10)
    del stage.network.strayed[one.host.name]
    stage.begin(one, lambda process: process.generator.close())
    stage.set_clock(heir, began_ms + 500)
    stage.begin(heir, lambda process: process.make(1))
    stage.wait(100)
    stage.cut_off(heir)
    # its other lanes are over when its clock shows the tick that the other thread was about to use
    for _ in range(18):
        stage.wait(500)
        stage.make(heir)
    return stage
