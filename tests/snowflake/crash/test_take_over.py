"""A process that starts while Redis is away takes over the lease of one of its machine that has ended."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.process.clock import now_ms
from snowredis.snowflake.crash import files as record_files
from snowredis.snowflake.crash.record import Credentials, read_page
from snowredis.snowflake.crash.sweep import UNANSWERED_S
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from tests.snowflake.crash.conftest import files_in
from tests.support.programs import start
from tests.support.servers import RedisServer
from tests.support.waiting import eventually
from tests.support.warm import FORKS_WITH_THREADS

pytestmark = pytest.mark.filterwarnings(FORKS_WITH_THREADS)

POOL, TTL_S = "orders", 2.0
# the namespace of the outage lane
OUT = Layout().namespaces - 1


class Program:
    """A process with a generator."""

    def __init__(self, url: str) -> None:
        self.process = start("tests.snowflake.crash.programs.makes_ids", url, POOL, str(TTL_S))

    def ask(self, line: str = "") -> str:
        """Return what the process prints: an id, or the name of an error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def id(self) -> int:
        return int(self.ask())

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(10)


Start = Callable[[], Program]


def leases_in(records: Path) -> list[Credentials]:
    """Return the leases that are recorded."""
    found = [read_page(path.read_bytes()) for path in files_in(records)]
    return [each for each in found if each and each.terms.lanes_ms]


@pytest.fixture
def program(own_server: RedisServer) -> Iterator[Start]:
    config = PoolConfig(name=POOL, ttl_ms=int(TTL_S * 1000), outage_reserve_ms=3_600_000)
    pool = snowredis.WorkerPool(own_server.url, POOL)
    pool.create(config)
    started: list[subprocess.Popen[str]] = []

    def begin() -> Program:
        begun = Program(own_server.url)
        started.append(begun.process)
        return begun

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_the_lease_of_a_killed_process_is_taken_over_once_and_kept_when_redis_is_back(
    own_server: RedisServer, program: Start
) -> None:
    killed = program()
    made = [killed.id() for _ in range(3)]
    worker = snowredis.decode(made[0]).worker
    own_server.kill()
    killed.end()
    heir, late = program(), program()
    made.append(heir.id())
    assert late.ask() == "StoreUnavailable"
    # longer than the reservation that the killed process had
    time.sleep(TTL_S + 1)
    made += [heir.id() for _ in range(3)]
    parts = [snowredis.decode(an_id) for an_id in made]
    assert [part.worker for part in parts] == [worker] * len(made)
    assert parts[-1].backup == OUT
    own_server.start()
    # empty: a new worker waits for the floor, and one that has an outage lane does not
    made += [heir.id() for _ in range(100)]
    pool = snowredis.WorkerPool(own_server.url, POOL)
    eventually(
        lambda: heir.process.pid in {each.pid for each in pool.workers()}, "a lease", ignored=(snowredis.PoolNotFound,)
    )
    made.append(heir.id())
    assert len(set(made)) == len(made)


def test_the_lease_of_a_process_that_could_not_release_it_is_taken_over(
    own_server: RedisServer, program: Start
) -> None:
    closed = program()
    an_id = closed.id()
    own_server.kill()
    assert closed.ask("close") == "done"
    heir = program()
    # the process may make ids with another generator, so it has to end first
    assert heir.ask() == "StoreUnavailable"
    closed.end()
    assert snowredis.decode(heir.id()).worker == snowredis.decode(an_id).worker


def test_a_lease_that_another_process_failed_to_release_is_taken_over_unless_it_may_be_released(
    own_server: RedisServer, program: Start
) -> None:
    killed, living = program(), program()
    worker = snowredis.decode(killed.id()).worker
    living.id()
    killed.end()
    own_server.kill()
    # the living process tries to release it at its heartbeats, and cannot connect
    time.sleep(TTL_S / 2)
    assert snowredis.decode(program().id()).worker == worker


@pytest.mark.parametrize(
    ("operation", "moment"), [("rename", "before"), ("rename", "after"), ("remove", "before"), ("write", "after")]
)
def test_a_lease_is_in_one_record_at_most_with_all_that_was_used_wherever_its_heir_is_killed(
    own_server: RedisServer, program: Start, records: Path, operation: str, moment: str
) -> None:
    """Else the lease would be released by one record, while a process that found the other makes ids."""
    killed = program()
    killed.id()
    own_server.kill()
    killed.end()
    # as if it had used the outage lane; the next heir has to know
    (path,), used_ms = files_in(records), now_ms()
    page = bytearray(path.read_bytes())
    memoryview(page).cast("q")[2] = used_ms
    path.chmod(0o600)
    path.write_bytes(page)
    dies = start(
        "tests.snowflake.crash.programs.dies_while_taking_over", own_server.url, POOL, str(TTL_S), operation, moment
    )
    assert dies.wait(30) == -signal.SIGKILL
    dies.communicate()
    left = leases_in(records)
    assert len({each.token for each in left}) == len(left)
    assert all(each.outage_used_ms >= used_ms for each in left)


