"""Schedules that need the rules of take-over: whose lease it is that a starting process goes on with in an outage.

One worker id, ticks of 1 s, an outage lane of a minute, and machines with crash records. Every step of a take-over, and
what can be copied around it: the machine, the directory, the network, the Redis.
"""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.machines import Machines, Page
from tests.simulation.process import Process
from tests.simulation.redis_model import RedisModel
from tests.simulation.scenarios import shows
from tests.simulation.stage import Stage
from tests.simulation.stand_ins import Host

RESERVE_MS = 60_000


def _stage(off: str | None) -> Stage:
    return Stage(off=off, worker_bits=0, outage_ms=RESERVE_MS, crash_records=True).with_pool()


def _machines(stage: Stage) -> Machines:
    assert stage.machines is not None
    return stage.machines


def _copy(stage: Stage, name: str, number: str) -> None:
    """Copy the only record of a machine, as with its directory."""
    machines = _machines(stage)
    parts = name.split(".")
    page = machines._pages[".".join((*parts[:4], number, *parts[5:]))] = Page(machines._pages[name])
    page.inode = number


def _cut_off(stage: Stage, *processes: Process) -> None:
    for process in processes:
        stage.cut_off(process)


def _both_make(stage: Stage, one: Process, two: Process) -> Stage:
    """Let both make ids at the same times, as far as they have a lease."""
    for process in (one, two):
        stage.begin(process, lambda process: process.make(1))
    stage.wait(3_000)
    now_ms = stage.redis_now_ms
    for process in (one, two):
        stage.set_clock(process, now_ms)
        stage.make(process)
    return stage


@shows("suspended lease is no heir's")
def a_machine_that_is_copied_with_a_lease_that_could_not_be_released(off: str | None) -> Stage:
    """It was suspended while Redis was away; in both copies its process is killed, and another one starts."""
    stage = _stage(off)
    suspended = stage.process()
    stage.make(suspended)
    _cut_off(stage, suspended)
    stage.do(suspended, lambda process: process.generator.suspend())
    return _start_in_both_copies(stage, suspended)


@shows("leases of the dead are no heir's after a copy")
def a_machine_that_is_copied_with_records_of_dead_processes(off: str | None) -> Stage:
    stage = _stage(off)
    suspending = stage.process()
    dying = stage.process(suspending.host)
    stage.make(dying)
    dying.crash()
    _cut_off(stage, suspending)
    stage.do(suspending, lambda process: process.generator.suspend())
    return _start_in_both_copies(stage, dying)


def _start_in_both_copies(stage: Stage, ended: Process) -> Stage:
    """End the process; copy the machine with its record; start a process in both copies."""
    machines = _machines(stage)
    if ended.alive:
        ended.crash()
    (name,) = machines.names()
    # the directory is the machine's, so the copy has the same inodes
    page = machines._pages[name]
    one = stage.process(ended.host)
    stage.cut_off(one)
    stage.begin(one, lambda process: process.make(1))
    stage.wait(2_000)
    machines._pages[name] = page
    two = stage.process(ended.host)
    return _both_make(stage, one, two)


@shows("record of a copied directory")
def a_directory_of_records_that_is_copied(off: str | None) -> Stage:
    stage = _stage(off)
    dying = stage.killed()
    (name,) = _machines(stage).names()
    _copy(stage, name, "copied")
    heirs = [stage.process(dying.host) for _ in range(2)]
    stage.cut_off(heirs[0])
    return _both_make(stage, *heirs)


def _two_pools(stage: Stage, network: str) -> tuple[Process, Process]:
    """Return a process of the other Redis, and one that starts beside it: there, both reach nothing any more.

    A process of the first Redis, which has the same address and the same worker id, was killed on their machine.
    """
    dying = stage.killed()
    stage.wait(2_000)
    other = RedisModel(stage.world, "other")
    host = Host(dying.host.name, network=network)
    holder = stage.process(Host("elsewhere"))
    for name in ("elsewhere", host.name):
        stage.network.strayed[name] = other
    stage.do(holder, lambda process: process.store.create(stage.redis_now_ms))
    stage.open_outage_lanes(other)
    stage.make(holder)
    # two Redis servers are of two tables, so both may reserve the same
    stage.checker.failures.clear()
    stage.wait(2_000)
    return holder, stage.process(host)


