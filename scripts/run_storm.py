#!/usr/bin/env python3
"""Kill, stop and cut off `snowredis run` at random moments; check that no program outlives its reservation.

Each run starts a program that notes the time, does one of four things to `snowredis run` or to Redis, and compares the
last time that the program noted with the end of the reservation in Redis. Starts a redis-server for each run.

examples:
  scripts/run_storm.py --runs 20            two minutes
  scripts/run_storm.py --runs 1000 --seed 7 --minutes 120
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
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis import WorkerPool
from snowredis.snowflake.protocol import PoolConfig
from tests.support.servers import RedisServer, redis_server

ROOT = Path(__file__).resolve().parents[1]
TTL_S = 3.0
CHILD = ROOT / "tests/cli/programs/child_of_run.py"
FAULTS = ("kill", "stop", "redis killed", "redis stopped")


def main() -> int:
    """Run the storm. Returns the exit code: 1 if a program outlived its reservation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    args = parser.parse_args()
    rng, end_s = random.Random(args.seed), time.monotonic() + args.minutes * 60
    seen, late, worst_ms = Counter[str](), 0, -(10**9)
    for _ in range(args.runs):
        if time.monotonic() > end_s:
            break
        fault = rng.choice(FAULTS)
        over_ms = one_run(fault, rng)
        seen[fault] += 1
        worst_ms = max(worst_ms, over_ms)
        late += over_ms > 0
        if over_ms > 0:
            print(f"{fault}: the program outlived its reservation by {over_ms} ms", flush=True)
    print(
        f"{seen.total()} runs, {dict(seen)}: {late} outlived; the latest end was {worst_ms} ms after the reservation's"
    )
    return int(late > 0)


def one_run(fault: str, rng: random.Random) -> int:
    """Return how many ms after the end of its reservation the program was last alive; negative: before."""
    with tempfile.TemporaryDirectory() as directory, redis_server(Path(directory)) as server:
        out = Path(directory) / "out"
        ttl_ms = int(TTL_S * 1000)
        WorkerPool(server.url, "p").create(
            PoolConfig(name="p", ttl_ms=ttl_ms, max_clock_lead_ms=250, redis_skew_ms=250)
        )
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "snowredis",
                "run",
                "--url",
                server.url,
                "--pool",
                "p",
                "--grace",
                "0.3",
                "--",
            ]
            + [sys.executable, str(CHILD), str(out), *rng.choice([[], ["stubborn"]])],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while not (out.exists() and out.read_text().count("\n") > 2):
                time.sleep(0.05)
            time.sleep(rng.uniform(0, 2))
            return _judge(fault, process, server, out)
        finally:
            process.kill()
            process.wait()


def _judge(fault: str, process: subprocess.Popen[bytes], server: RedisServer, out: Path) -> int:
    redis_pid = server.client().info()["process_id"]
    if fault in ("kill", "stop"):
        process.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        time.sleep(0.1)
    else:
        # stopped first, so that no renewal comes in between
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
    (worker,) = WorkerPool(server.url, "p").workers(alive_only=False)
    if fault.startswith("redis"):
        os.kill(redis_pid, signal.SIGKILL if fault == "redis killed" else signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
    pid = int(out.read_text().split()[1])
    deadline_s = time.monotonic() + 3 * TTL_S + 10
    while _runs(pid) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(redis_pid, signal.SIGCONT)
    # the last line may be cut in the middle
    last_ms = int([line for line in out.read_text().splitlines() if line.isdigit() and len(line) == 13][-1])
    return last_ms - worker.reserved_until_ms


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    sys.exit(main())
