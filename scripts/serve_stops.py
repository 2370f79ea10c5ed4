#!/usr/bin/env python3
"""Restart the service again and again under load: no request may be lost, and no id repeated.

Two instances of `snowredis serve`, of which one in turn gets SIGTERM and is started again; or gunicorn with two
processes, which gets SIGHUP. Clients hold keep-alive connections, never repeat a request, and go where they are served.
Ends with 1 if a request was lost or an id repeated.

examples:
  scripts/serve_stops.py
  scripts/serve_stops.py --server gunicorn --seconds 120
  scripts/serve_stops.py --drain 0              # what is lost without a drain
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis import WorkerPool, embedded
from snowredis.snowflake.protocol import PoolConfig
from tests.support.waiting import eventually
from tests.web.keepalive_load import load

ROOT = Path(__file__).resolve().parents[1]
POOL = "stops"
SERVE = ["-m", "snowredis", "serve", "--port", "{port}"]
GUNICORN = ["-m", "gunicorn", "-w", "2", "--bind", "127.0.0.1:{port}", "--no-control-socket"]
GUNICORN += ["-k", "snowredis.web.gunicorn_worker.ServiceWorker"]
GUNICORN += ["snowredis.web.service:from_environment()"]


class Instance:
    """One server on a port of its own."""

    def __init__(self, command: list[str], url: str, drain_s: float, log: Path) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            self.port = int(listening.getsockname()[1])
        self._command = [sys.executable, *(part.format(port=self.port) for part in command)]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("SNOWREDIS_")}
        self._environment = environment | {
            "PYTHONPATH": str(ROOT),
            "SNOWREDIS_URL": url,
            "SNOWREDIS_SERVE_POOLS": POOL,
            "SNOWREDIS_SERVE_DRAIN_S": str(drain_s),
        }
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)
        eventually(self.ready, "the service", 60, ignored=(OSError,))

    def ready(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as response:
            return bool(response.status == 200)

    def restart(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.start()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


@contextlib.contextmanager
def running(args: argparse.Namespace, url: str, directory: Path) -> Iterator[list[Instance]]:
    command, count = (SERVE, 2) if args.server == "serve" else (GUNICORN, 1)
    instances = [Instance(command, url, args.drain, directory / f"{i}.log") for i in range(count)]
    try:
        yield instances
    finally:
        for one in instances:
            one.stop()


def disturb(instances: list[Instance], args: argparse.Namespace) -> int:
    """Restart until the time is over; return how often."""
    pause, count, until_s = random.Random(args.seed), 0, time.monotonic() + args.seconds
    while time.monotonic() < until_s:
        time.sleep(pause.uniform(0.1, 1.0))
        if args.server == "serve":
            instances[count % 2].restart()
        else:
            instances[0].process.send_signal(signal.SIGHUP)
            # the old processes are stopped when the new ones have begun
            time.sleep(args.drain + 2)
        count += 1
    return count


async def run(args: argparse.Namespace, instances: list[Instance]) -> int:
    async with load([one.port for one in instances], args.clients) as seen:
        count = await asyncio.to_thread(disturb, instances, args)
    for one in sorted(set(seen.lost)):
        print(f"lost: {one} ({seen.lost.count(one)} times)")
    requests = len(seen.ids) // 3 + len(seen.lost)
    print(f"{count} restarts, {requests:,} requests, {len(seen.lost)} lost, {seen.repeated} ids repeated")
    return int(bool(seen.lost or seen.repeated or not count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=["serve", "gunicorn"], default="serve", help="default: serve")
    parser.add_argument("--seconds", type=float, default=30, help="how long (default: 30)")
    parser.add_argument("--clients", type=int, default=8, help="keep-alive connections (default: 8)")
    parser.add_argument("--drain", type=float, default=1.0, help="SNOWREDIS_SERVE_DRAIN_S (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="of the pauses (default: 1)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        server = embedded.start(name)
        try:
            WorkerPool(server.url, POOL).create(PoolConfig(name=POOL))
            with running(args, server.url, directory) as instances:
                return asyncio.run(run(args, instances))
        finally:
            embedded.stop(name)


if __name__ == "__main__":
    sys.exit(main())
