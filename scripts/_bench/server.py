"""A private redis-server for the benchmark, its statistics, and records like those of real workers."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from snowredis.snowflake.protocol.messages import WorkerStats
from tests.support.servers import RedisServer, redis_server

OWNER = json.dumps(
    {"host": "ip-10-0-123-45.eu-central-1.compute.internal", "pid": 1234567, "label": "orders-web"},
    separators=(",", ":"),
)
# statistics of a worker that made some ids: ids made, a second, clock offset, namespace, clock-backs
STATS = WorkerStats(ids_made=123456789, ids_per_second=512, clock_offset_ms=-3)


class Server:
    """A redis-server that is running."""

    def __init__(self, server: RedisServer) -> None:
        self.path, self.url, self.client = str(server.socket), server.url, server.client()

    def cpu_s(self) -> float:
        """Return the CPU time that the server has used since its start, including that of the kernel, in s."""
        said = self.client.info("cpu")
        return float(said["used_cpu_user"]) + float(said["used_cpu_sys"])

    def used_bytes(self) -> int:
        return int(self.client.info("memory")["used_memory"])


@contextlib.contextmanager
def private_server(*options: str) -> Iterator[Server]:
    with (
        tempfile.TemporaryDirectory(prefix="snowredis-bench-") as directory,
        redis_server(Path(directory), *options) as running,
    ):
        yield Server(running)
