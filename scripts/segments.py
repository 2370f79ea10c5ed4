#!/usr/bin/env python3
"""Look for repeated numbers of tags, with real processes and servers under faults.

    scripts/segments.py --faults 60 --seed 7

Processes with threads, signal handlers and forked children make numbers of two servers, and dated ones of a third. They
are killed and stopped; the servers are wiped, stopped, and rolled back by a kill to an old snapshot. A person opens the
tags after each loss. A number is recorded before it is used. At the end, processes that are killed, and transactions
that are rolled back, take numbers without gaps. Needs redis-server.

Exits with 1 if a number was repeated, or is missing where there are no gaps.
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
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import redis
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis.errors import SnowredisError
from snowredis.numbers import create_tag, open_tag, show_tag
from tests.support.servers import RedisServer

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 5
TAG, DATED = "word", "bills"
HOURS: Any = {"period": "hour", "format": "{date:%Y%m%d%H}-{number:012}"}
# more than all processes can have at hand, and than killed ones lost
MARGIN = 50_000_000


class Chaos:
    """Processes that make numbers of two servers, and dated ones of a third, while all of that is killed and wiped."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.random = directory, random.Random(seed)
        self.servers = [self._start_server(name) for name in ("a", "b", "dated")]
        self.urls = " ".join(server.url for server in self.servers[:2])
        for start, server in enumerate(self.servers[:2], 1):
            create_tag(server.url, TAG, start=start, stride=2)
        create_tag(self.servers[2].url, DATED, **HOURS)
        self.fired: Counter[str] = Counter()
        self.processes: list[subprocess.Popen[bytes]] = []
        for _ in range(PROCESSES):
            self._start_process()

    def _start_server(self, name: str) -> RedisServer:
        directory = self.directory / name
        directory.mkdir()
        server = RedisServer(directory)
        server.start()
        return server

    def _start_process(self) -> None:
        has_dated = any(process.args[3] == "dated" for process in self.processes)  # type: ignore[index]
        kind = "segment" if has_dated else "dated"
        url = self.servers[2].url if kind == "dated" else self.urls
        command = [sys.executable, "-m", "tests.numbers.programs.recorder", kind, url, str(self.directory)]
        self.processes.append(subprocess.Popen(command, cwd=ROOT))

    def runs(self, kind: str) -> list[list[str]]:
        """Return all runs of numbers that were recorded: first, count, and stride or period."""
        files = self.directory.glob(f"{kind}-*.runs")
        # the last line of a process that was killed may be cut off: its numbers were not used
        return [line.split() for path in files for line in path.read_text().split("\n")[:-1]]

    def _any_server(self) -> RedisServer:
        # dated numbers stop for longer
        return self.random.choice([*self.servers[:2] * 4, self.servers[2]])

    # --- faults ------------------------------------------------------------------------------------

    def kill(self) -> None:
        victim = self.processes.pop(self.random.randrange(len(self.processes)))
        victim.kill()
        victim.wait()
        self._start_process()

    def freeze(self) -> None:
        victim = self.random.choice(self.processes)
        victim.send_signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 2))
        victim.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        self._any_server().client().flushall()

    def hang(self) -> None:
        server = self._any_server()
        server.kill(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 2))
        server.kill(signal.SIGCONT)

    def roll_back(self) -> None:
        """Kill Redis with -9 some time after a snapshot, from which it starts again."""
        server = self._any_server()
        server.save()
        time.sleep(self.random.uniform(0, 1))
        server.restart()

    def open_tags(self) -> None:
        """Say from where on no number was handed out, as a person who knows the numbers in use."""
        for index, server in enumerate(self.servers):
            with contextlib.suppress(SnowredisError, OSError):
                tag = DATED if index == 2 else TAG
                info = show_tag(server.url, tag)
                if info is not None and info.reason is None:
                    continue
                used = self.runs("dated" if index == 2 else "segment")
                first = max((int(run[0]) + int(run[1]) * 2 for run in used), default=0) + MARGIN
                if index == 2 and info is not None:
                    open_tag(server.url, tag, min(first, info.maximum), info.period)
                elif index == 2:
                    create_tag(server.url, tag, **HOURS)
                elif info is None or info.settings["stride"] == "0":
                    create_tag(server.url, tag, start=first + (first + index + 1) % 2, stride=2)
                else:
                    open_tag(server.url, tag, first)
                self.fired["opened"] += 1

    def run(self, faults: int, seconds: float) -> int:
        """Inject *faults*, for *seconds* at most. Returns the exit code."""
        kinds = [self.kill, self.kill, self.freeze, self.wipe, self.hang, self.roll_back]
        while len({path.name.split("-")[1] for path in self.directory.glob("*.runs")}) < PROCESSES:
            time.sleep(0.5)
        started_s = time.monotonic()
        for _ in range(faults):
            if time.monotonic() - started_s > seconds:
                break
            fault = self.random.choice(kinds)
            fault()
            self.fired[fault.__name__] += 1
            end_s = time.monotonic() + self.random.uniform(1, 8)
            while time.monotonic() < end_s:
                self.open_tags()
                time.sleep(0.3)
        self.stop()
        what = ", ".join(f"{name} {count}" for name, count in sorted(self.fired.items()))
        print(f"{time.monotonic() - started_s:.0f} s, {len(list(self.directory.glob('*.runs'))):,} recorders: {what}")
        repeated = self._check("segment", self.runs("segment")) + self._check("dated", self.runs("dated"))
        return 1 if repeated else 0

    def _check(self, kind: str, runs: list[list[str]]) -> int:
        """Print how many numbers of *kind* were made, and how many of them twice; return that."""
        stride = 2 if kind == "segment" else 1
        # numbers of one server, or of one period
        groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for first, count, label in runs:
            group = str(int(first) % 2) if kind == "segment" else label
            groups[group].append((int(first), int(first) + (int(count) - 1) * stride))
        repeated = 0
        for spans in groups.values():
            last = -1
            for low, high in sorted(spans):
                repeated += max(0, (min(last, high) - low) // stride + 1)
                last = max(last, high)
        made = sum(int(run[1]) for run in runs)
        print(f"{kind}: {made:,} numbers in {len(runs):,} runs, {repeated} repeated")
        return repeated

    def stop(self) -> None:
        """End the processes and the servers."""
        for process in self.processes:
            process.kill()
            process.wait()
        for server in self.servers:
            with contextlib.suppress(redis.RedisError, OSError):
                server.kill()


def gaps(directory: Path, seed: int, transactions: int) -> int:
    """Take numbers without gaps in processes that are killed, and in transactions that are rolled back."""
    chosen, url = random.Random(seed), f"sqlite:///{directory}/gaps.db"
    program = [sys.executable, "-m", "tests.numbers.programs.invoices", url]
    subprocess.run([*program, "0", "0"], cwd=ROOT, check=True)
    engine = sa.create_engine(url, connect_args={"timeout": 60})
    table = sa.table("invoice", sa.column("number"))
    count = 0
    while count < transactions:
        users = [subprocess.Popen([*program, str(transactions), str(chosen.random())], cwd=ROOT) for _ in range(2)]
        wanted = count + chosen.randint(20, 200)
        while count < wanted and any(user.poll() is None for user in users):
            time.sleep(chosen.uniform(0.01, 0.3))
            with engine.connect() as connection:
                count = connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
        for user in users:
            user.kill()
            user.wait()
    with engine.connect() as connection:
        numbers = sorted(int(number) for number in connection.scalars(sa.select(table.c.number)))
    missing, twice = len(set(range(1, numbers[-1] + 1)) - set(numbers)), len(numbers) - len(set(numbers))
    print(f"without gaps: {len(numbers):,} numbers, {missing} missing, {twice} repeated")
    return 1 if missing or twice else 0


def chaos(seed: int, faults: int, seconds: float, transactions: int) -> int:
    """Run one fleet under faults; print what happened. Returns the exit code."""
    os.environ.pop("SNOWREDIS_URL", None)
    with tempfile.TemporaryDirectory(prefix="sg") as directory:
        fleet = Chaos(Path(directory), seed)
        try:
            code = fleet.run(faults, seconds)
        finally:
            fleet.stop()
        return code + gaps(Path(directory), seed, transactions)


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=60, help="how many (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults' order and times (default: 1)")
    parser.add_argument("--seconds", type=float, default=300, help="no more faults after this time (default: 300)")
    text = "invoices without gaps, at the end (default: 2000)"
    parser.add_argument("--transactions", type=int, default=2000, help=text)
    options = parser.parse_args()
    return chaos(options.seed, options.faults, options.seconds, options.transactions)


if __name__ == "__main__":
    sys.exit(main())
