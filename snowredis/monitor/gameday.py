"""What a Redis loses when it fails: numbered writes, the identities that it shows, and the settings that follow.

For `snowredis gameday`, in which a person makes Redis fail. Everything is written below the keys of one pool.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import Any, NamedTuple

from snowredis.errors import SnowredisError
from snowredis.servers.clients import address, is_cluster, own_client
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.snowflake.protocol import pool_keys

# the default for Sentinel and Cluster: the end of a failover cannot be seen from here
_LEAST_SLACK_S = 15
_EVERY_S = 0.01
_NODES = 1024
_EPOCH_MS = 1_735_689_600_000


def canary_key(pool: str) -> str:
    """Return the key of the numbered writes."""
    return f"{pool_keys(pool)[0]}:canary"


def node_keys(pool: str) -> list[str]:
    """Return the keys of a SetNxRegistry."""
    return [f"{pool_keys(pool)[0]}:node:{node}" for node in range(_NODES)]


class SetNxRegistry:
    """The pattern of many home-made registries: SET NX EX a node id, EXPIRE as heartbeat, DEL at the end."""

    def __init__(self, url: str, pool: str, ttl_s: float) -> None:
        self._client, self._keys, self._ttl_ms = own_client(url).client, node_keys(pool), round(ttl_s * 1000)
        self._node: int | None = None
        self._beat_s = 0.0
        self._last_ms = 0

    def ids(self) -> list[int]:
        """Return an id for each ms since the last call. Raises StoreUnavailable as long as there is no node id."""
        if self._node is None:
            with translated(address(self._client)):
                taken = (self._client.set(key, 1, nx=True, px=self._ttl_ms) for key in self._keys)
                self._node = next(node for node, free in enumerate(taken) if free)
            self._last_ms = time.time_ns() // 1_000_000
        if time.monotonic() - self._beat_s > self._ttl_ms / 3000:
            self._beat_s = time.monotonic()
            # a failed heartbeat stops nobody in that pattern
            with contextlib.suppress(SnowredisError), translated(address(self._client)):
                self._client.pexpire(self._keys[self._node], self._ttl_ms)
        first, self._last_ms = self._last_ms + 1, time.time_ns() // 1_000_000
        return [ms - _EPOCH_MS << 22 | self._node << 12 for ms in range(first, self._last_ms + 1)]

    def close(self) -> None:
        """Delete the key of the node id."""
        if self._node is not None:
            with contextlib.suppress(SnowredisError), translated(address(self._client)):
                self._client.delete(self._keys[self._node])


class Canary(threading.Thread):
    """Thread that writes numbers until stop().

    Attributes:
        acknowledged: each number that Redis acknowledged, and when, in seconds of the monotonic clock.
        identities: each pair of run id and replication id that Redis showed, in their order.
        replicas: the most replicas that Redis reported.
    """

    def __init__(self, url: str, pool: str) -> None:
        super().__init__(daemon=True)
        self._client, self._key, self._end = own_client(url).client, canary_key(pool), threading.Event()
        self.acknowledged: dict[int, float] = {}
        self.identities: list[tuple[str, str]] = []
        self.replicas = 0

    def run(self) -> None:
        """Write until stop()."""
        number = 0
        while not self._end.wait(_EVERY_S):
            number += 1
            with contextlib.suppress(SnowredisError), translated(address(self._client)):
                self._client.hset(self._key, str(number), 1)
                self.acknowledged[number] = time.monotonic()
                if number % 10 == 1:
                    self._identify()

    def _identify(self) -> None:
        node = self._client
        if is_cluster(node):
            node = node.get_redis_connection(node.get_node_from_key(self._key))
        server, replication = node.info("server"), node.info("replication")
        self.replicas = max(self.replicas, int(replication.get("connected_slaves", 0)))
        shown = str(server.get("run_id", "")), str(replication.get("master_replid", ""))
        if self.identities[-1:] != [shown]:
            self.identities.append(shown)

    def replied_s(self) -> float:
        """Return the time of the last acknowledged write, in seconds of the monotonic clock; 0: none."""
        return next(reversed(self.acknowledged.values()), 0.0)

    def stop(self) -> None:
        """Write no more."""
        self._end.set()
        self.join()

    def loss(self) -> LostWrites:
        """Return what is missing. Call it after stop(). Raises StoreUnavailable if Redis is away."""
        with translated(address(self._client)):
            there = {int(text_of(name)) for name in self._client.hkeys(self._key)}
        times = list(self.acknowledged.values())
        lost = [moment for number, moment in self.acknowledged.items() if number not in there]
        pauses = (after - before for before, after in itertools.pairwise(times))
        return LostWrites(len(times), len(lost), lost[-1] - lost[0] if lost else 0.0, max(pauses, default=0.0))


class LostWrites(NamedTuple):
    """What became of the acknowledged writes.

    Attributes:
        lost_for_s: from the first lost one to the last.
        away_s: the longest time without an acknowledgement.
    """

    acknowledged: int
    lost: int
    lost_for_s: float
    away_s: float


def advise(
    loss: LostWrites, *, identities: int, noticed: bool, replicas: int, unidentified: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """Return settings for connect(), and the reasons for them.

    Args:
        identities: how many pairs of run id and replication id were shown.
        noticed: whether the pool has another incarnation.
        replicas: how many replicas there were.
        unidentified: why scripts cannot see the identity of Redis; empty if they can.
    """
    if unidentified:
        return {"durability": "none"}, [f"scripts cannot tell this Redis from another one: {unidentified}"]
    if loss.lost and not noticed:
        return {"durability": "none"}, [
            "acknowledged writes were lost, and Redis shows nothing by which scripts notice it"
        ]
    chosen: dict[str, Any] = {"durability": "detect"}
    reasons = ["no acknowledged write was lost in this trial, which does not prove that none ever is"]
    if loss.lost:
        reasons = ["acknowledged writes were lost, and the pool noticed it. With durability assured, ids would repeat"]
    if replicas and identities > 1:
        chosen["failover_slack"] = max(_LEAST_SLACK_S, round(2 * loss.lost_for_s + 1))
        reasons.append(f"a replica took over, and {loss.lost_for_s:.1f} s of writes to the old master were lost")
    if replicas and loss.lost:
        chosen["min_replicas"] = "all"
        reasons.append("with min_replicas, a lease counts only when the replicas have it")
    return chosen, reasons
