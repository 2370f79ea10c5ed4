"""Servers and workers of queues, really run: one contract for all of them, and what the jobs of rq do besides."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import redis

import snowredis
from tests.integrations.hosts import (
    ASGI,
    CONSTANTS,
    LIFESPAN,
    POOL,
    UWSGI,
    WSGI,
    Host,
    broker,
    celery_command,
    eventually,
    gunicorn,
    run_host,
)
from tests.support.servers import RedisServer

# pid of a process, and ids that it made
Work = Callable[[Host], Iterable[tuple[int, list[int]]]]
TASKS = 20


# --- how a host makes ids ---------------------------------------------------------------------------


def ask(host: Host) -> Iterable[tuple[int, list[int]]]:
    found = host.ask("/ids/20")
    return [(found["pid"], found["ids"])]


def ask_a_holder(host: Host) -> Iterable[tuple[int, list[int]]]:
    """Send a request, before which the worker has a worker id."""
    found = host.ask("/ids/20")
    assert found["held"]
    return [(found["pid"], found["ids"])]


def ask_lifespan(host: Host) -> Iterable[tuple[int, list[int]]]:
    found = host.ask("/id")
    return [(found["pid"], [found["id"]])]


def notes_of(host: Host, send: Callable[[], object]) -> Iterable[tuple[int, list[int]]]:
    before = len(host.notes())
    for _ in range(TASKS):
        send()
    host.wait_for_notes(before + TASKS)
    return [(pid, ids) for pid, ids, *_ in host.notes()[before:]]


def send_to_celery(host: Host) -> Iterable[tuple[int, list[int]]]:
    from celery import Celery

    app = Celery(broker=broker(host.server), set_as_current=False)
    return notes_of(host, partial(app.send_task, "tests.integrations.celery_app.make"))


def send_to_dramatiq(host: Host) -> Iterable[tuple[int, list[int]]]:
    from tests.integrations.queue_apps import dramatiq_actor

    return notes_of(host, dramatiq_actor(host.server.url).send)


def send_to_huey(host: Host) -> Iterable[tuple[int, list[int]]]:
    from tests.integrations.queue_apps import huey_task

    return notes_of(host, huey_task(host.server.url)[1])


# --- the contract -----------------------------------------------------------------------------------


class Kind(NamedTuple):
    """One way to run processes that make ids.

    Attributes:
        run: start it, with a Redis and a directory.
        work: make some ids.
        needs: packages.
        makers: how many processes make ids; 0: the program itself.
        label: of its leases.
        replace: signal upon which its processes are replaced; 0: they are, after some work; None: never.
        restarts: whether a killed process is replaced by another one, which releases its worker ids.
        stop: signal that ends it.
    """

    run: Callable[[RedisServer, Path], contextlib.AbstractContextManager[Host]]
    work: Work
    needs: str = ""
    makers: int = 2
    label: str = ""
    replace: int | None = None
    restarts: bool = False
    stop: int = signal.SIGTERM


def of_gunicorn(*options: str, app: str = WSGI, needs: str = "") -> Kind:
    def run(server: RedisServer, directory: Path) -> contextlib.AbstractContextManager[Host]:
        return gunicorn(server, directory, "--workers=2", *options, app=app)

    label = f"gunicorn {app}"
    return Kind(run, ask_a_holder, f"gunicorn {needs}", label=label, replace=signal.SIGHUP, restarts=True)


def of_command(*command: str, **more: Any) -> Callable[[RedisServer, Path], Any]:
    def run(server: RedisServer, directory: Path) -> contextlib.AbstractContextManager[Host]:
        words = [word.format(socket=directory / "http.sock") for word in command]
        return run_host(server, directory, words, **more)

    return run


def of_celery(*options: str, makers: int, needs: str = "", restarts: bool = False, **more: str) -> Kind:
    run = of_command(*celery_command(*options), **more)
    return Kind(run, send_to_celery, f"celery {needs}", makers, label="w@test", restarts=restarts)


def of_uwsgi(*options: str, replace: int) -> Kind:
    program = (str(UWSGI), "--master", "--processes=2", "--die-on-term", "--need-app", "--http-socket={socket}")
    run = of_command(*program, f"--module={WSGI}", *options)
    # one that ends after so many requests may have ended before it is killed
    return Kind(run, ask, "uwsgi", replace=replace, restarts=bool(replace))


def of_asgi_server(*command: str, makers: int = 0) -> Kind:
    return Kind(of_command(*command, LIFESPAN), ask_lifespan, command[0], makers)


KINDS = {
    "gunicorn sync": of_gunicorn("--preload"),
    "gunicorn gthread": of_gunicorn("--worker-class=gthread", "--threads=2"),
    "gunicorn gevent": of_gunicorn("--worker-class=gevent", "--preload", needs="gevent"),
    "gunicorn asgi": of_gunicorn("--worker-class=asgi", app=ASGI),
    "gunicorn uvicorn": of_gunicorn(
        "--worker-class=uvicorn_worker.UvicornWorker", app=ASGI, needs="uvicorn_worker"
    ),
    "uwsgi": of_uwsgi(replace=signal.SIGHUP),
    "uwsgi lazy": of_uwsgi("--lazy-apps", "--threads=2", replace=signal.SIGHUP),
    "uwsgi max-requests": of_uwsgi("--max-requests=5", "--min-worker-lifetime=1", replace=0),
    "granian": of_asgi_server("granian", "--interface=asgi", "--uds={socket}", makers=1),
    "hypercorn": of_asgi_server("hypercorn", "--bind=unix:{socket}", makers=1),
    "uvicorn": of_asgi_server("uvicorn", "--uds={socket}", "--loop=uvloop"),
    "celery prefork": of_celery("--concurrency=2", makers=2, restarts=True),
    "celery threads": of_celery("--pool=threads", "--concurrency=4", makers=0),
    "celery gevent": of_celery("--pool=gevent", "--concurrency=4", makers=0, needs="gevent"),
    # including the module is enough; an older celery starts children by fork only
    "celery spawn": of_celery(
        "--concurrency=1", "--include=snowredis.integrations.celery", makers=1, SETUP="0", START="spawn"
    ),
    "dramatiq": Kind(
        of_command("dramatiq", "tests.integrations.dramatiq_app", "--processes=2", "--threads=2"),
        send_to_dramatiq, "dramatiq",
    ),
    "huey": Kind(
        of_command("huey.bin.huey_consumer", "tests.integrations.huey_app.huey", "-w", "2", "-k", "process"),
        send_to_huey, "huey", stop=signal.SIGINT,
    ),
}  # fmt: skip


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    found = KINDS[request.param]
    missing = [name for name in found.needs.split() if name != "uwsgi" and find_spec(name) is None]
    if "uwsgi" in found.needs and not runs_this_python(UWSGI):
        missing = ["uwsgi, with this Python"]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    return found


def runs_this_python(uwsgi: str | None) -> bool:
    if uwsgi is None:
        return False
    version = subprocess.run([uwsgi, "--python-version"], capture_output=True, text=True, timeout=20).stdout
    return version.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")


@pytest.fixture
def new_server(server: RedisServer) -> RedisServer:
    """The server of the tests, without data."""
    server.client().flushall()
    return server


def is_quiet(host: Host) -> bool:
    """Return whether a host is done: one that still logs its last request or task may kill the process of it."""
    size = host.log.stat().st_size
    time.sleep(0.2)
    return host.log.stat().st_size == size


def test_worker_ids_come_and_go_with_the_processes_that_make_ids(
    kind: Kind, new_server: RedisServer, tmp_path: Path
) -> None:
    made: list[int] = []
    with kind.run(new_server, tmp_path) as host:

        def makers_without(old: set[int]) -> set[int]:
            """Let the host make ids until as many processes as it has hold leases and have made some, none of *old*."""
            pids: set[int] = set()

            def all_have() -> set[int]:
                assert host.process.poll() is None, host.log.read_text()
                for pid, ids in kind.work(host):
                    pids.add(pid)
                    made.extend(ids)
                holders = host.holders()
                return holders if len(holders) == max(kind.makers, 1) and holders <= pids - old else set()

            found: set[int] = eventually(all_have, "leases of all that make ids", ignored=(httpx.TransportError,))
            return found

        gone: set[int] = set()
        pids = makers_without(gone)
        assert (host.process.pid in pids) == (not kind.makers)
        assert {worker.label for worker in host.workers()} == {kind.label}
        if kind.replace is not None:
            gone = pids
            host.process.send_signal(kind.replace)
            pids = makers_without(gone)
        assert host.ended() == set()
        killed: set[int] = set()
        if kind.restarts:
            # who is killed before it has its lease from the reply made no id, and counts as no death
            eventually(lambda: all(each.renewed_ms > each.claimed_ms for each in host.workers()), "heartbeats")
            killed.add(pid := pids.pop())
            os.kill(pid, signal.SIGKILL)
            makers_without(gone | killed)
        eventually(lambda: is_quiet(host), "a log that does not grow")
        assert host.end(kind.stop) in (0, -kind.stop)
        assert host.workers() == []
        assert host.ended() == {("died", pid) for pid in killed}
        assert "failed; gunicorn goes on" not in host.log.read_text()
    assert len(set(made)) == len(made)


# --- rq: a process for each job -----------------------------------------------------------------------


def run_jobs(server: RedisServer, directory: Path, *options: str) -> None:
    """Run four jobs to their end; they make ten ids each."""
    rq = pytest.importorskip("rq")
    with redis.Redis.from_url(server.url) as client:
        for _ in range(4):
            rq.Queue(connection=client).enqueue("tests.integrations.application.note_ids")
    with run_host(server, directory, ["rq.cli", "worker", "--url", server.url, "--burst", *options]) as host:
        assert host.process.wait(60) == 0
        made = [an_id for _, ids in host.notes() for an_id in ids]
    assert len(set(made)) == len(made) == 40, host.log.read_text()


def test_every_job_of_rq_releases_its_worker_ids_and_shows_the_workers_name(
    new_server: RedisServer, tmp_path: Path
) -> None:
    run_jobs(new_server, tmp_path, "--name", "packer", "--worker-class", "snowredis.integrations.rq.Worker")
    with contextlib.closing(snowredis.WorkerPool(new_server.url, POOL)) as pool:
        info = pool.info()
        assert (info.claims, info.releases, info.used, info.peak) == (8, 8, 0, 2)
        assert {event.owner.label for event in pool.events() if event.kind == "claimed"} == {"rq packer"}


def test_jobs_of_a_plain_worker_of_rq_release_what_the_jobs_before_them_left(
    new_server: RedisServer, tmp_path: Path
) -> None:
    """Each job ends by os._exit(), in a process whose parent does not know snowredis."""
    run_jobs(new_server, tmp_path)
    with contextlib.closing(snowredis.WorkerPool(new_server.url, POOL)) as pool:
        info = pool.info()
        assert (info.claims, info.releases, info.died, info.used) == (8, 6, 0, 2)
        # a process with another parent reads none of their records: the last leases end by themselves
        with snowredis.connect(new_server.url, pool=POOL, **CONSTANTS) as ids:
            ids.claim()
            assert pool.info().used == 3
