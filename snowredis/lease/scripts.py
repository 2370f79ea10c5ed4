"""The Lua scripts as a Store: builds their arguments, reads their answers.

Knows no client: a subclass says how a script is run (on Redis, or in a simulation).
"""

from __future__ import annotations

import functools
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import resources
from typing import TypeVar

from snowredis.errors import LayoutMismatch, PoolBroken, ServerUnidentified, StoreUnavailable
from snowredis.lease import replies
from snowredis.lease.model import DEFAULT_MAX_EVENTS, ClaimRequest, PoolConfig, ReleaseRequest, RenewRequest
from snowredis.lease.replies import ClaimReply, CreateReply, DeleteReply, ReleaseReply, RenewReply, Seen

_R = TypeVar("_R")

# put in front of each script
PARTS = ("identity", "record", "common")
# what a generator runs, and what people run
SCRIPTS = ("claim", "renew", "release", "create", "delete")

# answers of all scripts that changed nothing, and say nothing else of the pool
REFUSALS = ("signature", "unidentified", "broken")


class Script:
    """One script with the common parts in front, and the SHA1 that Redis knows it by."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = "\n".join(map(read_lua, (*PARTS, name)))
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


def read_lua(name: str) -> str:
    return resources.files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")


def text_of(value: bytes | str) -> str:
    """Return what Redis holds as text, whatever bytes it is."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@functools.cache
def load(name: str) -> Script:
    return Script(name)


def pool_keys(pool: str) -> tuple[str, str, str]:
    """The keys of a pool: hash, index, events; one hash tag, so one Redis Cluster slot."""
    key = f"snowredis:{{{pool}}}"
    return key, f"{key}:leases", f"{key}:events"


class ScriptStore(ABC):
    """Runs the protocol through the scripts."""

    def __init__(
        self,
        config: PoolConfig,
        *,
        max_events: int = DEFAULT_MAX_EVENTS,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._config = config
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
        # read now: a process that is forked while another thread reads a file or imports a module may wait for ever
        self._scripts = {name: load(name) for name in SCRIPTS}
        self._keys = pool_keys(config.name)
        self.urls: Sequence[str] = ()

    @property
    def config(self) -> PoolConfig:
        return self._config

    @property
    def redundant(self) -> bool:
        return False

    @property
    @abstractmethod
    def where(self) -> str: ...

    @abstractmethod
    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Sequence[bytes | str]:
        """Run *script* once, atomically. Raises StoreUnavailable and its kinds."""

    def _reconnect(self) -> None:  # noqa: B027 - without connections nothing is to be done
        """Use no connection any more that was made before."""

    def _call(
        self,
        name: str,
        parse: Callable[[Sequence[str]], _R],
        seen: Seen,
        caller_ms: int,
        *args: str | int,
    ) -> _R:
        nonce = self._random_bytes(16).hex()
        newest = (seen.incarnation, seen.version, nonce, caller_ms, self._max_events)
        common = (*self._constants, *newest, self._config.durability)
        reply = self.run(self._scripts[name], self._keys, (*common, *args))
        *texts, echo = list(map(text_of, reply)) or [""]
        if echo != nonce:
            # a connection whose replies are one behind: of a fork in the middle of a call, or by a proxy
            self._reconnect()
            raise StoreUnavailable(
                self.where, "it sent the reply to another request; the connection was dropped"
            )
        match texts:
            case ["signature", stored]:
                raise LayoutMismatch(self._config.name, stored, self._config.signature)
            case ["unidentified", code]:
                raise ServerUnidentified(self.where, code)
            case ["broken", field, value]:
                raise PoolBroken(self.where, self._config.name, field, value)
        try:
            return parse(texts)
        except ValueError as error:
            raise StoreUnavailable(self.where, f"it sent a reply that no script sends: {texts!r}") from error

    def claim(self, request: ClaimRequest, seen: Seen) -> ClaimReply:
        return self._call(
            "claim",
            replies.parse_claim,
            seen,
            request.caller_ms,
            request.token,
            self._config.capacity,
            self._config.layout.namespaces,
            request.fit_ms,
            request.wait_ms,
            request.owner,
        )

    def renew(self, request: RenewRequest, seen: Seen) -> RenewReply:
        return self._call(
            "renew",
            replies.parse_renew,
            seen,
            request.caller_ms,
            request.worker,
            request.token,
            request.renewal_id,
            request.pending_renewal_id,
            request.held_until_ms,
            ",".join(map(str, request.held_lanes_ms)),
            request.stats.to_text(),
            request.owner,
        )

    def release(self, request: ReleaseRequest, seen: Seen) -> ReleaseReply:
        marks = "" if request.marks_ms is None else ",".join(map(str, request.marks_ms))
        return self._call(
            "release",
            replies.parse_release,
            seen,
            request.caller_ms,
            request.worker,
            request.token,
            request.renewal_id,
            request.pending_renewal_id,
            marks,
            request.stats.to_text(),
        )

    def create(self, caller_ms: int) -> CreateReply:
        return self._call("create", replies.parse_create, Seen(), caller_ms)

    def delete(self, caller_ms: int) -> DeleteReply:
        """Delete the pool, whatever its settings."""
        return self._call("delete", replies.parse_delete, Seen(), caller_ms)

    def after_fork(self) -> None:  # noqa: B027 - without connections nothing is to be done
        """In a forked child: use nothing of the parent's connections and locks."""

    @abstractmethod
    def close(self) -> None: ...
