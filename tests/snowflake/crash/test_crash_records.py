"""A crash record has what another process needs to release a lease, and says how its process ended."""

import contextlib
import ctypes
import faulthandler
import functools
import multiprocessing
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import pytest

import snowredis
from snowredis.process.clock import now_ms
from snowredis.process.exit import End
from snowredis.snowflake.crash import record as crash_record
from snowredis.snowflake.crash.record import PAGE_BYTES, CrashRecord, Credentials, read_page
from snowredis.snowflake.crash.sweep import release_dead
from snowredis.snowflake.protocol.messages import NO_TERMS, Terms
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.snowflake.crash.conftest import ONE, TTL_S, Owned, child, config_of, connect, files_in
from tests.support.pools import new_pool
from tests.support.programs import run, start
from tests.support.servers import RedisServer
from tests.support.warm import FORKS_WITH_THREADS

pytestmark = pytest.mark.filterwarnings(FORKS_WITH_THREADS)


def left_in(records: Path) -> list[Credentials]:
    """Return the credentials in the records of processes that are dead."""
    pages = [file.read_bytes() for file in files_in(records)]
    return [written for written in map(read_page, pages) if written]


def release_of(url: str, pool: str, lease: Credentials, ttl_s: float = TTL_S) -> None:
    """Release *lease* as a sweep does."""
    with contextlib.closing(RedisStore(url, config_of(pool, ttl_s))) as store:
        release_dead(store, lease, now_ms())


@pytest.fixture
def url(server: RedisServer) -> str:
    return server.url


@pytest.mark.parametrize("answered", [True, False], ids=["after", "before"])
def test_a_claim_that_was_not_answered_is_released_too(url: str, pool: str, records: Path, answered: bool) -> None:
    def die_in_the_claim(numbers: memoryview) -> None:
        ids = connect(url, pool)
        store = ids._lease_manager.store
        ask = store.ask

        def interrupted(request: Any) -> Any:
            if answered:
                ask(request)
            numbers[0] = 1
            signal.pause()

        store.ask = interrupted  # type: ignore[method-assign]
        ids.claim()

    with child(die_in_the_claim) as dying:
        dying.wait_for(0, 1)
        dying.kill()
        (lease,) = left_in(records)
        release_of(url, pool, lease)
    with connect(url, pool) as heir:
        assert heir.next_id() > 0


def test_a_claim_that_could_not_reach_redis_leaves_nothing_to_release(
    records: Path, tmp_path: Path, server: RedisServer
) -> None:
    def fail(url: str) -> None:
        ids = connect(url, "away")
        with pytest.raises(snowredis.StoreUnavailable):
            ids.claim()

    # nobody listens; a server that accepts and never replies may have leased a worker id
    fail(f"unix://{tmp_path}/no.sock")
    assert left_in(records) == []
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(f"{tmp_path}/mute.sock")
        mute.listen()
        ids = connect(f"unix://{tmp_path}/mute.sock", "away")
        with pytest.raises(snowredis.StoreUnavailable):
            ids.claim()
        assert [lease.terms for lease in left_in(records)] == [NO_TERMS]


def test_a_claim_that_redis_never_saw_is_no_death(url: str, pool: str, records: Path) -> None:
    release_of(url, pool, Credentials("5a" * 16, owner="{}"))
    info = snowredis.WorkerPool(url, pool).info()
    assert (info.died, info.expired, info.releases) == (0, 0, 1)


def _exits(_: object) -> None:
    os._exit(0)