def test_a_child_that_is_forked_while_its_parent_takes_a_lease_over_records_nothing(
    own_server: RedisServer, program: Start, records: Path
) -> None:
    """Else the lease would be released at the end of the child, while the parent makes ids."""
    killed = program()
    killed.id()
    own_server.kill()
    killed.end()
    forks = start("tests.snowflake.crash.programs.forks_while_taking_over", own_server.url, POOL, str(TTL_S))
    assert forks.stdout is not None
    assert forks.stdout.readline() == "the child has ended\n"
    assert len(leases_in(records)) == 1
    forks.communicate()


@pytest.mark.parametrize(
    ("command", "is_taken"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), True),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), True),
        (("HSET", pool_keys(POOL)[0], "version", "abc"), False),
        (("ACL", "SETUSER", "default", "-evalsha", "-eval"), False),
    ],
    ids=["replica", "too few replicas", "broken", "no permission"],
)
def test_a_lease_is_taken_over_while_redis_refuses_writes_unless_it_says_what_a_person_has_to_change(
    own_server: RedisServer, program: Start, command: tuple[str, ...], is_taken: bool
) -> None:
    killed = program()
    worker = snowredis.decode(killed.id()).worker
    own_server.client().execute_command(*command)
    killed.end()
    answer = program().ask()
    assert snowredis.decode(int(answer)).worker == worker if is_taken else answer == "StoreUnavailable"


def test_a_lease_is_taken_over_if_redis_goes_away_after_it_said_that_the_pool_is_full(
    own_server: RedisServer, program: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_ms, killed = now_ms(), program()
    worker = snowredis.decode(killed.id()).worker
    own_server.kill(signal.SIGSTOP)
    killed.end()
    # as if this process was a sibling of the one that it started
    monkeypatch.setattr(record_files, "parent_name", lambda own: own)
    ids = snowredis.connect(own_server.url, pool=POOL, ttl=TTL_S, outage_reserve=3600)
    refusals = [snowredis.PoolExhausted(POOL, 1, 0), snowredis.StoreUnavailable(POOL, "gone")]

    def refuse(*_: object) -> None:
        raise refusals.pop(0)

    monkeypatch.setattr(ids._lease_manager, "send_claim", refuse)
    monkeypatch.setattr(ids._lease_manager.dead_processes, "release", lambda *_, **__: 1)
    an_id = ids.next_id()
    failure = ids.renewal_failure
    assert failure is not None
    # when the process that was killed had its last reply
    assert began_ms <= failure[1] <= now_ms()
    own_server.kill(signal.SIGCONT)
    monkeypatch.undo()
    ids._beat()
    # what was sent before the first reply
    assert snowredis.WorkerPool(own_server.url, POOL).workers()[0].clock_offset_ms == 0
    assert (snowredis.decode(an_id).worker, refusals) == (worker, [])
    ids.close()


def test_starters_that_are_killed_in_a_redis_that_hangs_leave_few_files(
    own_server: RedisServer, program: Start, records: Path
) -> None:
    own_server.kill(signal.SIGSTOP)
    for _ in range(3):
        starter = program()
        assert starter.ask() == "StoreUnavailable"
        assert len(files_in(records)) == 1
        starter.end()
        (path,) = files_in(records)
        long_ago_s = time.time() - 2 * UNANSWERED_S
        os.utime(path, (long_ago_s, long_ago_s))
    own_server.kill(signal.SIGCONT)


def test_a_close_in_the_middle_of_a_close_leaves_the_lease_to_others_instead_of_releasing_it_too(
    own_server: RedisServer, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what is recorded may be taken over, so its outage lane must not go back to the pool as well
    pool = snowredis.WorkerPool(own_server.url, POOL)
    pool.create(PoolConfig(name=POOL))
    ids = snowredis.connect(own_server.url, pool=POOL)
    ids.next_id()
    send = ids._lease_manager._send_release

    def closed_by_a_handler(*arguments: Any) -> bool:
        ids.close()
        return send(*arguments)

    monkeypatch.setattr(ids._lease_manager, "_send_release", closed_by_a_handler)
    ids.close()
    assert [each.released for each in leases_in(records)] == [False]
    assert [each.worker for each in pool.workers()] == [0]
