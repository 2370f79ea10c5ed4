"""Workers of celery as processes of their own, on a private Redis that is their broker, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from celery import Celery

import snowredis
from snowredis.monitor.lease import Lease
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support import waiting, warm
from tests.support.programs import ROOT
from tests.support.servers import RedisServer

APP = "tests.integrations.celery_app"
IMPORTED = ("celery.bin.celery", "kombu.transport.redis")
# a busy machine starts a worker within 5 s
LIMIT_S = 40.0
POOL = "celery"
# a list: for each task that ran its pid, its id and the ids that it made
IDS_KEY = "made"
IDS_PER_TASK = 10


def broker(server: RedisServer) -> str:
    return f"redis+socket://{server.socket}?virtual_host=1"


def environment(server: RedisServer, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "BROKER": broker(server),
        "POOL_URL": server.url,
        "TTL": "120",
        **more,
    }


eventually = partial(waiting.eventually, limit_s=LIMIT_S)


class Fleet:
    """One celery worker, and what its tasks recorded in Redis."""

    def __init__(self, server: RedisServer, process: subprocess.Popen[bytes], log: Path) -> None:
        self._client, self._pool = server.client(), snowredis.WorkerPool(server.url, POOL)
        self.process = process
        self.log = log
        self.app = Celery(broker=broker(server), set_as_current=False)

    def send(self, count: int, seconds: float = 0.0) -> None:
        for _ in range(count):
            self.app.send_task(f"{APP}.make", (seconds,))

    def notes(self) -> list[list[str]]:
        """Return pid, task id and ids of each task that ran."""
        return [str(note).split() for note in self._client.lrange(IDS_KEY, 0, -1)]

    def ids(self) -> list[str]:
        return [an_id for note in self.notes() for an_id in note[2:]]

    def wait_for(self, count: int) -> None:
        """Wait until this number of tasks has run."""

        def ran() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self._client.llen(IDS_KEY) >= count

        eventually(ran, f"{count} tasks")

    def workers(self) -> list[Lease]:
        return self._pool.workers()

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.log.read_text()) from None


@contextmanager
def worker(server: RedisServer, log: Path, *options: str, name: str = "w@test", **more: str) -> Iterator[Fleet]:
    """Run a worker with *options* of celery's command line and *more* in its environment; killed in the end."""
    variables = environment(server, **more)
    config = PoolConfig(name=POOL, ttl_ms=int(float(variables["TTL"]) * 1000))
    snowredis.WorkerPool(server.url, POOL).create(config)
    with log.open("ab") as file:
        process = warm.Popen(
            [sys.executable, "-m", "celery", "-A", APP, "worker", "-n", name, "--loglevel=INFO"]
            + ["--without-mingle", "--without-gossip", "--without-heartbeat", *options],
            # which gevent patches before it is imported
            imported=() if "--pool=gevent" in options else ("celery.bin.celery",),
            cwd=ROOT,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield Fleet(server, process, log)
    finally:
        # prefork children die with it (PR_SET_PDEATHSIG)
        process.kill()
        process.wait()
