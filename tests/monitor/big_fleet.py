"""A thousand simulated workers on a private Redis: measure what monitoring them costs.

python -m tests.monitor.big_fleet                measure, print, exit
python -m tests.monitor.big_fleet --serve 600    print the URL and send heartbeats for 600 s, to look at by hand
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snowredis.snowflake.protocol import ClaimRequest, PoolConfig, PresentedLease, RenewRequest, WorkerStats
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.replies import Granted, Renewed, Seen
from snowredis.worker_pool import WorkerPool
from tests.support.servers import RedisServer, redis_server

POOL = "big"


class BigFleet:
    """Workers that claim and renew as real ones do, but make no ids."""

    def __init__(self, url: str, count: int) -> None:
        self.config = PoolConfig(name=POOL)
        self._store = RedisStore(url, self.config)
        self._store.create(time.time_ns() // 1_000_000)
        self._seen = Seen()
        self._random = random.Random(1)
        self._members = [self._claim(number) for number in range(count)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def _claim(self, number: int) -> dict[str, Any]:
        now = time.time_ns() // 1_000_000
        token = f"{number:08x}" + "ab" * 12
        owner = json.dumps({"host": f"web-{number % 40:02}", "pid": 1000 + number, "label": f"orders {number % 7}"})
        answer = self._store.claim(ClaimRequest(token, now, now, 10**9, owner), self._seen)
        assert isinstance(answer, Granted), answer
        self._seen = answer.seen
        return {
            "worker": answer.worker, "token": token, "renewal_id": answer.renewal_id,
            "until": answer.until_ms, "lanes": answer.lanes_ms,
            "owner": owner, "made": 0,
        }  # fmt: skip

    def _beat(self) -> None:
        every_s = self.config.heartbeat_ms / 1000 / len(self._members)
        while not self._stop.is_set():
            for member in self._members:
                if self._stop.wait(every_s):
                    return
                self._renew(member)

    def _renew(self, member: dict[str, Any]) -> None:
        now, pending = time.time_ns() // 1_000_000, f"{self._random.getrandbits(60):016x}"
        rate = self._random.randrange(2_000)
        member["made"] += 5 * rate
        stats = WorkerStats(member["made"], rate, self._random.randrange(-9, 9))
        lease = PresentedLease(member["worker"], member["token"], member["renewal_id"], pending, member["until"], 0)
        request = RenewRequest(lease, now, member["lanes"], stats, member["owner"])
        answer = self._store.renew(request, self._seen)
        if isinstance(answer, Renewed):
            member["renewal_id"], member["until"], self._seen = pending, answer.until_ms, answer.seen

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._store.close()


@contextmanager
def big_fleet(directory: Path, count: int) -> Iterator[tuple[RedisServer, BigFleet]]:
    with redis_server(directory) as server:
        fleet = BigFleet(server.url, count)
        try:
            yield server, fleet
        finally:
            fleet.stop()


def cpu_s(server: RedisServer) -> float:
    """Return the CPU seconds that the server has used."""
    info = server.client().info("cpu")
    return float(info["used_cpu_sys"]) + float(info["used_cpu_user"])


def measure(server: RedisServer, seconds: float, *, watching: bool) -> float:
    """Return the server's share of a core for *seconds*; if *watching*, with a read of the pool every second."""
    pool = WorkerPool(server.url, POOL)
    before, until = cpu_s(server), time.monotonic() + seconds
    while (left_s := until - time.monotonic()) > 0:
        if watching:
            pool.workers()
            pool.info()
            pool.events(newest=50)
        time.sleep(min(1.0, max(0.0, left_s)))
    pool.close()
    return (cpu_s(server) - before) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--serve", type=float, default=0.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/tmp") as name, big_fleet(Path(name), args.workers) as (server, fleet):
        fleet.start()
        if args.serve:
            print(server.url, flush=True)
            time.sleep(args.serve)
            return
        pool = WorkerPool(server.url, POOL)
        times = []
        for _ in range(20):
            started_s = time.perf_counter()
            assert len(pool.workers()) == args.workers
            pool.info()
            times.append(time.perf_counter() - started_s)
        alone = measure(server, args.seconds, watching=False)
        watched = measure(server, args.seconds, watching=True)
        print(
            f"{args.workers:,} workers: workers() and info() {statistics.median(times) * 1000:.0f} ms (median), "
            f"{max(times) * 1000:.0f} ms at most; Redis uses {alone:.2%} of a core for the heartbeats, "
            f"{watched - alone:+.2%} more with a read every second"
        )


if __name__ == "__main__":
    main()
