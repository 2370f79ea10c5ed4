"""Errors that a signal handler raises in the middle of a call, as the time limits of rq and celery do."""

import functools
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import snowredis
from snowredis.errors import StoreUnavailable
from snowredis.process.threads import is_interruption
from snowredis.snowflake.crash.sweep import DeadProcesses
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.protocol.messages import ReleaseRequest
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.testing import ManualClock, MemoryPool


class JobTimeout(Exception):
    """An Exception of no class of Python's, as rq's JobTimeoutException and celery's SoftTimeLimitExceeded."""


class JobOSError(OSError):
    """An error that redis-py takes for one of the network."""


def named(kind: type[Exception], _number: int, _frame: Any) -> None:
    raise kind("the job took too long")


def starred(kind: type[Exception], *_: Any) -> None:
    raise kind("the job took too long")


@dataclass
class Limit:
    """A handler with a state, as rq's: a method, or an object that can be called."""

    kind: type[Exception]

    def __call__(self, *_: Any) -> None:
        raise self.kind("the job took too long")

    def handle(self, _number: int, frame: Any) -> None:
        del frame
        raise self.kind("the job took too long")


def a_method(kind: type[Exception]) -> Callable[..., None]:
    return Limit(kind).handle


# handlers of each form, and errors of each kind
@pytest.fixture(
    params=[
        functools.partial(named, TimeoutError),
        functools.partial(starred, JobOSError),
        a_method(JobTimeout),
        Limit(TimeoutError),
    ],
    ids=["a function", "of any arguments", "a method", "an object"],
)
def kind(request: pytest.FixtureRequest) -> Iterator[type[Exception]]:
    """Return the error that the handler of SIGALRM raises."""
    before = signal.signal(signal.SIGALRM, request.param)
    with pytest.raises(Exception, match="the job took too long") as caught:
        interrupt()
    yield caught.type
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupt(*_: object, **__: object) -> Any:
    signal.raise_signal(signal.SIGALRM)


@pytest.fixture
def silent_url() -> Iterator[str]:
    """The URL of a server that accepts connections and never replies."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}"


def test_a_time_limit_ends_a_wait_for_redis_with_its_own_error(silent_url: str, kind: type[Exception]) -> None:
    ids = snowredis.connect(silent_url, durability="none")
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(kind, match="the job took too long") as caught:
        ids.next_id()
    assert caught.type is kind
    ids.close()


def test_redis_is_unavailable_while_the_error_of_a_time_limit_is_being_handled(kind: type[Exception]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    ids = snowredis.connect(f"redis://127.0.0.1:{port}", durability="none")
    try:
        interrupt()
    except kind:
        with pytest.raises(StoreUnavailable):
            ids.next_id()


@pytest.mark.parametrize("call", [SnowflakeGenerator.next_id, SnowflakeGenerator.close])
def test_a_time_limit_is_not_lost_where_errors_are_logged(
    pool: MemoryPool,
    clock: ManualClock,
    kind: type[Exception],
    call: Callable[[SnowflakeGenerator], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store: Any = pool.memory_store(PoolConfig(name="jobs"))
    ids = SnowflakeGenerator(store, clock=clock)
    if call is SnowflakeGenerator.close:
        ids.next_id()
    monkeypatch.setattr(store, "shared", True, raising=False)
    ask = store.ask
    monkeypatch.setattr(store, "ask", lambda asked: interrupt() if isinstance(asked, ReleaseRequest) else ask(asked))
    monkeypatch.setattr(DeadProcesses, "_own_access", interrupt)
    with pytest.raises(kind, match="the job took too long"):
        call(ids)
    monkeypatch.undo()
    ids.close()


@pytest.mark.parametrize(
    ("module", "kind", "outside"),
    [
        ("snowredis.process.exit", JobTimeout, True),
        ("redis.connection", JobTimeout, True),
        ("client_of_the_application", JobTimeout, False),
        ("redis.connection", OSError, False),
    ],
)
def test_an_error_whose_class_is_unknown_where_it_is_raised_comes_from_another_thread(
    module: str, kind: type[Exception], outside: bool
) -> None:
    functions: dict[str, Any] = {"__name__": module}
    exec("def run(kind): raise kind", functions)
    with pytest.raises(kind) as caught:
        functions["run"](kind)
    assert is_interruption(caught.value) is outside
