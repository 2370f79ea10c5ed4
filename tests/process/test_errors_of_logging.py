"""A filter or a handler of the application's logging that raises at every call changes nothing."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import snowredis
from snowredis.integrations import gunicorn
from snowredis.process import coroutines
from snowredis.process.exit import ExitHook
from snowredis.process.fork import GUARD
from snowredis.process.log import Log, log
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.upkeep import heartbeat as heartbeats
from snowredis.snowflake.upkeep.heartbeat import Heartbeat
from snowredis.testing import ManualClock, memory_pool
from tests.support import warm
from tests.support.programs import finished
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


class Broken(logging.Handler):
    """Handler, or filter, that raises at every call; counts the calls."""

    def __init__(self, error: type[BaseException] = RuntimeError) -> None:
        super().__init__()
        self.error, self.calls = error, 0

    def emit(self, record: logging.LogRecord) -> None:
        self.filter(record)

    def handle(self, record: logging.LogRecord) -> bool:
        return self.filter(record)

    def filter(self, record: logging.LogRecord) -> bool:
        self.calls += 1
        raise self.error(f"no request for {record.msg}")


@pytest.fixture(autouse=True, scope="module")
def generator() -> Iterator[None]:
    """Make a generator, as every process has one that beats and forks."""
    with memory_pool().connect() as ids:
        assert ids.next_id()
        yield


@pytest.fixture(params=["filter", "handler"])
def broken(request: pytest.FixtureRequest) -> Iterator[Broken]:
    made, logger = Broken(), logging.getLogger("snowredis")
    level, logger.level = logger.level, logging.DEBUG
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    logger.addFilter(made) if request.param == "filter" else logger.addHandler(made)
    yield made
    logger.removeFilter(made)
    logger.removeHandler(made)
    logger.setLevel(level)


def test_a_line_that_cannot_be_logged_is_printed(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    log.warning("worker id %d is lost", 7)
    assert broken.calls == 1
    assert "worker id 7 is lost" in capsys.readouterr().err


def test_a_record_has_the_place_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("here")
    assert caplog.records[-1].funcName == "test_a_record_has_the_place_of_the_caller"


def test_an_error_of_a_signal_handler_goes_through_a_log_call() -> None:
    class TimeLimit(Exception):
        """Time limit of a job."""

    def end_job(*_: object) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, end_job)
    try:
        with pytest.raises(TimeLimit):
            Log(SimpleNamespace(log=lambda *_, **__: signal.raise_signal(signal.SIGALRM))).warning("any")
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("broken", ["handler"], indirect=True)
def test_a_handler_that_ends_the_program_does_so_in_the_main_thread_only(broken: Broken) -> None:
    broken.error = SystemExit
    with pytest.raises(SystemExit):
        log.critical("the end")
    ended: list[bool] = []

    def elsewhere() -> None:
        log.critical("no end")
        ended.append(False)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert ended == [False]


def test_a_generator_claims_renews_loses_and_releases_as_without_it(broken: Broken) -> None:
    clock = ManualClock()
    pool = memory_pool(clock=clock)
    with pool.connect() as ids:
        first = ids.next_id()
        ids._beat()
        clock.step(-5)
        assert ids.next_id() > first
        clock.step(-60_000)
        ids.next_id()
        clock.step(60_000)
        for store in pool._stores.values():
            store._records.clear()
        ids._beat()
        clock.advance(60_000)
        ids._beat()
        assert ids.next_id() > first
    assert broken.calls > 3
    with pool.connect() as other:
        other.next_id()


class BrokenOff(Exception):
    """Error of a library that the application uses."""


def test_the_heartbeat_thread_goes_on_whatever_a_beat_raises(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []

    class Beating:
        def _beat(self) -> float:
            beats.append(threading.get_ident())
            broken.error = errors[len(beats) % len(errors)]
            raise broken.error("somebody else's")

    # the last one: raised where its class is unknown, as by another thread
    errors: list[Any] = [ValueError, SystemExit, asyncio.CancelledError, Mock(side_effect=BrokenOff)]
    beating = Beating()
    heartbeat = Heartbeat(lambda: beating, lambda: None, GUARD)
    monkeypatch.setattr(heartbeats, "_AGAIN_S", 0.01)
    heartbeat.start(0.0, "beats")
    eventually(lambda: len(beats) > len(errors), "beats after errors")
    heartbeat.close()
    assert len(set(beats)) == 1
    assert broken.calls >= len(errors)


class Waiting(logging.Handler):
    """Handler that waits for a server of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.replies = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.replies.wait(30)


def test_the_heartbeat_goes_on_beside_a_handler_that_waits() -> None:
    beats = 0

    class Ids:
        def _beat(self) -> float:
            nonlocal beats
            beats += 1
            log.warning("Redis does not reply")
            return 0.01

    ids, waiting, logger = Ids(), Waiting(), logging.getLogger("snowredis")
    logger.addHandler(waiting)
    heartbeat = Heartbeat(lambda: ids, lambda: None, GUARD)
    try:
        heartbeat.start(0.0, "a heartbeat")
        eventually(lambda: beats > 2)
        assert not waiting.replies.is_set()
    finally:
        heartbeat.stop()
        waiting.replies.set()
        logger.removeHandler(waiting)
        heartbeat.join()


