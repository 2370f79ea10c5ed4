"""Let forked children die in every way, and see how soon their worker ids are available again.

    python scripts/deaths.py --seconds 120 --rate 50
    python scripts/deaths.py --ways "os._exit;kill -9" --seconds 20

Children of this process make ids and die in a given way, at a given rate, on a pool of 64 worker ids with a ttl of 30
s, on a redis-server of its own. Prints one row for each way. Exits with 1 if an id was repeated, a child got
PoolExhausted, or a lease was left after one heartbeat of a process of this machine. Bounded by the seconds for each
way, and 10 more.
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
from typing import NamedTuple, Self

sys.path.insert(0, str(Path(__file__).parents[1]))

import snowredis
from snowredis.core.layout import Layout
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support.servers import redis_server

LAYOUT = Layout(timestamp_bits=41, backup_bits=2, worker_bits=6, sequence_bits=14)
# how often the pool is looked at
READ_S = 0.05
# what is left when the last children have died is released by the next heartbeat: one every ttl / 3
END_S = 7.0
# each child makes this many
IDS = 20


class Death(NamedTuple):
    """A child that has died: its pid, 0 if unknown, when, in ms since 1970, and the ids that it made."""

    pid: int
    at_ms: float
    ids: list[int]


def job(ending: Callable[[], object]) -> list[Death]:
    """Fork a child that makes ids and then calls *ending*, and wait until it is dead."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        made = _make()
        os.write(write_end, struct.pack(f"{len(made)}q", *made))
        ending()
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return [Death(pid, time.time() * 1000, list(struct.unpack(f"{len(data) // 8}q", data)))]


def pool_of_four() -> list[Death]:
    """Let the children of a pool of multiprocessing make ids, and be terminated."""
    with multiprocessing.get_context("fork").Pool(4) as children:
        # one task each, as far as it goes: a child that has done its own may take another
        made = children.map(_make_in_pool, range(4), chunksize=1)
        ended_ms = time.time() * 1000
    ids: dict[int, list[int]] = {}
    for pid, batch in made:
        ids.setdefault(pid, []).extend(batch)
    return [Death(pid, ended_ms, batch) for pid, batch in ids.items()]


def _make_in_pool(_: int) -> tuple[int, list[int]]:
    made = _make()
    time.sleep(0.005)
    return os.getpid(), made


def _make() -> list[int]:
    """Make ids; -1 if the pool is full."""
    try:
        return snowredis.next_ids(IDS)
    except snowredis.PoolExhausted:
        return [-1]


def _die_by(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


WAYS: dict[str, Callable[[], list[Death]]] = {
    "os._exit": lambda: job(lambda: os._exit(0)),
    "kill -9": lambda: job(lambda: _die_by(signal.SIGKILL)),
    "SIGTERM": lambda: job(lambda: _die_by(signal.SIGTERM)),
    "multiprocessing": pool_of_four,
}


@dataclass
class Row:
    """Result of one way to die."""

    way: str
    deaths: int = 0
    ids: list[int] = field(default_factory=list)
    refused: int = 0
    most_dead: int = 0
    available_ms: list[float] = field(default_factory=list)
    left: int = 0

    @property
    def repeated(self) -> int:
        return len(self.ids) - len(set(self.ids))

    def add(self, deaths: list[Death]) -> None:
        self.deaths += len(deaths)
        for death in deaths:
            self.refused += -1 in death.ids
            self.ids += [an_id for an_id in death.ids if an_id >= 0]

    def text(self, seconds: float) -> str:
        times = sorted(self.available_ms)
        shown = f"{times[len(times) // 2]:.0f} ms, at most {times[-1]:.0f}" if times else "not measured"
        return (
            f"| {self.way} | {self.deaths:,} | {self.deaths / seconds:.0f} | {len(self.ids):,} | {self.repeated} "
            f"| {self.refused} | {self.most_dead} | {shown} |"
        )


class Watcher:
    """Thread that reads the events and the leases of the pool while children die."""

    def __init__(self, url: str, row: Row) -> None:
        self._pool, self._row = snowredis.WorkerPool(url, "deaths"), row
        self._dead_at_ms: dict[int, float] = {}
        # events are found before it is known when the process died
        self._released_ms: dict[str, tuple[int, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._pool.close()

    def note(self, deaths: list[Death]) -> None:
        self._row.add(deaths)
        self._dead_at_ms.update((death.pid, death.at_ms) for death in deaths)

    def dead_leases(self) -> int:
        return sum(is_dead(worker.pid) for worker in self._pool.workers())

    def _run(self) -> None:
        while not self._ended.wait(READ_S):
            self._row.most_dead = max(self._row.most_dead, self.dead_leases())
            self._read()

    def _read(self) -> None:
        for event in self._pool.events(newest=500):
            if event.kind in ("died", "released"):
                self._released_ms[event.id] = event.owner.pid, event.at_ms

    def finish(self) -> None:
        """Compare the times of releases on behalf of the dead with the times of their deaths."""
        self._read()
        self._row.available_ms = [
            max(0.0, at_ms - self._dead_at_ms[pid])
            for pid, at_ms in self._released_ms.values()
            if pid in self._dead_at_ms
        ]
        self._row.left = self.dead_leases()


def is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="for each way (default: 120)")
    parser.add_argument("--rate", type=float, default=50.0, help="deaths a second (default: 50)")
    parser.add_argument("--ways", default=";".join(WAYS), help=f"some of {'; '.join(WAYS)}")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    columns = "how children end | deaths | a second | ids | repeated | PoolExhausted | dead leases at most"
    print(f"| {columns} | available after |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    failed = False
    with contextlib.ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        server = opened.enter_context(redis_server(directory))
        snowredis.WorkerPool(server.url, "deaths").create(PoolConfig(name="deaths", layout=LAYOUT))
        snowredis.configure(url=server.url, pool="deaths", layout=LAYOUT)
        # the one process of this machine that lives throughout; it makes no ids, but its heartbeat sweeps
        living = opened.enter_context(snowredis.connect(server.url, pool="deaths", layout=LAYOUT))
        living.claim()
        for way in args.ways.split(";"):
            row, rng = Row(way), random.Random(args.seed)
            with Watcher(server.url, row) as watcher:
                next_s = time.monotonic()
                end_s = next_s + args.seconds
                while (now_s := time.monotonic()) < end_s:
                    time.sleep(max(0.0, next_s - now_s))
                    deaths = WAYS[way]()
                    watcher.note(deaths)
                    # a little random, as jobs come
                    next_s = max(next_s, time.monotonic() - 1) + rng.uniform(0.5, 1.5) * len(deaths) / args.rate
                time.sleep(END_S)
                watcher.finish()
            print(row.text(args.seconds), flush=True)
            failed |= bool(row.repeated or row.refused or row.left)
    return failed


if __name__ == "__main__":
    sys.exit(main())
