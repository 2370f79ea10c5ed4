"""Let forked children die in every way, and see how soon their worker ids are available again.

    python scripts/deaths.py --seconds 120 --rate 50
    python scripts/deaths.py --ways os._exit,kill --seconds 20

A parent such as rq's forks jobs that make ids and end in a given way, at a given rate, on a pool of 64 worker ids with
a ttl of 30 s, on a redis-server of its own. Prints one row for each way. Exits with 1 if an id was repeated, a child
got PoolExhausted, or a lease was still there at the end. Bounded by the seconds for each way, and 30 more.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import snowredis  # noqa: E402
from snowredis.core.layout import Layout  # noqa: E402
from snowredis.lease.model import PoolConfig  # noqa: E402
from snowredis.reclaim.descendants import watch_descendants  # noqa: E402
from tests.support.servers import redis_server  # noqa: E402

LAYOUT = Layout(timestamp_bits=41, backup_bits=2, worker_bits=6, sequence_bits=14)
IDS = 20
# how often the pool is looked at
LOOK_S = 0.05
END_S = 20.0


@dataclass
class Row:
    """What was seen of one way to die."""

    way: str
    jobs: int = 0
    ids: list[int] = field(default_factory=list)
    refused: int = 0
    most_dead: int = 0
    available_ms: list[float] = field(default_factory=list)
    left: int = 0

    @property
    def repeated(self) -> int:
        return len(self.ids) - len(set(self.ids))


def make_ids(write_end: int) -> None:
    """Make ids in a child, and report them in one write: -1 if the pool is full."""
    try:
        made = snowredis.next_ids(IDS)
    except snowredis.PoolExhausted:
        made = [-1]
    os.write(write_end, struct.pack(f"{len(made)}q", *made))


def job(ending: Callable[[], object]) -> tuple[int, list[int]]:
    """Fork a child that makes ids and then calls *ending*, until it is dead; return its pid and its ids."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        make_ids(write_end)
        ending()
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return pid, list(struct.unpack(f"{len(data) // 8}q", data))


def in_pool(_: int) -> list[int]:
    try:
        return snowredis.next_ids(IDS)
    except snowredis.PoolExhausted:
        return [-1]


def pool_of_four() -> tuple[int, list[int]]:
    """Let the children of a pool of multiprocessing make ids, and be terminated."""
    with multiprocessing.get_context("fork").Pool(4) as children:
        batches = children.map(in_pool, range(4), chunksize=1)
    return 0, [an_id for batch in batches for an_id in batch]


def die_by(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


WAYS: dict[str, Callable[[], tuple[int, list[int]]]] = {
    "os._exit": lambda: job(lambda: os._exit(0)),
    "kill -9": lambda: job(lambda: die_by(signal.SIGKILL)),
    "SIGTERM": lambda: job(lambda: die_by(signal.SIGTERM)),
    "multiprocessing": pool_of_four,
}


class Watcher:
    """Thread that reads the events and the leases of the pool while children die."""

    def __init__(self, url: str, row: Row) -> None:
        self._pool, self._row = snowredis.WorkerPool(url, "deaths"), row
        self.dead_at_ms: dict[int, float] = {}
        self._seen: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._pool.close()

    def holders(self) -> list[int]:
        return [worker.pid for worker in self._pool.workers()]

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            dead = sum(pid in self.dead_at_ms for pid in self.holders())
            self._row.most_dead = max(self._row.most_dead, dead)
            self.look()

    def look(self) -> None:
        """Compare the times of releases on behalf of the dead with the times of their deaths."""
        for event in self._pool.events(newest=200):
            if event.kind == "reclaimed" and event.id not in self._seen:
                self._seen.add(event.id)
                died_ms = self.dead_at_ms.get(event.pid)
                if died_ms is not None:
                    self._row.available_ms.append(max(0.0, event.at_ms - died_ms))


def run(way: str, url: str, seconds: float, rate: float, rng: random.Random) -> Row:
    """Let children die in one way, *rate* a second, and return what was seen."""
    row = Row(way)
    act = WAYS[way]
    each = 4 if way == "multiprocessing" else 1
    with Watcher(url, row) as watcher:
        end_s = next_s = time.monotonic()
        end_s += seconds
        while (now_s := time.monotonic()) < end_s:
            if now_s < next_s:
                time.sleep(next_s - now_s)
            # a little random, as jobs come
            next_s = max(next_s, time.monotonic() - 1) + rng.uniform(0.5, 1.5) * each / rate
            pid, made = act()
            if pid:
                watcher.dead_at_ms[pid] = time.time() * 1000
            row.jobs += each
            row.refused += made.count(-1)
            row.ids += [an_id for an_id in made if an_id >= 0]
        deadline_s = time.monotonic() + END_S
        while watcher.holders() and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
        row.left = len(watcher.holders())
        watcher.look()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="for each way (default: 120)")
    parser.add_argument("--rate", type=float, default=50.0, help="deaths a second (default: 50)")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"some of {', '.join(WAYS)}")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    columns = "how children end | deaths | a second | ids | repeated | PoolExhausted | dead leases at most"
    print(f"| {columns} | available after |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    failed = False
    with contextlib.ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        server = opened.enter_context(redis_server(directory))
        snowredis.WorkerPool(server.url, "deaths").create(PoolConfig(name="deaths", layout=LAYOUT))
        snowredis.configure(url=server.url, pool="deaths", layout=LAYOUT)
        watch_descendants()
        for way in args.ways.split(","):
            row = run(way, server.url, args.seconds, args.rate, random.Random(args.seed))
            times = sorted(row.available_ms)
            shown = f"{times[len(times) // 2]:.0f} ms, at most {times[-1]:.0f}" if times else "not measured"
            print(
                f"| {way} | {row.jobs:,} | {row.jobs / args.seconds:.0f} | {len(row.ids):,} | {row.repeated} "
                f"| {row.refused} | {row.most_dead} | {shown} |",
                flush=True,
            )
            failed |= bool(row.repeated or row.refused or row.left)
    return failed


if __name__ == "__main__":
    sys.exit(main())
