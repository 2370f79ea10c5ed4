"""Schedules that need the rules of crash records: who counts as dead, and what a record says at every moment."""

from __future__ import annotations

from unittest import mock

from snowredis.snowflake import crash_record
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
            record.write_lease(held, process.generator._lifecycle.stats(), fresh=True)

    stage.do(process, lambda _: write())
    assert not process.alive


@shows("crash record's mark")
def a_process_that_dies_between_two_heartbeats(off: str | None) -> Stage:
    stage = one_worker_id(off)
    dying = stage.killed()
    # in the same tick, if it may
    heir_of(stage, dying)
    return stage


@shows("crash record's row")
def a_process_that_dies_while_it_records_a_fresh_lease(off: str | None) -> Stage:
    """Marks of a fresh lease are 0, and those of the lease before it must last until it is recorded."""
    stage = one_worker_id(off)
    host = stage.new_host()
    for count in (1, 2, 3):
        dying = stage.process(host)
        stage.make(dying)
        kill_while_writing(stage, dying, count)
        # in the same tick
        heir_of(stage, dying).crash()
        stage.wait(1_000)
    return stage


@shows("crash record's text")
def a_process_that_dies_while_it_replaces_the_text(off: str | None) -> Stage:
    stage = one_worker_id(off)
    dying = stage.process()
    stage.make(dying)
    record = dying.lease_manager.slot.record
    assert isinstance(record, crash_record.CrashRecord)
    kill_while_writing(stage, dying, 3)
    # half of it had been written
    record._texts[record._side ^ 1 if off is None else record._side][:100] = bytes(100)
    heir_of(stage, dying)
    return stage


@shows("crash record's namespace")
def a_process_of_another_container(off: str | None) -> Stage:
    """Its pid is not used where somebody looks for the dead."""
    stage = one_worker_id(off)
    living, other = stage.process(), stage.process()
    stage.make(living)
    stage.make(other)
    stage.make(living, other)
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
    (name,) = map(FileName.parse, machines.names())
    assert name is not None
    machines.rename(str(name), str(name._replace(taker=machines.name_of(second))))
    second.crash()
    heir_of(stage, dying)
    return stage


def killed_before_an_outage(off: str | None, *, tick_ms: int = 1000) -> tuple[Stage, list[Process]]:
    """Return two processes of a machine that cannot reach Redis, on which one that had a lease was killed."""
    stage = one_worker_id(off, tick_ms=tick_ms)
    dying = stage.killed()
    heirs = [stage.process(dying.host) for _ in range(2)]
    stage.cut_off(heirs[0])
    return stage, heirs


@shows("take-over by one")
def two_processes_that_start_in_an_outage(off: str | None) -> Stage:
    stage, heirs = killed_before_an_outage(off)
    stage.wait(1_000)
    for heir in heirs:
        stage.begin(heir, lambda process: process.make(1))
    stage.wait(3_000)
    return stage


@shows("take-over with its marks")
def a_process_that_starts_in_an_outage(off: str | None) -> Stage:
    # it has its lease in the same tick
    stage, heirs = killed_before_an_outage(off, tick_ms=4_000)
    stage.make(heirs[0])
    return stage


@shows("no take-over after a release")
def a_release_whose_reply_is_lost_before_an_outage(off: str | None) -> Stage:
    stage = one_worker_id(off)
    closing = stage.process()
    stage.make(closing)
    stage.network.deafen(closing, 3_000_000)
    stage.do(closing, lambda process: process.generator.close())
    closing.crash()
    return _heir_beside_another(stage, closing)


@shows("no take-over after a release for the dead")
def a_release_for_a_dead_process_whose_reply_is_lost_before_an_outage(off: str | None) -> Stage:
    stage = one_worker_id(off)
    dying = stage.killed()
    sweeping = stage.process(dying.host)
    stage.network.deafen(sweeping, 3_000_000)
    stage.do(sweeping, lambda process: process.lease_manager.dead_processes.release(1, lambda talk: talk()))
    sweeping.crash()
    return _heir_beside_another(stage, dying)


def _heir_beside_another(stage: Stage, ended: Process) -> Stage:
    """Let a process have the worker id that was released, while one starts where it was used before."""
    other, heir = stage.process(), stage.process(ended.host)
    stage.cut_off(heir)
    stage.begin(heir, lambda process: process.make(1))
    for _ in range(6):
        stage.make(other)
        stage.wait(500)
    return stage
