#!/usr/bin/env python3
"""Measure `snowredis serve` with wrk: ids a second, CPU time and p99, next to a "hello" of uvicorn.

Starts a redis-server and one process of each application, all on loopback; wrk runs beside them on this
machine and takes its share of it. Needs wrk (apt-get install wrk) and snowredis[web].

examples:
  scripts/bench_serve.py
  scripts/bench_serve.py --seconds 10 --connections 16
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis import WorkerPool, embedded
from snowredis.core.presets import resolve_layout
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support.ports import free_port
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[1]
# the default layout, whose ceiling is 1,024 ids a ms, and one whose ceiling is out of reach
POOLS = {"bench": "default", "wide": "41/0/0/6/16"}
# uvicorn's own hello
GOAL_SHARE = 1.0
HELLO = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"].endswith("shutdown"):
                return
    body = b'{"id":"249734652741287936"}'
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""


class Measured(NamedTuple):
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int
    cpu_us: float  # CPU time of the server for a request


def environment_of(*directories: str, **environment: str) -> dict[str, str]:
    """Return the environment of a server: without settings of this one, and with the packages of the checkout."""
    found = {name: text for name, text in os.environ.items() if not name.startswith("SNOWREDIS_")}
    packages = os.pathsep.join(filter(None, [str(ROOT), *directories, os.environ.get("PYTHONPATH")]))
    return found | {"PYTHONPATH": packages} | environment


@contextlib.contextmanager
def running(*command: str, port: int, ready: str, directory: str, **environment: str) -> Iterator[tuple[str, int]]:
    """Run a server; yield its URL and its pid."""
    url = f"http://127.0.0.1:{port}"
    child_environment = environment_of(directory, **environment)
    with (Path(directory) / "log").open("ab") as log:
        process = subprocess.Popen([sys.executable, *command], env=child_environment, stdout=log, stderr=log)
    try:

        def replies() -> bool:
            if process.poll() is not None:
                sys.exit(f"{command} ended:\n{(Path(directory) / 'log').read_text()}")
            with urllib.request.urlopen(url + ready, timeout=2) as response:  # noqa: S310
                return bool(response.status == 200)

        eventually(replies, f"a reply of {command}", 60, ignored=(OSError,))
        yield url, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in s; 0 where there is no /proc."""
    stat = Path(f"/proc/{pid}/stat")
    fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else ["0"] * 13
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wrk(url: str, pid: int, connections: int, seconds: float, *options: str) -> Measured:
    before_s = cpu_s(pid)
    process = subprocess.Popen(
        ["wrk", "-t1", f"-c{connections}", "-d1h", "--latency", *options, url], stdout=subprocess.PIPE, text=True
    )
    time.sleep(seconds)
    # its own times are whole seconds; it prints what it measured until the signal
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    times = {share: float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
             for share, number, unit in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)", output)}  # fmt: skip
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    lost = [int(number) for number in re.findall(r"(?:connect|read|write|timeout) (\d+)", output)]
    if rate is None:
        sys.exit(f"unexpected output of wrk:\n{output}")
    sent = re.search(r"(\d+) requests in", output)
    cpu_us = (cpu_s(pid) - before_s) * 1e6 / max(1, int(sent[1] if sent else 0))
    return Measured(float(rate[1]), times["50"], times["99"], int(bad[1] if bad else 0) + sum(lost), cpu_us)


def median(runs: list[Measured]) -> Measured:
    """Return the median of each figure, and the sum of errors."""
    requests_per_s, p50_ms, p99_ms, errors, cpu_us = zip(*runs, strict=True)
    middle = statistics.median
    return Measured(middle(requests_per_s), middle(p50_ms), middle(p99_ms), sum(errors), middle(cpu_us))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, help="of each line in a round (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="the median of which is shown (default: 3)")
    parser.add_argument("--connections", type=int, default=8, help="at once (default: 8)")
    args = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("bench_serve: wrk is not on PATH. Install it, for example with: apt-get install wrk")
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        server = embedded.start(directory)
        stack.callback(embedded.stop, directory)
        for pool, layout in POOLS.items():
            WorkerPool(server.url, pool).create(PoolConfig(name=pool, layout=resolve_layout(layout)))
        (Path(directory) / "hello.py").write_text(HELLO)
        ports = free_port(), free_port(), free_port()
        bare = ("--no-access-log", "--no-server-header", "--no-date-header")
        (hello, hello_pid), (least, least_pid) = (
            stack.enter_context(
                running(
                    *("-m", "uvicorn", "hello:app", "--port", str(port), *options),
                    port=port,
                    ready="/",
                    directory=directory,
                )
            )
            for port, options in ((ports[0], ()), (ports[2], bare))
        )
        served, served_pid = stack.enter_context(
            running(
                *("-m", "snowredis", "serve", "--pool", "bench", "--pool", "wide", "--port", str(ports[1])),
                port=ports[1],
                ready="/readyz",
                directory=directory,
                SNOWREDIS_URL=server.url,
            )
        )
        batch, wide = f"{served}/ids?count=1000", f"{served}/ids?count=1000&pool=wide"
        packed, many = ("-H", "Accept: application/octet-stream"), args.connections
        cases: list[tuple[str, str, int, int, tuple[str, ...]]] = [
            ("hello, uvicorn's defaults", f"{hello}/", 1, many, ()),
            ("hello, no log, no headers", f"{least}/", 1, many, ()),
            ("/id, JSON", f"{served}/id", 1, many, ()),
            ("/id, text", f"{served}/id", 1, many, ("-H", "Accept: text/plain")),
            ("/id, packed", f"{served}/id", 1, many, packed),
            ("1000, JSON, at the ceiling", batch, 1000, many, ()),
            ("1000, JSON, one connection", batch, 1000, 1, ()),
            ("1000, JSON, wide layout", wide, 1000, many, ()),
            ("1000, packed, wide layout", wide, 1000, many, packed),
        ]
        head = f"one process, {args.connections} connections"
        print(
            f"{head:28}{'requests/s':>11}{'of hello':>10}{'ids/s':>13}"
            f"{'p50 ms':>8}{'p99 ms':>8}{'CPU us':>8}{'of hello':>10}"
        )
        runs: dict[str, list[Measured]] = {case[0]: [] for case in cases}
        for _ in range(args.rounds):
            for name, url, _count, connections, options in cases:
                pid = {hello: hello_pid, least: least_pid}.get(url.rstrip("/"), served_pid)
                runs[name].append(wrk(url, pid, connections, args.seconds, *options))
        found = {name: median(several) for name, several in runs.items()}
        for name, url, count, _connections, _headers in cases:
            one = found[name]
            hello_one = found[cases[0][0]]
            share, cpu = one.requests_per_s / hello_one.requests_per_s, one.cpu_us / max(hello_one.cpu_us, 0.001)
            ids = f"{one.requests_per_s * count:,.0f}" if url.startswith(served) else "-"
            figures = f"{one.requests_per_s:11,.0f}{share:10.2f}{ids:>13}{one.p50_ms:8.2f}{one.p99_ms:8.2f}"
            figures += f"{one.cpu_us:8.1f}{cpu:10.2f}"
            print(f"{name:28}{figures}" + (f"  {one.errors} errors" if one.errors else ""))
        share = found["/id, JSON"].requests_per_s / found[cases[0][0]].requests_per_s
        print(f"/id is {share:.2f} of uvicorn's own hello: {'met' if share >= GOAL_SHARE else 'NOT MET'}")


if __name__ == "__main__":
    main()