def _gets_sigterm(_: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()


ENDS: dict[str, tuple[Callable[[object], None], End]] = {
    "os._exit": (_exits, End.OS_EXIT),
    # ended before Python code ran
    "SIGTERM": (_gets_sigterm, End.KILLED),
    "SIGKILL": (lambda _: os.kill(os.getpid(), signal.SIGKILL), End.KILLED),
    "crash": (lambda _: os.kill(os.getpid(), signal.SIGSEGV), End.KILLED),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("handled", [False, True], ids=["", "with a handler"])
def test_a_record_says_how_its_process_ended(url: str, pool: str, records: Path, how: str, handled: bool) -> None:
    end, code = ENDS[how]

    def stop(number: int, _: object) -> None:
        # as uvicorn ends after a signal
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    def work(_: object) -> None:
        faulthandler.disable()
        if handled:
            signal.signal(signal.SIGTERM, stop)
        ids = connect(url, pool)
        ids.next_id()
        if not os.fork():
            # this is not the process of the record
            os._exit(0)
        os.wait()
        end(None)

    with child(work) as dying:
        _, status = os.waitpid(dying.pid, 0)
        if how == "SIGTERM":
            assert os.WTERMSIG(status) == signal.SIGTERM
        (lease,) = left_in(records)
        assert End(lease.end) is code
    release_of(url, pool, lease)
    info = snowredis.WorkerPool(url, pool).info()
    assert (info.died, info.expired) == (code is End.KILLED, 0)


@pytest.mark.parametrize("how", ["exit", "close_on_sigterm"])
def test_an_exit_while_redis_is_away_is_no_death(own_server: RedisServer, records: Path, how: str) -> None:
    # the exit waits for Redis for seconds, and the lease is not to end by itself meanwhile
    ttl_s = 20.0
    pool = new_pool(own_server.url, layout=ONE, ttl=ttl_s)
    pid = own_server.client().info()["process_id"]
    program = start("tests.snowflake.crash.programs.ends_while_redis_is_away", own_server.url, pool, str(pid), how)
    _, errors = program.communicate(timeout=60)
    assert (errors, program.returncode) == ("", 0 if how == "exit" else -signal.SIGTERM)
    own_server.kill(signal.SIGCONT)
    (lease,) = left_in(records)
    assert End(lease.end) is (End.EXIT if how == "exit" else End.SIGTERM)
    release_of(own_server.url, pool, lease, ttl_s)
    info = snowredis.WorkerPool(own_server.url, pool).info()
    assert (info.died, info.expired) == (0, 0)


def test_the_lease_of_a_generator_that_an_exit_handler_makes_is_no_death(url: str, pool: str, records: Path) -> None:
    run("tests.snowflake.crash.programs.makes_a_generator_at_exit", url, pool)
    (lease,) = left_in(records)
    assert End(lease.end) is End.EXIT
    release_of(url, pool, lease)
    info = snowredis.WorkerPool(url, pool).info()
    assert (info.claims, info.died, info.releases) == (2, 0, 2)


def c_handlers() -> list[int]:
    """Return the address of the handler of each signal, which is the first member of struct sigaction."""
    libc, action = ctypes.CDLL(None), ctypes.create_string_buffer(512)
    addresses = []
    for number in sorted(signal.valid_signals()):
        assert libc.sigaction(int(number), None, action) == 0
        addresses.append(ctypes.c_size_t.from_buffer(action).value)
    return addresses


@pytest.mark.parametrize("before", [signal.SIG_DFL, lambda *_: None])
def test_no_signal_gets_another_handler(url: str, before: Any) -> None:
    """A program that has generators reacts to signals as it did before, also in C."""
    name = new_pool(url)

    def work(numbers: memoryview) -> None:
        signal.signal(signal.SIGTERM, before)
        was = c_handlers()
        generators = [snowredis.connect(url, pool=name) for _ in range(2)]
        for ids in generators:
            ids.next_id()
        now = c_handlers()
        generators[0].close()
        numbers[0] = 1 if now == was else 2

    with child(work) as running:
        running.wait_for(0, 1)
        assert running.numbers[0] == 1


def test_os_exit_can_be_sent_to_another_process(url: str, pool: str) -> None:
    with connect(url, pool) as ids:
        ids.next_id()
        assert pickle.loads(pickle.dumps(os._exit)) is os._exit
    ending = multiprocessing.get_context("spawn").Process(target=os._exit, args=(3,))
    ending.start()
    ending.join(20)
    assert ending.exitcode == 3


def test_a_kill_between_any_two_steps_of_a_writing_leaves_a_valid_record() -> None:
    page = memoryview(bytearray(PAGE_BYTES))
    claim = Credentials("5a" * 16, owner='{"host":"h"}')
    lease = Credentials("5a" * 16, Terms(7, 10**12, 0, "1-ab", "ab" * 16, (10**11,) * 4))
    pending = lease._replace(pending_renewal_id="cd" * 16)
    used = lease._replace(outage_used_ms=10**12)
    writings: list[tuple[Callable[[CrashRecord], object], list[Credentials | None]]] = [
        (lambda record: record.write(claim), [None, claim]),
        (lambda record: record.write(lease), [claim, lease]),
        (lambda record: record.write(pending), [lease, pending]),
        (lambda record: record.write(lease), [pending, lease]),
        (lambda record: record.note_outage_use(10**12), [lease, used]),
        (lambda record: record.note_release(None, sent=True), [used, used._replace(released=True)]),
        (lambda record: record.clear(), [used._replace(released=True), None]),
    ]
    record, steps = CrashRecord(Owned(), page), 0
    for writing, allowed in writings:
        assert record.read() == allowed[0]
        left = pages_at_each_step(page, functools.partial(writing, record))
        assert {read_page(each) for each in left} <= {*allowed}
        assert record.read() == allowed[-1]
        steps += len(left)
    assert steps > 200


def pages_at_each_step(page: memoryview, work: Callable[[], object]) -> list[bytes]:
    """Return what *page* has before each instruction of crash_record.py in *work*: what a kill at it leaves."""
    pages: list[bytes] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != crash_record.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            pages.append(bytes(page))
        return trace

    sys.settrace(trace)
    work()
    sys.settrace(None)
    return pages


def test_a_record_that_an_interruption_left_half_made_gives_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = Mock()
    monkeypatch.setattr(CrashRecord, "give_up", given_up)
    record = CrashRecord.__new__(CrashRecord)
    record.__del__()
    given_up.assert_not_called()
