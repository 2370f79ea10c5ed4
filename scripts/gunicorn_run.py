#!/usr/bin/env python3
"""Serve ids from a real gunicorn under load, reload it, kill its workers, and check every id.

    scripts/gunicorn_run.py                            sync workers, 10 reloads, 20 kill -9
    scripts/gunicorn_run.py --kind uvicorn --seed 7 --seconds 120

4 workers, 8 from the fifth reload on, are asked for batches of ids over loopback by clients that never pause, and
end after some hundred requests each, too. Meanwhile, in an order that the seed says: reloads (HUP), kill -9, and,
where that works, a worker that hangs until gunicorn kills it. Checked: no id is repeated; a worker holds its
worker id before it is asked; only requests that a killed worker had are lost; in the end exactly those workers
that run hold leases, and none when gunicorn has ended. Needs gunicorn and redis-server; Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.chaos.runs import runs_of
from tests.integrations.gunicorn_server import HOOKS, WORKERS, Gunicorn, create_pool, eventually, gunicorn
from tests.support.duplicates import Runs, find_duplicates
from tests.support.servers import redis_server

CLIENTS = 6
BATCH = 300
FIRST_WORKERS, THEN_WORKERS = 4, 8
# a thread, or a greenlet, that hangs is not noticed by gunicorn
NOTICED = ("sync", "asgi", "uvicorn")
TIMEOUT_S = 3
GRACEFUL_TIMEOUT_S = 5
# gunicorn logs whole seconds, then sends SIGABRT, and SIGKILL a turn of its loop later
GUNICORN_KILLS_WITHIN_S = 3.0
# closes connections that it has accepted and not read yet when it ends; with or without snowredis
DROPS = ("uvicorn",)
REQUEST_LIMIT_S = 20.0
# after the load, to see how long it takes
KILLS_WITHOUT_LOAD = 5
# characters of gunicorn's log, when something is wrong
LOG_SHOWN = 6_000
# texts of gunicorn's log
FAILED, HUNG = "failed; gunicorn goes on", "WORKER TIMEOUT"
TIMED_OUT = re.compile(rf"\[([^]]+)\] \[\d+\] \[CRITICAL\] {HUNG} \(pid:(\d+)\)")
REPLACED = re.compile(r"\[(\d+)\] \[INFO\] (?:Autorestarting|Maximum request limit)")


def settings(workers: int) -> str:
    return (
        f"{HOOKS}workers = {workers}\ntimeout = {TIMEOUT_S}\nmax_requests = 1500\nmax_requests_jitter = 1000\n"
        # a reload does not look for workers that hang until this time has passed
        f"backlog = 512\ngraceful_timeout = {GRACEFUL_TIMEOUT_S}\n"
    )


@dataclass
class Failure:
    """A failed request: its name, when it began and failed, and how."""

    name: int
    began_s: float
    failed_s: float
    error: str


@dataclass
class Load:
    """Results of all clients."""

    port: int
    names: itertools.count[int] = field(default_factory=itertools.count)
    # pid -> pairs: first id of a run of consecutive ids, how many
    runs: defaultdict[int, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    requests: int = 0
    # answered by a worker that had no lease yet
    late: int = 0
    failures: list[Failure] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_LIMIT_S)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Connection": "close"})
            response = connection.getresponse()
            body = response.read()
        if response.status != 200:
            raise ValueError(f"{response.status} {body!r}")
        return body

    def request(self, what: str) -> bytes | None:
        """Return the body, or None for a failure, which is recorded."""
        name, began_s = next(self.names), time.monotonic()
        try:
            return self.get(f"{what}/{name}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.failures.append(Failure(name, began_s, time.monotonic(), repr(error)))
            return None

    def run(self) -> None:
        """Run one client until it is stopped."""
        while not self.stopped.is_set():
            body = self.request(f"/batch/{BATCH}")
            if body is None:
                continue
            pid, worker, *ids = array("q", body)
            with self.lock:
                for run in runs_of(ids):
                    self.runs[pid].extend(run)
                self.requests += 1
                self.late += worker == -1


@dataclass
class Kills:
    """Attributes: pid -> when it was killed; s until its worker id was free."""

    at_s: dict[int, float] = field(default_factory=dict)
    free_after_s: list[float] = field(default_factory=list)

    def describe(self) -> str:
        median_s, most_s = statistics.median(self.free_after_s), max(self.free_after_s)
        return f"median {1000 * median_s:.0f} ms, max {1000 * most_s:.0f} ms, of {len(self.free_after_s)}"

    def kill(self, running: Gunicorn, rng: random.Random) -> None:
        """Kill one and wait until its worker id is free. Raises AssertionError, and shows gunicorn's log."""
        # one that has a lease; it may be about to end by itself
        pid = rng.choice(sorted(eventually(lambda: running.holders() & running.processes(), "a worker")))
        self.at_s[pid] = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        try:
            eventually(lambda: pid not in running.holders(), f"a lease of {pid} given back")
        except AssertionError:
            left = [worker for worker in running.workers() if worker.pid == pid]
            print(running.log.read_text()[-LOG_SHOWN:], left, sep="\n", file=sys.stderr)
            raise
        self.free_after_s.append(time.monotonic() - self.at_s[pid])


