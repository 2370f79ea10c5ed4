#!/usr/bin/env python3
"""Attack `snowredis serve`, and measure what its other clients notice.

Starts a redis-server with a pool of 1,000 workers and one process of the service. Clients hold connections with
half-sent requests, and come back when they are closed; greedy readers repeat /workers without a pause; dashboards are
open. Meanwhile /id is asked at a fixed pace on one connection, and /healthz on new ones. Quiet and loaded phases
alternate.

Ends with 1 if the median of p99 under load is more than 5 ms, if a request failed, or if Redis ran more than ten
commands a second for the service.

examples:
  scripts/serve_storm.py
  scripts/serve_storm.py --half-open 2300 --readers 0 --rounds 1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import snowredis
from scripts.bench_serve import running
from snowredis import WorkerPool, embedded
from snowredis.core.presets import resolve_layout
from snowredis.snowflake.protocol import PoolConfig
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
POOL, LAYOUT = "storm", "41/0/2/11/9"
# long leases: the workers send no heartbeats, so that the commands of the service can be counted
TTL_S = 3600
PACE_S = 0.004
GOAL_P99_MS = 5.0
GOAL_COMMANDS_PER_S = 10.0
HALF = b"GET /id HTTP/1.1\r\nHost: localhost\r\nX-Half: "
READ = b"GET /workers HTTP/1.1\r\nHost: localhost\r\n\r\n"


# --- the attackers, as processes of their own -------------------------------------------------------


async def half_open(port: int, wait: random.Random, connected: asyncio.Semaphore) -> None:
    while True:
        with contextlib.suppress(OSError):
            await asyncio.sleep(wait.random())
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                writer.write(HALF)
                connected.release()
                await reader.read()


async def greedy(port: int, _wait: random.Random, connected: asyncio.Semaphore) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                connected.release()
                while True:
                    writer.write(READ)
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))


async def viewer(port: int, _wait: random.Random, connected: asyncio.Semaphore) -> None:
    """Read what an open dashboard reads."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(READ.replace(b"/workers", b"/live"))
        connected.release()
        while await reader.read(65536):
            pass


ATTACKS = {"half": half_open, "greedy": greedy, "viewer": viewer}


async def attack(kind: str, port: int, count: int, seed: int) -> None:
    """Attack until this process is killed; print a line when all have connected."""
    wait, connected = random.Random(seed), asyncio.Semaphore(0)
    tasks = [asyncio.create_task(ATTACKS[kind](port, wait, connected)) for _ in range(count)]
    for _ in tasks:
        await connected.acquire()
    print("connected", flush=True)
    await asyncio.gather(*tasks)


@contextlib.contextmanager
def attackers(args: argparse.Namespace, port: int) -> Iterator[None]:
    counts = {"half": args.half_open, "greedy": args.readers, "viewer": args.viewers}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--attack", kind, str(port), str(count), str(args.seed)],
            stdout=subprocess.PIPE,
        )
        for kind, count in counts.items()
        if count
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


# --- what others notice ----------------------------------------------------------------------------


def p99_of_ids(port: int, seconds: float) -> tuple[float, int]:
    """Ask for an id at a fixed pace; return the 99th percentile in ms, and how many requests failed."""
    times_ms, failed = [], 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        began_s = time.perf_counter()
        try:
            connection.request("GET", "/id")
            response = connection.getresponse()
            response.read()
            failed += response.status != 200
        except (OSError, http.client.HTTPException):
            failed += 1
            connection.close()
        times_ms.append((time.perf_counter() - began_s) * 1000)
        time.sleep(max(0.0, PACE_S - (time.perf_counter() - began_s)))
    connection.close()
    return statistics.quantiles(times_ms, n=100)[98], failed


def failed_probes(port: int, count: int = 20) -> int:
    failed = 0
    for _ in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/healthz")
                failed += connection.getresponse().status != 200
            except (OSError, http.client.HTTPException):
                failed += 1
    return failed


def commands_of(url: str) -> int:
    """Return how many commands Redis has run, besides this one."""
    import redis

    with contextlib.closing(redis.Redis.from_url(url)) as client:
        stats = client.info("commandstats")
    return sum(one["calls"] for name, one in stats.items() if name not in {"cmdstat_info", "cmdstat_client|setinfo"})


# --- the scene -------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half-open", type=int, default=5000, help="connections with half a request (default: 5000)")
    parser.add_argument("--readers", type=int, default=20, help="greedy readers of /workers (default: 20)")
    parser.add_argument("--viewers", type=int, default=20, help="open dashboards (default: 20)")
    parser.add_argument("--workers", type=int, default=1000, help="workers of the pool (default: 1000)")
    parser.add_argument("--rounds", type=int, default=5, help="the median of which counts (default: 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each phase (default: 3)")
    parser.add_argument("--seed", type=int, default=1, help="of the attackers' pauses (default: 1)")
    parser.add_argument("--attack", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if args.attack:
        kind, *numbers = args.attack
        asyncio.run(attack(kind, *map(int, numbers)))
        return
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        server = embedded.start(directory)
        stack.callback(embedded.stop, directory)
        config = PoolConfig(name=POOL, layout=resolve_layout(LAYOUT), ttl_ms=TTL_S * 1000)
        WorkerPool(server.url, POOL).create(config)
        for number in range(args.workers):
            ids = snowredis.connect(server.url, pool=POOL, ttl=TTL_S, layout=LAYOUT, label=f"w{number}")
            stack.enter_context(ids)
        port = free_port()
        stack.enter_context(
            running(
                *("-m", "snowredis", "serve", "--pool", POOL, "--port", str(port)),
                port=port,
                ready="/healthz",
                directory=directory,
                SNOWREDIS_URL=server.url,
                SNOWREDIS_SERVE_DRAIN_S="0",
            )
        )
        quiet, loaded, rates = [], [], []
        failures = probes = 0
        print(
            f"{args.half_open} half-sent requests, {args.readers} greedy readers, {args.viewers} dashboards, "
            f"{args.workers} workers"
        )
        for _ in range(args.rounds):
            p99_ms, failed = p99_of_ids(port, args.seconds)
            quiet.append(p99_ms)
            failures += failed
            with attackers(args, port):
                before, began_s = commands_of(server.url), time.monotonic()
                p99_ms, failed = p99_of_ids(port, args.seconds)
                rates.append((commands_of(server.url) - before) / (time.monotonic() - began_s))
                probes += failed_probes(port)
            loaded.append(p99_ms)
            failures += failed
            print(f"/id p99 ms: quiet {quiet[-1]:.2f}, loaded {loaded[-1]:.2f}; Redis {rates[-1]:.1f} commands/s")
        p99_ms = statistics.median(loaded)
        rate = statistics.median(rates)
        goals = {
            f"p99 of /id under load is {p99_ms:.2f} ms (at most {GOAL_P99_MS:g})": p99_ms <= GOAL_P99_MS,
            f"{failures} requests for ids failed": failures == 0,
            f"{probes} probes failed": probes == 0,
            f"Redis ran {rate:.1f} commands a second (under {GOAL_COMMANDS_PER_S:g})": rate < GOAL_COMMANDS_PER_S,
        }
        for what, met in goals.items():
            print(f"{what}: {'met' if met else 'NOT MET'}")
    sys.exit(0 if all(goals.values()) else 1)


if __name__ == "__main__":
    main()
