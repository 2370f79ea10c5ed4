"""uWSGI needs nothing: its forks run Python's hooks, and its workers run exit hooks when they end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import snowredis
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support import waiting
from tests.support.programs import ROOT
from tests.support.servers import RedisServer

PROGRAM = shutil.which("uwsgi") or shutil.which("uwsgi", path=str(Path(sys.executable).parent))
LIMIT_S = 20.0
POOL = "uwsgi"
APPLICATION = Path(__file__).parent / "programs" / "uwsgi_application.py"


def python_of(program: str) -> str:
    done = subprocess.run([program, "--python-version"], capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout.strip()


if PROGRAM is None:
    pytest.skip("uwsgi is not installed: pip install uwsgi compiles it", allow_module_level=True)
if not python_of(PROGRAM).startswith(f"{sys.version_info.major}.{sys.version_info.minor}."):
    pytest.skip(f"{PROGRAM} runs Python {python_of(PROGRAM)}", allow_module_level=True)


eventually = partial(waiting.eventually, limit_s=LIMIT_S)


class Site:
    """A uWSGI master with two workers on a unix socket."""

    def __init__(self, server: RedisServer, directory: Path, *options: str, ttl_s: int) -> None:
        assert PROGRAM is not None
        self._pool = snowredis.WorkerPool(server.url, POOL)
        self._socket = directory / "http.sock"
        self.log = directory / "uwsgi.log"
        self.made: list[str] = []
        config = PoolConfig(name=POOL, ttl_ms=ttl_s * 1000)
        self._pool.create(config)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--master", "--processes", "2", "--die-on-term", "--need-app", "--http-socket"]
                + [str(self._socket), "--wsgi-file", str(APPLICATION), *options],
                cwd=directory,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")]),
                    "SNOWREDIS_URL": server.url,
                    "SNOWREDIS_POOL": POOL,
                    "SNOWREDIS_TTL": str(ttl_s),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._get, "an answer")

    def _get(self) -> int:
        """Return the pid of the worker that answered; 0 if none did."""
        try:
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(self._socket)), timeout=LIMIT_S) as client:
                pid, *ids = client.get("http://localhost/").text.split()
        except (httpx.TransportError, ValueError):
            assert self.process.poll() is None, self.log.read_text()
            return 0
        self.made += ids
        return int(pid)

    def get(self, count: int) -> set[int]:
        with ThreadPoolExecutor(4) as crew:
            return set(crew.map(lambda _: self._get(), range(count))) - {0}

    def pids(self) -> set[int]:
        """Return the pids of the workers once both have answered."""
        pids: set[int] = set()

        def both() -> bool:
            nonlocal pids
            pids |= self.get(8)
            return len(pids) >= 2

        eventually(both, "answers of both workers")
        return pids

    def holders(self) -> set[int]:
        return {info.pid for info in self._pool.workers()}

    def _is_quiet(self) -> bool:
        size = self.log.stat().st_size
        time.sleep(0.2)
        return self.log.stat().st_size == size

    def end(self, number: int = signal.SIGTERM) -> None:
        # uWSGI runs no exit handlers of a worker that is busy, which it still is while it logs its last request
        eventually(self._is_quiet, "a log that does not grow")
        self.process.send_signal(number)
        self.process.wait(LIMIT_S)


@pytest.fixture
def site(own_server: RedisServer, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def start(*options: str, ttl_s: int = 120) -> Site:
        sites.append(Site(own_server, tmp_path, *options, ttl_s=ttl_s))
        return sites[-1]

    yield start
    for made in sites:
        if made.process.poll() is None:
            # its workers die with it, at once on TERM and within seconds on KILL
            made.process.terminate()
            made.process.wait(LIMIT_S)


def check_replacement(running: Any, old: set[int]) -> None:
    eventually(lambda: not running.holders() & old, "the end of the old ones' leases")
    # a worker that is told to end while it boots may be killed with what it has
    eventually(lambda: running.get(4) and len(running.holders()) == 2, "the leases of the new ones")
    running.end()
    assert running.holders() == set()
    assert len(set(running.made)) == len(running.made)


@pytest.mark.parametrize("options", [(), ("--lazy-apps", "--threads", "2")], ids=" ".join)
def test_workers_have_worker_ids_of_their_own_and_release_them_at_a_reload_and_at_the_end(
    site: Any, options: tuple[str, ...]
) -> None:
    running = site(*options)
    old = running.pids()
    # the default generator and that of the module in each, none in the master
    assert running.holders() == old
    assert running.process.pid not in old
    running.process.send_signal(signal.SIGHUP)
    eventually(lambda: running.get(4) - old, "an answer of a new worker")
    check_replacement(running, old)


def test_a_worker_that_served_its_last_request_releases_its_worker_ids(site: Any) -> None:
    running = site("--max-requests", "5", "--min-worker-lifetime", "1")
    old = running.pids()
    eventually(lambda: not running.get(8) & old, "answers of new workers only")
    check_replacement(running, old)


def test_a_killed_worker_costs_one_ttl_and_no_id(site: Any) -> None:
    running = site(ttl_s=3)
    killed = min(running.pids())
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: running.get(4) - {killed}, "an answer")
    eventually(lambda: killed not in running.holders(), "the end of its leases")
    running.end()
    assert running.holders() == set()
    assert len(set(running.made)) == len(running.made)
