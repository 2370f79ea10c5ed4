"""A pool in Redis as a Store: builds the arguments of the Lua scripts, and reads their replies.

ScriptStore is independent of redis-py: a subclass runs the scripts, in Redis (RedisStore) or in a simulation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from snowredis.errors import LayoutMismatch
from snowredis.process.clock import now_ms
from snowredis.servers.runner import RedisScripts
from snowredis.servers.scripts import Script, Scripted, load_script
from snowredis.settings import MinReplicas
from snowredis.snowflake.protocol import messages
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys

# the names of the pools that an embedded server ever had
KNOWN_KEY = "snowredis:embedded:pools"
# pool.lua: what it returns in place of the signature that refused the caller before
LOST = "lost=1"
# the script of each request that a generator makes, and its replies. It makes the last one only on an embedded server
# that has just started
REQUESTS: dict[type, tuple[str, Iterable[type[messages.Reply]]]] = {
    messages.ClaimRequest: ("claim", (messages.Granted, messages.Settling, messages.Behind, messages.PoolFull)),
    messages.RenewRequest: ("renew", (messages.Renewed, messages.Lost)),
    messages.ReleaseRequest: ("release", (messages.Released, messages.Gone)),
    messages.CreateRequest: ("create", (messages.Created, messages.Exists)),
}
SCRIPTS = tuple(name for name, _ in REQUESTS.values())


def load(name: str) -> Script:
    """Return the script *name* of pools; reads its files at the first call."""
    return load_script(name, __file__, ("pool",))


class ScriptStore(Scripted):
    """Base class of stores whose state is read and written by the scripts.

    Args:
        config: of the pool.
        random_bytes: source of the nonces.
    """

    requests = REQUESTS

    def __init__(self, config: PoolConfig, *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        scripts = {name: load(name) for name, _ in self.requests.values()}
        super().__init__(config.signature, pool_keys(config.name), scripts, random_bytes=random_bytes)
        self.config = config
        self.if_broken = (
            f"the pool {config.name!r}",
            f"Remove it as `snowredis pool delete {config.name}` says; new workers then wait until every reservation "
            "that it may have granted has ended",
        )
        # time of the last reply, on the caller's clock; there is no connection before the first one
        self._replied_ms = sys.maxsize
        # the signature that refused the last claim; empty if none did
        self._refused_by = ""

    def mismatch(self, stored: str) -> LayoutMismatch:
        return LayoutMismatch(self.config.name, stored, self.signature)

    def ask(self, request: messages.Request) -> Any:
        """Run the script of *request*, with its fields as arguments; return the reply."""
        if request.caller_ms - self._replied_ms > self.config.ttl_ms // 2:
            # this host stood still, or its calls fail: the connection may lead to a former master
            self.reconnect(also_in_use=False)
        if self._refused_by and isinstance(request, messages.ClaimRequest):
            # the end of a pool: a process that was refused says so, and creates no pool that Redis has lost
            request = request._replace(options=request.options + messages.REFUSED)
        name, expected = self.requests[type(request)]
        sent = self.request(name, *map(str, request))
        try:
            texts = self.texts_of(sent, self.run(*sent))
        except LayoutMismatch as error:
            raise self._refused(request, error) from None
        self._replied_ms = request.caller_ms
        reply = self.reply_in(texts, expected)
        if isinstance(request, messages.ClaimRequest):
            self._refused_by = ""
        return reply

    def _refused(self, request: messages.Request, error: LayoutMismatch) -> LayoutMismatch:
        """Return the error for *request*, which another signature refused; note that of a claim."""
        if not isinstance(request, messages.ClaimRequest):
            return error
        before = self._refused_by
        is_lost = before and error.stored == LOST
        self._refused_by = f"{before.removesuffix(LOST).rstrip()} {LOST}" if is_lost else error.stored
        return self.mismatch(self._refused_by)

    def prepare(self) -> None:
        """Learn what a claim needs: nothing."""

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""


class RedisStore(RedisScripts, ScriptStore):
    """A pool in Redis or Valkey, 6.2 or later: one server, a master behind Sentinels, or a Cluster.

    Args:
        server: a URL, a redis-py client, or what open_client() returned for one.
        config: of the pool.
        min_replicas: how many replicas must have each change, 0 or more, or "all".
    """

    def __init__(self, server: Any, config: PoolConfig, *, min_replicas: MinReplicas = 0) -> None:
        ScriptStore.__init__(self, config)
        RedisScripts.__init__(self, server, min_replicas)

    def create_if_new(self) -> None:
        """Create the pool without a floor at an embedded server, which has forgotten nothing, if it never had it.

        A pool that it had may have been removed by a person while processes make ids: that waits for the floor.
        """
        name = self.config.name
        if not self.result_of(lambda: self._client.sismember(KNOWN_KEY, name)):
            self.ask(messages.CreateRequest(messages.Seen(), now_ms()))
            self.result_of(lambda: self._client.sadd(KNOWN_KEY, name))
