"""Schedules that need the rules about servers that lose what they acknowledged: which server it is, and how far a pool
may trust it (durability)."""

from __future__ import annotations

import contextlib

from snowredis.errors import ServerUnidentified
from tests.simulation.process import Process
from tests.simulation.redis_model import RedisModel
from tests.simulation.scenarios import shows
from tests.simulation.stage import Stage


@shows("run id")
def a_restart_from_a_snapshot(off: str | None) -> Stage:
    """The pool is there, and the lease that was granted after the snapshot is not."""
    stage = Stage(off=off).with_pool()
    saved, replication_id = stage.master.copy_data(), stage.master.replid
    gone, heir = stage.process(), stage.process()
    now_ms = stage.redis_now_ms
    stage.set_clock(gone, now_ms)
    stage.make(gone)
    stage.master.restart(saved)
    # a snapshot may hold it, too
    stage.master.replid = replication_id
    stage.set_clock(heir, now_ms)
    stage.make(heir)
    return stage


@shows("promotion")
def a_server_that_becomes_master_again(off: str | None) -> Stage:
    """While it was a replica it took over the data of a master that had missed the claim; no script ran there."""
    stage = Stage(off=off).with_pool()
    holder, heir = stage.process(), stage.process()
    missed = stage.master.copy_data()
    now_ms = stage.redis_now_ms
    for process in (holder, heir):
        stage.set_clock(process, now_ms)
    stage.make(holder)
    stage.master.data = missed
    stage.master.promote()
    stage.cut_off(holder)
    stage.make(heir)
    return stage


@shows("from the moment of notice")
def a_replica_that_ran_for_long_before_it_was_promoted(off: str | None) -> Stage:
    """Behind one fixed address; it had missed the claim. Nobody said that there may be a failover."""
    stage = Stage(off=off).with_pool()
    replica = RedisModel(stage.world, "replica")
    replica.started_s -= 1_000_000
    replica.data = stage.master.copy_data()
    holder, heir = stage.process(), stage.process()
    now_ms = stage.redis_now_ms
    stage.set_clock(holder, now_ms)
    stage.make(holder)
    stage.network.master = replica
    stage.set_clock(heir, now_ms)
    stage.make(heir)
    return stage


@shows("identity")
def a_server_whose_info_has_no_run_id(off: str | None) -> Stage:
    """Nothing tells it from the server that it was before; later it is replaced by one that can be told."""
    stage = Stage(off=off)
    server = stage.master
    server.info = lambda name: "" if name == "server" else f"master_replid:{'0' * 40}\r\n"
    with contextlib.suppress(ServerUnidentified):
        stage.with_pool()
    saved = server.copy_data()
    gone, heir, last = stage.process(), stage.process(), stage.process()
    now_ms = stage.redis_now_ms
    stage.set_clock(gone, now_ms)
    stage.make(gone)
    server.restart(saved)
    stage.set_clock(heir, now_ms)
    stage.make(heir)
    server.info = server.section
    stage.make(last)
    return stage


@shows("none: newcomers wait")
def a_restart_that_nothing_shows(off: str | None) -> Stage:
    stage = Stage(off=off, durability="none").with_pool()
    saved = stage.master.copy_data()
    gone, heir = stage.process(), stage.process()
    stage.do(gone, lambda process: process.generator.claim())
    for _ in range(9):
        stage.beat(gone)
        stage.wait(1_000)
    used_ms = stage.redis_now_ms
    stage.set_clock(gone, used_ms)
    stage.make(gone)
    stage.master.restart(saved)
    stage.cut_off(gone)
    stage.do(heir, lambda process: process.generator.claim())
    stage.set_clock(heir, used_ms)
    stage.make(heir)
    return stage


@shows("none: no adoption")
def two_losses_that_nothing_shows(off: str | None) -> Stage:
    """Ticks of 1 ms. Between the losses, the worker id of a living holder was given to a newcomer."""
    stage = Stage(off=off, durability="none", tick_ms=1).with_pool()
    holder, newcomer = stage.process(), stage.process()
    stage.do(holder, lambda process: process.generator.claim())
    for _ in range(9):
        stage.beat(holder)
        stage.wait(1_000)
    stage.make(holder)
    stage.beat(holder)
    stage.master.wipe()
    began_ms = stage.redis_now_ms
    stage.begin(newcomer, lambda process: process.make(1))
    # while it waits, its reservation is extended beyond where it begins, at 7 s
    stage.wait(2_000)
    stage.master.wipe()
    stage.cut_off(newcomer)
    for _ in range(5):
        stage.beat(holder)
        stage.wait(1_000)
    for process in (holder, newcomer):
        stage.set_clock(process, began_ms + 7_500)
        stage.make(process)
    return stage


@shows("none: no late renewal")
def a_pause_and_a_loss_that_nothing_shows(off: str | None) -> Stage:
    """Ticks of 1 ms. The snapshot shows the lease of a holder that was asleep while its worker id was another's."""
    stage = Stage(off=off, durability="none", tick_ms=1).with_pool()
    asleep, other, heir = (stage.process() for _ in range(3))
    for process in (asleep, other):
        stage.do(process, lambda process: process.generator.claim())
    saved = stage.master.copy_data()
    for _ in range(7):
        stage.wait(1_000)
        stage.beat(other)
    stage.do(heir, lambda process: process.generator.claim())
    for _ in range(8):
        stage.wait(1_000)
        stage.beat(heir, other)
    stage.master.restart(saved)
    for process in (heir, other):
        stage.cut_off(process)
    stage.beat(asleep)
    now_ms = stage.redis_now_ms + 1_000
    for process in (heir, asleep):
        stage.set_clock(process, now_ms)
        stage.make(process)
    return stage


