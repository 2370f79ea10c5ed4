#!/usr/bin/env python3
"""Look for repeated segment numbers: in simulated schedules of faults, or with real processes and servers.

    scripts/segments.py soak --schedules 10000
    scripts/segments.py soak --first 4711 --schedules 1 --trace     # one seed, with all that happened
    scripts/segments.py chaos --faults 60 --seed 7                  # real ones

soak: 8 processes on one to three servers that are wiped, restarted from old snapshots, failed over, doubled and rolled
back. One seed decides everything.

chaos: kills processes with -9 and stops them, wipes Redis, stops it, kills it with -9, restarts it from an old
snapshot, and fails over to a replica that lags. A person opens the tag after each loss. A number is recorded before it
is used. Needs redis-server.

Exits with 1 if a number was repeated, or a process gets none after the last fault.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import redis

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis.errors import SnowredisError
from snowredis.numbers import create_tag, open_tag, show_tag
from tests.numbers.simulation import SegmentSimulation, Violation
from tests.support.servers import RedisServer

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 8
TAG = "word"
# more than all processes can have at hand, and than killed ones lost
MARGIN = 50_000_000


class Chaos:
    """8 recorders, one address, and whatever server is behind it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.random = directory, random.Random(seed)
        # clients know this path only; it leads to the current server's socket
        self.address = directory / "address.sock"
        self.url = f"unix://{self.address}"
        self.servers = 0
        self.server = self.start_server()
        self.replica: RedisServer | None = None
        self.recorders: list[subprocess.Popen[bytes]] = []
        self.path_of: dict[int, Path] = {}
        self.files = 0
        self.fired: Counter[str] = Counter()
        create_tag(self.url, TAG)
        for _ in range(PROCESSES):
            self.start_recorder()

    def start_server(self) -> RedisServer:
        self.servers += 1
        directory = self.directory / f"server{self.servers}"
        directory.mkdir()
        server = RedisServer(directory, "--repl-diskless-sync-delay", "0")
        server.start()
        if self.servers == 1:
            self.point_to(server)
        return server

    def point_to(self, server: RedisServer) -> None:
        link = self.address.with_suffix(".new")
        link.symlink_to(server.socket)
        link.rename(self.address)
        self.server = server

    def start_recorder(self) -> None:
        self.files += 1
        command = [sys.executable, "-m", "tests.numbers.programs.recorder", self.url]
        path = self.directory / f"{self.files}.numbers"
        process = subprocess.Popen([*command, str(path)], cwd=ROOT)
        self.recorders.append(process)
        self.path_of[process.pid] = path

    def numbers(self) -> np.ndarray:
        """Return all numbers that were recorded."""
        parts = [np.zeros(0, dtype=np.int64)]
        parts += [np.fromfile(path, dtype=np.int64) for path in sorted(self.directory.glob("*.numbers"))]
        return np.concatenate(parts)

    # --- faults ------------------------------------------------------------------------------------

    def kill(self) -> None:
        victim = self.recorders.pop(self.random.randrange(len(self.recorders)))
        victim.kill()
        victim.wait()
        self.start_recorder()

    def freeze(self) -> None:
        victim = self.random.choice(self.recorders)
        victim.send_signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 2))
        victim.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        self.server.client().flushall()

    def hang(self) -> None:
        self.server.kill(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 2))
        self.server.kill(signal.SIGCONT)

    def lose_last_writes(self) -> None:
        """Kill Redis with -9 some time after a snapshot."""
        self.server.save()
        time.sleep(self.random.uniform(0, 1))
        self.server.restart()

    def away(self) -> None:
        """Stop Redis for a while, and start it with all its data."""
        self.server.save()
        self.server.kill(signal.SIGTERM)
        time.sleep(self.random.uniform(0, 1))
        self.server.start()

    def fail_over(self) -> None:
        """Promote a replica that lags."""
        old, new = self.server, self.start_server()
        # replication needs a port: the replica reads the master's snapshot instead, and gets no more
        old.client().save()
        time.sleep(self.random.uniform(0, 1))
        new.kill()
        shutil.copy(old.directory / "dump.rdb", new.directory / "dump.rdb")
        new.start()
        self.point_to(new)
        old.kill()

    def open_tag(self) -> None:
        """Say from where on no number was handed out, as a person who knows the numbers in use."""
        with contextlib.suppress(SnowredisError, OSError):
            info = show_tag(self.url, TAG)
            if info is None or info.reason is not None:
                first = int(self.numbers().max(initial=0)) + MARGIN
                if info is None or info.settings["stride"] == "0":
                    create_tag(self.url, TAG, start=first)
                else:
                    open_tag(self.url, TAG, first)
                self.fired["opened"] += 1

    def run(self, faults: int, seconds: float) -> int:
        """Inject *faults*, for *seconds* at most. Returns the exit code."""
        losses = [self.wipe, self.hang, self.lose_last_writes, self.away, self.fail_over]
        kinds = [self.kill, self.kill, self.freeze, *losses]
        started_s = time.monotonic()
        for _ in range(faults):
            if time.monotonic() - started_s > seconds:
                break
            fault = self.random.choice(kinds)
            fault()
            self.fired[fault.__name__] += 1
            end_s = time.monotonic() + self.random.uniform(0.2, 2.5)
            while time.monotonic() < end_s:
                self.open_tag()
                time.sleep(0.2)
        return self.check(started_s)

    def check(self, started_s: float) -> int:
        """Wait for new numbers by all processes, and compare all numbers."""
        paths = [self.path_of[recorder.pid] for recorder in self.recorders]
        marks = {path: path.stat().st_size if path.exists() else 0 for path in paths}
        silent = set(paths)
        deadline_s = time.monotonic() + 150
        while silent and time.monotonic() < deadline_s:
            self.open_tag()
            time.sleep(0.5)
            silent = {path for path in silent if not path.exists() or path.stat().st_size < marks[path] + 8 * 200}
        living = [recorder.poll() is None for recorder in self.recorders]
        self.stop()
        used = self.numbers()
        repeated = len(used) - len(np.unique(used))
        what = ", ".join(f"{name} {count}" for name, count in sorted(self.fired.items()))
        print(f"{len(used):,} numbers of {self.files} processes in {time.monotonic() - started_s:.0f} s: {what}")
        print(f"the highest number is {used.max(initial=0):,}")
        for path in silent:
            print(f"{path.name}: {path.with_suffix('.error').read_text()}")
        print(f"{repeated} repeated; {len(silent)} of the processes made none at the end; all run: {all(living)}")
        return 1 if repeated or silent or not all(living) else 0

    def stop(self) -> None:
        """End the recorders and the server."""
        for recorder in self.recorders:
            recorder.kill()
            recorder.wait()
        with contextlib.suppress(redis.RedisError, OSError):
            self.server.kill()


