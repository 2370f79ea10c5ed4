#!/usr/bin/env python3
"""Take Redis away from a gunicorn under load, reload it and kill its workers meanwhile, and check every id.

    scripts/outage_gunicorn.py                           away for 600 s, ttl 3 s, a fault every 15 s
    scripts/outage_gunicorn.py --down 60 --pause 5 --seed 7

Clients ask 4 workers for batches of ids, and never pause. Redis is killed with -9 when all of them hold a lease; after
that, in an order that the seed says: reloads (HUP) and kill -9 of a worker. Then Redis comes back empty. Checked: no
request fails but those that a killed worker had; no id is repeated; no living worker pauses when Redis is back. Prints
also the longest time between two replies of a worker. Needs gunicorn and redis-server; Linux. Bounded by --down and
150 s more.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.gunicorn_run import DROPS, Kills, Load, classify_failures, out_of_time
from tests.chaos.runs import runs_of
from tests.integrations.gunicorn_server import HOOKS, WORKERS, Gunicorn, create_pool, gunicorn
from tests.support.duplicates import Runs, find_duplicates
from tests.support.servers import RedisServer, redis_server

CLIENTS, BATCH, WORKER_COUNT = 3, 20, 4
# a client's pause, so that the ids of ten minutes fit into memory
PAUSE_S = 0.01
# of undisturbed load, before the outage and after it
BEFORE_S, AFTER_S = 5.0, 20.0
MOST_LOG = 6_000
# of the pool
RESERVE_S = 24 * 3600


@dataclass
class PacedLoad(Load):
    """Attributes: for each process that replied, when; a float of seconds each."""

    replied_s: defaultdict[int, array[float]] = field(default_factory=lambda: defaultdict(lambda: array("d")))

    def run(self) -> None:
        while not self.stopped.is_set():
            body = self.request(f"/batch/{BATCH}")
            if body is not None:
                pid, _, *ids = array("q", body)
                with self.lock:
                    self.replied_s[pid].append(time.monotonic())
                    for run in runs_of(ids):
                        self.runs[pid].extend(run)
                    self.requests += 1
            time.sleep(PAUSE_S)

    def longest_s(self, since_s: float, until_s: float) -> float:
        """Return the longest time between two replies of one process, of which one was in that time."""
        gaps = (
            later - earlier
            for times in self.replied_s.values()
            for earlier, later in itertools.pairwise(times)
            if earlier <= until_s and later >= since_s
        )
        return max(gaps, default=0.0)


def inject_faults(options: argparse.Namespace, running: Gunicorn, kills: Kills, load: Load) -> int:
    """Reload, or kill a worker, every --pause seconds while Redis is away; return how many reloads there were."""
    rng, reloads, end_s = random.Random(options.seed), 0, time.monotonic() + options.down
    while time.monotonic() + options.pause < end_s:
        time.sleep(options.pause * rng.uniform(0.5, 1.5))
        if rng.random() < 0.5:
            reloads += 1
            running.send(signal.SIGHUP)
        elif children := sorted(running.processes()):
            pid = rng.choice(children)
            kills.at_s[pid] = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        left_s = max(0.0, end_s - time.monotonic())
        print(
            f"\r{left_s:4.0f} s left, {load.requests:,} requests, {len(load.failures)} failed",
            end="",
            file=sys.stderr,
            flush=True,
        )
    time.sleep(max(0.0, end_s - time.monotonic()))
    print(file=sys.stderr)
    return reloads


def play(options: argparse.Namespace, server: RedisServer, directory: Path) -> dict[str, object]:
    """Play the outage; return what was found, by title."""
    notes = directory / "notes"
    notes.touch()
    create_pool(server.url, ttl_s=options.ttl, outage_reserve_s=RESERVE_S)
    app, arguments = WORKERS[options.kind]
    conf = f"{HOOKS}workers = {WORKER_COUNT}\ntimeout = 30\nbacklog = 512\ngraceful_timeout = 5\n"
    with gunicorn(
        server,
        directory,
        *arguments,
        app=app,
        bind="127.0.0.1:0",
        log_level="info",
        conf=conf,
        ttl_s=options.ttl,
        NOTES=str(notes),
        CLAIM_TIMEOUT="10",
        OUTAGE_RESERVE=str(RESERVE_S),
    ) as running:
        running.wait_until_ready(WORKER_COUNT)
        port = int(re.findall(r"Listening at: http://127.0.0.1:(\d+)", running.log.read_text())[0])
        load, kills = PacedLoad(port), Kills()
        clients = [threading.Thread(target=load.run, daemon=True) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(BEFORE_S)
        away_s = time.monotonic()
        server.kill()
        reloads = inject_faults(options, running, kills, load)
        back_s = time.monotonic()
        server.start()
        time.sleep(AFTER_S)
        running.wait_until_ready(WORKER_COUNT)
        load.stopped.set()
        for client in clients:
            client.join()
        exit_code = running.end()
        log = running.log.read_text()
    of_killed, unread, others = classify_failures(load, kills, notes, log)
    if options.kind not in DROPS:
        others += unread
    found = find_duplicates(Runs(f"pid {pid}", runs[::2], runs[1::2]) for pid, runs in load.runs.items())
    for failure in others[:10]:
        print(f"{failure.began_s - away_s:.1f} s: {failure.error[:600]}", file=sys.stderr)
    if others or exit_code:
        print(log[-MOST_LOG:], file=sys.stderr)
    return {
        "Redis was away for": f"{back_s - away_s:.0f} s, and came back empty",
        "requests": f"{load.requests:,}",
        "ids": f"{found.ids:,}",
        "ids repeated": found.repeated,
        "reloads": reloads,
        "kill -9": len(kills.at_s),
        "processes that replied": len(load.runs),
        "requests lost with a killed worker": len(of_killed),
        "other failed requests": len(others),
        "longest time between two replies of a worker, in the outage": f"{load.longest_s(away_s, back_s):.2f} s",
        "the same, after it": f"{load.longest_s(back_s, back_s + AFTER_S):.2f} s",
        "gunicorn's exit code": exit_code,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--kind", choices=WORKERS, default="sync", help="of workers")
    parser.add_argument("--down", type=float, default=600.0, metavar="S", help="how long Redis is away")
    parser.add_argument("--ttl", type=float, default=3.0, metavar="S", help="of the pool")
    parser.add_argument("--pause", type=float, default=15.0, metavar="S", help="between two faults, on average")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(int(options.down) + 150)
    with tempfile.TemporaryDirectory(prefix="snowredis-") as name, redis_server(Path(name)) as server:
        rows = play(options, server, Path(name))
    for title, value in rows.items():
        print(f"{title:<60}{value}")
    bad = rows["ids repeated"] or rows["other failed requests"] or rows["gunicorn's exit code"]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
