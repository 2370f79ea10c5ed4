"""Store of a tag of segments in Redis: its scripts, their arguments and replies.

ScriptTagStore is independent of redis-py: a subclass runs the scripts, in Redis or in a simulation.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from snowredis.errors import ServerUnidentified
from snowredis.numbers import protocol
from snowredis.numbers.errors import NumbersBroken, NumbersDiffer
from snowredis.numbers.protocol import OpenRequest, TagConfig, TakeRequest, parse_reply
from snowredis.servers.runner import RedisScripts, translated
from snowredis.servers.scripts import Script, Scripted, load_script, read_lua, text_of
from snowredis.servers.time_limit import CALL_LIMIT_S, time_limit
from snowredis.settings import MinReplicas

_Done = TypeVar("_Done", bound=protocol.Answer)

SCRIPTS = ("take", "open", "close")
# an event takes about 250 bytes
DEFAULT_MAX_EVENTS = 10_000


def lua_of(name: str) -> str:
    """Return the text of lua/NAME.lua."""
    return read_lua(name, __file__)


def load(name: str) -> Script:
    """Return the script *name*; reads its files at the first call."""
    return load_script(name, __file__, () if name == "dated" else ("common",))


def tag_keys(tag: str) -> tuple[str, str, str]:
    """Return the keys of a tag: hash, index of clients and events, with one hash tag: they are in one Cluster slot."""
    key = f"snowredis:segment:{{{tag}}}"
    return key, f"{key}:clients", f"{key}:events"


class NumbersUnidentified(ServerUnidentified):
    """This Redis does not show its identity, so that a loss would go unnoticed."""

    def __str__(self) -> str:
        return (
            f"Redis at {self.where} does not show its identity: {self.reason}. A restart or failover that loses data "
            "would go unnoticed and numbers would repeat, so nothing was handed out. If INFO is refused, allow it for "
            'the user in the URL. Otherwise set durability="assured" if this Redis never loses an acknowledged write.'
        )


class NumberStore(Scripted):
    """Base class of the stores of a tag: its errors.

    Attributes:
        tag: its name.
    """

    tag: str

    def mismatch(self, stored: str) -> NumbersDiffer:
        return NumbersDiffer(self.tag, stored, self.signature)

    def broken(self, field: str, value: str) -> NumbersBroken:
        return NumbersBroken(self.where, self.tag, field, value)

    def unidentified(self, code: str) -> NumbersUnidentified:
        return NumbersUnidentified(self.where, code)


class ScriptTagStore(NumberStore):
    """Base class of stores of segments.

    Args:
        config: of the tag.
        max_events: length at which the stream of events is trimmed.
        random_bytes: source of the nonces.
    """

    def __init__(
        self,
        config: TagConfig,
        *,
        max_events: int = DEFAULT_MAX_EVENTS,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        scripts = {name: load(name) for name in SCRIPTS}
        super().__init__(config.signature, tag_keys(config.tag), scripts, random_bytes=random_bytes)
        self.tag = config.tag
        self.urls: Sequence[str] = ()
        self._max_events = max_events
        self.use(config)

    def use(self, config: TagConfig) -> None:
        """Go on with other constants of the same tag."""
        self.config, self.signature = config, config.signature

    def _call(self, name: str, expected: tuple[type[_Done], ...], *args: str | int) -> _Done:
        config = self.config
        common = (int(config.assured), config.size, config.failover_slack_ms, self._max_events)
        texts = self.ask(name, *common, *args)
        try:
            reply: Any = parse_reply(texts)
        except ValueError:
            reply = None
        if not isinstance(reply, expected):
            raise self.unknown(texts)
        return reply

    def take(self, request: TakeRequest) -> protocol.TakeReply:
        expected = (protocol.Granted, protocol.Noted, protocol.Closed, protocol.Exhausted, protocol.Copied)
        taken: Any = self._call("take", expected, *request.arguments())
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

    def after_fork(self) -> None:
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
