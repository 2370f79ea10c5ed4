"""A pool in Redis as a Store: builds the arguments of the Lua scripts, and reads their replies.

ScriptStore is independent of redis-py: a subclass runs the scripts, in Redis (RedisStore) or in a simulation.
"""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from snowredis.errors import LayoutMismatch, PoolBroken
from snowredis.servers.runner import RedisScripts
from snowredis.servers.scripts import Script, Scripted, load_script, parse_reply
from snowredis.settings import MinReplicas
from snowredis.snowflake import protocol, replies
from snowredis.snowflake.replies import Reply, Seen

# pool.lua: what it returns in place of the signature that refused the caller before
LOST = "lost=1"
# the last one is run by a generator only on an embedded server that has just started, else when a person asks for it
SCRIPTS = ("claim", "renew", "release", "create")


def load(name: str) -> Script:
    """Return the script *name* of pools; reads its files at the first call."""
    return load_script(name, __file__, ("pool",))


def script_arguments(
    request: protocol.ClaimRequest | protocol.RenewRequest | protocol.ReleaseRequest,
) -> list[str | int]:
    """Return the fields of *request* as the script takes them: in this order, without caller_ms, which is common."""
    values = zip(request._fields, request, strict=True)
    return [_argument(value) for name, value in values if name != "caller_ms"]


def _argument(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return ",".join(map(str, value)) if isinstance(value, tuple) else int(value)


class ScriptStore(Scripted):
    """Base class of stores whose state is read and written by the scripts.

    Args:
        config: of the pool.
        max_events: length at which the stream of events is trimmed.
        random_bytes: source of the nonces.
    """

    script_names: Sequence[str] = SCRIPTS

    def __init__(
        self,
        config: protocol.PoolConfig,
        *,
        max_events: int = protocol.DEFAULT_MAX_EVENTS,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        scripts = {name: load(name) for name in self.script_names}
        super().__init__(config.signature, protocol.pool_keys(config.name), scripts, random_bytes=random_bytes)
        self.config = config
        numbers = (config.ttl_ms, config.max_clock_lead_ms, config.redis_skew_ms, config.failover_slack_ms)
        others = (config.outage_reserve_ms, max_events, config.durability)
        # packed once, in the form that the scripts take
        self._constants = ",".join(map(str, (*numbers, *others)))
        # time of the last reply, on the caller's clock; there is no connection before the first one
        self._replied_ms = sys.maxsize
        # the signature that refused the last claim; empty if none did
        self._refused_by = ""

    def use(self, config: protocol.PoolConfig) -> None:
        """Go on with another shard number, which is in the signature only."""
        self.config, self.signature = config, config.signature

    def mismatch(self, stored: str) -> LayoutMismatch:
        return LayoutMismatch(self.config.name, stored, self.signature)

    def broken(self, field: str, value: str) -> PoolBroken:
        return PoolBroken(self.where, self.config.name, field, value)

    def _call(self, name: str, expected: Iterable[type[Reply]], seen: Seen, caller_ms: int, *args: str | int) -> Any:
        if caller_ms - self._replied_ms > self.config.ttl_ms // 2:
            # this host stood still, or its calls fail: the connection may lead to a former master
            self.reconnect(also_in_use=False)
        request = self.request(name, self._constants, seen.incarnation, seen.version, caller_ms, *args)
        texts = self.texts_of(request, self.run(*request))
        self._replied_ms = caller_ms
        try:
            return parse_reply(texts, expected)
        except ValueError:
            raise self.unknown(texts) from None

    def claim(self, request: protocol.ClaimRequest, seen: Seen) -> replies.ClaimReply:
        before = self._refused_by
        # the end of a pool: a process that was refused says so, and creates no pool that Redis has lost
        sizes = (self.config.layout.workers, self.config.layout.namespaces, int(bool(before)))
        expected = (replies.Granted, replies.Settling, replies.Behind, replies.PoolFull)
        try:
            reply: replies.ClaimReply = self._call(
                "claim", expected, seen, request.caller_ms, *script_arguments(request), *sizes
            )
        except LayoutMismatch as error:
            is_lost = before and error.stored == LOST
            self._refused_by = f"{before.removesuffix(LOST).rstrip()} {LOST}" if is_lost else error.stored
            raise self.mismatch(self._refused_by) from None
        self._refused_by = ""
        return reply

    def renew(self, request: protocol.RenewRequest, seen: Seen) -> replies.RenewReply:
        expected, args = (replies.Renewed, replies.Lost), script_arguments(request)
        reply: replies.RenewReply = self._call("renew", expected, seen, request.caller_ms, *args)
        return reply

    def release(self, request: protocol.ReleaseRequest, seen: Seen) -> replies.ReleaseReply:
        expected = (replies.Released, replies.Gone)
        reply: replies.ReleaseReply = self._call(
            "release", expected, seen, request.caller_ms, *script_arguments(request)
        )
        return reply

    def create(self, caller_ms: int) -> replies.CreateReply:
        expected = (replies.Created, replies.Exists)
        reply: replies.CreateReply = self._call("create", expected, Seen(), caller_ms)
        return reply

    def prepare(self) -> None:
        """Learn what a claim needs: nothing."""

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""

    @abstractmethod
    def close(self) -> None: ...


class RedisStore(RedisScripts, ScriptStore):
    """A pool in Redis or Valkey, 6.2 or later: one server, a master behind Sentinels, or a Cluster.

    Args:
        server: a URL, a redis-py client, or what open_client() returned for one.
        config: of the pool.
        min_replicas: how many replicas must have each change, 0 or more, or "all".
        max_events: length at which the stream of events is trimmed.
    """

    def __init__(
        self,
        server: Any,
        config: protocol.PoolConfig,
        *,
        min_replicas: MinReplicas = 0,
        max_events: int = protocol.DEFAULT_MAX_EVENTS,
    ) -> None:
        ScriptStore.__init__(self, config, max_events=max_events)
        RedisScripts.__init__(self, server, min_replicas)
