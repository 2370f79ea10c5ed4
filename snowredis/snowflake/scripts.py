"""The Lua scripts as a Store: builds their arguments, reads their replies.

Independent of redis-py: a subclass runs the scripts, in Redis or in a simulation.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from snowredis.core.layout import Layout
from snowredis.errors import LayoutMismatch, PoolBroken, ServerUnidentified, StoreReadOnly, StoreUnavailable
from snowredis.snowflake import replies
from snowredis.snowflake.protocol import (
    DEFAULT_MAX_EVENTS,
    ClaimRequest,
    PoolConfig,
    ReleaseRequest,
    RenewRequest,
    WorkerStats,
)
from snowredis.snowflake.replies import Reply, Seen, parse_reply

_Done = TypeVar("_Done", bound=Reply)
_Refused = TypeVar("_Refused", bound=Reply)

# put in front of each script
PARTS = ("identity", "record", "arguments", "common")
# the first four are run by generators, the others when a person asks for it
SCRIPTS = ("claim", "renew", "release", "note_number", "create", "change_layout", "delete")
# the same for registries of shard numbers, whose store is snowredis.snowflake
REGISTRY_PARTS = ("identity", "record", "arguments", "registry")
REGISTRY_SCRIPTS = (
    "registry_take",
    "registry_confirm",
    "registry_create",
    "registry_open",
    "registry_retire",
)

# statuses of replies that any script can send; it changed nothing then
REFUSALS = ("signature", "unidentified", "broken")


class Script:
    """One script with the common parts in front, and the SHA1 that Redis knows it by."""

    def __init__(self, name: str, texts: Iterable[str]) -> None:
        self.name = name
        self.source = "\n".join(texts)
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


@functools.cache
def read_lua(name: str, module: str = __file__) -> str:
    """Return the text of lua/NAME.lua beside the file *module*; reads it at the first call."""
    # as importlib.resources does, which takes longer than all that is read here
    loader: Any = __spec__.loader
    data: bytes = loader.get_data(str(Path(module).with_name("lua") / f"{name}.lua"))
    return data.decode()


def text_of(value: bytes | str) -> str:
    """Return a value that Redis holds as text; bytes that are no UTF-8 are replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@functools.cache
def load(name: str) -> Script:
    """Return the script *name*; reads its files at the first call."""
    parts = REGISTRY_PARTS if name in REGISTRY_SCRIPTS else PARTS
    return Script(name, map(read_lua, (*parts, name)))


def own_texts(
    values: Sequence[bytes | str], nonce: str, where: str, reconnect: Callable[[], None]
) -> list[str]:
    """Return the values of a reply without its last one, the nonce of the request.

    Raises StoreUnavailable, after reconnect(), if it is the reply to another request; StoreReadOnly if it is that of a
    replica.
    """
    *texts, echo = list(map(text_of, values)) or [""]
    if echo != nonce:
        # a connection whose replies are one behind: of a fork in the middle of a call, or by a proxy
        reconnect()
        raise StoreUnavailable(where, "it sent the reply to another request; the connection was dropped")
    if texts == ["unidentified", "replica"]:
        raise StoreReadOnly(where, "it is a replica")
    return texts


def pool_keys(pool: str) -> tuple[str, str, str]:
    """Return the keys of a pool: hash, index and events, with one hash tag: they are in one Cluster slot."""
    key = f"snowredis:{{{pool}}}"
    return key, f"{key}:leases", f"{key}:events"


def script_arguments(request: ClaimRequest | RenewRequest | ReleaseRequest) -> list[str | int]:
    """Return the fields of *request* as the script takes them: in this order, without caller_ms, which is common."""
    return [_argument(value) for name, value in request._asdict().items() if name != "caller_ms"]


def _argument(value: Any) -> Any:
    match value:
        case None:
            return ""
        case bool():
            return int(value)
        case WorkerStats():
            return value.to_text()
        case tuple():
            return ",".join(map(str, value))
    return value