def soak(first: int, schedules: int, seconds: float, *, traced: bool) -> int:
    """Run the schedules, for *seconds* at most; print what happened. Returns the exit code."""
    end_s = time.monotonic() + seconds
    fired: Counter[str] = Counter()
    numbers = done = 0
    failed: list[int] = []
    for seed in range(first, first + schedules):
        if time.monotonic() > end_s:
            break
        sim = SegmentSimulation(seed, traced=traced)
        try:
            sim.run()
        except Violation as violation:
            failed.append(seed)
            print(f"seed {seed}: {violation}\n  scripts/segments.py soak --first {seed} --schedules 1 --trace")
        for line in sim.world.trace or ():
            print(line)
        fired += sim.fired
        numbers += sim.checker.count
        done += 1
        if done % 1000 == 0:
            print(f"{done:,} schedules, {numbers:,} numbers", flush=True)
    faults = ", ".join(f"{name} {count:,}" for name, count in sorted(fired.items()))
    print(f"{done:,} schedules, {numbers:,} numbers, {sum(fired.values()):,} faults: {faults}")
    print(f"{len(failed)} schedules failed: {failed}" if failed else "no number was repeated")
    return 1 if failed else 0


def chaos(seed: int, faults: int, seconds: float) -> int:
    """Run one fleet under faults; print what happened. Returns the exit code."""
    os.environ.pop("SNOWREDIS_URL", None)
    with tempfile.TemporaryDirectory(prefix="sg") as directory:
        fleet = Chaos(Path(directory), seed)
        try:
            return fleet.run(faults, seconds)
        finally:
            fleet.stop()


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs = parser.add_subparsers(dest="program", required=True)
    simulated = programs.add_parser("soak")
    simulated.add_argument("--schedules", type=int, default=1000, help="how many (default: 1000)")
    simulated.add_argument("--first", type=int, default=0, help="seed of the first one (default: 0)")
    simulated.add_argument("--seconds", type=float, default=7200, help="stop after this time (default: 7200)")
    simulated.add_argument("--trace", action="store_true", help="print everything that happens")
    real = programs.add_parser("chaos")
    real.add_argument("--faults", type=int, default=60, help="how many (default: 60)")
    real.add_argument("--seed", type=int, default=1, help="of the faults' order and times (default: 1)")
    real.add_argument("--seconds", type=float, default=300, help="no more faults after this time (default: 300)")
    options = parser.parse_args()
    if options.program == "chaos":
        return chaos(options.seed, options.faults, options.seconds)
    logging.disable(logging.CRITICAL)
    return soak(options.first, options.schedules, options.seconds, traced=options.trace)


if __name__ == "__main__":
    sys.exit(main())
