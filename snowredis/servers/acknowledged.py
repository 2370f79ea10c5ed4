"""Make certain that a change stays: replicas have it, and a snapshot on disk. Loaded only where that is asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from redis import exceptions

from snowredis.errors import StoreUnavailable
from snowredis.servers.failover import on_one_connection
from snowredis.servers.scripts import Script, text_of
from snowredis.settings import MinReplicas

# statuses of replies that any script can send; it changed nothing then
REFUSALS = ("signature", "unidentified", "broken")
# the server may take twice as long, since it checks only now and then; the socket's timeout is 1 s
WAIT_MS = 400
# the longest that a person waits for a snapshot
SAVE_LIMIT_S = 60.0
# an append-only file is written to disk within a second, or two if the disk is slow
FSYNC_S = 2.0


class Acknowledged:
    """Runs scripts and waits until enough replicas have their effect.

    Args:
        min_replicas: how many are enough, 1 or more; "all": the most that were ever seen connected to the master, at
            least 1.
        where: the address, for messages.
        strict: False: run() does not raise if too few replicas have the effect.

    Attributes:
        error: what run() raised, or would have raised, the last time; None if enough replicas had the effect.
    """

    def __init__(self, min_replicas: MinReplicas, where: str, *, strict: bool = True) -> None:
        self._strict = strict
        self.error: StoreUnavailable | None = None
        self._all = min_replicas == "all"
        self._needed = 1 if min_replicas == "all" else min_replicas
        self._where = where

    def run(self, client: Any, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        """Run *script* and return its reply once enough replicas have its effect.

        Blocks for a round trip and, if replicas are missing, up to twice WAIT_MS. Raises redis-py's errors, and
        StoreUnavailable if too few replicas have the effect: then the script did run.
        """
        reply, acknowledged = self._once(client, script, keys, args)
        # a refusal changed nothing, so replicas do not matter
        self.error = None
        if acknowledged < self._needed and text_of(reply[0]) not in REFUSALS:
            needed = f"all {self._needed}" if self._all else f"{self._needed}"
            self.error = StoreUnavailable(
                self._where,
                f"only {acknowledged} of {needed} replicas that "
                f"min_replicas={'all' if self._all else self._needed} requires had the change after {WAIT_MS} ms. "
                "Connect more replicas, or lower min_replicas",
            )
            if self._strict:
                raise self.error
        return reply

    def _once(self, client: Any, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> tuple[Any, int]:
        run = ("EVALSHA", script.sha, len(keys), *keys, *args)
        for attempt in (run, ("EVAL", script.source, *run[2:])):
            # on one connection: WAIT counts for what its own connection wrote
            commands = [attempt, ("INFO", "replication"), ("WAIT", self._needed, WAIT_MS)]
            replies = on_one_connection(client, keys[0], commands)
            if not isinstance(replies[0], exceptions.NoScriptError):
                break
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        reply, info, acknowledged = replies
        if self._all and int(info["connected_slaves"]) > self._needed:
            # this call did not wait for it; it raises, and the repeated call does wait
            self._needed = int(info["connected_slaves"])
        return reply, int(acknowledged)


def save_snapshot(client: Any, key: str) -> bool | None:
    """Let the server of *key* put what it holds where a restart finds it, if it keeps anything on disk.

    Returns None if the user may not do that, and False if it failed. Blocks until it is done, SAVE_LIMIT_S at most.
    Raises redis-py's errors.
    """
    info, rules = on_one_connection(client, key, [("INFO", "persistence"), ("CONFIG", "GET", "save")])
    if not isinstance(info, dict):
        return None
    if int(info.get("aof_enabled", 0)):
        # enough for appendfsync everysec; a snapshot says nothing then
        time.sleep(FSYNC_S)
        return True
    if (isinstance(rules, dict) and not any(rules.values())) or "rdb_bgsave_in_progress" not in info:
        return True
    started = int(time.time())
    (reply,) = on_one_connection(client, key, [("BGSAVE", "SCHEDULE")])
    if isinstance(reply, exceptions.ResponseError):
        return None
    deadline_s = time.monotonic() + SAVE_LIMIT_S
    while time.monotonic() < deadline_s:
        time.sleep(0.05)
        (info,) = on_one_connection(client, key, [("INFO", "persistence")])
        if not int(info["rdb_bgsave_in_progress"]) and int(info["rdb_last_save_time"]) >= started:
            return bool(info["rdb_last_bgsave_status"] == "ok")
    return False
