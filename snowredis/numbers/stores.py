"""The store of a tag: it sends requests and reads replies. And how it is opened.

TagStore is independent of redis-py: a subclass runs the scripts, in Redis or in a simulation. MemoryTag is for tests of
applications.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from snowredis.errors import ConfigError
from snowredis.numbers import protocol
from snowredis.numbers.protocol import OpenRequest, TakeRequest
from snowredis.numbers.settings import NUMBER_SETTINGS, servers_of
from snowredis.servers.clients import open_client
from snowredis.servers.runner import RedisScripts, server_now_ms
from snowredis.servers.scripts import Script, Scripted, load_script, with_format
from snowredis.settings import MinReplicas, is_embedded, is_in_memory
from snowredis.signatures import mismatch
from snowredis.snowflake.protocol.open import open_server

# version of what is stored; see FORMATS in snowredis.signatures
FORMAT = 1
# a process uses no dated number that it asked for this long ago
REPLY_LIFE_MS = 5_000
# how long after a loss a period is opened at the earliest: by then, no process has numbers of before
SETTLE_MS = REPLY_LIFE_MS + 1_000


def load(name: str) -> Script:
    """Return the script *name*; reads its files at the first call."""
    return load_script(name, __file__, ("tag",))


def tag_keys(tag: str) -> tuple[str]:
    """Return the key of a tag."""
    return (f"snowredis:{{{tag}}}:numbers",)


class TagStore(Scripted):
    """A tag on one server.

    Args:
        tag: its name.
        periods: which periods it has, and where numbers stand in their texts: name=value, separated by spaces.
        format: of the texts; "" for plain numbers.
        slack_ms: how long a deposed master may go on answering, if the tag does not say it.
        database: number of the server's database that this process uses.

    Attributes:
        durability: of a tag that is created, by default: embedded:// writes each command to its disk before it replies.
    """

    durability = "detect"
    without_identity = (
        "numbers",
        "handed out",
        "create the tag with durability assured if this Redis never loses an acknowledged write",
    )

    def __init__(
        self,
        tag: str,
        periods: str = "period=ever",
        *,
        format: str = "",  # noqa: A002 - it is one
        slack_ms: int = 0,
        database: int = 0,
    ) -> None:
        scripts = {name: load(name) for name in protocol.REPLIES}
        super().__init__(with_format(FORMAT, periods), tag_keys(tag), scripts)
        self.tag, self.slack_ms, self._format = tag, slack_ms, format
        self.if_broken = (
            f"the tag {tag!r}",
            f"Find the highest number in use, delete the tag with: snowredis numbers delete {tag}, and create it "
            f"beyond that number: snowredis numbers create {tag} --start N",
        )
        # segments are used for as long as they last: a person opens above all of them
        self._database, self._settle_ms = database, SETTLE_MS if format else 0

    def send(self, request: TakeRequest | OpenRequest) -> Any:
        """Run the script of *request* once. Returns a TakeReply or an OpenReply.

        Blocks for a round trip. Raises ConfigError, StoreUnavailable. Is never repeated here:
        numbers whose reply was lost are gaps.
        """
        period, seen, rest = request.period, 0, tuple[str | int, ...](request[2:])
        if isinstance(request, TakeRequest):
            name, seen = "take", request.seen
        else:
            name, rest = "open", (request.action, *rest)
        of_period = (period.around, period.from_ms, period.until_ms, period.first_ms, seen, self._settle_ms)
        asked = self.request(name, self._database, self.slack_ms, self._format, *of_period, *rest)
        texts = self.texts_of(asked, self.run(*asked))
        if texts[0] == "reformatted":
            formats = (f"texts={text.replace(' ', '_')}" for text in (texts[1], self._format))
            raise self._mismatch(*(f"{self.signature} {text}" for text in formats))
        return self.reply_in(texts, protocol.REPLIES[name])

    def mismatch(self, stored: str) -> ConfigError:
        return self._mismatch(stored, self.signature)

    def _mismatch(self, stored: str, given: str) -> ConfigError:
        advice = "No number was made. Use the settings of the tag, or another tag."
        error = ConfigError(mismatch(f"the tag {self.tag!r}", "in the tag", stored, given, advice))
        error.code = "tag-differs"
        return error


class RedisTag(RedisScripts, TagStore):
    """A tag in Redis or Valkey, 6.2 or later; *server* is what open_server() returned, *settings* are TagStore's."""

    def __init__(self, server: Any, tag: str, *, min_replicas: MinReplicas = 0, **settings: Any) -> None:
        client = open_client(server)
        pool = getattr(client.client, "connection_pool", None)
        database = int(pool.connection_kwargs.get("db") or 0) if pool is not None else 0
        TagStore.__init__(self, tag, database=database, **{"slack_ms": client.failover_slack_ms, **settings})
        RedisScripts.__init__(self, client, min_replicas)

    def delete(self) -> bool:
        """Delete the tag. Returns False if there was none."""
        return bool(self.result_of(lambda: self._client.delete(*self._keys)))

    def now_ms(self) -> int:
        """Return the time of the server, ms since 1970."""
        return self.result_of(lambda: server_now_ms(self._client, self._keys[0]))


class MemoryTag:
    """One tag in this process' memory, shared by all generators that use this object. Thread-safe.

    It loses nothing, so it is never closed.

    Args:
        tag: its name.
        server_time_ms: returns the time of the Redis clock, ms since 1970.
    """

    where, durability = "memory", "detect"

    def __init__(self, tag: str, server_time_ms: Callable[[], int]) -> None:
        self.tag, self._server_time_ms = tag, server_time_ms
        # text around the numbers -> the next one
        self._lock, self._next = threading.RLock(), dict[str, int]()

    def send(self, request: TakeRequest | OpenRequest) -> Any:
        with self._lock:
            around = request.period.around
            now_ms, first = self._server_time_ms(), self._next.get(around, 1)
            if isinstance(request, OpenRequest):
                self._next[around] = max(first, request.from_number)
                return protocol.Opened(now_ms, self._next[around])
            if not request.period.from_ms <= now_ms < request.period.until_ms:
                return protocol.OtherPeriod(now_ms, first)
            left = max(0, request.highest + 1 - first)
            count = min(request.wanted, left)
            if count < request.least:
                return protocol.Exhausted(now_ms, first, left)
            self._next[around] = first + count
            return protocol.GrantedNumbers(now_ms, first + count, first, count, 1, left - count)

    def after_fork(self) -> None:
        """Replace the lock, which a thread of the parent may have held. The child's copy is a tag of its own."""
        self._lock = threading.RLock()

    def close(self) -> None:
        """Nothing to close."""


def open_tag_store(url: Any, tag: str, *, min_replicas: MinReplicas = 0, **settings: Any) -> Any:
    """Return the store of a tag on one server; *settings* are TagStore's.

    Connects to nothing, but starts embedded://. Raises ConfigError.
    """
    if len(servers_of(url)) > 1:
        raise ConfigError(
            "dated numbers are on one server, and a tag is administered on one server at a time. Name one instead of a "
            "list, and repeat this for the others."
        )
    NUMBER_SETTINGS["tag"].check(tag)
    server = open_server(url, min_replicas)
    if is_in_memory(server):
        return server.tag_store(tag)
    store = RedisTag(server, tag, min_replicas=min_replicas, **settings)
    store.durability = "assured" if is_embedded(url) else "detect"
    return store
