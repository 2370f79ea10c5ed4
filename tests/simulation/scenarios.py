"""One schedule for each rule, in which ids are repeated (or nobody gets one) if the rule is switched off.

Ticks last 1 s unless said otherwise, so that two ids of one tick are easily made; the times in
comments count from the first claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.process import Process
from tests.simulation.stage import Stage

Scenario = Callable[[str | None], Stage]
SCENARIOS: dict[str, Scenario] = {}


def shows(*rules: str) -> Callable[[Scenario], Scenario]:
    """Register a scenario with the rules that it needs."""

    def register(scenario: Scenario) -> Scenario:
        SCENARIOS.update(dict.fromkeys(rules, scenario))
        return scenario

    return register


@shows("mark")
def an_heir_whose_clock_is_behind(off: str | None) -> Stage:
    """The dead holder's clock was ahead, so it has used ticks that are yet to come for its heir."""
    stage = Stage(off=off).with_pool()
    dead, other, heir = (stage.process() for _ in range(3))
    dead.host.offset_us = 400_000
    stage.make(dead)
    stage.make(other)
    stage.set_clock(dead, stage.redis_now_ms + 5_900)
    stage.make(dead)
    used_ms = stage.redis_now_ms + 5_900
    stage.wait(5_990)
    stage.beat(other)
    stage.wait(100)
    stage.set_clock(heir, used_ms)
    stage.make(heir)
    return stage


@shows("end of the reservation")
def a_pause_beyond_the_ttl(off: str | None) -> Stage:
    """The weakness of every plain TTL lease: the holder wakes up and continues, without noticing."""
    stage = Stage(off=off).with_pool()
    asleep, other, heir = (stage.process() for _ in range(3))
    stage.make(asleep, other)
    for _ in range(7):
        stage.wait(1000)
        stage.beat(other)
    stage.make(heir)
    stage.set_clock(heir, stage.redis_now_ms + 400)
    stage.set_clock(asleep, stage.redis_now_ms + 400)
    asleep.starved_until_us = stage.world.now_us + 10**9
    # no Redis for it either
    stage.cut_off(asleep)
    stage.make(heir, asleep)
    return stage


@shows("index")
def a_lost_index(off: str | None) -> Stage:
    """Both worker ids are free, and nothing but the hash says so."""
    stage = Stage(off=off).with_pool()
    dead = [stage.process(), stage.process()]
    stage.make(*dead)
    stage.wait(7_000)
    stage.master.data.pop("snowredis:{sim}:leases")
    heir = stage.process()
    stage.make(heir)
    if not stage.checker.made.get(heir.name):
        stage.checker.fail("nobody gets a worker id any more")
    return stage


@shows("adopted records")
def a_newcomer_after_an_adoption(off: str | None) -> Stage:
    """The pool is new to Redis, but not all of its worker ids are unused."""
    stage = Stage(off=off).with_pool()
    living, newcomer = stage.process(), stage.process()
    stage.make(living)
    stage.master.wipe()
    stage.beat(living)
    for _ in range(9):
        stage.beat(living)
        stage.wait(1_000)
    stage.make(newcomer)
    stage.cut_off(living)
    stage.make(living, newcomer)
    return stage


@shows("cap")
def a_clock_an_hour_ahead(off: str | None) -> Stage:
    """It would reserve the next hour, and after a wipe the reservation is unknown."""
    stage = Stage(off=off).with_pool()
    ahead, heir = stage.process(), stage.process()
    hour_ms = stage.redis_now_ms + 3_600_000
    stage.set_clock(ahead, hour_ms)
    stage.make(ahead)
    stage.master.wipe()
    stage.wait(20_000)
    stage.make(heir)
    stage.wait(1_000)
    stage.set_clock(heir, hour_ms)
    stage.make(heir)
    return stage


@shows("floor")
def a_wipe(off: str | None) -> Stage:
    """The holder has ended, and the wipe has removed its record."""
    stage = Stage(off=off).with_pool()
    gone, heir = stage.process(), stage.process()
    now_ms = stage.redis_now_ms
    stage.set_clock(gone, now_ms)
    stage.make(gone)
    stage.master.wipe()
    stage.set_clock(heir, now_ms)
    stage.make(heir)
    return stage


@shows("too late")
def a_holder_that_wakes_up_after_two_wipes(off: str | None) -> Stage:
    """Between the wipes its worker id belonged to another process."""
    stage = Stage(off=off).with_pool()
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


