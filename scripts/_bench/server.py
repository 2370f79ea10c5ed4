"""A private redis-server for the benchmark, its statistics, and records like those of real workers."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import redis

from snowredis.embedded import find_server
from snowredis.snowflake.protocol import WorkerStats

OWNER = json.dumps(
    {"host": "ip-10-0-123-45.eu-central-1.compute.internal", "pid": 1234567, "label": "orders-web"},
    separators=(",", ":"),
)
# of a worker that made some ids: ids made, a second, clock offset, namespace, clock-backs
STATS = WorkerStats(ids_made=123456789, ids_per_second=512, clock_offset_ms=-3)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Server:
    """A redis-server that is running."""

    def __init__(self, path: str, client: Any, program: str) -> None:
        self.path, self.client, self.program = path, client, program

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def cpu_s(self) -> float:
        """Return the CPU time that the server has used since its start, including that of the kernel, in s."""
        said = self.client.info("cpu")
        return float(said["used_cpu_user"]) + float(said["used_cpu_sys"])

    def used_bytes(self) -> int:
        return int(self.client.info("memory")["used_memory"])

    def about(self) -> str:
        return f"{self.program}, redis-py {redis.__version__}, Python {sys.version.split()[0]}"


@contextlib.contextmanager
def private_server(*options: str) -> Iterator[Server]:
    kind = find_server()
    if not kind.program:
        raise SystemExit("a redis-server is needed, and none was found: this is not about fakeredis")
    with tempfile.TemporaryDirectory(prefix="snowredis-bench-") as directory:
        path = f"{directory}/redis.sock"
        arguments = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", *options]
        server = subprocess.Popen([kind.program, *arguments], cwd=directory, stdout=subprocess.DEVNULL)
        try:
            client = redis.Redis(unix_socket_path=path, decode_responses=True)
            for attempt in range(500):
                try:
                    version = client.info("server")["redis_version"]
                    break
                except redis.ConnectionError:
                    if attempt == 499 or server.poll() is not None:
                        raise SystemExit("redis-server did not start") from None
                    time.sleep(0.02)
            yield Server(path, client, f"Redis {version}")
            client.close()
        finally:
            server.kill()
            server.wait()
