"""Workers of rq and celery, which fork, and whose children die."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import redis

ROOT = Path(__file__).parents[2]
# enough for 50 jobs a second; each job of rq is a process, which starts in 10 to 40 ms
RQ_WORKERS, CELERY_CHILDREN = 6, 8
# tasks that wait, so that no worker is idle, nor any task left for minutes at the end
LONGEST_QUEUE = 20
STOP_S = 20.0

Sender = Callable[[], object]


@contextlib.contextmanager
def rq_workers(url: str, directory: Path, program: str = "rq.cli") -> Iterator[Sender]:
    """Run plain workers of rq, which do not import snowredis, but for their jobs; yield what sends a job."""
    import rq

    queue = rq.Queue(connection=redis.Redis.from_url(url))
    with _running([(program, "worker", "--url", url, "--quiet")] * RQ_WORKERS, url, directory):
        yield _sender(lambda: queue.enqueue("scripts._deaths.tasks.note_ids", result_ttl=0), lambda: len(queue))


def preloaded_rq_workers(url: str, directory: Path) -> contextlib.AbstractContextManager[Sender]:
    """Run workers of rq that import the tasks before they fork, which makes jobs start ten times as fast."""
    return rq_workers(url, directory, "scripts._deaths.rq_worker")


@contextlib.contextmanager
def celery_worker(url: str, directory: Path) -> Iterator[Sender]:
    """Run a worker of celery with a prefork pool; yield what sends a task."""
    from scripts._deaths.celery_app import app, note_ids_and_die

    command = (
        "celery",
        "-A",
        "scripts._deaths.celery_app",
        "worker",
        "--loglevel=CRITICAL",
        "--pool=prefork",
    )
    options = (f"--concurrency={CELERY_CHILDREN}", "--without-mingle", "--without-gossip")
    include = ("--include", "snowredis.integrations.celery")
    client = redis.Redis.from_url(url, db=1)
    with _running([command + options + include], url, directory), contextlib.closing(app):
        yield _sender(note_ids_and_die.delay, lambda: int(client.llen("celery")))


def _sender(send: Sender, waiting: Callable[[], int]) -> Sender:
    def send_one() -> None:
        if waiting() < LONGEST_QUEUE:
            send()

    return send_one


@contextlib.contextmanager
def _running(commands: list[tuple[str, ...]], url: str, directory: Path) -> Iterator[None]:
    environment = {**os.environ, "DEATHS_URL": url, "PYTHONPATH": str(ROOT)}
    with (directory / "workers.log").open("ab") as log:
        processes = [
            subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=environment, stdout=log, stderr=log)
            for command in commands
        ]
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S
        for process in processes:
            try:
                process.wait(max(0.1, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