@shows("lease end")
def a_redis_whose_clock_goes_back_and_forth(off: str | None) -> Stage:
    """Within redis_skew. The lease of a holder that renews after the step must not end sooner than it did before."""
    stage = Stage(off=off).with_pool()
    holder, other, heir = (stage.process() for _ in range(3))
    began_ms = stage.redis_now_ms
    stage.master.offset_us = 250_000
    # as far ahead as a clock may be
    stage.set_clock(holder, began_ms + 750)
    for process in (holder, other):
        stage.do(process, lambda process: process.generator.claim())
    stage.master.offset_us = -250_000
    stage.wait(10)
    stage.beat(holder)
    for _ in range(5):
        stage.wait(1_000)
        stage.beat(other)
    # 5.5 s
    stage.wait(500)
    stage.master.offset_us = 250_000
    stage.begin(heir, lambda process: process.make(1))
    stage.wait(10)
    stage.master.wipe()
    stage.master.offset_us = -250_000
    stage.cut_off(heir)
    # its clock is right by now
    holder.host.offset_us = 0
    stage.beat(holder)
    for process in (heir, holder):
        stage.set_clock(process, began_ms + 7_100)
        stage.make(process)
    return stage


@shows("settling")
def two_wipes_within_two_seconds(off: str | None) -> Stage:
    """Ticks of 1 ms. A living holder that missed the first wipe is taken up again after the second.

    If a newcomer had been given its worker id in between, however far ahead its reservation began, both
    would go on: Redis forgot the newcomer, and the newcomer hears of nothing.
    """
    stage = Stage(off=off, tick_ms=1).with_pool()
    holder, newcomer = stage.process(), stage.process()
    stage.make(holder)
    # 0.1 s
    stage.wait(100)
    stage.master.wipe()
    began_ms = stage.redis_now_ms
    newcomer.host.offset_us = 400_000
    stage.begin(newcomer, lambda process: process.make(1))
    stage.wait(1_500)
    # 1.6 s
    stage.master.wipe()
    stage.cut_off(newcomer)
    for _ in range(6):
        stage.beat(holder)
        stage.wait(1_000)
    # 7.6 s; the first floor was at 7.1 s
    stage.wait(2_000)
    for process in (newcomer, holder):
        stage.set_clock(process, began_ms + 7_440)
        stage.make(process)
    return stage


@shows("signature")
def a_stranger_with_a_longer_ttl(off: str | None) -> Stage:
    """After a wipe the floor is as high as the others' ttl asks for."""
    stage = Stage(off=off).with_pool()
    stranger = stage.process(config=replace(stage.config, ttl_ms=60_000))
    stage.do(stage.process(), lambda process: process.generator.claim())
    stage.make(stranger)
    stage.master.wipe()
    heirs = [stage.process(), stage.process()]
    stage.make(*heirs)
    stage.cut_off(stranger)
    stage.make(stranger, *heirs)
    return stage


def _back_in_time(stage: Stage, witness: Process | None, busy: Process | None = None) -> Stage:
    holder, heir = stage.process(), stage.process()
    saved = stage.master.copy_data()
    now_ms = stage.redis_now_ms
    stage.set_clock(holder, now_ms)
    stage.make(holder)
    if witness is not None:
        stage.beat(witness)
    else:
        stage.wait(7_000)
    stage.went_back()
    stage.master.data = saved
    if busy is not None:
        stage.beat(*[busy] * 5)
    if witness is not None:
        stage.beat(witness)
    # what went before is where ids may have been repeated; the promise holds from here on
    stage.checker.lifted_until_ms = 0
    if stage.tracer is not None:
        stage.tracer.lifted(0, 0)
    for process in filter(None, (witness, heir)):
        stage.set_clock(process, now_ms)
        stage.make(process)
    return stage


@shows("version")
def a_redis_that_went_back_and_a_client_that_saw_more(off: str | None) -> Stage:
    stage = Stage(off=off).with_pool()
    witness = stage.process()
    stage.make(witness)
    # its reservation does not grow
    stage.set_clock(witness, stage.redis_now_ms - 2000)
    return _back_in_time(stage, witness)


@shows("record")
def a_redis_that_went_back_and_went_on_before_a_client_that_saw_more_came(off: str | None) -> Stage:
    stage = Stage(off=off, worker_bits=2).with_pool()
    witness, busy = stage.process(), stage.process()
    stage.make(witness, busy)
    return _back_in_time(stage, witness, busy)
