"""The connections of generators and pools: closed with their owner, and one time limit for a whole call."""

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.exceptions import TimeoutError as TimedOut
from redis.sentinel import Sentinel

import snowredis
from snowredis.servers.connections import CALL_LIMIT_S, limits, prepare, remaining_s, time_limit
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import RedisStore
from tests.support.holder import create
from tests.support.pools import new_pool
from tests.support.ports import listening
from tests.support.servers import RedisServer

ROUNDS = 5


def sync(server: Any) -> None:
    with snowredis.connect(server, pool="p") as ids:
        ids.next_id()


def coroutines(server: Any) -> None:
    async def make() -> None:
        async with snowredis.aconnect(server, pool="p") as ids:
            await ids.anext_id()

    asyncio.run(make())


def read(server: Any) -> None:
    pool = snowredis.WorkerPool(server, "p")
    assert repr(pool) == f"<snowredis.WorkerPool 'p' at {pool.where}>"
    pool.info()
    pool.close()


@pytest.mark.parametrize("use", [sync, coroutines, read])
def test_what_is_closed_leaves_no_connection_and_those_of_the_application_stay(
    own_server: RedisServer, use: Callable[[Any], None]
) -> None:
    new_pool(own_server.url, "p")
    observer, application = own_server.client(), own_server.new_client()
    own = application.client_id()
    before = {int(client["id"]) for client in observer.client_list()}
    for _ in range(ROUNDS):
        use(own_server.url)
        use(application)
    assert own in {int(client["id"]) for client in observer.client_list()} <= before
    assert application.client_id() == own


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (1, "url cannot be of class int"),
        # pydantic's RedisDsn would show its password, too
        (b"redis://:secret@localhost", r"url cannot be of class bytes\. Pass"),
        ({"password": "secret"}, r"url cannot be of class dict\. Pass"),
        (["redis://a/0", "redis://b/0"], "a list of servers. Name one: a Redis, or a Sentinel or Cluster"),
        (["redis://a/0"], "a list of servers. Name one: a Redis, or a Sentinel or Cluster"),
        ("redis://a/0 redis://b/0", "a list of servers. Name one: a Redis, or a Sentinel or Cluster"),
        (redis.asyncio.Redis(), "redis.asyncio, whose commands have to be awaited"),
        (redis.Redis().pipeline(), "a pipeline"),
        (redis.ConnectionPool(), "Pass the URL of a Redis"),
        (redis.Redis, "Pass the URL of a Redis"),
        (Sentinel([("localhost", 1)]), r"Pass its master_for\(NAME\)"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_a_redis_is_refused_at_once(server: Any, text: str) -> None:
    for connect in (snowredis.connect, snowredis.WorkerPool):
        with pytest.raises(snowredis.ConfigError, match=text):
            connect(server)


def numbers_of_sockets() -> set[int]:
    numbers = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                numbers.add(int(name))
    return numbers


@pytest.mark.skipif(sys.platform != "linux", reason="/proc shows the descriptors of Linux")
def test_a_socket_whose_number_was_closed_and_is_used_by_another_file_is_left_alone(
    own_server: RedisServer, tmp_path: Path
) -> None:
    new_pool(own_server.url, "p")
    before = numbers_of_sockets()
    with snowredis.connect(own_server.url, pool="p") as ids:
        ids.claim()
        (number,) = numbers_of_sockets() - before
        # as a program does that becomes a daemon, and then opens a log, or a connection of its own
        with (tmp_path / "log").open("w+b") as file:
            os.dup2(file.fileno(), number)
        ids.suspend()
        ids.resume()
        ids.claim()
        with os.fdopen(number, "r+b") as file:
            file.write(b"x")
            file.flush()
            assert (tmp_path / "log").read_bytes() == b"x"

        (number,) = numbers_of_sockets() - before
        ours, theirs = socket.socketpair()
        with theirs:
            os.dup2(ours.detach(), number)
            theirs.setblocking(False)
            theirs.send(b"a request to the application")
            ids.suspend()
            ids.resume()
            ids.claim()
            with pytest.raises(BlockingIOError):
                theirs.recv(1)
            with socket.socket(fileno=number) as ours:
                assert ours.recv(100) == b"a request to the application"


@pytest.mark.parametrize("shared", [False, True], ids=["own client", "the application's client"])
def test_after_a_silence_of_half_a_ttl_a_new_connection_is_used_that_may_lead_to_another_master(
    own_server: RedisServer, shared: bool
) -> None:
    observer, application = own_server.client(), own_server.new_client()
    ignored = {int(client["id"]) for client in observer.client_list()}
    store = RedisStore(application if shared else own_server.url, PoolConfig(name="p", ttl_ms=3000))

    def connection_at(now_ms: int) -> int:
        create(store, now_ms)
        (used,) = {int(client["id"]) for client in observer.client_list()} - ignored
        return used

    now_ms = time.time_ns() // 1_000_000
    first = connection_at(now_ms)
    assert connection_at(now_ms + 1500) == first
    later = connection_at(now_ms + 3001)
    assert later != first
    assert connection_at(now_ms + 3002) == later
    store.close()


# --- one time limit for a whole call ------------------------------------------------------------------


def test_of_nested_limits_the_nearest_counts_also_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with time_limit(1.0):
        with time_limit(CALL_LIMIT_S):
            assert remaining_s() == 1.0
        now_s += 1.5
        with time_limit(CALL_LIMIT_S):
            assert remaining_s() == -0.5
    assert remaining_s() == float("inf")


def test_a_limit_whose_end_was_interrupted_limits_no_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler raised before the with block began, and somebody keeps its error."""
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    interrupted = time_limit(1.0)
    interrupted.__enter__()
    now_s += 10
    with time_limit(CALL_LIMIT_S):
        assert remaining_s() == CALL_LIMIT_S
    interrupted.__exit__(None, None, None)


@pytest.fixture
def dripping() -> Iterator[redis.Redis]:
    """A client of a server whose replies come byte by byte, each byte long before the limit of a read."""

    def drip(connection: socket.socket) -> None:
        for byte in b"+PONG\r\n":
            time.sleep(0.1)
            connection.sendall(bytes((byte,)))

    with listening(drip) as port:
        settings: dict[str, Any] = {"protocol": 2, "driver_info": None}
        yield prepare(redis.Redis(port=port, **settings, **limits()))


def test_a_reply_that_comes_byte_by_byte_ends_with_the_call(dripping: redis.Redis) -> None:
    assert dripping.ping()
    with time_limit(0.3), pytest.raises(TimedOut):
        dripping.ping()
