"""Wait until enough replicas have the effect of a script: WAIT, on the connection that wrote.

If too few have it, the call raises. The caller repeats the same call, which replies the same and waits again. WAIT is
not allowed in scripts and transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import exceptions

from snowredis.errors import StoreUnavailable
from snowredis.lease.cluster import on_one_connection
from snowredis.lease.scripts import REFUSALS, Script, text_of
from snowredis.settings import MinReplicas

# the server may take twice as long, since it checks only now and then; the socket's timeout is 1 s
WAIT_MS = 400


class Acknowledged:
    """Runs scripts and waits until enough replicas have their effect.

    Args:
        min_replicas: how many are enough, 1 or more; "all": the most that were ever seen connected to the master, at
            least 1.
        where: the address, for messages.
    """

    def __init__(self, min_replicas: MinReplicas, where: str) -> None:
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
        if acknowledged < self._needed and text_of(reply[0]) not in REFUSALS:
            needed = f"all {self._needed}" if self._all else f"{self._needed}"
            raise StoreUnavailable(
                self._where,
                f"only {acknowledged} of {needed} replicas that "
                f"min_replicas={'all' if self._all else self._needed} requires had the change after {WAIT_MS} ms. "
                "Connect more replicas, or lower min_replicas",
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
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        reply, info, acknowledged = replies
        if self._all and int(info["connected_slaves"]) > self._needed:
            # this call did not wait for it; it raises, and the repeated call does wait
            self._needed = int(info["connected_slaves"])
        return reply, int(acknowledged)
