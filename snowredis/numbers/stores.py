"""Stores of numbers in Redis: the scripts of segments, their arguments and replies.

ScriptTagStore is independent of redis-py: a subclass runs the scripts, in Redis or in a simulation.
"""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from snowredis.errors import ServerUnidentified, StoreUnavailable
from snowredis.numbers import protocol
from snowredis.numbers.errors import NumbersBroken, NumbersDiffer
from snowredis.numbers.protocol import BURST_S, OpenRequest, TagConfig, TakeRequest, parse_reply
from snowredis.servers.connections import CALL_LIMIT_S, time_limit
from snowredis.settings import MinReplicas
from snowredis.snowflake import scripts as lease_scripts
from snowredis.snowflake.redis_store import RedisScripts, translated
from snowredis.snowflake.scripts import Script, own_texts, text_of

_Done = TypeVar("_Done", bound=protocol.Answer)

SCRIPTS = ("take", "open", "close")
# an event takes about 250 bytes
DEFAULT_MAX_EVENTS = 10_000


def read_lua(name: str) -> str:
    """Return the text of lua/NAME.lua."""
    return lease_scripts.read_lua(name, __file__)


@functools.cache
def load(name: str) -> Script:
    """Return the script *name*; reads its files at the first call."""
    parts = ("arguments",) if name == "dated" else ("arguments", "common")
    return Script(name, (lease_scripts.read_lua("identity"), *map(read_lua, (*parts, name))))


def tag_keys(tag: str) -> tuple[str, str, str]:
    """Return the keys of a tag: hash, index of clients and events, with one hash tag: they are in one Cluster slot."""
    key = f"snowredis:segment:{{{tag}}}"
    return key, f"{key}:clients", f"{key}:events"


def refused(texts: Sequence[str], where: str, tag: str, signature: str) -> Exception | None:
    """Return the error for a refusal that any script of numbers can reply; None for another reply."""
    match texts:
        case ["signature", stored]:
            return NumbersDiffer(tag, stored, signature)
        case ["unidentified", code]:
            return NumbersUnidentified(where, code)
        case ["broken", field, value]:
            return NumbersBroken(where, tag, field, value)
    return None


class NumbersUnidentified(ServerUnidentified):
    """This Redis does not show its identity, so that a loss would go unnoticed."""

    def __str__(self) -> str:
        return (
            f"Redis at {self.where} does not show its identity: {self.reason}. A restart or failover that loses data "
            "would go unnoticed and numbers would repeat, so nothing was handed out. If INFO is refused, allow it for "
            'the user in the URL. Otherwise set durability="assured" if this Redis never loses an acknowledged write.'
        )


class ScriptTagStore(ABC):
    """Base class of stores whose state is read and written by the scripts.

    Args:
        config: of the tag.
        max_events: length at which the stream of events is trimmed.
        random_bytes: source of the nonces.
    """

    where: str

    def __init__(
        self,
        config: TagConfig,
        *,
        max_events: int = DEFAULT_MAX_EVENTS,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.config = config
        self.urls: Sequence[str] = ()
        self._random_bytes = random_bytes
        self._max_events = max_events
        # read now: a process that is forked while another thread reads a file may wait for ever
        self._scripts = {name: load(name) for name in SCRIPTS}
        self._keys = tag_keys(config.tag)

    @abstractmethod
    def run(self, script: Any, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        """Run *script* once, atomically. Raises StoreUnavailable and its subclasses."""

    def _reconnect(self) -> None:  # noqa: B027 - without connections nothing is to be done
        """Drop all connections."""

    def _call(self, name: str, expected: tuple[type[_Done], ...], *args: str | int) -> _Done:
        config, nonce = self.config, self._random_bytes(16).hex()
        common = (
            *(config.signature, int(config.assured), nonce, config.size),
            *(config.redis_skew_ms, config.failover_slack_ms, config.max_rate, BURST_S * config.max_rate),
            self._max_events,
        )
        values = self.run(self._scripts[name], self._keys, (*common, *args))
        texts = own_texts(values, nonce, self.where, self._reconnect)
        error = refused(texts, self.where, config.tag, config.signature)
        if error is not None:
            raise error
        try:
            reply: Any = parse_reply(texts)
        except ValueError:
            reply = None
        if not isinstance(reply, expected):
            raise StoreUnavailable(
                self.where, f"unknown reply {texts!r}; is another version of snowredis in use?"
            )
        return reply

    def take(self, request: TakeRequest) -> protocol.TakeReply:
        expected = (protocol.Granted, protocol.Noted, protocol.Closed, protocol.Exhausted)
        taken: Any = self._call("take", (*expected, protocol.Limited, protocol.Copied), *request.arguments())
        reply: protocol.TakeReply = taken
        return reply

    def open(self, request: OpenRequest) -> protocol.OpenReply:
        opened: Any = self._call("open", (protocol.Opened, protocol.Settling, protocol.NotNew), *request)
        reply: protocol.OpenReply = opened
        return reply

    def stop(self, run: str, *, force: bool) -> protocol.Stopped:
        """Close the tag, whatever its constants, for the change *run*, which opens it.

        Args:
            force: close it for the change even if Redis may have forgotten numbers.
        """
        return self._call("close", (protocol.Stopped,), run, int(force))

    def after_fork(self) -> None:  # noqa: B027 - without connections nothing is to be done
        """In a forked child: use nothing of the parent's connections and locks."""

    @abstractmethod
    def close(self) -> None: ...


class RedisTagStore(RedisScripts, ScriptTagStore):
    """The state of a tag in Redis or Valkey, 6.2 or later.

    Args:
        server: a URL, a redis-py client, or what own_client() returned for one.
        config: of the tag.
        min_replicas: how many replicas must have each change, 0 or more, or "all".
    """

    def __init__(self, server: Any, config: TagConfig, *, min_replicas: MinReplicas = 0) -> None:
        ScriptTagStore.__init__(self, config)
        RedisScripts.__init__(self, server, min_replicas)

    def read(self) -> Mapping[str, str]:
        """Return the stored fields of the tag; none if there is no such tag. Runs no script and writes nothing."""
        with translated(self.where), time_limit(CALL_LIMIT_S):
            fields: Mapping[Any, Any] = self._client.hgetall(self._keys[0])
        return {text_of(name): text_of(value) for name, value in fields.items()}

    def delete(self) -> bool:
        """Delete the tag. Returns False if there was none."""
        with translated(self.where), time_limit(CALL_LIMIT_S):
            return bool(self._client.delete(*self._keys))
