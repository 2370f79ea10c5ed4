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
from snowredis.snowflake.protocol import WorkerStats, pool_keys
from snowredis.snowflake.record import LeaseRecord
from snowredis.snowflake.redis_store import RedisStore

OWNER = json.dumps(
    {"host": "ip-10-0-123-45.eu-central-1.compute.internal", "pid": 1234567, "label": "orders-web"},
    separators=(",", ":"),
)
# of a worker that made some ids: ids made, a second, clock offset, namespace, clock-backs
STATS = WorkerStats(ids_made=123456789, ids_per_second=512, clock_offset_ms=-3)
# the longest that one script may hold the server up while it is filled: 20,000 records take about 0.1 s
CHUNK = 20_000

# Every worker id leased by a worker that renewed its lease an hour ahead; marks as after some reuse.
_FILL = """
local first, last, now, incarnation, owner = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local fields, members = {}, {}
for worker = first, last do
  local token, ends = redis.sha1hex('t' .. worker), now + 3600000 + worker % 1000
  local lanes = (now - 86400000) .. ',' .. (now - 90000000) .. ',0,0'
  fields[#fields + 1] = 'w:' .. worker
  fields[#fields + 1] = table.concat({ token, incarnation, string.sub(token, 1, 16), now + 30000, ends, lanes,
    '0', now - 86400000, now, ARGV[6], owner }, '|')
  fields[#fields + 1] = 't:' .. token
  fields[#fields + 1] = worker
  members[#members + 1] = ends
  members[#members + 1] = worker
  if #fields == 800 or worker == last then
    redis.call('HSET', KEYS[1], unpack(fields))
    redis.call('ZADD', KEYS[2], unpack(members))
    fields, members = {}, {}
  end
end
return redis.call('HSET', KEYS[1], 'records', last + 1, 'next', last + 1)
"""


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


def fill(server: Server, store: RedisStore) -> tuple[int, int]:
    """Lease every worker id of the pool; return the bytes that this took, and those of the index of leases."""
    name, workers = store.config.name, store.config.layout.workers
    pool, leases, _ = pool_keys(name)
    used_bytes = server.used_bytes()
    incarnation = store.create(now_ms()).incarnation
    for first in range(0, workers, CHUNK):
        last = min(first + CHUNK, workers) - 1
        server.client.eval(_FILL, 2, pool, leases, first, last, now_ms(), incarnation, OWNER, STATS.to_text())
    return server.used_bytes() - used_bytes, int(server.client.memory_usage(leases, samples=0))


def end_one_lease(server: Server, store: RedisStore) -> None:
    """End the lease and the reservation of the last worker id."""
    worker = store.config.layout.workers - 1
    pool, leases, _ = pool_keys(store.config.name)
    ended_ms = now_ms() - 60_000
    record = LeaseRecord.parse(server.client.hget(pool, f"w:{worker}"))
    if record is not None:
        server.client.hset(pool, f"w:{worker}", record._replace(until_ms=ended_ms, lease_end_ms=ended_ms).pack())
    server.client.zadd(leases, {str(worker): ended_ms})
