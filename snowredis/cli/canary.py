"""Writes of `snowredis gameday`, its observations of a failing Redis, and the settings that follow from them.

Everything is written below the keys of one pool.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import Any, NamedTuple

from snowredis.errors import SnowredisError
from snowredis.monitor.pool_reader import server_of
from snowredis.servers.runner import translated
from snowredis.snowflake.protocol import pool_keys
from snowredis.worker_pool import WorkerPool

# the default for Sentinel and Cluster; the end of a failover cannot be seen from here
_LEAST_SLACK_S = 15
# between two numbered writes
_WRITE_EVERY_S = 0.01


class Observed(NamedTuple):
    """Fate of the acknowledged writes, and the identity that Redis showed.

    Attributes:
        lost_for_s: from the first lost write to the last.
        away_s: the longest time without an acknowledgement.
        identities: each pair of run id and replication id, once.
        replicas: the most that Redis reported.
    """

    acknowledged: int
    lost: int
    lost_for_s: float
    away_s: float
    identities: list[tuple[str, str]]
    replicas: int


class Canary(threading.Thread):
    """Thread that writes numbers until stop().

    Attributes:
        key: what it writes.
    """

    def __init__(self, pool: WorkerPool) -> None:
        super().__init__(daemon=True)
        self.key = f"{pool_keys(pool.name)[0]}:canary"
        self._client, self._where, self._end = pool.client, pool.where, threading.Event()
        # each number that Redis acknowledged, and when, in seconds of the monotonic clock
        self._acknowledged: dict[int, float] = {}
        self._identities: list[tuple[str, str]] = []
        self._replicas = 0

    def run(self) -> None:
        """Write until stop()."""
        number = 0
        while not self._end.wait(_WRITE_EVERY_S):
            number += 1
            with contextlib.suppress(SnowredisError), translated(self._where):
                self._client.hset(self.key, str(number), 1)
                self._acknowledged[number] = time.monotonic()
                if number % 10 == 1:
                    info = server_of(self._client, self.key).info("everything")
                    self._replicas = max(self._replicas, int(info.get("connected_slaves", 0)))
                    self._identities.append((str(info.get("run_id", "")), str(info.get("master_replid", ""))))

    def replied_s(self) -> float:
        """Return the time of the last acknowledged write, in seconds of the monotonic clock; 0: none."""
        return next(reversed(self._acknowledged.values()), 0.0)

    def stop(self) -> None:
        """Write no more."""
        self._end.set()
        if self.is_alive():
            self.join()

    def seen(self) -> Observed:
        """Return what was seen. Call it after stop(). Raises StoreUnavailable if Redis is away."""
        with translated(self._where):
            there = {int(name) for name in self._client.hkeys(self.key)}
        times = list(self._acknowledged.values())
        lost = [moment for number, moment in self._acknowledged.items() if number not in there]
        away_s = max((after - before for before, after in itertools.pairwise(times)), default=0.0)
        lost_for_s = lost[-1] - lost[0] if lost else 0.0
        identities = list(dict.fromkeys(self._identities))
        return Observed(len(times), len(lost), lost_for_s, away_s, identities, self._replicas)


def advise(seen: Observed, *, noticed: bool, unidentified: str) -> tuple[dict[str, Any], list[str]]:
    """Return settings for connect(), and the reasons for them.

    Args:
        noticed: whether the pool has another incarnation.
        unidentified: why scripts cannot see the identity of Redis; empty if they can.
    """
    if unidentified:
        return {"durability": "none"}, [f"scripts cannot tell this Redis from another one: {unidentified}"]
    if seen.lost and not noticed:
        return {"durability": "none"}, [
            "acknowledged writes were lost, and Redis shows nothing by which scripts notice it"
        ]
    chosen: dict[str, Any] = {"durability": "detect"}
    reasons = ["no acknowledged write was lost in this trial, which does not prove that none ever is"]
    if seen.lost:
        reasons = ["acknowledged writes were lost, and the pool noticed it. With durability assured, ids would repeat"]
    if seen.replicas and len(seen.identities) > 1:
        chosen["failover_slack"] = max(_LEAST_SLACK_S, round(2 * seen.lost_for_s + 1))
        reasons.append(f"a replica took over, and {seen.lost_for_s:.1f} s of writes to the old master were lost")
    if seen.replicas and seen.lost:
        chosen["min_replicas"] = "all"
        reasons.append("with min_replicas, a lease counts only when the replicas have it")
    return chosen, reasons