class ScriptStore(ABC):
    """Base class of stores whose state is read and written by the scripts.

    Args:
        config: of the pool.
        max_events: length at which the stream of events is trimmed.
        random_bytes: source of the nonces.
    """

    where: str
    redundant, shared = False, True

    def __init__(
        self,
        config: PoolConfig,
        *,
        max_events: int = DEFAULT_MAX_EVENTS,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.config = config
        self.urls: Sequence[str] = ()
        self._random_bytes = random_bytes
        self._constants = (
            config.signature,
            config.ttl_ms,
            config.max_clock_lead_ms,
            config.redis_skew_ms,
            config.failover_slack_ms,
            int(config.guard_rollbacks),
        )
        self._max_events = max_events
        # time of the last call, on the caller's clock; there is no connection before the first one
        self._called_ms = sys.maxsize
        # read now: a process that is forked while another thread reads a file or imports a module may wait for ever
        self._scripts = {name: load(name) for name in SCRIPTS}
        self._keys = pool_keys(config.name)

    @abstractmethod
    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        """Run *script* once, atomically. Raises StoreUnavailable and its subclasses."""

    def _reconnect(self, *, also_in_use: bool = True) -> None:  # noqa: B027 - without connections nothing is to be done
        """Drop the idle connections; also those that other threads of the application use, if that is wanted."""

    def _call(
        self,
        name: str,
        expected: tuple[type[_Done], type[_Refused]],
        seen: Seen,
        caller_ms: int,
        *args: str | int,
    ) -> _Done | _Refused:
        if caller_ms - self._called_ms > self.config.ttl_ms:
            # this host stood still, maybe with a master of before; what leads to the present one is asked again
            self._reconnect(also_in_use=False)
        self._called_ms = caller_ms
        nonce = self._random_bytes(16).hex()
        newest = (seen.incarnation, seen.version, nonce, caller_ms, self._max_events)
        common = (*self._constants, *newest, self.config.durability)
        values = self.run(self._scripts[name], self._keys, (*common, *args))
        texts = own_texts(values, nonce, self.where, self._reconnect)
        match texts:
            case ["signature", stored]:
                raise LayoutMismatch(self.config.name, stored, self.config.signature)
            case ["unidentified", code]:
                raise ServerUnidentified(self.where, code)
            case ["broken", field, value]:
                raise PoolBroken(self.where, self.config.name, field, value)
        try:
            reply = parse_reply(texts)
        except ValueError:
            reply = None
        if not isinstance(reply, expected):
            raise StoreUnavailable(self.where, f"it sent a reply that no script sends: {texts!r}")
        return reply

    def claim(self, request: ClaimRequest, seen: Seen) -> replies.ClaimReply:
        args = (*script_arguments(request), self.config.capacity, self.config.layout.namespaces)
        expected = (replies.Granted, replies.ClaimRefused)
        return self._call("claim", expected, seen, request.caller_ms, *args)

    def renew(self, request: RenewRequest, seen: Seen) -> replies.RenewReply:
        expected = (replies.Renewed, replies.LeaseGone)
        return self._call("renew", expected, seen, request.caller_ms, *script_arguments(request))

    def release(self, request: ReleaseRequest, seen: Seen) -> replies.ReleaseReply:
        expected = (replies.Released, replies.NotHeld)
        return self._call("release", expected, seen, request.caller_ms, *script_arguments(request))

    def create(self, caller_ms: int) -> replies.CreateReply:
        return self._call("create", (replies.Created, replies.AlreadyExists), Seen(), caller_ms)

    def note_number(self, highest: int, caller_ms: int) -> replies.NoteReply:
        expected = (replies.NumberNoted, replies.NoPool)
        return self._call("note_number", expected, Seen(), caller_ms, highest)

    def change_layout(self, layout: Layout, at_ms: int, caller_ms: int) -> replies.ChangeReply:
        """Plan that the pool has *layout* from *at_ms* on, on the Redis clock; the layout that it has undoes a plan."""
        expected = (replies.LayoutChanging, replies.LayoutKept)
        signature = replace(self.config, layout=layout).signature
        return self._call("change_layout", expected, Seen(), caller_ms, signature, at_ms)

    def delete(self, caller_ms: int) -> replies.DeleteReply:
        """Delete the pool, whatever its settings."""
        return self._call("delete", (replies.Deleted, replies.NoPool), Seen(), caller_ms)

    def prepare(self) -> None:  # noqa: B027 - all is known
        """Learn what a claim needs: nothing."""

    def after_fork(self) -> None:  # noqa: B027 - without connections nothing is to be done
        """In a forked child: use nothing of the parent's connections and locks."""

    @abstractmethod
    def close(self) -> None: ...
