"""Schedules that need the rules of take-over: whose lease it is that a starting process goes on with in an outage.

One worker id, ticks of 1 s, an outage lane of a minute, and machines with crash records. Every step of a take-over, and
what can be copied around it: the machine, the directory, the network, the Redis.
"""

from __future__ import annotations

from snowredis.snowflake.record_files import FileName
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
    family, _, text = name.rpartition("/")
    parsed = FileName.parse(text, family.partition(".")[0])
    assert parsed is not None
    page = machines._pages[f"{family}/{parsed._replace(number=number)}"] = Page(machines._pages[name])
    page.inode = number


def _cut_off(stage: Stage, *processes: Process) -> None:
    for process in processes:
        stage.cut_off(process)


def _both_make(stage: Stage, one: Process, two: Process) -> Stage:
    """Let both make ids at the same times, in outage lanes, as far as they have a lease."""
    for process in (one, two):
        stage.begin(process, lambda process: process.make(1))
    stage.wait(8_000)
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
    # the directory is the machine's, so the copy has the same inodes
    pages = dict(machines._pages)
    one = stage.process(ended.host)
    stage.cut_off(one)
    stage.begin(one, lambda process: process.make(1))
    stage.wait(2_000)
    machines._pages |= pages
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


def _two_pools(stage: Stage, network: str = "", service: str = "") -> tuple[Process, Process]:
    """Return a process of the other Redis, and one that starts beside it: there, both reach nothing any more.

    A process of the first Redis, which has the same address and the same worker id, was killed on their machine.
    """
    dying = stage.killed()
    stage.wait(2_000)
    other = RedisModel(stage.world, "other")
    host = Host(dying.host.name, network=network, service=service)
    holder = stage.process(Host("elsewhere"))
    for name in ("elsewhere", host.name):
        stage.network.strayed[name] = other
    stage.do(holder, lambda process: process.store.create(stage.redis_now_ms))
    stage.led_elsewhere = True
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


@shows("record's parent")
def a_process_of_another_service(off: str | None) -> Stage:
    """By the same address it reaches another Redis, as with a file of host names of its own."""
    stage = _stage(off)
    holder, heir = _two_pools(stage, service="another")
    _cut_off(stage, holder, heir)
    return _both_make(stage, holder, heir)


@shows("abandoned lease of a dead process")
def a_lease_that_is_taken_over_and_dropped(off: str | None) -> Stage:
    """The process that took the lease over made no id, and does not know which ticks the dead one used."""
    stage = _stage(off)
    dying, began_ms = stage.process(), stage.redis_now_ms
    stage.make(dying)
    stage.cut_off(dying)
    stage.wait(7_000)
    for _ in range(12):
        stage.make(dying)
        stage.wait(1_000)
    dying.crash()
    dropping = stage.process(dying.host)
    stage.beat(dropping)
    del stage.network.strayed[dropping.host.name]
    stage.do(dropping, lambda process: process.lease_manager.abandon())
    # where the clock is behind, the worker id is of use for times of before
    third = stage.process()
    stage.set_clock(third, began_ms + 6_500)
    stage.make(third)
    stage.cut_off(third)
    for _ in range(12):
        stage.make(third)
        stage.wait(1_000)
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
