"""Administration of a pool in Redis by people: create it, and give it an end; and pools that know their shard number.

Each change is put on every copy of the pool that can come back. Independent of redis-py up to PoolAdministration: a
simulation runs the scripts otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from snowredis.core.values import time_text
from snowredis.errors import StoreUnavailable, as_cause
from snowredis.process.clock import now_ms
from snowredis.process.log import log
from snowredis.servers.failover import Acknowledged, on_one_connection, save_snapshot
from snowredis.servers.runner import translated
from snowredis.servers.scripts import flag
from snowredis.signatures import fields_of
from snowredis.snowflake.protocol.messages import Absent, CreateRequest, Reply, Request, Seen
from snowredis.snowflake.protocol.pool_config import is_deleted
from snowredis.snowflake.protocol.redis_store import REQUESTS, RedisStore, ScriptStore

_Reply = TypeVar("_Reply", bound=Reply)

# how often replicas are asked whether they have what a person did; WAIT_MS each
ATTEMPTS = 6


class DeleteRequest(NamedTuple):
    """Request to give the pool the earliest end. *is_sure*: 1 if every copy of the pool has it, so that it counts."""

    seen: Seen
    caller_ms: int
    is_sure: int


class Ends(Reply, end_ms=int, over=flag):
    """Reply to a deletion: the pool has an end.

    Attributes:
        end_ms: no reservation of the pool reaches beyond it, and what starts at its name then starts there.
        over: True if no process holds a lease, so that the next pool can be created at once.
    """

    end_ms: int
    over: bool


class Undone(Reply):
    """Reply to a deletion of a sure caller: the pool has no end, Redis lost it."""


POOL_REQUESTS = REQUESTS | {DeleteRequest: ("delete", (Ends, Undone, Absent))}
# all scripts of pools
POOL_SCRIPTS = tuple(name for name, _ in POOL_REQUESTS.values())


class Administration(ScriptStore):
    """Base class of stores with which people administer a pool."""

    requests = POOL_REQUESTS

    def ask(self, request: Request) -> Any:
        ask = super().ask
        return self._lasting(lambda: ask(request)) if isinstance(request, CreateRequest) else ask(request)

    def delete(self, caller_ms: int) -> Ends | Absent:
        """Give the pool the earliest end, once; a pool that has one keeps it.

        Raises:
            StoreUnavailable: also if Redis lost the end before it counted, or has it, and it does not count: the advice
                says so then.
        """
        ends: Ends | None = None

        def ask(is_sure: int) -> Ends | Absent | Undone:
            nonlocal ends
            reply: Ends | Absent | Undone = self.ask(DeleteRequest(Seen(), caller_ms, is_sure))
            ends = reply if isinstance(reply, Ends) else ends
            return reply

        try:
            reply = self._lasting(lambda: ask(is_sure=0), strict=True)
            if isinstance(reply, Ends):
                # from here on it counts
                reply = self._lasting(lambda: ask(is_sure=1))
        except StoreUnavailable as error:
            if ends is None or error.code == "broken":
                raise
            advice = (
                f"The pool ends at {time_text(ends.end_ms)} all the same: from then on, all of its processes are "
                "refused until this command succeeds. Let Redis save and its replicas follow, and repeat the command "
                "before then"
            )
            raise StoreUnavailable(self.where, error.reason, advice, error.code) from as_cause(error)
        if isinstance(reply, Undone):
            reason = "it lost the end that the pool just got, so the pool goes on"
            raise StoreUnavailable(self.where, reason, "Repeat the command")
        return reply

    def _lasting(self, change: Callable[[], _Reply], *, strict: bool = False) -> _Reply:
        """Make a *change* that a person asked for; subclasses put it on every copy of the pool that can come back.

        If *strict*, they raise StoreUnavailable if one does not have it.
        """
        return change()


class PoolAdministration(RedisStore, Administration):
    """A pool in Redis or Valkey, for people."""

    def stored(self, field: str) -> str:
        """Return a field of the pool in this Redis; "" if there is no pool, or if it was deleted and has ended.

        Blocks for a round trip, CALL_LIMIT_S at most. Raises StoreUnavailable and its subclasses.
        """
        found = self.read(field, "over", "end")
        return "" if is_deleted(found.get("over", ""), found.get("end", ""), now_ms()) else found.get(field, "")

    def _lasting(self, change: Callable[[], _Reply], *, strict: bool = False) -> _Reply:
        """Make a *change* that a person asked for, and put it on every copy of the pool that can come back.

        Else a failover or a crash would undo it. Blocks until the replicas have it and a snapshot is written,
        SAVE_LIMIT_S and a few seconds. A warning says what does not have it.

        Raises:
            StoreUnavailable: *strict*, and a replica does not have it, or a snapshot failed. Repeat the change: it is
                made once.
        """
        key, before = self._keys[0], self._acknowledged
        if self._fresh:
            # an embedded Redis, which creates its pools as new whenever it starts
            return change()
        with translated(self.where):
            (info,) = on_one_connection(self._client, key, [("INFO", "replication")])
        replicas = int(info.get("connected_slaves", 0)) if isinstance(info, dict) else 0
        acknowledged = Acknowledged(replicas, self.where, strict=False)
        try:
            self._acknowledged = acknowledged if replicas else before
            reply = change()
            for _ in range(ATTEMPTS - 1):
                if acknowledged.error:
                    change()
            if strict and acknowledged.error:
                raise StoreUnavailable(self.where, "a replica does not have this")
        finally:
            self._acknowledged = before
        with translated(self.where):
            is_saved = save_snapshot(self._client, key)
        if strict and is_saved is False:
            raise StoreUnavailable(self.where, "it could not write a snapshot, without which a crash would undo this")
        if acknowledged.error or not is_saved:
            missing = "a snapshot failed" if is_saved is False else "this user cannot make a snapshot"
            missing = "a replica does not have this" if acknowledged.error else missing
            text = "pool %s: %s at %s. If Redis goes back to a time before, repeat this command"
            log.warning(text, self.config.name, missing, self.where)
        return reply


class ShardStore(PoolAdministration):
    """The store of a pool whose datacenter bits hold the number of a shard: datacenter="auto".

    `snowredis pool create NAME --datacenter auto` took the number from a tag, and the pool's own hash keeps it, as one
    of its constants. So a process needs nothing but the pool. A pool that Redis lost is put back by a process that
    knows its number, and never by one that does not.
    """

    _is_known = False

    def prepare(self) -> None:
        """Learn the datacenter. Blocks for a round trip, at the first call. Raises StoreUnavailable, LayoutMismatch."""
        if self._is_known:
            return
        signature = self.stored("signature")
        number = fields_of(signature).get("datacenter", "")
        if not number.isdecimal():
            name = self.config.name
            raise StoreUnavailable(
                self.where,
                f"it has no pool {name!r}, whose shard number is needed",
                f"If the shard is new, create it: snowredis pool create {name} --datacenter auto. If this Redis lost "
                "the pool, its living processes put it back in a moment. If none lives, create it again with its "
                "number",
            )
        if int(number) >= self.config.layout.datacenters:
            raise self.mismatch(signature)
        self.config = replace(self.config, datacenter=int(number))
        self.signature = self.config.signature
        self._is_known = True
