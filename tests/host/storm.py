"""A storm of kill -9 and SIGSTOP over processes that share a lease: python -m tests.host.storm [--seconds S].

Real processes and a real redis-server in a directory of its own. All ids are compared at the end. Some processes have
leases of their own, as those of another host would, so that a worker id that is lost goes to somebody else. Prints a
line of JSON. Exit code 1 if an id was made twice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from itertools import chain
from pathlib import Path

from snowredis.settings import LeaseScope
from tests.chaos.runs import runs_of
from tests.support.duplicates import Duplicates, Runs, find_duplicates, int64s
from tests.support.servers import RedisServer, redis_server

POOL = "storm"
# few worker ids, which are used again soon; 4,096 ids a millisecond
LAYOUT = "41/0/2/2/12"
TTL_S = 1.5


def work(url: str, path: str, lease: LeaseScope, seed: int) -> None:
    """Make ids, one, many, in forked children, until this process is killed; write them to the file *path*."""
    import snowredis
    from snowredis.errors import SnowredisError

    source = random.Random(seed)
    ids = snowredis.connect(url, pool=POOL, layout=LAYOUT, ttl=TTL_S, lease=lease, claim_timeout=1, outage_reserve=0)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(batch: list[int]) -> None:
        os.write(descriptor, array("q", chain.from_iterable(runs_of(batch))).tobytes())

    while True:
        try:
            kind = source.random()
            if kind < 0.02 and lease == "host":
                # a child goes on with the same page, and ends as it likes
                if not os.fork():
                    note(ids.next_ids(100))
                    os._exit(0) if source.random() < 0.5 else os.kill(os.getpid(), signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.wait()
            elif kind < 0.5:
                note([ids.next_id() for _ in range(5000)])
            elif kind < 0.995:
                note(ids.next_ids(source.choice((10, 1_000, 20_000))))
            else:
                ids.close()
                ids = snowredis.connect(
                    url, pool=POOL, layout=LAYOUT, ttl=TTL_S, lease=lease, claim_timeout=1, outage_reserve=0
                )
        except SnowredisError:
            time.sleep(0.05)


class Storm:
    """The processes of one run, and what is done to them."""

    def __init__(self, url: str, directory: Path, seed: int) -> None:
        self._url, self._directory, self._source = url, directory, random.Random(seed)
        self._number = 0
        self._paths: dict[int, Path] = {}
        self.counts = dict.fromkeys(("kills", "stops", "server stops"), 0)

    def start(self, lease: str) -> subprocess.Popen[bytes]:
        """Start one process."""
        self._number += 1
        path = self._directory / f"{self._number}.ids"
        call = f"from tests.host.storm import work; work({self._url!r}, {str(path)!r}, {lease!r}, {self._number})"
        records = f"/dev/shm/{self._directory.name}"
        process = subprocess.Popen([sys.executable, "-c", call], env=os.environ | {"SNOWREDIS_CRASH_RECORDS": records})
        self._paths[process.pid] = path
        return process

    def _has_made_ids(self, process: subprocess.Popen[bytes]) -> bool:
        path = self._paths[process.pid]
        return path.exists() and path.stat().st_size > 0

    def run(self, seconds: float, processes: int, server: RedisServer) -> None:
        """Kill and stop for so long."""
        leases = ["host"] * processes + ["process"]
        running = [self.start(lease) for lease in leases]
        while not all(map(self._has_made_ids, running)):
            time.sleep(0.05)
        until_s = time.monotonic() + seconds
        stopped: list[tuple[float, int]] = []
        try:
            while time.monotonic() < until_s:
                time.sleep(self._source.uniform(0.02, 0.25))
                for end_s, pid in list(stopped):
                    if time.monotonic() >= end_s:
                        stopped.remove((end_s, pid))
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGCONT)
                index = self._source.randrange(len(running))
                kind = self._source.random()
                if not self._has_made_ids(running[index]):
                    # a busy machine takes seconds to start a process
                    continue
                if kind < 0.45:
                    running[index].kill()
                    running[index].wait()
                    running[index] = self.start(leases[index])
                    self.counts["kills"] += 1
                elif kind < 0.97:
                    for_s = self._source.choice((0.05, 0.3, TTL_S, 2 * TTL_S))
                    running[index].send_signal(signal.SIGSTOP)
                    stopped.append((time.monotonic() + for_s, running[index].pid))
                    self.counts["stops"] += 1
                else:
                    server.kill(signal.SIGSTOP)
                    time.sleep(self._source.choice((0.1, TTL_S)))
                    server.kill(signal.SIGCONT)
                    self.counts["server stops"] += 1
        finally:
            for process in running:
                process.kill()
                process.wait()

    def compare(self) -> Duplicates:
        """Compare all ids that were made."""
        files = ((path.stem, int64s(path.read_bytes(), 2)) for path in self._directory.glob("*.ids"))
        return find_duplicates(Runs(f"process {name}", runs[::2], runs[1::2]) for name, runs in files)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with redis_server(directory) as server:
            create = ["pool", "create", POOL, "--url", server.url, "--layout", LAYOUT, "--ttl", str(TTL_S)]
            subprocess.run(
                [sys.executable, "-m", "snowredis", *create, "--outage-reserve", "0"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            storm = Storm(server.url, directory, args.seed)
            storm.run(args.seconds, args.processes, server)
            events = server.client().xrange(f"snowredis:{{{POOL}}}:events")
            found = storm.compare()
        shutil.rmtree(f"/dev/shm/{directory.name}", ignore_errors=True)
    for repetition in found.examples:
        print(repetition)
    leases = sum(event[1].get("e") == "claimed" or "claimed" in event[1].values() for event in events)
    print(json.dumps({"ids": found.ids, "repeated": found.repeated, "claims": leases, **storm.counts}))
    return int(found.repeated > 0)


if __name__ == "__main__":
    sys.exit(main())
