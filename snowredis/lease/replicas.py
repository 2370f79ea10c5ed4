"""Take a script's effect for done only when enough replicas have it: WAIT, on the connection that wrote.

A script whose effect too few replicas have is an error at the caller's, who repeats the very same
call: it answers the same then, and waits again. WAIT cannot stand in a script or a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import exceptions

from snowredis.errors import StoreUnavailable
from snowredis.lease.cluster import on_one_connection
from snowredis.lease.scripts import REFUSALS, Script, text_of
from snowredis.settings import MinReplicas

# the server may take twice as long, since it looks now and then only; and the socket's time-out is 1 s
WAIT_MS = 400


class Acknowledged:
    """Runs scripts and counts the replicas that have their effect.

    Args:
        min_replicas: how many are enough, 1 or more; "all": as many as this object ever saw
            connected to the master, and 1 at least.
        where: for messages.
    """

    def __init__(self, min_replicas: MinReplicas, where: str) -> None:
        self._all = min_replicas == "all"
        self._needed = 1 if min_replicas == "all" else min_replicas
        self._where = where

    def run(self, client: Any, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        """The script's answer, once enough replicas have its effect.

        Blocks for a round trip and, where replicas are missing, up to twice WAIT_MS. Raises redis-py's
        errors, and StoreUnavailable when too few replicas acknowledged: the script did run then.
        """
        reply, acknowledged = self._once(client, script, keys, args)
        # what changed nothing needs no replica
        if acknowledged < self._needed and text_of(reply[0]) not in REFUSALS:
            needed = f"all {self._needed}" if self._all else f"{self._needed}"
            raise StoreUnavailable(
                self._where,
                f"{acknowledged} of {needed} replicas that min_replicas={'all' if self._all else self._needed} asks "
                f"for had the change after {WAIT_MS} ms; connect more replicas, or ask for fewer",
            )
        return reply

    def _once(
        self, client: Any, script: Script, keys: Sequence[str], args: Sequence[str | int]
    ) -> tuple[Any, int]:
        run = ("EVALSHA", script.sha, len(keys), *keys, *args)
        for attempt in (run, ("EVAL", script.source, *run[2:])):
            # on one connection: WAIT counts for what its own connection wrote
            commands = [attempt, ("INFO", "replication"), ("WAIT", self._needed, WAIT_MS)]
            replies = on_one_connection(client, keys[0], commands)
            if not isinstance(replies[0], exceptions.NoScriptError):
                break
        for answer in replies:
            if isinstance(answer, Exception):
                raise answer
        reply, info, acknowledged = replies
        if self._all and int(info["connected_slaves"]) > self._needed:
            # one call too late to have waited for it: the next does, and is the same call repeated
            self._needed = int(info["connected_slaves"])
        return reply, int(acknowledged)