def test_the_heartbeat_goes_on_while_another_thread_imports_opentelemetry_and_is_not_traced_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    beats: list[int] = []
    attached: list[object] = []
    context: Any = ModuleType("opentelemetry.context")
    monkeypatch.setitem(sys.modules, "opentelemetry.context", context)

    class Beating:
        def _beat(self) -> float:
            beats.append(1)
            return 0.01

    beating = Beating()
    heartbeat = Heartbeat(lambda: beating, lambda: None, GUARD)
    heartbeat.start(0.0, "beats")
    eventually(lambda: beats, "beats during the import")
    context.set_value, context.attach = lambda *pair: pair, attached.append
    eventually(lambda: attached, "an attachment after the import")
    heartbeat.close()
    # other heartbeats of this process may log
    assert "the heartbeat failed" not in caplog.text
    assert attached[0] == ("suppress_instrumentation", True)


def test_all_generators_are_closed_at_exit_though_one_raises(broken: Broken) -> None:
    hook, closed = ExitHook(), []

    class Member:
        def __init__(self, raises: bool) -> None:
            self._raises = raises

        def close(self) -> None:
            closed.append(self)
            if self._raises:
                raise ValueError("cannot")

    members = [Member(True), Member(False), Member(True)]
    for member in members:
        hook._members.add(member)
    hook.close_all()
    assert len(closed) == 3
    assert broken.calls == 2


def test_one_thread_for_coroutines_goes_on_after_a_callback_that_raises(broken: Broken) -> None:
    def callback(_: Future[int]) -> None:
        raise ValueError("the loop is closed")

    logger = logging.getLogger("concurrent.futures")
    logger.addFilter(broken)
    try:
        future: Future[int] = Future()
        future.add_done_callback(callback)
        coroutines._finish(future, lambda: 7)
        assert future.result() == 7
    finally:
        logger.removeFilter(broken)
    assert asyncio.run(coroutines.OneThread().call(lambda: 8)) == 8


AT_EXIT = """
import logging, sys, snowredis
class Broken(logging.Filter):
    def filter(self, record): raise RuntimeError("Working outside of request context.")
logging.basicConfig(level=logging.DEBUG)
logging.getLogger().handlers[0].addFilter(Broken())
made = [snowredis.connect(sys.argv[1], pool="p", claim_timeout=5) for _ in range(3)]
for each in made: each.next_id()
print(len({each.lease.worker for each in made}))
"""


def test_a_hook_of_gunicorn_raises_nothing_if_the_log_of_its_worker_does(broken: Broken) -> None:
    worker = SimpleNamespace(log=SimpleNamespace(log=lambda *_, **__: 1 // 0), pid=os.getpid())
    gunicorn.post_worker_init(worker)


def test_leases_are_released_at_exit_beside_a_broken_logger(own_server: RedisServer) -> None:
    pool = snowredis.WorkerPool(own_server.url, "p")
    pool.create(PoolConfig(name="p"))
    done = finished("-c", AT_EXIT, own_server.url)
    assert done.stdout.split() == ["3"]
    assert done.returncode == 0
    assert pool.info().used == 0


AT_SIGTERM = """
import logging, signal, sys, threading, snowredis
class Locked(logging.Handler):
    lock_of_a_queue = threading.Lock()
    def emit(self, record):
        with self.lock_of_a_queue:
            if record.name == "app": signal.raise_signal(signal.SIGTERM)
logging.basicConfig(level=logging.DEBUG, handlers=[Locked()])
snowredis.close_on_sigterm()
ids = snowredis.connect(sys.argv[1], pool="p", claim_timeout=5)
ids.next_id()
logging.getLogger("app").warning("a line that SIGTERM interrupts")
"""


def test_sigterm_in_a_log_call_releases_the_lease_and_ends_the_process(own_server: RedisServer) -> None:
    pool = snowredis.WorkerPool(own_server.url, "p")
    pool.create(PoolConfig(name="p"))
    done = finished("-c", AT_SIGTERM, own_server.url)
    assert done.returncode == -signal.SIGTERM
    assert (pool.info().used, pool.info().died) == (0, 0)


def test_lines_of_a_signal_handler_are_logged_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    with log.kept():
        log.warning("first %d", 1)
        assert not caplog.records
        try:
            1 // 0  # noqa: B018 - raises
        except ZeroDivisionError:
            log.exception("second")
    eventually(lambda: len(caplog.records) == 2, "both lines")
    assert [record.getMessage() for record in caplog.records] == ["first 1", "second"]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.filterwarnings(warm.FORKS_WITH_THREADS)
def test_no_fork_is_in_the_middle_of_a_line_that_another_thread_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock of a file that is written to would stay locked in the child, which would hang at its first line."""
    monkeypatch.setattr("snowredis.process.log._LONGEST_WAIT_S", 10.0)
    of_file, is_writing, may_end = threading.Lock(), threading.Event(), threading.Event()

    def write(*_: object, **__: object) -> None:
        with of_file:
            is_writing.set()
            may_end.wait(5)

    with memory_pool().connect() as ids:
        log._logger, before = SimpleNamespace(log=write), log._logger
        try:
            thread = threading.Thread(target=log.info, args=("a line",))
            thread.start()
            is_writing.wait()
            # the fork waits for the line; it is written meanwhile
            threading.Timer(0.05, may_end.set).start()
            child = os.fork()
            if child == 0:
                os._exit(not of_file.acquire(blocking=False))
            assert os.waitpid(child, 0)[1] == 0
            thread.join()
            # afterwards, this process logs as before, without a wait
            log.info("another line")
            assert not log._lock._is_owned()  # type: ignore[attr-defined]
        finally:
            log._logger = before
        assert ids.next_id()
