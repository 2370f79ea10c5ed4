"""rq, dramatiq and huey: real workers; ids are not repeated, and no worker id is left behind when they stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

import snowredis
from tests.support import warm
from tests.support.pools import new_pool
from tests.support.programs import ROOT
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

TASKS = 4
POOL, IDS_KEY, IDS_PER_TASK = "queues", "made", 50


class Queue:
    """A pool and the queues on one server, and the ids that tasks noted there."""

    def __init__(self, server: RedisServer, directory: Path) -> None:
        self.url, self.client, self._log = server.url, server.client(), directory / "worker.log"

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return warm.Popen(
                [sys.executable, "-m", *command],
                imported=(command[0],),
                cwd=ROOT,
                env={**os.environ, "QUEUE_URL": self.url, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for_ids(self) -> None:
        eventually(lambda: self.client.llen(IDS_KEY) == TASKS * IDS_PER_TASK, "all ids: " + self._log.read_text(), 30)

    def end(self, process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
        process.send_signal(number)
        process.wait(20)

    def check_ids(self) -> None:
        made = self.client.lrange(IDS_KEY, 0, -1)
        assert len(made) == len(set(made)) == TASKS * IDS_PER_TASK, self._log.read_text()

    def info(self) -> Any:
        with contextlib.closing(snowredis.WorkerPool(self.url, POOL)) as pool:
            return pool.info()


@pytest.fixture
def queue(server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    server.client().flushdb()
    monkeypatch.setenv("QUEUE_URL", server.url)
    new_pool(server.url, POOL)
    return Queue(server, tmp_path)


def test_every_job_of_rq_releases_its_worker_id_and_shows_the_workers_name(queue: Queue) -> None:
    rq = pytest.importorskip("rq")
    jobs = rq.Queue(connection=redis.Redis.from_url(queue.url))
    for number in range(TASKS):
        jobs.enqueue("tests.integrations.queue_tasks.note_ids", number)
    options = ["--burst", "--name", "packer", "--worker-class", "snowredis.integrations.rq.Worker"]
    worker = queue.start("rq.cli", "worker", "--url", queue.url, *options)
    assert worker.wait(60) == 0
    queue.check_ids()
    info = queue.info()
    assert (info.claims, info.releases, info.used, info.peak) == (TASKS, TASKS, 0, 1)
    with contextlib.closing(snowredis.WorkerPool(queue.url, POOL)) as pool:
        assert {event.owner.label for event in pool.events() if event.kind == "claimed"} == {"rq packer"}


def test_jobs_of_a_plain_worker_of_rq_release_what_the_jobs_before_them_left(queue: Queue) -> None:
    """Each job ends by os._exit(), in a process whose parent does not know snowredis."""
    rq = pytest.importorskip("rq")
    jobs = rq.Queue(connection=redis.Redis.from_url(queue.url))
    for number in range(TASKS):
        jobs.enqueue("tests.integrations.queue_tasks.note_ids", number)
    assert queue.start("rq.cli", "worker", "--url", queue.url, "--burst").wait(60) == 0
    queue.check_ids()
    info = queue.info()
    assert (info.claims, info.releases, info.died, info.used) == (TASKS, TASKS - 1, 0, 1)
    assert info.peak == 2
    # a process with another parent reads none of their records: the last lease ends by itself
    with snowredis.connect(queue.url, pool=POOL) as ids:
        ids.claim()
        assert queue.info().used == 2


def test_the_processes_of_dramatiq_release_their_worker_ids_when_they_stop(queue: Queue) -> None:
    pytest.importorskip("dramatiq")
    from tests.integrations.queue_tasks import dramatiq_actor

    actor = dramatiq_actor()
    for number in range(TASKS):
        actor.send(number)
    worker = queue.start("dramatiq", "tests.integrations.dramatiq_app", "--processes=2", "--threads=2")
    queue.wait_for_ids()
    queue.end(worker)
    queue.check_ids()
    info = queue.info()
    assert (info.used, info.releases, info.expired, info.died) == (0, info.claims, 0, 0)


def test_the_workers_of_huey_release_their_worker_ids_when_they_stop(queue: Queue) -> None:
    pytest.importorskip("huey")
    from tests.integrations.queue_tasks import huey_task

    _, task = huey_task()
    for number in range(TASKS):
        task(number)
    worker = queue.start("huey.bin.huey_consumer", "tests.integrations.huey_app.huey", "-w", "2", "-k", "process")
    queue.wait_for_ids()
    # SIGTERM interrupts the last task, which may not have returned yet, and then its process, which releases its id
    queue.end(worker, signal.SIGINT)
    queue.check_ids()
    info = queue.info()
    assert (info.used, info.releases, info.expired, info.died) == (0, info.claims, 0, 0)
