"""Private redis-server in a directory of the test, and operations on it."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import redis

from tests.lab.chaos.shim import StepClock
from tests.support.ports import free_port
from tests.support.waiting import eventually

# the variable names another version, or a relative of Redis; see scripts/servers.py
PROGRAM = os.environ.get("SNOWREDIS_TEST_SERVER") or shutil.which("redis-server") or shutil.which("valkey-server")
# a busy machine starts a server within a second
START_LIMIT_S = 10.0


class RedisServer:
    """One server process on a unix socket; it keeps its state in *directory* only when told to save.

    Args:
        environment: variables that it has in addition to those of this process.
    """

    def __init__(self, directory: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.socket = directory / "redis.sock"
        self._options = options
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        # one for all calls: to make one and its connection takes redis-py some ms. A new one for each process
        self._client: redis.Redis | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def client(self) -> redis.Redis:
        if self._client is None:
            self._client = self.new_client()
        return self._client

    def new_client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def arguments(self) -> list[str]:
        return ["--port", "0", "--unixsocket", str(self.socket), *self._common, *self._options]

    @property
    def _common(self) -> list[str]:
        return ["--dir", str(self.directory), "--save", "", "--appendonly", "no"]

    def start(self) -> None:
        assert PROGRAM is not None
        with (self.directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, *self.arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(self._environment or {})},
            )
        process = self._process

        def replies() -> bool:
            assert process.poll() is None, (self.directory / "redis.log").read_text()
            return bool(self.client().ping())

        unready = (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError)
        eventually(replies, "a reply of redis-server", START_LIMIT_S, ignored=unready)

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            if number not in (signal.SIGSTOP, signal.SIGCONT):
                self._process.wait(10)
                self._process = self._client = None
                self.socket.unlink(missing_ok=True)

    def save(self) -> None:
        """Write the snapshot that the next start() reads."""
        self.client().save()

    def restart(self) -> None:
        """Kill with -9 and start again: data that was not saved is lost."""
        self.kill()
        self.start()


@contextlib.contextmanager
def redis_server(directory: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[RedisServer]:
    if PROGRAM is None:
        pytest.skip("no redis-server or valkey-server on PATH")
    server = RedisServer(directory, *options, environment=environment)
    server.start()
    try:
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill(signal.SIGCONT)
        server.kill()


@contextlib.contextmanager
def stepped_server(directory: Path, library: Path) -> Iterator[tuple[RedisServer, StepClock]]:
    """Run a redis-server whose clock can be stepped, by the fixture step_library."""
    clock = StepClock(directory / "clock", library)
    with redis_server(directory, environment=clock.environment) as server:
        yield server, clock


@contextlib.contextmanager
def replicated(directory: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    """Run a master and its replica."""
    with contextlib.ExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            (directory / name).mkdir()
            options = ("--port", str(free_port()), "--repl-diskless-sync-delay", "0")
            servers.append(stack.enter_context(redis_server(directory / name, *options)))
        master, replica = servers
        follow(replica, master)
        yield master, replica


def follow(replica: RedisServer, master: RedisServer) -> None:
    replica.client().replicaof("127.0.0.1", master.client().config_get("port")["port"])
    eventually(lambda: replica.client().info("replication").get("master_link_status") == "up", "the link", 20)