def inject_faults(
    options: argparse.Namespace, running: Gunicorn, load: Load, conf: Path, kills: Kills
) -> list[threading.Thread]:
    """Reload and kill in the order that the seed gives; return the requests that still hang."""
    rng = random.Random(options.seed)
    steps = ["reload"] * options.reloads + ["kill"] * options.kills + ["hang"] * (options.kind in NOTICED)
    rng.shuffle(steps)
    reloads, hanging = itertools.count(1), []
    for number, step in enumerate(steps, 1):
        time.sleep(rng.uniform(0.0, 2 * options.pause))
        if step == "reload":
            if next(reloads) == options.reloads // 2:
                conf.write_text(settings(THEN_WORKERS))
            running.send(signal.SIGHUP)
        elif step == "kill":
            kills.kill(running, rng)
        else:
            hanging.append(threading.Thread(target=load.request, args=("/stuck/60",), daemon=True))
            hanging[-1].start()
            eventually(lambda: HUNG in running.log.read_text(), "gunicorn's timeout")
        progress = f"{number} of {len(steps)} done, {load.requests:,} requests, {len(load.failures)} failed"
        print(f"\r{progress}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return hanging


def gunicorn_kills(log: str) -> dict[int, float]:
    """Return the pids of workers that gunicorn killed since they hung, and when, in whole s, as time.monotonic()."""
    ahead_s = time.time() - time.monotonic()
    return {
        int(pid): datetime.strptime(text, "%Y-%m-%d %H:%M:%S %z").timestamp() - ahead_s
        for text, pid in TIMED_OUT.findall(log)
    }


def classify_failures(
    load: Load, kills: Kills, notes: Path, log: str
) -> tuple[list[Failure], list[Failure], list[Failure]]:
    """Failures: those of killed workers; those that no worker had begun to answer, though none was killed; others."""
    began = {int(name): int(pid) for pid, name in map(str.split, notes.read_text().splitlines())}
    by_gunicorn = gunicorn_kills(log)
    killed = kills.at_s.keys() | by_gunicorn.keys()
    times_s = [(at_s, at_s) for at_s in kills.at_s.values()]
    times_s += [(at_s, at_s + GUNICORN_KILLS_WITHIN_S) for at_s in by_gunicorn.values()]
    of_killed: list[Failure] = []
    unread: list[Failure] = []
    others: list[Failure] = []
    for failure in load.failures:
        if failure.name in began:
            (of_killed if began[failure.name] in killed else others).append(failure)
        elif any(failure.began_s <= last_s and first_s <= failure.failed_s for first_s, last_s in times_s):
            # accepted by one that was killed before it read it
            of_killed.append(failure)
        else:
            unread.append(failure)
    return of_killed, unread, others


def out_of_time(*_: object) -> None:
    raise SystemExit("out of time")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--kind", choices=WORKERS, default="sync", help="of workers")
    parser.add_argument("--preload", action="store_true")
    parser.add_argument("--ids", type=int, default=2_000_000, help="continue until there are this many")
    parser.add_argument("--reloads", type=int, default=10)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.7, metavar="S", help="between two faults, on average")
    parser.add_argument("--seconds", type=float, default=300, metavar="BOUND", help="fail after this many seconds")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(int(options.seconds))
    app, arguments = WORKERS[options.kind]
    with tempfile.TemporaryDirectory(prefix="snowredis-") as name, redis_server(Path(name)) as server:
        directory = Path(name)
        notes, conf = directory / "notes", directory / "conf.py"
        notes.touch()
        create_pool(server.url)
        began_s = time.monotonic()
        with gunicorn(
            server,
            directory,
            *arguments,
            *["--preload"] * options.preload,
            app=app,
            bind="127.0.0.1:0",
            log_level="info",
            conf=settings(FIRST_WORKERS),
            NOTES=str(notes),
        ) as running:
            running.wait_until_ready(FIRST_WORKERS)
            port = int(re.findall(r"Listening at: http://127.0.0.1:(\d+)", running.log.read_text())[0])
            load, kills = Load(port), Kills()
            clients = [threading.Thread(target=load.run, daemon=True) for _ in range(CLIENTS)]
            for client in clients:
                client.start()
            hanging = inject_faults(options, running, load, conf, kills)
            eventually(lambda: load.requests * BATCH >= options.ids, "enough ids")
            for thread in hanging:
                thread.join()
            # the last kill of all, and how long it takes until all is well again, under load
            kills.kill(running, random.Random(options.seed))
            workers = THEN_WORKERS if options.reloads > 1 else FIRST_WORKERS
            running.wait_until_ready(workers)
            well_after_s = time.monotonic() - max(kills.at_s.values())
            load.stopped.set()
            for client in clients:
                client.join()
            without_load = Kills()
            for number in range(KILLS_WITHOUT_LOAD):
                running.wait_until_ready(workers)
                without_load.kill(running, random.Random(number))
            running.wait_until_ready(workers)
            info = running.info()
            exit_code = running.end()
            left = len(running.workers())
            took_s = time.monotonic() - began_s
        log = running.log.read_text()
        lost, unread, others = classify_failures(load, kills, notes, log)
    found = find_duplicates(Runs(f"pid {pid}", runs[::2], runs[1::2]) for pid, runs in load.runs.items())
    rows = {
        "workers": f"{options.kind}{' --preload' * options.preload}, {FIRST_WORKERS}, then {THEN_WORKERS}",
        "seed": options.seed,
        "requests": f"{load.requests:,} in {took_s:.0f} s",
        "ids": f"{found.ids:,}",
        "ids repeated": found.repeated,
        "reloads": log.count("Handling signal: hup"),
        "kill -9": len(kills.at_s),
        "killed by gunicorn's timeout": log.count(HUNG),
        "ended by max_requests": len(set(REPLACED.findall(log))),
        "processes that answered": len(load.runs),
        "requests lost with a killed worker": len(lost),
        "requests dropped unread": len(unread),
        "other failed requests": len(others),
        "answers before there was a lease": load.late,
        "worker id free after kill -9": kills.describe(),
        "the same without load": without_load.describe(),
        "leases = living workers": f"{workers}, {1000 * well_after_s:.0f} ms after the last kill",
        "most worker ids at once": info.peak,
        "hooks that failed": log.count(FAILED),
        "leases after gunicorn's end": left,
        "gunicorn's exit code": exit_code,
    }
    for title, value in rows.items():
        print(f"{title:<38}{value}")
    if options.kind not in DROPS:
        others += unread
    for repetition in found.examples:
        print(repetition, file=sys.stderr)
    for failure in others[:10]:
        print(f"request {failure.name}: {failure.error}", file=sys.stderr)
    bad = found.repeated or others or load.late or left or exit_code or rows["hooks that failed"]
    return 1 if bad or found.ids < options.ids else 0


if __name__ == "__main__":
    sys.exit(main())
