"""A parent gives the worker id of a killed child back, with the marks that were really used."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.process.clock import StepClock
from snowredis.snowflake import crash_record as credentials
from snowredis.snowflake import reclaimer
from snowredis.snowflake.crash_record import GENERATORS, CrashRecords
from snowredis.snowflake.lease import THIS
from snowredis.snowflake.open import open_store
from snowredis.snowflake.protocol import PoolConfig
from tests.support.pools import new_pool
from tests.support.programs import FORKS_WITH_THREADS
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.filterwarnings(FORKS_WITH_THREADS)

ONE_WORKER = Layout(timestamp_bits=41, backup_bits=2, worker_bits=0, sequence_bits=10)


def give_back(lease: dict[str, Any]) -> None:
    """Release *lease* as a reclaimer does, in one attempt."""
    with contextlib.closing(reclaimer.Backlog()) as backlog:
        backlog.add([lease], os.getppid())
        backlog.give_back()
        assert not backlog


class Child:
    """A forked process that adopts *crash_records* and then does what it is told, until it is killed.

    Attributes:
        numbers: 64-bit numbers that both see.
    """

    def __init__(self, crash_records: CrashRecords, work: Callable[[memoryview], object]) -> None:
        self.crash_records = crash_records
        self.numbers = memoryview(mmap.mmap(-1, 4096)).cast("q")
        self.pid = os.fork()
        if not self.pid:
            try:
                crash_records.adopt()
                THIS.crash_records = crash_records
                work(self.numbers)
            except BaseException:  # noqa: BLE001 - shown, and the child ends in any case
                traceback.print_exc()
            finally:
                os._exit(0)

    def wait_for(self, index: int, at_least: int) -> None:
        eventually(lambda: self.numbers[index] >= at_least, "work of the child", 20)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def child(work: Callable[[memoryview], object]) -> Iterator[Child]:
    running = Child(CrashRecords(), work)
    try:
        yield running
    finally:
        with contextlib.suppress(ChildProcessError):
            running.kill()


@pytest.fixture
def url(server: RedisServer) -> str:
    return server.url


SETTINGS: dict[str, Any] = {"layout": ONE_WORKER, "ttl": 3.0, "max_clock_lead": 0.1, "redis_skew": 0.1}


def connect(url: str, **options: Any) -> snowredis.Generator:
    return snowredis.connect(url, pool="killed", **SETTINGS | options)


def create(url: str, **options: Any) -> None:
    new_pool(url, "killed", **SETTINGS | options)


def make_ids(url: str, **options: object) -> Callable[[memoryview], object]:
    def work(numbers: memoryview) -> None:
        ids = connect(url, **options)
        while True:
            numbers[0] = ids.next_id()
            numbers[1] += 1

    return work


def test_the_only_worker_id_is_of_use_again_at_once_and_repeats_nothing(
    url: str, server: RedisServer
) -> None:
    create(url)
    rng = random.Random(11)
    last = 0
    for _ in range(15):
        with child(make_ids(url)) as dying:
            dying.wait_for(1, 1)
            # somewhere in a tick, in a claim, in a renewal
            time.sleep(rng.random() * 0.02)
            dying.kill()
            assert dying.numbers[0] > last
            last = dying.numbers[0]
            (lease,) = dying.crash_records.read()
            assert lease["marks_ms"][0] >= ONE_WORKER.decode(last).timestamp_ms + 1
            give_back(lease)
    with connect(url) as heir:
        assert heir.next_id() > last


def test_a_namespace_that_was_used_is_given_back_with_its_own_mark(url: str) -> None:
    create(url)

    def step_back(numbers: memoryview) -> None:
        clock = StepClock()
        ids = connect(url, clock=clock)
        numbers[0] = ids.next_id()
        clock.step(-500)
        numbers[1] = ids.next_id()
        numbers[2] = 1
        signal.pause()

    with child(step_back) as dying:
        dying.wait_for(2, 1)
        dying.kill()
        (lease,) = dying.crash_records.read()
        first, second = (ONE_WORKER.decode(an_id) for an_id in dying.numbers[:2])
        assert first.backup != second.backup
        assert lease["marks_ms"][first.backup] == first.timestamp_ms + 1
        assert lease["marks_ms"][second.backup] == second.timestamp_ms + 1
        assert sum(1 for mark in lease["marks_ms"] if mark) == 2


def test_renewals_are_recorded_so_that_the_tip_is_right(url: str) -> None:
    create(url)

    def renew(numbers: memoryview) -> None:
        ids = connect(url)
        ids.claim()
        for _ in range(3):
            ids._beat()
        numbers[0] = 1
        signal.pause()

    with child(renew) as dying:
        dying.wait_for(0, 1)
        dying.kill()
        for lease in dying.crash_records.read():
            give_back(lease)
        assert snowredis.WorkerPool(url, "killed").workers() == []


def test_nothing_is_left_of_a_generator_that_was_closed(url: str) -> None:
    create(url, layout=Layout())

    def close_one(numbers: memoryview) -> None:
        closed = connect(url, layout=Layout())
        closed.next_id()
        closed.close()
        kept = connect(url, layout=Layout())
        kept.next_id()
        numbers[0] = 1
        signal.pause()

    with child(close_one) as dying:
        dying.wait_for(0, 1)
        dying.kill()
        assert len(dying.crash_records.read()) == 1
        assert dying.crash_records.read() == []


def test_more_generators_than_there_is_room_for_go_without(url: str) -> None:
    create(url, layout=Layout())

    def make_many(numbers: memoryview) -> None:
        many = [connect(url, layout=Layout()) for _ in range(GENERATORS + 2)]
        numbers[0] = sum(ids.next_id() > 0 for ids in many)
        signal.pause()

    with child(make_many) as dying:
        dying.wait_for(0, GENERATORS + 2)
        dying.kill()
        assert len(dying.crash_records.read()) == GENERATORS


def test_room_is_used_again_of_generators_that_were_dropped_or_could_not_release(url: str) -> None:
    records, store = CrashRecords(), open_store(url, PoolConfig(name="killed", layout=ONE_WORKER))
    records.adopt()
    kept = records.new_record(store)
    assert kept is not None
    kept.write_claim("1a" * 16, "{}")
    for _ in range(GENERATORS):
        dropped = records.new_record(store)
        assert dropped is not None
        del dropped
    for number in range(GENERATORS):
        unanswered = records.new_record(store)
        assert unanswered is not None
        assert unanswered.read() is None
        unanswered.write_claim(f"{number:032x}", "{}")
        unanswered.give_up()
    assert {lease["token"] for lease in records.read()} == {
        "1a" * 16,
        *(f"{number:032x}" for number in range(1, GENERATORS)),
    }


def test_a_childs_own_child_writes_nothing_down(url: str) -> None:
    create(url, layout=Layout())

    def fork_again(numbers: memoryview) -> None:
        ids = connect(url, layout=Layout())
        numbers[0] = ids.next_id()
        if not os.fork():
            numbers[1] = ids.next_id()
            numbers[2] = ids.decode(numbers[1]).worker
            os._exit(0)
        os.wait()
        numbers[3] = 1
        signal.pause()

    with child(fork_again) as dying:
        dying.wait_for(3, 1)
        dying.kill()
        (lease,) = dying.crash_records.read()
        assert lease["worker"] == Layout().decode(dying.numbers[0]).worker != dying.numbers[2]


def test_a_will_is_of_no_use_for_a_lease_that_somebody_else_has_by_now(url: str) -> None:
    create(url)

    with child(make_ids(url)) as dying:
        dying.wait_for(1, 1)
        dying.kill()
        (lease,) = dying.crash_records.read()
        give_back(lease)
        with connect(url) as heir:
            before = heir.claim()
            give_back(lease)
            assert heir._beat() > 0
            assert heir.lease is not None
            assert heir.lease.token_hash == before.token_hash


def test_one_reclaimer_gives_back_what_several_processes_left_at_about_the_same_time(url: str) -> None:
    create(url, layout=Layout())
    left = []
    for _ in range(3):
        with child(make_ids(url, layout=Layout())) as dying:
            dying.wait_for(1, 1)
            dying.kill()
            left.append(dying.crash_records.read())
    process = reclaimer.Reclaimer()
    assert all(map(process.take, left))
    process.close()
    assert process.process.wait(20) == 0
    assert snowredis.WorkerPool(url, "killed").workers() == []


def test_a_reclaimer_that_has_ended_takes_no_more() -> None:
    process = reclaimer.Reclaimer()
    assert process.process.wait(20) == 0
    assert not process.take([{}])
    assert not process.take([{}])


def test_a_reclaimer_takes_what_was_sent_before_it_decided_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    shutdown, taken = socket.socket.shutdown, []

    def send_then_shut_down(mailbox: socket.socket, how: int) -> None:
        ours.send(b'{"parent": 1, "leases": ["last"]}\n')
        shutdown(mailbox, how)

    monkeypatch.setattr(socket.socket, "shutdown", send_then_shut_down)
    monkeypatch.setattr(reclaimer.Backlog, "add", lambda self, leases, parent: taken.extend(leases))
    monkeypatch.setattr(reclaimer, "LINGER_S", 0.0)
    with ours, theirs:
        reclaimer.serve(theirs)
        assert taken == ["last"]
        with pytest.raises(BrokenPipeError):
            ours.send(b"more")


def test_leases_of_a_redis_that_is_away_do_not_delay_those_of_another_one(tmp_path: Path, url: str) -> None:
    create(url)
    config = PoolConfig(name="away", ttl_ms=600_000)
    common = credentials.of_store(open_store([f"unix://{tmp_path}/no.sock"], config))
    lost = common | credentials.of_claim("5a" * 16, "{}") | {"marks_ms": (0,) * 4}
    with child(make_ids(url)) as dying, contextlib.closing(reclaimer.Backlog()) as backlog:
        dying.wait_for(1, 1)
        dying.kill()
        backlog.add([lost, *dying.crash_records.read(), lost], os.getppid())
        backlog.give_back()
        assert snowredis.WorkerPool(url, "killed").workers() == []
        assert backlog


def test_a_damaged_page_is_no_reason_to_stop(caplog: pytest.LogCaptureFixture) -> None:
    crash_records = CrashRecords()
    crash_records.adopt()
    config = PoolConfig(name="damaged")
    record = crash_records.new_record(open_store(["redis://localhost"], config))
    assert record is not None
    record.write_claim("5a" * 16, "{}")
    record._texts[record._turn][:4] = b"\xff\xfe{["
    assert crash_records.read() == []
    assert "could not read the crash record of a killed process" in caplog.text


@pytest.mark.parametrize("answered", [True, False], ids=["after", "before"])
def test_a_claim_that_was_not_answered_is_given_back_too(url: str, answered: bool) -> None:
    create(url)

    def die_in_the_claim(numbers: memoryview) -> None:
        ids = connect(url)
        store = ids._lease_manager.store
        claim = store.claim

        def interrupted(*arguments: Any) -> Any:
            if answered:
                claim(*arguments)
            numbers[0] = 1
            signal.pause()

        store.claim = interrupted  # type: ignore[assignment, method-assign]
        ids.claim()

    with child(die_in_the_claim) as dying:
        dying.wait_for(0, 1)
        dying.kill()
        (lease,) = dying.crash_records.read()
        give_back(lease)
    with connect(url) as heir:
        assert heir.next_id() > 0


def test_a_claim_that_is_refused_leaves_nothing_to_give_back(url: str) -> None:
    create(url)

    def be_refused(numbers: memoryview) -> None:
        with pytest.raises(snowredis.PoolExhausted):
            connect(url, claim_timeout=0).claim()
        numbers[0] = 1
        signal.pause()

    with connect(url) as holder:
        holder.claim()
        with child(be_refused) as dying:
            dying.wait_for(0, 1)
            dying.kill()
            assert dying.crash_records.read() == []


def test_a_reclaimer_whose_parent_has_ended_gives_up_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaimer, "ORPHAN_S", 0.1)
    config = PoolConfig(name="away", ttl_ms=600_000)
    store = open_store([f"unix://{tmp_path}/no.sock"], config)
    lease = credentials.of_store(store) | credentials.of_claim("5a" * 16, "{}") | {"marks_ms": (0,) * 4}
    read_end, write_end = os.pipe()
    parent = os.fork()
    if not parent:
        parent = os.getpid()
        if not os.fork():
            backlog = reclaimer.Backlog()
            backlog.add([lease], parent)
            while backlog:
                backlog.give_back()
            os.write(write_end, b"gave up")
        os._exit(0)
    os.close(write_end)
    os.waitpid(parent, 0)
    with os.fdopen(read_end, "rb") as pipe:
        # the end of the pipe is the end of the reclaimer
        assert pipe.read() == b"gave up"
