"""Threads, signal handlers and finalizers that make ids at the same time."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

import snowredis
from snowredis.errors import StoreUnavailable
from snowredis.process.coroutines import OneThread, in_background
from snowredis.process.exit import EXIT, ExitHook
from snowredis.process.fork import ForkGuard
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.ids import pure_path
from snowredis.snowflake.lease.context import Conversation
from snowredis.snowflake.protocol.messages import ClaimRequest, ReleaseRequest, Request
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.upkeep.heartbeat import Heartbeat, HeartbeatThread
from snowredis.testing import ManualClock, memory_pool
from tests.support.pools import new_pool
from tests.support.programs import run, start
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


@pytest.fixture(params=["as built", "locked"])
def ids(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A generator on the system's clock; "locked" is what free-threaded builds use without the C file."""
    locked = request.param == "locked"
    monkeypatch.setattr(pure_path, "FREE_THREADED", locked)

    class Locked(SnowflakeGenerator):
        __slots__ = ()
        next_id = pure_path.PureFastPath._next_id_locked

    pool = memory_pool()
    made = (Locked if locked else SnowflakeGenerator)(pool.memory_store(PoolConfig(name="threads")))
    yield made
    made.close()


def test_threads_never_get_the_same_id(ids: Any) -> None:
    def work(_: int) -> list[int]:
        mine = [ids.next_id() for _ in range(20_000)]
        mine += ids.next_ids(5_000)
        return mine + [ids.next_id() for _ in range(5_000)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(work, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert all(mine == sorted(mine) for mine in found)
    everything = [an_id for mine in found for an_id in mine]
    assert len(everything) == len(set(everything)) == 120_000


def test_a_signal_handler_that_makes_ids_never_repeats_one_and_never_blocks(ids: Any) -> None:
    in_handler: list[int] = []
    handlers = 0
    ids.claim()

    def handle(number: int, frame: object) -> None:
        nonlocal handlers
        # a slow machine is still in one when the next signal comes
        if handlers < 10:
            handlers += 1
            in_handler.extend((ids.next_id(), *ids.next_ids(3)))
            handlers -= 1

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    made: list[int] = []
    try:
        while len(in_handler) < 4_000:
            made += [ids.next_id() for _ in range(500)]
            made += ids.next_ids(100)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    everything = made + in_handler
    assert len(set(everything)) == len(everything)


def test_a_finalizer_that_makes_ids_never_repeats_one(ids: Any) -> None:
    in_finalizer: list[int] = []
    # a finalizer in the middle of a claim would be refused
    ids.claim()

    class Row:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            in_finalizer.append(ids.next_id())

    made = []
    for _ in range(20_000):
        Row()
        made.append(ids.next_id())
    gc.collect()
    everything = made + in_finalizer
    assert len(in_finalizer) == 20_000
    assert len(set(everything)) == len(everything)


class Service:
    """Owns a generator, in a cycle of references: the garbage collector finds both, and calls the finalizer."""

    def __init__(self, ids: SnowflakeGenerator, finalize: Callable[[SnowflakeGenerator], None]) -> None:
        self.me, self.ids, self.finalize = self, ids, finalize
        ids.next_id()

    def __del__(self) -> None:
        self.finalize(self.ids)


@pytest.mark.parametrize("leave", [SnowflakeGenerator.close, SnowflakeGenerator.suspend])
def test_the_finalizer_of_a_cycle_can_make_ids_and_release_the_worker_id(
    monkeypatch: pytest.MonkeyPatch, leave: Callable[[SnowflakeGenerator], None]
) -> None:
    clock = ManualClock()
    store = memory_pool(clock=clock).memory_store(PoolConfig(name="cycle"))
    made, asked, ask = list[int](), list[type](), store.ask

    def note(request: Request) -> Any:
        asked.append(type(request))
        return ask(request)

    monkeypatch.setattr(store, "ask", note)

    def finalize(ids: SnowflakeGenerator) -> None:
        # past the reservation
        clock.advance(20_000)
        ids.suspend()
        ids.resume()
        made.extend([ids.next_id(), ids.ids_made])
        leave(ids)

    Service(SnowflakeGenerator(store, clock=clock), finalize)
    gc.collect()
    assert len(made) == 2
    assert asked == [ClaimRequest, ReleaseRequest] * 2
    assert not [member for member in EXIT.members if getattr(member, "pool", "") == "cycle"]


def test_a_handler_that_closes_a_generator_while_it_claims_leaves_the_claim_its_connection(
    own_server: RedisServer,
) -> None:
    pool = snowredis.WorkerPool(own_server.url, "closed")
    pool.create(PoolConfig(name="closed"))
    ids = snowredis.connect(own_server.url, pool="closed")

    def close(*_: object) -> None:
        ids.close()
        own_server.kill(signal.SIGCONT)

    before = signal.signal(signal.SIGALRM, close)
    own_server.kill(signal.SIGSTOP)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(snowredis.GeneratorClosed):
            ids.next_id()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # the lease that was granted meanwhile was released
    assert (pool.info().claims, pool.workers()) == (1, [])


def test_close_on_sigterm_leaves_no_lease_whatever_the_process_was_doing(server: RedisServer) -> None:
    name = new_pool(server.url)
    output = run("tests.snowflake.generator.programs.ended_by_sigterm", server.url, name, "20")
    assert output.splitlines() == ["handler", "20 7 True"]
    pool = snowredis.WorkerPool(server.url, name)
    assert pool.workers() == []
    assert pool.snapshot().ended == ()


@pytest.mark.parametrize("caller", ["thread", "coroutine"])
@pytest.mark.parametrize("settings", [{}, {"clock_policy": "wait"}], ids=["backup", "wait"])
def test_no_thread_waits_for_a_log_line_of_another(settings: dict[str, Any], caller: str) -> None:
    """The thread that logs would wait, too, for one that makes an id while it holds the handler's lock."""
    clock = ManualClock()
    ids = memory_pool(clock=clock).connect(**settings)
    ids.next_id()
    claimed: list[bool] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # needs the generator's lock
            thread = threading.Thread(target=ids.claim, daemon=True)
            thread.start()
            thread.join(5)
            claimed.append(not thread.is_alive())

    log, handler = logging.getLogger("snowredis"), Handler()
    log.addHandler(handler)
    try:
        clock.step(-2_000)
        assert (ids.next_id() if caller == "thread" else asyncio.run(ids.anext_id())) > 0
    finally:
        log.removeHandler(handler)
    assert claimed
    assert all(claimed)
    ids.close()


class Member:
    closed = False

    def close(self) -> None:
        self.closed = True


class Growing(weakref.WeakSet[Any]):
    """Gets a member, up to five in all, whenever one of them is listed, as if another thread added it."""

    def __init__(self) -> None:
        self.kept = [Member(), Member()]
        super().__init__(self.kept)

    def __iter__(self) -> Iterator[Any]:
        for member in super().__iter__():
            yield member
            if len(self.kept) < 5:
                self.kept.append(Member())
                self.add(self.kept[-1])


def test_members_that_another_thread_adds_meanwhile_are_closed_with_the_others() -> None:
    hook, growing = ExitHook(), Growing()
    hook._members = growing
    hook.close_all()
    assert [member.closed for member in growing.kept] == [True] * 5


def test_members_are_listed_while_another_thread_adds_some() -> None:
    guard, growing = ForkGuard(), Growing()
    guard._members = growing
    assert {*growing.kept[:2]} <= {*guard.members} <= {*growing.kept}


def test_no_heartbeat_thread_is_left_after_close_and_at_exit() -> None:
    assert run("tests.snowflake.generator.programs.ends_of_heartbeats").splitlines() == [
        "close 1 0",
        "exit 1 0",
        "drop 1 0",
    ]


class LimitOfTime(BaseException):
    """Exception of a signal handler in a program that limits the time of its jobs."""


def interrupted_at_each_line(call: Callable[[], object], functions: Iterable[Any], check: Callable[[], object]) -> int:
    """Raise in *call* before each line of *functions*, one after the other; *check* each time. Return how many."""
    codes, number = {function.__code__ for function in functions}, 0
    while True:
        left = number

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code not in codes:
                return None
            if event == "line":
                left -= 1
                if left == -1:
                    raise LimitOfTime
            return trace

        sys.settrace(trace)
        try:
            call()
        except LimitOfTime:
            pass
        finally:
            sys.settrace(None)
        check()
        if left >= 0:
            return number
        number += 1


def test_a_handler_that_raises_while_a_heartbeat_starts_leaves_one_that_beats() -> None:
    pool, made = memory_pool(), list[SnowflakeGenerator]()

    def start() -> None:
        made.append(pool.connect())
        made[-1].claim()

    def check() -> None:
        with made.pop() as ids:
            thread = ids._lifecycle.thread
            thread.start()
            assert thread.runs
            assert thread.heartbeat is not None
            # the thread holds it while it runs
            assert thread.heartbeat._running.locked()

    points = interrupted_at_each_line(start, [HeartbeatThread._start, HeartbeatThread._take, Heartbeat.start], check)
    assert points > 5


def test_a_handler_that_raises_in_a_coroutine_leaves_the_thread_of_the_others() -> None:
    one = OneThread()

    def check() -> None:
        assert asyncio.run(asyncio.wait_for(one.call(lambda: 8), 10)) == 8

    assert interrupted_at_each_line(lambda: asyncio.run(one.call(int)), [OneThread.call], check) > 3


def test_sigterm_in_the_hub_of_gevent_ends_the_process_and_is_logged() -> None:
    pytest.importorskip("gevent")
    process = start("tests.snowflake.generator.programs.sigterm_in_the_hub_of_gevent")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM
    assert errors.splitlines()[-1].endswith("released worker id 0")


def test_a_greenlet_beside_one_that_talks_to_redis_hears_when_to_patch() -> None:
    conversation = Conversation("here")
    with pytest.raises(StoreUnavailable, match="patch the process before snowredis is imported"):
        conversation.run(lambda: conversation.run(lambda: 0))


def test_a_program_ends_whatever_its_daemons_held_and_its_finalizers_call(server: RedisServer) -> None:
    new_pool(server.url, "finalizers")
    # every other one hung
    running = [
        start("tests.snowflake.generator.programs.finalizers_beside_daemons", server.url, "finalizers")
        for _ in range(4)
    ]
    try:
        for process in running:
            _, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (0, "")
    finally:
        for process in running:
            process.kill()


def test_a_thread_that_has_ended_is_not_listed_any_more() -> None:
    for _ in range(3):
        in_background(threading.current_thread).result(10)
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "snowredis-async"])
