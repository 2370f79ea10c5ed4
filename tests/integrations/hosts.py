"""Servers and workers of queues that run an application in processes of their own, on a pool of a private Redis."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

import snowredis
from snowredis.monitor.lease import Lease
from tests.support import waiting
from tests.support.pools import new_pool
from tests.support.programs import ROOT, in_background
from tests.support.servers import RedisServer

POOL = "hosts"
# list in Redis of what tasks note
NOTES = "made"
# a busy machine starts a host within 5 s
LIMIT_S = 40.0
# constants of the pool: no lease of a test ends by itself
CONSTANTS: dict[str, Any] = {"ttl": 300.0, "outage_reserve": 0.0}
HOOKS = "from snowredis.integrations.gunicorn import *\n"
WSGI, ASGI = (f"tests.integrations.application:{name}" for name in ("wsgi", "asgi"))
LIFESPAN = "tests.integrations.programs.lifespan_service:app"
UWSGI = shutil.which("uwsgi") or shutil.which("uwsgi", path=str(Path(sys.executable).parent))

# what takes long to import, of a program whose own module cannot be imported
IMPORTED = {"celery": "celery.bin.celery", "gunicorn": "gunicorn.app.wsgiapp"}
CELERY = "celery -A tests.integrations.celery_app worker -n w@test --loglevel=INFO --without-mingle --without-gossip"

eventually = partial(waiting.eventually, limit_s=LIMIT_S)


class Host:
    """A program that runs. Attributes: its process, its log, the socket of a server, the Redis."""

    def __init__(self, server: RedisServer, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self._pool = snowredis.WorkerPool(server.url, POOL)
        self.server, self.process = server, process
        self.log, self.socket = directory / "host.log", directory / "http.sock"

    def request(self, path: str) -> tuple[int, bytes]:
        """Return status and body; uses a new connection."""
        # to read the certificates that it would verify takes 20 ms of the processor
        transport = httpx.HTTPTransport(uds=str(self.socket), verify=False)
        with httpx.Client(transport=transport, timeout=LIMIT_S) as client:
            response = client.get(f"http://localhost{path}")
        return response.status_code, response.content

    def ask(self, path: str = "/ids/1") -> dict[str, Any]:
        """Return the JSON that the app sends; its status must be 200."""
        status, body = self.request(path)
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def notes(self) -> list[Any]:
        """Return the pid and the ids of each task that ran, and the words that it noted."""
        return [json.loads(note) for note in self.server.client().lrange(NOTES, 0, -1)]

    def wait_for_notes(self, count: int) -> None:
        """Wait until this number of tasks has run."""

        def ran() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.server.client().llen(NOTES) >= count

        eventually(ran, f"{count} tasks")

    def ended(self) -> set[tuple[str, int]]:
        """Return state and pid of the leases that ended without a release."""
        return {(each.state, each.pid) for each in self._pool.snapshot().ended}

    def workers(self) -> list[Lease]:
        return self._pool.workers()

    def holders(self) -> set[int]:
        """Return the pids of the processes that hold a lease."""
        return {worker.pid for worker in self.workers()}

    def processes(self) -> set[int]:
        """Return the pids of the program's children."""
        pid = self.process.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def wait_until_ready(self, workers: int) -> set[int]:
        """Wait until *workers* children, and no other process, hold leases; return their pids."""

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

    def end(self, number: int = signal.SIGTERM) -> int:
        """Stop the program and return its exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log.read_text()) from None


def broker(server: RedisServer) -> str:
    """Return the URL of the broker of celery."""
    return f"redis+socket://{server.socket}?virtual_host=1"


@contextmanager
def run_host(
    server: RedisServer, directory: Path, command: list[str], constants: Mapping[str, Any] = CONSTANTS, **more: str
) -> Iterator[Host]:
    """Run uwsgi or a module of Python on a new pool, with *more* in its environment; kill it in the end."""
    new_pool(server.url, POOL, **constants)
    program, *arguments = command
    is_python = program != UWSGI
    settings = {
        "SNOWREDIS_URL": server.url,
        "SNOWREDIS_POOL": POOL,
        **{f"SNOWREDIS_{name.upper()}": str(value) for name, value in constants.items()},
        "SNOWREDIS_CLAIM_TIMEOUT": "0",
        "BROKER": broker(server),
        "NOTES": NOTES,
        "PYTHONPATH": os.pathsep.join([str(ROOT)] + [sysconfig.get_path("purelib")] * (not is_python)),
    }
    # gevent patches what was not imported yet
    imported = () if "--pool=gevent" in arguments else (IMPORTED.get(program, program),)
    words = [sys.executable, "-m", *command] if is_python else command
    options: dict[str, Any] = {"cwd": ROOT if is_python else directory, "env": os.environ | settings | more}
    with in_background(words, directory / "host.log", imported=imported, **options) as process:
        yield Host(server, directory, process)


@contextmanager
def gunicorn(
    server: RedisServer, directory: Path, *options: str, conf: str = HOOKS, app: str = WSGI, **more: Any
) -> Iterator[Host]:
    """Run gunicorn with *conf* as its configuration and *options* on its command line. *more*: as of run_host()."""
    from gunicorn.config import Config

    settings = directory / "conf.py"
    settings.write_text(conf)
    arguments = ["--config", str(settings), "--bind", f"unix:{directory / 'http.sock'}"]
    arguments += ["--worker-tmp-dir", str(directory), "--log-level", "debug"]
    if "control_socket_disable" in Config().settings:
        arguments.append("--no-control-socket")
    with run_host(server, directory, ["gunicorn", *arguments, *options, app], **more) as running:
        eventually(lambda: "Listening at" in running.log.read_text() or running.process.poll() is not None, "a socket")
        yield running


def celery_command(*options: str) -> list[str]:
    """Return the command of a worker of celery, whose name is w@test."""
    return [*CELERY.split(), "--without-heartbeat", *options]