def _nobody_gets_one(stage: Stage, newcomer: Process) -> Stage:
    stage.make(newcomer)
    if not stage.checker.made.get(newcomer.name):
        stage.checker.fail(f"nobody gets a worker id any more: {newcomer.errors}")
    return stage


@shows("clock that was ahead")
def a_boot_with_a_clock_that_is_eight_hours_ahead(off: str | None) -> Stage:
    """Step the clock as one that is kept in local time is, until it is set; Redis has lost its data."""
    stage = Stage(off=off).with_pool()
    first, newcomer = stage.process(), stage.process()
    stage.make(first)
    stage.master.restart({})
    stage.master.offset_us = 8 * 3_600_000_000
    stage.begin(newcomer, lambda process: process.make(1))
    stage.wait(3_000)
    stage.master.offset_us = 0
    stage.wait(10_000)
    return _nobody_gets_one(stage, newcomer)


@shows("bounded lease end")
def a_clock_that_is_an_hour_ahead_while_leases_are_renewed(off: str | None) -> Stage:
    """The leases of all worker ids end in an hour, and their processes have ended."""
    stage = Stage(off=off).with_pool()
    gone = [stage.process(), stage.process()]
    stage.make(*gone)
    stage.master.offset_us = 3_600_000_000
    stage.beat(*gone)
    stage.master.offset_us = 0
    for process in gone:
        process.crash()
    stage.wait(15_000)
    newcomer = stage.process()
    stage.make(newcomer)
    stage.wait(15_000)
    return _nobody_gets_one(stage, newcomer)


@shows("reachable marks")
def claims_while_the_clock_is_an_hour_ahead(off: str | None) -> Stage:
    """Nothing is certain there, so each newcomer gets times above all that may be reserved, on that clock."""
    stage = Stage(off=off, durability="none").with_pool()
    stage.master.offset_us = 3_600_000_000
    early = [stage.process(), stage.process()]
    stage.make(*early)
    for process in early:
        process.crash()
    stage.master.offset_us = 0
    stage.wait(15_000)
    newcomer = stage.process()
    stage.make(newcomer)
    stage.wait(15_000)
    return _nobody_gets_one(stage, newcomer)


@shows("one write")
def a_right_that_is_missing_while_a_pool_is_created(off: str | None) -> Stage:
    """A command is refused in the middle of the script; then a person grants the right to use it."""
    stage = Stage(off=off)
    newcomer = stage.process()
    stage.master.refused = {"PERSIST"}
    stage.make(newcomer)
    stage.master.refused.clear()
    stage.wait(10_000)
    return _nobody_gets_one(stage, newcomer)


@shows("by the later clock")
def a_redis_whose_clock_is_behind_when_it_notices_a_loss(off: str | None) -> Stage:
    """It is set right afterwards. The holder that was forgotten has ticks that the clock did not show yet."""
    stage = Stage(off=off).with_pool()
    gone, heir = stage.process(), stage.process()
    stage.make(gone)
    stage.master.wipe()
    stage.master.offset_us = -6_000_000
    stage.begin(stage.process(), lambda process: process.make(1))
    stage.wait(100)
    stage.master.offset_us = 0
    stage.wait(1_500)
    stage.begin(heir, lambda process: process.make(1))
    stage.wait(1_000)
    stage.cut_off(gone)
    for _ in range(4):
        stage.make(gone)
        stage.begin(heir, lambda process: process.make(1))
        stage.wait(1_000)
    stage.wait(8_000)
    stage.make(heir)
    return stage


@shows("another pool")
def an_address_that_leads_to_another_pool_of_that_name(off: str | None) -> Stage:
    """It was tried there before. One holder renews its lease; another one does not reach Redis any more."""
    stage = Stage(off=off).with_pool()
    holder, away = stage.process(), stage.process()
    stage.make(holder, away)
    stage.led_elsewhere, stage.network.master = True, RedisModel(stage.world, "other")
    stage.with_pool()
    stage.beat(holder)
    stage.cut_off(away)
    newcomer = stage.process()
    stage.begin(newcomer, lambda process: process.make(1))
    stage.wait(1_500)
    now_ms = stage.redis_now_ms
    for process in (newcomer, away):
        stage.set_clock(process, now_ms)
    stage.make(away)
    stage.begin(newcomer, lambda process: process.make(1))
    stage.wait(8_000)
    return stage


@shows("start of a new pool")
def a_new_pool_and_a_host_whose_clock_is_behind(off: str | None) -> Stage:
    """The pool before was lost. What a person says of it is true: nothing was reserved any more."""
    stage = Stage(off=off).with_pool()
    gone = stage.process()
    used_ms = stage.redis_now_ms
    stage.make(gone)
    gone.crash()
    stage.wait(20_000)
    stage.master.wipe()
    stage.with_pool()
    heir = stage.process()
    stage.set_clock(heir, used_ms - 1_000)
    for _ in range(8):
        stage.begin(heir, lambda process: process.make(1))
        stage.wait(500)
    stage.set_clock(heir, stage.redis_now_ms)
    stage.wait(8_000)
    return stage
