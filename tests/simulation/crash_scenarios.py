"""Schedules that need the rules of crash records: who counts as dead, and what a record says at every moment."""

from __future__ import annotations

from unittest import mock

from snowredis.snowflake import crash_record
from snowredis.snowflake.crash_record import Credentials
from snowredis.snowflake.record_files import FileName
from tests.simulation.process import Process
from tests.simulation.scenarios import shows
from tests.simulation.stage import Stage
from tests.simulation.stand_ins import Host


def one_worker_id(off: str | None, *, tick_ms: int = 1000) -> Stage:
    return Stage(off=off, worker_bits=0, crash_records=True, tick_ms=tick_ms).with_pool()


def heir_of(stage: Stage, *dead: Process, host: Host | None = None) -> Process:
    """Let a process on the same machine make ids, which it can if what the dead left is released."""
    heir = stage.process(host or dead[0].host)
    stage.make(heir, count=2)
    if not stage.checker.made.get(heir.name):
        stage.checker.fail(f"no worker id for {heir.name}: {heir.errors}")
    return heir


class KilledAt:
    """Fork guard of crash_record.py: kills the process when it is asked for the *count*-th time."""

    def __init__(self, process: Process, count: int) -> None:
        self._process, self._left = process, count

    @property
    def is_reset(self) -> bool:
        self._left -= 1
        if not self._left:
            self._process.crash()
        return True


def kill_while_writing(stage: Stage, process: Process, count: int) -> None:
    """Let a process claim another worker id, for itself, and die before the *count*-th store into its record."""

    def write() -> None:
        held, record = process.lease_manager.held, process.lease_manager.slot.record
        assert held is not None
        assert record is not None
        with mock.patch.object(crash_record, "GUARD", KilledAt(process, count)):
            record.write(Credentials.of_lease(held, process.generator._lifecycle.stats()))

    stage.do(process, lambda _: write())
    assert not process.alive


@shows("crash record's text")
def a_process_that_dies_while_it_replaces_the_text(off: str | None) -> Stage:
    stage = one_worker_id(off)
    dying = stage.process()
    stage.make(dying)
    record = dying.lease_manager.slot.record
    assert isinstance(record, crash_record.CrashRecord)
    kill_while_writing(stage, dying, 2)
    # half of it had been written
    record._texts[record._side ^ 1 if off is None else record._side][:100] = bytes(100)
    heir_of(stage, dying)
    return stage


@shows("crash record's namespace")
def a_process_of_another_container(off: str | None) -> Stage:
    """Its pid is not used where somebody looks for the dead."""
    stage = with_outage_lane(off)
    living, other = stage.process(), stage.process()
    stage.make(living)
    for process in (living, other):
        stage.cut_off(process)
    stage.wait(7_000)
    stage.begin(other, lambda process: process.make(1))
    stage.wait(1_000)
    stage.make(living)
    stage.make(other)
    return stage


@shows("crash record's start")
def a_pid_that_is_used_again(off: str | None) -> Stage:
    stage = one_worker_id(off)
    dying = stage.process()
    stage.make(dying)
    assert stage.machines is not None
    pid = stage.machines.name_of(dying).pid
    dying.crash()
    # until one of them has it
    while stage.machines.name_of(stage.process(dying.host)).pid != pid:
        pass
    heir_of(stage, dying)
    return stage


@shows("crash record taken over")
def a_process_that_dies_while_it_releases_a_lease(off: str | None) -> Stage:
    stage = one_worker_id(off)
    dying = stage.killed()
    machines = stage.machines
    assert machines is not None
    second = stage.process(dying.host)
    (path,) = machines.names()
    family, _, text = path.rpartition("/")
    name = FileName.parse(text, family.partition(".")[0])
    assert name is not None
    machines.rename(path, f"{family}/{name._replace(taker=machines.name_of(second))}")
    second.crash()
    heir_of(stage, dying)
    return stage


def with_outage_lane(off: str | None, *, tick_ms: int = 1000) -> Stage:
    return Stage(off=off, worker_bits=0, outage_ms=60_000, crash_records=True, tick_ms=tick_ms).with_pool()


def killed_in_an_outage(off: str | None, *, tick_ms: int = 1000) -> tuple[Stage, list[Process]]:
    """Return two processes of a machine that cannot reach Redis. There, one was killed that made ids meanwhile."""
    stage = with_outage_lane(off, tick_ms=tick_ms)
    dying = stage.process()
    stage.make(dying)
    stage.cut_off(dying)
    # its other lanes end
    stage.wait(9_000)
    stage.make(dying)
    dying.crash()
    return stage, [stage.process(dying.host) for _ in range(2)]


@shows("take-over by one")
def two_processes_that_start_in_an_outage(off: str | None) -> Stage:
    stage, heirs = killed_in_an_outage(off)
    stage.wait(1_000)
    for heir in heirs:
        stage.begin(heir, lambda process: process.make(1))
    stage.wait(3_000)
    return stage


@shows("take-over behind what was used", "outage lane's use on record")
def a_process_that_starts_in_an_outage(off: str | None) -> Stage:
    # it has the lease in the same tick
    stage, heirs = killed_in_an_outage(off, tick_ms=4_000)
    stage.make(heirs[0])
    return stage


@shows("no take-over after a release")
def a_release_whose_reply_is_lost_before_an_outage(off: str | None) -> Stage:
    """Redis has leased the worker id again, with the outage lane of the process that released it."""
    stage = with_outage_lane(off)
    closing = stage.process()
    stage.make(closing)
    stage.network.deafen(closing, 3_000_000)
    stage.do(closing, lambda process: process.generator.close())
    closing.crash()
    other, heir = stage.process(), stage.process(closing.host)
    stage.make(other)
    for process in (other, heir):
        stage.cut_off(process)
    stage.wait(7_000)
    for _ in range(3):
        stage.make(other, heir)
        stage.wait(1_000)
    return stage
