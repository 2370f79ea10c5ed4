#!/usr/bin/env python3
"""Run many celery tasks through workers that keep ending (warm, cold, kill -9), and check every id.

    scripts/celery_run.py                         100,000 tasks of 10 ids each
    scripts/celery_run.py --tasks 5000 --seed 7 --seconds 60

Workers (prefork, now and then solo or threads) live for a few seconds each, two at a time; children are replaced
after some tasks, and some are killed. Tasks are acknowledged late, so what was cut off runs again; what the first
run had noted counts, too. Checked: no id is repeated, task ids included; a worker that was not killed leaves no
lease; a ttl after the last end there is none at all. The broker may lose a task for each worker that is killed as a
whole, while it takes one from the queue; those are counted. Needs celery and redis-server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import snowredis
from snowredis.snowflake.protocol import PoolConfig
from tests.integrations.celery_worker import IDS_KEY, POOL, environment, worker
from tests.support.duplicates import Duplicates, Runs, find_duplicates
from tests.support.programs import ROOT
from tests.support.servers import RedisServer, redis_server

TTL_S = 5.0
# how a worker ends, and how often of 10 times
ENDS = {"warm": 3, "cold": 3, "warm, then cold": 2, "kill -9": 2}
# a warm end waits for tasks and for brokers
END_LIMIT_S = 60.0
PAGE = 10_000
SENDER = """
import sys
from tests.integrations.celery_app import make
for _ in range(int(sys.argv[1])):
    make.apply_async(ignore_result=True)
print("sent")
"""


def children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Run:
    """Counts and problems of one run."""

    def __init__(self, server: RedisServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.ends: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.killed_children = 0
        self.problems: list[str] = []
        self.pool = snowredis.WorkerPool(server.url, POOL)

    def waiting(self) -> int:
        with contextlib.closing(self.server.client()) as client:
            client.select(1)
            return int(client.llen("celery")) + int(client.hlen("unacked"))

    def life(self, number: int, seed: str) -> None:
        """Start one worker, let it run, and end it."""
        rng = random.Random(seed)
        name = f"w{number}@run"
        kind = rng.choice(["prefork"] * 6 + ["solo", "threads"])
        how = rng.choices(list(ENDS), list(ENDS.values()))[0]
        options = [f"--pool={kind}", f"--concurrency={rng.randint(2, 4)}"]
        if rng.random() < 0.6:
            options.append(f"--max-tasks-per-child={rng.choice([20, 100, 500])}")
        log = self.directory / f"worker-{number}.log"
        with worker(self.server, log, *options, name=name, TTL=str(TTL_S), TASK_IDS="1") as fleet:
            ready_by_s = time.monotonic() + END_LIMIT_S
            while " ready." not in log.read_text() and time.monotonic() < ready_by_s:
                time.sleep(0.05)
            killed = False
            until_s = time.monotonic() + rng.uniform(1, 6)
            while time.monotonic() < until_s:
                time.sleep(rng.uniform(0.2, 2))
                children = children_of(fleet.process.pid)
                if kind == "prefork" and children and rng.random() < 0.2:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(rng.choice(children), signal.SIGKILL)
                        self.killed_children += 1
                        killed = True
            if how == "warm, then cold":
                fleet.process.send_signal(signal.SIGTERM)
                time.sleep(rng.uniform(0.01, 0.5))
            last = {"warm": signal.SIGTERM, "kill -9": signal.SIGKILL}.get(how, signal.SIGQUIT)
            fleet.process.send_signal(last)
            try:
                fleet.process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.problems.append(f"{name} did not end in {END_LIMIT_S:.0f} s: {log.read_text()[-1000:]}")
        ended = f"{how}{', a child killed before' * killed}"
        left = sum(info.label == name for info in self.pool.workers())
        self.ends[ended] += 1
        self.left[ended] += left
        if left and not killed and how != "kill -9":
            self.problems.append(f"{name} ({' '.join(options)}, {how}) left {left} leases")

    def check(self) -> tuple[int, int, Duplicates]:
        """Return runs of tasks, tasks that ran, and what is wrong with all ids, those of tasks included."""
        made: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
        tasks: set[int] = set()
        runs = 0
        client = self.server.client()
        while page := client.lrange(IDS_KEY, runs, runs + PAGE - 1):
            runs += len(page)
            for note in page:
                pid, task, *ids = map(int, note.split())
                tasks.add(task)
                made[pid].extend(ids)
        sources = [Runs(f"pid {pid}", ids) for pid, ids in made.items()]
        return runs, len(tasks), find_duplicates([*sources, Runs("the sender of tasks", sorted(tasks))])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--tasks", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the random choices")
    parser.add_argument(
        "--seconds", type=float, default=900, metavar="BOUND", help="start no worker after this many seconds"
    )
    options = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="snowredis-") as name, redis_server(Path(name)) as server:
        run = Run(server, Path(name))
        run.pool.create(PoolConfig(name=POOL, ttl_ms=int(TTL_S * 1000)))
        sender = subprocess.Popen(
            [sys.executable, "-c", SENDER, str(options.tasks)],
            cwd=ROOT,
            env=environment(server, TTL=str(TTL_S), TASK_IDS="1"),
            stdout=subprocess.DEVNULL,
        )

        def lives(first: int) -> None:
            number = first
            while time.monotonic() - began_s < options.seconds and (sender.poll() is None or run.waiting()):
                run.life(number, f"{options.seed}/{number}")
                number += 2
                print(f"{server.client().llen(IDS_KEY):,} runs, {run.waiting():,} waiting", file=sys.stderr)

        starters = [threading.Thread(target=lives, args=(first,)) for first in (0, 1)]
        try:
            for thread in starters:
                thread.start()
            for thread in starters:
                thread.join()
        finally:
            sender.kill()
            sender.wait()
        # what was killed holds its lease for one ttl
        time.sleep(TTL_S + 0.5)
        left = run.pool.workers()
        runs, tasks, found = run.check()
    for how, count in sorted(run.ends.items()):
        print(f"{how:<36}{count:>4} workers, {run.left[how]:>3} leases left at their end")
    lost = options.tasks - tasks
    killed = sum(count for how, count in run.ends.items() if how.startswith("kill"))
    if lost > killed:
        run.problems.append(f"{lost:,} tasks did not run, and only {killed} workers were killed")
    print(
        f"{tasks:,} tasks ({lost} lost by the broker) in {runs:,} runs, {run.killed_children} children killed, "
        f"{time.monotonic() - began_s:.0f} s, seed {options.seed}\n"
        f"{found.ids:,} ids, {found.repeated} repeated; {len(left)} leases left after a ttl"
    )
    for problem in (*run.problems, *found.examples):
        print(problem)
    return 1 if found.repeated or left or run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
