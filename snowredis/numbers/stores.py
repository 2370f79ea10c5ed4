"""Stores of a tag, of segments and of dated numbers: scripts, arguments and replies. And how a store is opened.

ScriptTagStore is independent of redis-py: a subclass runs the scripts, in Redis or in a simulation. MemoryTagStore is
for tests of applications.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from snowredis.errors import ConfigError, ServerUnidentified
from snowredis.numbers import tag_store
from snowredis.numbers.settings import TagConfig, parse_share, parse_signature, servers_of, share_text
from snowredis.numbers.tag_store import ClosedReason, NumbersBroken, NumbersClosed, NumbersDiffer, TagStore
from snowredis.servers.clients import open_client
from snowredis.servers.connections import CALL_LIMIT_S, time_limit
from snowredis.servers.runner import RedisScripts, server_now_ms, translated
from snowredis.servers.scripts import Script, Scripted, load_script, parse_reply, text_of
from snowredis.settings import MinReplicas, is_embedded, is_in_memory
from snowredis.snowflake.open import open_server

T = TypeVar("T")

SCRIPTS = ("take", "open", "change")
# length at which the stream of events is trimmed: an event takes about 250 bytes
MAX_EVENTS = 10_000
# a process uses no dated number that it asked for this long ago
REPLY_LIFE_MS = 5_000
# how long after a loss a period is opened at the earliest: by then, no process has numbers of before
PERIOD_SETTLE_MS = REPLY_LIFE_MS + 1_000
# characters of a format that are stored
MAX_FORMAT = 100


def load(name: str) -> Script:
    """Return the script *name*; reads its files at the first call."""
    return load_script(name, __file__, () if name == "dated" else ("common",))


def tag_keys(tag: str) -> tuple[str, str, str]:
    """Return the keys of a tag: hash, index of clients and events, with one hash tag: they are in one Cluster slot."""
    key = f"snowredis:segment:{{{tag}}}"
    return key, f"{key}:clients", f"{key}:events"


def dated_keys(tag: str) -> tuple[str]:
    """Return the key of the dated numbers of a tag."""
    return (f"snowredis:{{{tag}}}:dated",)


class NumbersUnidentified(ServerUnidentified):
    """This Redis does not show its identity, so that a loss would go unnoticed."""

    _refused = "numbers would repeat, so nothing was handed out"
    _otherwise = 'set durability="assured" if this Redis never loses an acknowledged write'


def database_of(client: Any) -> int:
    """Return the number of the database that *client* uses."""
    pool = getattr(client, "connection_pool", None)
    return int(pool.connection_kwargs.get("db") or 0) if pool is not None else 0


class NumberStore(Scripted):
    """Base class of the stores of a tag: its requests and errors.

    Attributes:
        tag: its name.
    """

    tag: str
    # the first arguments of each script
    _constants: tuple[int, ...]

    def _call(self, name: str, *args: str | int) -> Any:
        request = self.request(name, *self._constants, *args)
        texts = self.texts_of(request, self.run(*request))
        if texts == ["missing"]:
            raise ConfigError(f"there is no tag {self.tag!r} at {self.where}. Nothing was changed.")
        try:
            return parse_reply(texts, tag_store.REPLIES)
        except ValueError:
            raise self.unknown(texts) from None

    def mismatch(self, stored: str) -> NumbersDiffer:
        return NumbersDiffer(self.tag, stored, self.signature)

    def broken(self, field: str, value: str) -> NumbersBroken:
        return NumbersBroken(self.where, self.tag, field, value)

    def unidentified(self, code: str) -> NumbersUnidentified:
        return NumbersUnidentified(self.where, code)


class _InRedis(RedisScripts, NumberStore):
    """Base class of the stores in Redis or Valkey, 6.2 or later."""

    def _ask(self, call: Callable[[], T]) -> T:
        with translated(self.where), time_limit(CALL_LIMIT_S):
            return call()

    def read(self) -> Mapping[str, str]:
        """Return the stored fields of the tag; none if there is no such tag. Runs no script and writes nothing."""
        fields: Mapping[Any, Any] = self._ask(lambda: self._client.hgetall(self._keys[0]))
        return {text_of(name): text_of(value) for name, value in fields.items()}

    def stored_signature(self) -> str | None:
        """Return the signature that the server has; None if it has no such tag. Runs no script and writes nothing."""
        value: Any = self._ask(lambda: self._client.hget(self._keys[0], "signature"))
        return None if value is None else text_of(value)

    def delete(self) -> bool:
        """Delete the tag. Returns False if there was none."""
        return bool(self._ask(lambda: self._client.delete(*self._keys)))


# --- segments ------------------------------------------------------------------------------------------


class ScriptTagStore(NumberStore, TagStore):
    """Base class of stores of segments.

    Args:
        config: of the tag.
        database: number of the server's database that this process uses.
        random_bytes: source of the nonces.
    """

    def __init__(
        self, config: TagConfig, *, database: int = 0, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        scripts = {name: load(name) for name in SCRIPTS}
        super().__init__(config.signature, tag_keys(config.tag), scripts, random_bytes=random_bytes)
        self.tag, self._database = config.tag, database
        self.use(config)

    def use(self, config: TagConfig) -> None:
        """Go on with other constants of the same tag."""
        self.config, self.signature = config, config.signature
        self._constants = (int(config.assured), config.size, config.failover_slack_ms, self._database, MAX_EVENTS)

    def take(self, request: tag_store.TakeRequest) -> tag_store.TakeReply:
        reply: tag_store.TakeReply = self._call("take", *request.arguments())
        return reply

    def open(self, request: tag_store.OpenRequest) -> tag_store.OpenReply:
        reply: tag_store.OpenReply = self._call("open", *request)
        return reply

    def change(self, config: TagConfig) -> tag_store.ChangeReply:
        """Give the tag the constants *config*, in one step, if it is open. Raises ConfigError if there is no tag."""
        reply: tag_store.ChangeReply = self._call("change", config.signature, int(config.assured), config.size)
        return reply


class RedisTagStore(_InRedis, ScriptTagStore):
    """The segments of one tag on one server.

    Args:
        server: a URL, a redis-py client, or what open_client() returned for one.
        config: of the tag.
        min_replicas: how many replicas must have each change, 0 or more, or "all".
    """

    def __init__(self, server: Any, config: TagConfig, *, min_replicas: MinReplicas = 0) -> None:
        client = open_client(server)
        ScriptTagStore.__init__(self, config, database=database_of(client.client))
        RedisScripts.__init__(self, client, min_replicas)

    def learn_share(self) -> None:
        signature = self.stored_signature()
        if signature is None:
            raise NumbersClosed(self.tag, ClosedReason.NO_TAG, self.config.start, options=self.options)
        try:
            share = parse_signature(self.tag, signature).share
        except ConfigError:
            raise self.mismatch(signature) from None
        if share[1] != self.config.share[1]:
            raise ConfigError(
                f"the tag {self.tag!r} at {self.where} is share {share_text(share)}, and url names "
                f"{self.config.share[1]} servers. No number was made. Name the servers of all shares, each once."
            )
        self.use(replace(self.config, share=share))
        self.knows_share = True


class MemoryTagStore(TagStore):
    """One tag in this process' memory, shared by all generators that use this object. Thread-safe.

    It loses nothing, so it is never closed.

    Args:
        config: of the tag.
        server_time_ms: returns the time of the Redis clock, ms since 1970.
    """

    where = "memory"

    def __init__(self, config: TagConfig, server_time_ms: Callable[[], int]) -> None:
        self.config, self._server_time_ms = config, server_time_ms
        self._lock, self._next = threading.RLock(), 0

    def take(self, request: tag_store.TakeRequest) -> tag_store.TakeReply:
        with self._lock:
            first, self._next = self._next, min(self._next + request.wanted, self.config.size)
            answer = self._server_time_ms(), "1-0", self._next, None
            if request.wanted == 0:
                return tag_store.Noted(*answer)
            if first == self._next:
                return tag_store.Exhausted(*answer, 0)
            return tag_store.GrantedNumbers(*answer, first, self._next)


def open_stores(url: Any, used: Mapping[str, Any]) -> list[Any]:
    """Return the stores of a tag, one for each server; several learn their shares later.

    *used*: all settings of segments. Connects to nothing, but starts embedded://. Raises ConfigError.
    """
    opened = [open_server(server, used["min_replicas"]) for server in servers_of(url)]
    if not opened:
        raise ConfigError("the list of URLs is empty. Name at least one server.")
    # a pool in memory has no address: each object is a server
    addresses = [getattr(server, "where", server) for server in opened]
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            name = address if isinstance(address, str) else "memory"
            raise ConfigError(f"the list of URLs names {name} twice. Name each independent server once.")
    count, slack_s = len(opened), used["failover_slack"]
    slack_ms = max(getattr(each, "failover_slack_ms", 0) for each in opened) if slack_s is None else slack_s * 1000
    stores = []
    for index, (server, address) in enumerate(zip(opened, servers_of(url), strict=True)):
        config = TagConfig(
            tag=used["tag"],
            start=used["start"],
            maximum=used["maximum"],
            durability="assured" if is_embedded(address) else used["durability"],
            failover_slack_ms=round(slack_ms),
            # a server that is administered alone is told which share it has
            share=(index, count) if count > 1 else parse_share(used["share"]),
        )
        if is_in_memory(server):
            stores.append(server.tag_store(config))
        else:
            stores.append(RedisTagStore(server, config, min_replicas=used["min_replicas"]))
            stores[-1].knows_share = count == 1
    return stores


def refuse_several(url: Any) -> None:
    """Raise ConfigError if *url* names several servers."""
    if len(servers_of(url)) > 1:
        raise ConfigError(
            "dated numbers are on one server, and a tag is administered on one server at a time. Name one instead of a "
            "list, and repeat this for the others."
        )


# --- dated numbers -------------------------------------------------------------------------------------


class DatedStore(_InRedis):
    """The dated numbers of one tag on one server.

    Args:
        server: a URL or a redis-py client.
        tag: the name of the numbers.
        signature: period and zone, the same in all processes.
        assured: Redis never loses a write that it acknowledged.
        skew_ms: how far two Redis servers' clocks may differ.
        slack_ms: how long a deposed master may go on answering; None: as long as the kind of server needs.
        maximum: the highest number of a period.
        format: of the texts; for people.
    """

    def __init__(
        self,
        server: Any,
        tag: str,
        signature: str,
        *,
        assured: bool = False,
        skew_ms: int = 0,
        slack_ms: int | None = None,
        maximum: int = 1,
        format: str = "",  # noqa: A002 - it is one
        min_replicas: MinReplicas = 0,
    ) -> None:
        refuse_several(server)
        client = open_client(server)
        NumberStore.__init__(self, signature, dated_keys(tag), {"dated": load("dated")})
        RedisScripts.__init__(self, client, min_replicas)
        self.tag, self._maximum = tag, maximum
        slack = client.failover_slack_ms if slack_ms is None else slack_ms
        self._constants = (int(assured or is_embedded(server)), database_of(self._client), skew_ms, slack)
        self._format = "".join(filter(str.isprintable, format))[:MAX_FORMAT]

    def send(self, request: tag_store.PeriodRequest) -> tag_store.PeriodReply:
        """Run the script once.

        Blocks for a round trip. Raises NumbersDiffer, StoreUnavailable and its subclasses. Is never repeated here:
        numbers whose reply was lost are gaps.
        """
        period = request.period
        when = (period.label, period.from_ms, period.until_ms, period.first_ms)
        rest = (request.wanted, self._maximum, request.seen, PERIOD_SETTLE_MS, self._format)
        reply: tag_store.PeriodReply = self._call("dated", request.action, *when, *rest)
        return reply

    def now_ms(self) -> int:
        """Return the time of the server, ms since 1970."""
        return self._ask(lambda: server_now_ms(self._client, self._keys[0]))
