"""A fleet that bad things are done to: a Redis of its own, a pool with a short ttl, workers, and `snowredis serve`."""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import snowredis
from tests.support.ha import Node
from tests.support.pools import new_pool
from tests.support.ports import free_port
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
POOL = "orders"
LABELS = ("web", "celery", "import")
# a busy machine starts a process within a few seconds
START_LIMIT_S = 60.0


class Worker:
    """A process of the fleet, and its worker id."""

    def __init__(self, url: str, label: str, log: Path) -> None:
        program = ROOT / "scripts" / "_moments" / "worker.py"
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(program), url, POOL, label],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.label, self.worker = label, -1

    def wait_until_it_has_a_worker_id(self) -> None:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_LIMIT_S)
        line = self.process.stdout.readline() if readable else b""
        assert line, f"a worker of {self.label} got no worker id"
        self.worker = int(line)

    def step_clock(self, ms: int) -> None:
        """Move the clock of this process forward by *ms*, or back if negative."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"%d\n" % ms)
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait(10)

    def end(self) -> None:
        """Kill it, so that nothing of it is left."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Stage:
    """The fleet. Everything listens on loopback or on a unix socket in *directory*, and ends with the stage.

    Attributes:
        url: address of the Redis: a socket that is a link, so that another server can take it over.
        redis, standby: the server, and its replica if there is one.
        port: of the service, which shows the dashboard and /metrics.
    """

    def __init__(self, directory: Path, *, ttl_s: float = 6.0, standby: bool = False, **options: str | float) -> None:
        self.directory, self.ttl_s, self.pool = directory, ttl_s, POOL
        self._link = directory / "redis.sock"
        self.url = f"unix://{self._link}"
        at_once = ("--repl-diskless-sync-delay", "0")
        self.redis = Node(directory / "master", "--unixsocket", str(directory / "master.sock"), *at_once)
        self.standby = (
            Node(
                directory / "standby",
                *("--unixsocket", str(directory / "standby.sock")),
                *("--replicaof", "127.0.0.1", str(self.redis.port)),
            )
            if standby
            else None
        )
        self.workers: list[Worker] = []
        self.port = free_port()
        # of the pool
        self._options = options | {"ttl": ttl_s}
        self._service: subprocess.Popen[bytes] | None = None

    @property
    def dashboard(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self, workers: int = 14) -> None:
        """Start everything and wait until every worker has a worker id."""
        self.redis.start()
        self.point_to("master.sock")
        if self.standby is not None:
            self.standby.start()
            eventually(self._is_replicated, "a replica", START_LIMIT_S)
        new_pool(self.url, POOL, **self._options)
        self.add_workers(workers)
        for worker in self.workers:
            worker.wait_until_it_has_a_worker_id()
        self._serve()

    def _is_replicated(self) -> bool:
        assert self.standby is not None
        return bool(self.standby.info("replication").get("master_link_status") == "up")

    def point_to(self, socket: str) -> None:
        """Let the Redis behind *socket* be the one that everybody connects to from now on."""
        new = self.directory / "new.sock"
        new.symlink_to(self.directory / socket)
        new.replace(self._link)

    def add_workers(self, count: int) -> list[Worker]:
        """Start *count* workers more, without waiting for their worker ids."""
        numbers = range(len(self.workers), len(self.workers) + count)
        log = self.directory / "workers.log"
        added = [Worker(self.url, LABELS[number % len(LABELS)], log) for number in numbers]
        self.workers += added
        return added

    def _serve(self) -> None:
        with (self.directory / "service.log").open("ab") as log:
            self._service = subprocess.Popen(
                [sys.executable, "-m", "snowredis", "serve", "--port", str(self.port), "--pool", POOL],
                cwd=ROOT,
                env=os.environ | {"SNOWREDIS_URL": self.url},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._service_is_ready, "the service", START_LIMIT_S, ignored=(OSError,))

    def _service_is_ready(self) -> bool:
        assert self._service is not None
        assert self._service.poll() is None, (self.directory / "service.log").read_text()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200

    def lease_end_s(self, workers: list[Worker]) -> float:
        """Return when the last lease of *workers* ends, in s since 1970."""
        with contextlib.closing(snowredis.WorkerPool(self.url, POOL)) as pool:
            ends = {info.worker: info.lease_end_ms for info in pool.workers(alive_only=False)}
        return max(ends[worker.worker] for worker in workers) / 1000

    def command(self, *arguments: str, limit_s: float = 20.0) -> str:
        """Return what a command of snowredis prints, errors too."""
        done = subprocess.run(
            [sys.executable, "-m", "snowredis", *arguments],
            check=False,
            cwd=ROOT,
            env=os.environ | {"SNOWREDIS_URL": self.url, "COLUMNS": "110"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
        )
        return done.stdout.decode()

    def stop(self) -> None:
        """End every process of the stage."""
        if self._service is not None:
            # it releases its worker id, for which a Redis may be missing
            self._service.kill()
            self._service.wait(10)
        for worker in self.workers:
            worker.end()
        for node in (self.redis, self.standby):
            if node is not None:
                node.kill()


@contextlib.contextmanager
def stage(directory: Path, workers: int = 14, **options: object) -> Iterator[Stage]:
    """Start a stage in the empty *directory*, and stop it at the end."""
    made = Stage(directory, **options)  # type: ignore[arg-type]
    try:
        made.start(workers)
        yield made
    finally:
        made.stop()


def wait_until(at_s: float) -> None:
    """Sleep until *at_s*, in s since 1970."""
    while (left_s := at_s - time.time()) > 0:
        time.sleep(min(left_s, 0.2))
