#!/usr/bin/env python
"""Measure what restarts cost a fleet: how many starts wait, and how long processes have an outage lane.

    scripts/restarts.py                   all tables, about ten minutes
    scripts/restarts.py --hours 6         a shorter time
    scripts/restarts.py --seed 7

The shipped scripts run on a Redis in memory, in simulated time: the default layout with 1,024 worker ids, a ttl of
30 s, outage lanes of a day. Each process claims, renews shortly before its end, and releases or is killed. The
renewals before that change nothing here but the end of the lease, which is written without them. The
first half of the time is not counted. The figures are in docs/how-to/capacity.md. Needs the group dev.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from snowredis.core.layout import Layout
from snowredis.servers.scripts import Script
from snowredis.snowflake.protocol.messages import (
    ClaimRequest,
    CreateRequest,
    Granted,
    ReleaseRequest,
    Renewed,
    RenewRequest,
    Seen,
    WorkerStats,
)
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.record import LeaseRecord
from snowredis.snowflake.protocol.redis_store import ScriptStore
from tests.lab.simulation.redis_model import RedisModel
from tests.lab.simulation.world import World

HOUR_MS, OWNER = 3_600_000, '{"host":"h"}'
# a process renews that long before it ends
LAST_RENEWAL_MS = 5_000
_LATEST = "local latest_end = now + slack + ttl"


class Pool(ScriptStore):
    """A pool in a Redis in memory, on a clock that this program moves."""

    where = "memory"

    def __init__(self, layout: Layout, seed: int) -> None:
        self.world = World(seed)
        self.server = RedisModel(self.world, "redis")
        super().__init__(PoolConfig(name="p", layout=layout), random_bytes=self.world.random.randbytes)

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[str]:
        assert script.source.count(_LATEST) == 1
        return self.server.eval(script.source.replace(_LATEST, "local latest_end = now + 1e11"), keys, args)

    def hold(self, worker: int, until_ms: int) -> None:
        """Let the lease of *worker* last, as if its process renewed it until then."""
        key, index, _ = pool_keys(self.config.name)
        record = LeaseRecord.parse(self.server.data[key][f"w:{worker}"])
        assert record is not None
        self.server.data[key][f"w:{worker}"] = record._replace(lease_end_ms=until_ms).pack()
        self.server.data[index][str(worker)] = until_ms

    def close(self) -> None: ...

    @property
    def now_ms(self) -> int:
        return self.world.now_us // 1000

    def set_clock(self, now_ms: int) -> None:
        self.world.now_us = now_ms * 1000


@dataclass
class Counts:
    """Result of the counted part: starts, the waits of those that waited, and process time.

    Attributes:
        open_ms: time with an open outage lane.
    """

    starts: int = 0
    waits_ms: list[int] = field(default_factory=list)
    lived_ms: int = 0
    open_ms: int = 0

    @property
    def open_percent(self) -> float:
        return 100 * self.open_ms / self.lived_ms if self.lived_ms else 0


def lifetimes(pool: Pool, every_ms: int) -> Iterator[int]:
    """Return the lengths of lives around *every_ms*."""
    while True:
        yield round(every_ms * pool.world.random.uniform(0.5, 1.5))


def run(size: int, every_ms: int, *, hours: float, killed: bool, seed: int, layout: Layout | None = None) -> Counts:
    """Let a fleet of *size* processes live, each replaced when it ends."""
    pool, counts = Pool(layout or Layout(), seed), Counts()
    began_ms = pool.now_ms
    pool.ask(CreateRequest(Seen(), began_ms))
    ends_ms, half_ms = began_ms + round(hours * HOUR_MS), began_ms + round(hours * HOUR_MS / 2)
    lengths = lifetimes(pool, every_ms)
    # when a process starts, and since when it waits
    queue = [
        (began_ms + round(pool.world.random.uniform(0, min(every_ms, 300_000))), number, 0) for number in range(size)
    ]
    heapq.heapify(queue)
    lives: list[tuple[int, int, Granted, str, int]] = []
    while queue or lives:
        is_start = bool(queue) and (not lives or queue[0][0] <= lives[0][0])
        if is_start:
            at_ms, number, since_ms = heapq.heappop(queue)
            if at_ms >= ends_ms:
                break
            pool.set_clock(at_ms)
            token = pool.world.random.randbytes(16).hex()
            reply = pool.ask(ClaimRequest(Seen(), at_ms, token, OWNER))
            if not isinstance(reply, Granted):
                heapq.heappush(queue, (at_ms + max(20, min(500, reply.wait_ms)), number, since_ms or at_ms))
                continue
            opens_ms = min(reply.terms.lanes_ms[:-1])
            waited_ms = max(at_ms, opens_ms) - (since_ms or at_ms)
            length_ms = max(1_000, next(lengths))
            if at_ms >= half_ms:
                counts.starts += 1
                counts.lived_ms += length_ms
                counts.waits_ms += [waited_ms] if waited_ms > 10 else []
                # it opens when its beginning has passed
                closed_ms = min(length_ms, max(0, reply.terms.lanes_ms[-1] - at_ms))
                counts.open_ms += length_ms - closed_ms
            end_ms = max(at_ms, opens_ms) + length_ms
            pool.hold(reply.terms.worker, end_ms + (pool.config.ttl_ms - LAST_RENEWAL_MS if killed else 1_000))
            heapq.heappush(lives, (end_ms, number, reply, token, at_ms))
        else:
            at_ms, number, granted, token, began_ms = heapq.heappop(lives)
            # the first lane that was open is used
            opened = next(
                lane
                for lane, ms in enumerate(granted.terms.lanes_ms)
                if ms <= max(began_ms, min(granted.terms.lanes_ms[:-1]))
            )
            _end(pool, granted, token, at_ms, opened=-1 if killed else opened)
            heapq.heappush(queue, (at_ms, number, 0))
    pool.world.close()
    return counts


def _end(pool: Pool, granted: Granted, token: str, at_ms: int, *, opened: int) -> None:
    """Renew shortly before the end of the process, then release the worker id with the lane that was *opened*.

    -1: it is killed, and releases nothing.
    """
    pool.set_clock(at_ms - LAST_RENEWAL_MS)
    renewal_id = pool.world.random.randbytes(16).hex()
    stats = WorkerStats(ids_made=1)
    renewed = pool.ask(RenewRequest(Seen(), pool.now_ms, token, OWNER, granted.terms, renewal_id, stats))
    pool.set_clock(at_ms)
    if opened < 0 or not isinstance(renewed, Renewed):
        return
    flags = "".join("1" if lane == opened else "0" for lane in range(len(granted.terms.lanes_ms)))
    pool.ask(ReleaseRequest(Seen(), at_ms, token, renewed.terms, "", flags, stats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    parser.add_argument("--hours", type=float, default=48.0, help="simulated time (default: 48)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| processes | each restarts | ends by | starts that wait | longest wait | outage lane open |")
    print("|--:|---|---|--:|--:|--:|")
    rows = [(size, every) for size in (50, 200, 1_000) for every in (HOUR_MS, 24 * HOUR_MS)]
    for size, every_ms in [*rows, (50, 60_000), (200, 60_000), (900, HOUR_MS), (950, HOUR_MS)]:
        for killed in (False, True):
            hours = options.hours if every_ms > 60_000 else options.hours / 24
            counts = run(size, every_ms, hours=hours, killed=killed, seed=options.seed)
            share = 100 * len(counts.waits_ms) / max(1, counts.starts)
            longest_s = max(counts.waits_ms, default=0) / 1000
            every = f"{every_ms // HOUR_MS} h" if every_ms >= HOUR_MS else "1 min"
            end = "kill -9" if killed else "an orderly end"
            print(
                f"| {size:,} | {every} | {end} | {share:.0f} % | {longest_s:.0f} s | {counts.open_percent:.0f} % |",
                flush=True,
            )
    print("\nA pool with one worker id, whose process restarts again and again after a second:")
    one = Layout(timestamp_bits=41, backup_bits=2, worker_bits=0, sequence_bits=12)
    counts = run(1, 1_000, hours=0.1, killed=False, seed=options.seed, layout=one)
    print(f"{counts.starts} starts, waits in s: {', '.join(f'{wait / 1000:.0f}' for wait in counts.waits_ms[:12])}")


if __name__ == "__main__":
    main()
