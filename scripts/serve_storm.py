#!/usr/bin/env python3
"""Attack `snowredis serve` behind nginx, and count what its clients lose.

Starts a redis-server, two processes of the service, and nginx with keep-alive connections to both. Clients ask for ids
without a pause, on keep-alive connections that they close when a response says so. Meanwhile Redis is killed with -9
and started again, and each process of the service in turn gets SIGTERM and is replaced.

Ends with 1 if a request got no response of the service, an id was repeated, or the memory of a process grew by more
than a quarter.

examples:
  scripts/serve_storm.py
  scripts/serve_storm.py --requests 2000000 --seconds 3600
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.bench_serve import environment_of
from snowredis import embedded
from tests.support.ports import free_port

POOL, CLIENTS = "storm", 16
REQUEST = b"GET /%b HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n"
PATHS = (b"id", b"id", b"id", b"ids?count=3")
# between two kills of Redis, and between two replaced processes; the drain is shorter
KILL_EVERY_S, REPLACE_EVERY_S, DRAIN_S = 3.0, 5.0, 1
NGINX = """daemon off; worker_processes 1; pid {0}/pid; error_log {0}/err; events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;
uwsgi_temp_path {0}/u; scgi_temp_path {0}/s; upstream ids {{ {1} keepalive 32; }}
server {{ listen 127.0.0.1:{2}; location / {{ proxy_pass http://ids/; proxy_http_version 1.1;
proxy_set_header Connection ""; proxy_set_header Host $host; proxy_next_upstream error timeout http_502; }} }} }}"""


class Seen:
    """Observations of all clients."""

    def __init__(self, wanted: int) -> None:
        self.ids, self.statuses, self.lost = array("q"), Counter[int](), list[str]()
        self.wanted, self.stop = wanted, asyncio.Event()

    def count(self, status: int, body: bytes) -> None:
        self.statuses[status] += 1
        # by nginx: no process of the service served it
        if status in (502, 504):
            self.lost.append(str(status))
        if status == 200:
            self.ids.extend(map(int, body.split()))
        if self.statuses.total() >= self.wanted:
            self.stop.set()


async def client(port: int, number: int, seen: Seen) -> None:
    while not seen.stop.is_set():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(writer):
            is_open = True
            while is_open and not seen.stop.is_set():
                number += 1
                try:
                    writer.write(REQUEST % PATHS[number % len(PATHS)])
                    head = (await reader.readuntil(b"\r\n\r\n")).lower()
                    body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
                except (OSError, asyncio.IncompleteReadError) as error:
                    seen.lost.append(f"{type(error).__name__}: {error}")
                    break
                seen.count(int(head[9:12]), body)
                is_open = b"connection: close" not in head


class Services:
    """Two processes of the service, of which one at a time is replaced."""

    def __init__(self, directory: Path, url: str) -> None:
        self._log = (directory / "log").open("ab")
        self._environment = environment_of(
            SNOWREDIS_URL=url, SNOWREDIS_SERVE_CREATE="1", SNOWREDIS_SERVE_DRAIN_S=str(DRAIN_S)
        )
        self.ports = [free_port(), free_port()]
        self._running = [self._start(port) for port in self.ports]
        # memory of each process, in KB, when it served for a while and at its end
        self.memory: list[tuple[int, int]] = []
        self._first = [0, 0]

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "snowredis", "serve", "--pool", POOL, "--port", str(port)]
        return subprocess.Popen(command, env=self._environment, stdout=self._log, stderr=self._log)

    def measure(self) -> None:
        self._first = [kilobytes(one.pid) for one in self._running]

    async def replace(self, index: int) -> None:
        self.memory.append((self._first[index], kilobytes(self._running[index].pid)))
        self._running[index].send_signal(signal.SIGTERM)
        await asyncio.to_thread(self._running[index].wait)
        self._running[index] = self._start(self.ports[index])
        await ready(self.ports[index])
        await asyncio.sleep(1)
        self._first[index] = kilobytes(self._running[index].pid)

    def stop(self) -> None:
        for one in self._running:
            one.terminate()
            one.wait(20)
        self._log.close()


def kilobytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


async def ready(port: int) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                writer.write(REQUEST % b"readyz")
                if b" 200 " in await reader.readuntil(b"\r\n"):
                    return
        await asyncio.sleep(0.1)


def redis_pid(home: Path) -> int:
    return int(Path(f"{home}.lock").read_text().split()[-1])


async def kill_redis(home: Path) -> None:
    while True:
        await asyncio.sleep(KILL_EVERY_S)
        os.kill(redis_pid(home), signal.SIGKILL)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(embedded.start, home)


async def replace_all(services: Services) -> None:
    for index in range(10**6):
        await asyncio.sleep(REPLACE_EVERY_S)
        await services.replace(index % 2)


@contextlib.asynccontextmanager
async def in_background(*works: object) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work) for work in works]  # type: ignore[call-overload]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def storm(services: Services, home: Path, port: int, seen: Seen, seconds: float) -> None:
    for each in services.ports:
        await ready(each)
    services.measure()
    async with in_background(kill_redis(home), replace_all(services)):
        clients = [asyncio.create_task(client(port, number, seen)) for number in range(CLIENTS)]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(seen.stop.wait(), seconds)
        seen.stop.set()
        await asyncio.gather(*clients)


@contextlib.contextmanager
def nginx(directory: Path, ports: list[int]) -> Iterator[int]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        sys.exit("serve_storm: nginx is not on PATH. Install it, for example with: apt-get install nginx-light")
    port, config = free_port(), directory / "nginx.conf"
    config.write_text(
        NGINX.format(directory, " ".join(f"server 127.0.0.1:{each} max_fails=0;" for each in ports), port)
    )
    process = subprocess.Popen([program, "-c", config, "-e", directory / "err", "-p", directory])
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000, help="until then (default: 100000)")
    parser.add_argument("--seconds", type=float, default=300.0, help="or until then (default: 300)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        directory, home = Path(temporary), Path(temporary, "redis")
        embedded.start(home)
        stack.callback(embedded.stop, home)
        # its pool loses nothing, so no new process waits after a kill
        services = Services(directory, f"embedded://{home}")
        stack.callback(services.stop)
        port = stack.enter_context(nginx(directory, services.ports))
        began_s, seen = time.monotonic(), Seen(args.requests)
        asyncio.run(storm(services, home, port, seen, args.seconds))
        repeated = len(seen.ids) - len(set(seen.ids))
        took_s = time.monotonic() - began_s
    growth = max((last / first for first, last in services.memory if first), default=1.0)
    print(
        f"{seen.statuses.total():,} requests in {took_s:.0f} s, {len(seen.ids):,} ids; by status {dict(seen.statuses)}"
    )
    memory = f"{len(services.memory)} processes replaced, memory at most {growth:.2f} times that of the first second"
    goals = {
        f"{len(seen.lost)} requests lost {Counter(seen.lost).most_common(3)}": not seen.lost,
        f"{repeated} ids repeated": repeated == 0,
        memory: growth < 1.25,
    }
    for what, met in goals.items():
        print(f"{what}: {'met' if met else 'NOT MET'}")
    sys.exit(0 if all(goals.values()) else 1)


if __name__ == "__main__":
    main()