@shows("record's network")
def a_process_of_another_network(off: str | None) -> Stage:
    """By the address of the pool it reaches another Redis, which has leased the same worker id."""
    stage = _stage(off)
    holder, heir = _two_pools(stage, "another")
    _cut_off(stage, holder, heir)
    return _both_make(stage, holder, heir)


@shows("the pool's id")
def a_lease_that_turns_out_to_be_of_another_pool(off: str | None) -> Stage:
    """Another Redis took the address over. As soon as it replies, what was taken over is given up, with its lanes."""
    stage = _stage(off)
    holder, heir = _two_pools(stage, "")
    return _another_pool_replies(stage, holder, heir, away_ms=2_000, lasts_ms=7_000)


@shows("the pool's id in a refusal")
def a_lease_that_another_pool_refuses(off: str | None) -> Stage:
    """Another Redis took the address over, whose pool has the same lanes and another ttl."""
    stage = _stage(off)
    dying = stage.killed()
    other = RedisModel(stage.world, "other")
    longer = replace(stage.config, ttl_ms=7_000)
    stage.configs.append(longer)
    host = Host(dying.host.name)
    holder = stage.process(Host("elsewhere"), config=longer)
    stage.network.strayed["elsewhere"] = other
    stage.do(holder, lambda process: process.store.create(stage.redis_now_ms))
    stage.open_outage_lanes(other)
    stage.make(holder)
    # this Redis was started again since: its lanes begin behind those that it may have lost
    other.restart(other.copy_data())
    stage.beat(holder)
    # two Redis servers are of two tables, so both may reserve the same
    stage.checker.failures.clear()
    return _another_pool_replies(stage, holder, stage.process(host), away_ms=3_000, lasts_ms=8_000)


def _another_pool_replies(stage: Stage, holder: Process, heir: Process, *, away_ms: int, lasts_ms: int) -> Stage:
    """Let *heir* take a lease over while no Redis replies for a time, then the one of *holder*, then none again."""
    stage.cut_off(heir)
    # no time of the holder is used: nobody can know yet
    stage.begin(heir, lambda process: process.make(1))
    stage.wait(away_ms)
    stage.network.strayed[heir.host.name] = stage.network.strayed["elsewhere"]
    stage.beat(heir)
    _cut_off(stage, holder, heir)
    stage.wait(lasts_ms)
    return _both_make(stage, holder, heir)


@shows("abandoned lease of a dead process")
def a_lease_that_is_taken_over_and_dropped(off: str | None) -> Stage:
    """The dead process was ahead in its outage lane. Who took over made no id, and does not know of these."""
    stage = _stage(off)
    dying = stage.process()
    began_ms = stage.redis_now_ms
    stage.set_clock(dying, began_ms + 20_000)
    # its other lanes end before its clock
    stage.make(dying)
    stage.cut_off(dying)
    stage.wait(1_000)
    stage.make(dying)
    del stage.network.strayed[dying.host.name]
    stage.set_clock(dying, stage.redis_now_ms)
    stage.beat(dying)
    dying.crash()
    dropping = stage.process(dying.host)
    stage.cut_off(dropping)
    stage.do(dropping, lambda process: process.generator.claim())
    del stage.network.strayed[dropping.host.name]
    stage.do(dropping, lambda process: process.lease_manager.abandon())
    third = stage.process()
    stage.wait(8_000)
    stage.make(third)
    stage.cut_off(third)
    for _ in range(16):
        stage.wait(1_000)
        stage.make(third)
    return stage


@shows("a lease of use")
def a_record_whose_lanes_open_in_a_day_beside_one_of_use(off: str | None) -> Stage:
    """After a loss, new leases have no outage lane for a day; one that was adopted has."""
    stage = Stage(off=off, outage_ms=RESERVE_MS, crash_records=True).with_pool()
    adopted = stage.process()
    host = adopted.host
    stage.make(adopted)
    stage.master.wipe()
    stage.beat(adopted)
    later = stage.process(host)
    stage.wait(7_000)
    for _ in range(3):
        stage.beat(adopted)
        stage.wait(1_000)
    stage.make(later)
    stage.beat(adopted)
    machines = _machines(stage)
    for process in (later, adopted):
        process.crash()
    # the one that is of no use is the first
    machines._pages = dict(reversed(machines._pages.items()))
    heir = stage.process(host)
    stage.cut_off(heir)
    # the ordinary reservations have ended
    stage.wait(7_000)
    stage.make(heir)
    if not stage.checker.made.get(heir.name):
        stage.checker.fail(f"no id for {heir.name} beside a record of use: {heir.errors}")
    return stage
