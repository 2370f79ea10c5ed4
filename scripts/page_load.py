#!/usr/bin/env python3
"""Measure what an open dashboard costs the browser, the service and Redis.

    scripts/page_load.py                        1,000 workers, one browser and 20 viewers, 20 s
    scripts/page_load.py --workers 200 --viewers 1 --phone

Starts a redis-server, a fleet of simulated workers with the default ttl, `snowredis serve` and a headless Chromium.
CPU time is that of all processes of the browser, from /proc, as a share of one core. Redis' commands are those of the
service alone: the workers pause while they are counted. Needs Linux, Chromium and snowredis[web]. Takes about a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts._moments.simulated_fleet import SimulatedFleet
from snowredis.snowflake.protocol import PoolConfig
from tests.support.pools import new_pool
from tests.support.ports import free_port
from tests.support.servers import RedisServer, redis_server
from tests.support.waiting import eventually
from tests.web.chromium import Page, chromium

ROOT = Path(__file__).resolve().parents[1]
POOL = "orders"
# shorter than the time after which a worker without heartbeats is late
COUNT_S = 5.0
# the page settles: fonts, first layout
SETTLE_S = 5.0


def cpu_s(root: int) -> float:
    """Return the CPU time of a process and all its living descendants."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                used[int(entry.name)] = int(fields[11]) + int(fields[12])
    family = {root}
    while added := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= added
    return sum(used[pid] for pid in family if pid in used) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def service(url: str, port: int, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "snowredis", "serve", "--port", str(port), "--pool", POOL]
    with (directory / "service.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"SNOWREDIS_URL": url}, stdout=log, stderr=log)
    try:
        eventually(lambda: open_stream(port, "/readyz").status == 200, "the service", 60, ignored=(OSError,))
        yield process
    finally:
        process.kill()
        process.wait(10)


def open_stream(port: int, path: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    return connection.getresponse()


def commands_per_s(server: RedisServer, fleet: SimulatedFleet) -> float:
    """Return how many commands the service sends while the fleet pauses."""
    fleet.paused.set()
    time.sleep(0.5)
    with contextlib.closing(server.client()) as client:
        before = client.info("stats")["total_commands_processed"]
        time.sleep(COUNT_S)
        # one of them is this
        count = client.info("stats")["total_commands_processed"] - before - 1
    fleet.paused.clear()
    return float(count) / COUNT_S


def measure(options: argparse.Namespace, directory: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(redis_server(directory))
        new_pool(server.url, POOL)
        fleet = SimulatedFleet(server.url, PoolConfig(name=POOL), options.workers)
        fleet.start()
        stack.callback(fleet.stop)
        port = free_port()
        served = stack.enter_context(service(server.url, port, directory))
        profile = directory / "chromium"
        profile.mkdir()
        page: Page = stack.enter_context(chromium(profile))
        page.size(*((390, 844) if options.phone else (1280, 1000)), phone=options.phone)
        page.go(f"http://127.0.0.1:{port}/")
        page.wait(f"document.querySelectorAll('.tile').length >= {options.workers}")
        # their replies are not read: the service drops what does not fit the socket
        streams = [open_stream(port, f"/live?pool={POOL}") for _ in range(options.viewers - 1)]
        time.sleep(SETTLE_S)
        browser_s, service_s = cpu_s(page._process.pid), cpu_s(served.pid)
        time.sleep(options.seconds)
        browser_s = cpu_s(page._process.pid) - browser_s
        service_s = cpu_s(served.pid) - service_s
        print(f"{options.workers:,} workers, {options.viewers} viewers, {options.seconds:g} s")
        print(f"browser   {browser_s / options.seconds:6.1%} of a core")
        print(f"service   {service_s / options.seconds:6.1%} of a core")
        print(f"Redis     {commands_per_s(server, fleet):6.1f} commands a second of the service")
        for stream in streams:
            stream.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--viewers", type=int, default=20, help="open dashboards, the browser's included")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--phone", action="store_true", help="a screen of 390 by 844 pixels")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="snowredis-page-") as directory:
        measure(options, Path(directory))


if __name__ == "__main__":
    main()
