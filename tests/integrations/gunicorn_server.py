"""gunicorn as a process of its own, on a unix socket, with the app of gunicorn_app.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from gunicorn.config import Config

import snowredis
from snowredis.core.layout import Layout
from snowredis.monitor.lease import Lease
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support import waiting, warm
from tests.support.programs import ROOT
from tests.support.servers import RedisServer

POOL = "gunicorn"
# a busy machine starts a server within 3 s
LIMIT_S = 30.0
# no lease of a test ends by itself
TTL_S = 300.0
# kind of workers -> app, options
WORKERS = {
    "sync": ("wsgi", ["--worker-class=sync"]),
    "gthread": ("wsgi", ["--worker-class=gthread", "--threads=2"]),
    "gevent": ("wsgi", ["--worker-class=gevent"]),
    "asgi": ("asgi", ["--worker-class=asgi"]),
    "uvicorn": ("asgi", ["--worker-class=uvicorn_worker.UvicornWorker"]),
}
HOOKS = "from snowredis.integrations.gunicorn import *\n"


eventually = partial(waiting.eventually, limit_s=LIMIT_S)


class Gunicorn:
    """One arbiter. Attributes: its process, its log, its socket."""

    def __init__(self, redis_url: str, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self._pool = snowredis.WorkerPool(redis_url, POOL)
        self.process = process
        self.log, self.socket = directory / "gunicorn.log", directory / "http.sock"

    def request(self, path: str) -> tuple[int, bytes]:
        """Return status and body; uses a new connection."""
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket)), timeout=LIMIT_S) as client:
            response = client.get(f"http://localhost{path}")
        return response.status_code, response.content

    def ask(self, path: str = "/ids/1") -> dict[str, Any]:
        """Return the JSON that the app sends; its status must be 200."""
        status, body = self.request(path)
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def ended(self) -> list[Lease]:
        """Leases that ended without a release."""
        return list(self._pool.snapshot().ended)

    def workers(self) -> list[Lease]:
        return self._pool.workers()

    def holders(self) -> set[int]:
        """Return the pids of the processes that hold a lease."""
        return {worker.pid for worker in self.workers()}

    def processes(self) -> set[int]:
        """Return the pids of the arbiter's children."""
        pid = self.process.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def wait_until_ready(self, workers: int) -> set[int]:
        """Wait until *workers* workers, and no other process, hold leases; return their pids."""

        def ready() -> set[int]:
            assert self.process.poll() is None, self.log.read_text()
            holders = self.holders()
            return holders if len(holders) == workers and holders == self.processes() else set()

        try:
            found: set[int] = eventually(ready, f"{workers} workers with leases")
        except AssertionError as error:
            log = "\n".join(self.log.read_text().splitlines()[-60:])
            raise AssertionError(
                f"{error}: {sorted(self.holders())} hold some, {sorted(self.processes())} are there\n{log}"
            ) from None
        return found

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Stop the arbiter and return its exit code."""
        self.send(number)
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log.read_text()) from None


def create_pool(url: str, *, ttl_s: float = TTL_S, worker_bits: int = 10, outage_reserve_s: int = 0) -> None:
    """Create the pool as new, so that no worker waits."""
    layout = Layout(worker_bits=worker_bits, sequence_bits=20 - worker_bits)
    config = PoolConfig(name=POOL, layout=layout, ttl_ms=int(ttl_s * 1000), outage_reserve_ms=outage_reserve_s * 1000)
    snowredis.WorkerPool(url, POOL).create(config)


@contextmanager
def gunicorn(
    server: RedisServer,
    directory: Path,
    *options: str,
    conf: str = HOOKS,
    app: str = "wsgi",
    bind: str = "",
    log_level: str = "debug",
    ttl_s: float = TTL_S,
    worker_bits: int = 10,
    **more: str,
) -> Iterator[Gunicorn]:
    """Run gunicorn with *conf* as its configuration, *options* on its command line and *more* in its environment."""
    settings = directory / "conf.py"
    settings.write_text(conf)
    arguments = ["--config", str(settings), "--bind", bind or f"unix:{directory / 'http.sock'}"]
    arguments += ["--worker-tmp-dir", str(directory), "--log-level", log_level]
    if "control_socket_disable" in Config().settings:
        arguments.append("--no-control-socket")
    with (directory / "gunicorn.log").open("ab") as log:
        process = warm.Popen(
            [sys.executable, "-m", "gunicorn", *arguments, *options]
            + [app if ":" in app else f"tests.integrations.gunicorn_app:{app}"],
            imported=("gunicorn.app.wsgiapp",),
            cwd=ROOT,
            env={
                **{name: text for name, text in os.environ.items() if name not in ("SNOWREDIS_URL", "SNOWREDIS_POOL")},
                "PYTHONPATH": str(ROOT),
                "POOL_URL": server.url,
                "POOL": POOL,
                "TTL": str(ttl_s),
                "WORKER_BITS": str(worker_bits),
                **more,
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    running = Gunicorn(server.url, directory, process)
    try:
        eventually(lambda: "Listening at" in running.log.read_text() or process.poll() is not None, "a socket")
        yield running
    finally:
        if process.poll() is None:
            children = running.processes()
            process.kill()
            process.wait()
            for pid in children:
                os.kill(pid, signal.SIGKILL)
