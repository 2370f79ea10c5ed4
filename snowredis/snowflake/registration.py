"""Shard numbers of pools: what the servers of a pool store, and how a new pool gets its number. For people.

- PoolServers reads the servers of one pool before its shard number is known, and opens its store after that.
- register() takes a number in the registry, creates the pool with it, and confirms it. Killed at any moment, it can be
  run again: a number that was taken and not confirmed stays with the pool's name, and no process uses a number before
  it was confirmed once. So of two pools that a registry gave the same number, before and after it forgot the first
  one, only one is ever used.
- confirm_pools() tells a registry of the pools that are in a Redis: each pool's own hash holds its number.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from snowredis.core.presets import resolve_layout
from snowredis.errors import LayoutMismatch, ShardNumberRefused, SnowredisError, StoreUnavailable
from snowredis.servers.scripts import text_of
from snowredis.settings import MinReplicas
from snowredis.snowflake.open import is_in_memory, open_client, open_servers, open_store
from snowredis.snowflake.protocol import PoolConfig, Store, StoredField, pool_keys, settings_of
from snowredis.snowflake.registry import (
    CLOSED_TEXTS,
    NO_NUMBER,
    Place,
    Registry,
    RegistryReply,
    Status,
    parse_registration,
)
from snowredis.snowflake.replies import CreateReply


class PoolServers:
    """The servers of a pool.

    Args:
        url: as connect() takes it.
        config: of the pool; its datacenter and registration are not known.
        min_replicas, default_slack: as of open_store().

    Connects to nothing, but starts the server of embedded:// if it is not running. Raises ConfigError,
    StoreUnavailable.
    """

    def __init__(
        self, url: Any, config: PoolConfig, *, min_replicas: MinReplicas = 0, default_slack: bool = False
    ) -> None:
        self._config, self._options = config, (min_replicas, default_slack)
        self._servers = open_servers(url, config, min_replicas=min_replicas)
        self.redundant = len(self._servers) > 1

    @property
    def where(self) -> str:
        """The addresses, without passwords."""
        return ", ".join(getattr(server, "where", "memory") for server in self._servers)

    @property
    def urls(self) -> Sequence[str]:
        """The URLs with which another process reaches the servers; none if one was opened without."""
        urls = [url for server in self._servers for url in getattr(server, "urls", ())]
        return urls if len(urls) == len(self._servers) else ()

    @property
    def first(self) -> Any:
        """The first server: a client, or a pool in memory."""
        return self._servers[0]

    def stored(self, field: StoredField) -> str:
        """Return a field of the pool on the first server that has it; "" if no server has the pool.

        Raises StoreUnavailable if one is not available and no other has the field.
        """
        unavailable: StoreUnavailable | None = None
        for server in self._servers:
            try:
                if is_in_memory(server):
                    text: str = server.stored(self._config.name, field)
                else:
                    text = self._reader(server).stored(field)
            except StoreUnavailable as error:
                unavailable = error
                continue
            if text:
                return text
        if unavailable is not None:
            raise unavailable
        return ""

    def _reader(self, server: Any) -> Any:
        from snowredis.snowflake.redis_store import RedisStore

        return RedisStore(server, replace(self._config, share=(0, 1)))

    def open_store(self, config: PoolConfig) -> Store:
        """Open the store of the pool with these constants."""
        min_replicas, default_slack = self._options
        return open_store(self._servers, config, min_replicas=min_replicas, default_slack=default_slack)

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""
        if all(map(is_in_memory, self._servers)):
            return
        from snowredis.servers.clients import fresh_copy

        self._servers = [
            server._replace(client=fresh_copy(server.client)) if getattr(server, "owned", False) else server
            for server in self._servers
        ]

    def close(self) -> None:
        """Close the connections, except those of a client of the application's that is used as it is."""
        for server in self._servers:
            if getattr(server, "owned", False):
                from snowredis.servers.clients import close_client

                close_client(server.client)


_POOL = re.compile(r"snowredis:\{([A-Za-z0-9_.-]{1,64})\}")


def confirm_pools(
    server: Any, registry: Registry, open_for: Callable[[Place], contextlib.closing[Registry]]
) -> Iterator[str]:
    """Confirm the numbers of all pools at *server* that have one of *registry*; yield a line about each.

    Args:
        open_for: opens the registry for layouts that have their number in this place.

    Raises StoreUnavailable. Scans all keys of the server.
    """
    from snowredis.servers.clients import address, close_client
    from snowredis.servers.runner import translated

    opened = open_client(server)
    client = opened.client
    stack = contextlib.ExitStack()
    placed: dict[Place, Registry] = {}
    try:
        with translated(opened.where):
            names = sorted(
                match[1]
                for key in client.scan_iter(match="snowredis:{*}", count=1000)
                if (match := _POOL.fullmatch(text_of(key)))
            )
        for name in names:
            with translated(opened.where):
                values = client.hmget(pool_keys(name)[0], "signature", "highest_number")
            signature, highest = (text_of(value or b"") for value in values)
            stored = settings_of(signature)
            of, registration = parse_registration(stored.get("registry", ""))
            if of != registry.name:
                continue
            number = int(stored["datacenter"])
            try:
                place = Place.of(resolve_layout(stored["layout"]))
                if place not in placed:
                    placed[place] = stack.enter_context(open_for(place))
                reply = placed[place].confirm(
                    name,
                    registration,
                    number,
                    highest=int(highest) if highest.isdecimal() else NO_NUMBER,
                    first=not highest,
                    owner=f"pool at {address(client)}",
                )
            except SnowredisError as error:
                yield f"{name}: {error}"
                continue
            if reply.status is Status.CONFLICT and not reply.fields[1]:
                yield f"{name}: number {number} was never confirmed: delete the pool and create it again"
            elif reply.status is Status.CONFLICT:
                yield f"{name}: CONFLICT: its number {number} belongs to pool {reply.fields[1]}; it is refused"
            else:
                yield f"{name}: number {number} confirmed"
    finally:
        stack.close()
        if opened.owned:
            close_client(client)


# a pool may be created by another process between two looks at it
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Registered:
    """Result of register().

    Attributes:
        config: constants of the pool, with its number.
        created: reply of the pool's creation; None if it existed.
    """

    config: PoolConfig
    created: CreateReply | None


def register(
    config: PoolConfig,
    servers: PoolServers,
    registry: Registry,
    *,
    wanted: int | None,
    owner: str,
    now_ms: Callable[[], int],
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Registered:
    """Create the pool with a number of *registry*, or confirm the number that it has.

    Args:
        wanted: the number that a person names: one that no pool has, or the one that this very pool had before it was
            deleted or lost; None: the next one.

    Raises:
        ShardNumberRefused: no number was given, with the reason.
        LayoutMismatch: the pool exists with other settings.
        StoreUnavailable: run it again.
    """
    for attempt in range(_ATTEMPTS):
        signature = servers.stored("signature")
        if signature:
            numbered, created = _existing(config, registry, signature, wanted), None
            store = servers.open_store(numbered)
        else:
            registration = random_bytes(8).hex()
            taken = registry.take(config.name, registration, wanted=wanted, owner=owner)
            if taken.status is not Status.TAKEN:
                raise refusal(taken, config.name, registry, wanted)
            numbered = replace(config, datacenter=int(taken.fields[0]), registration=registration)
            store = servers.open_store(numbered)
            try:
                created = store.create(now_ms())
            except LayoutMismatch:
                # somebody else created it meanwhile
                if attempt + 1 < _ATTEMPTS:
                    continue
                raise
        first = not servers.stored("highest_number")
        confirmed = registry.confirm(
            config.name,
            numbered.registration,
            numbered.datacenter,
            highest=NO_NUMBER,
            first=first,
            owner=owner,
        )
        if confirmed.status is Status.CONFLICT:
            raise refusal(confirmed, config.name, registry, numbered.datacenter)
        store.note_number(confirmed.highest, now_ms())
        return Registered(numbered, created)
    raise AssertionError("unreachable")


def _existing(config: PoolConfig, registry: Registry, signature: str, wanted: int | None) -> PoolConfig:
    """Return *config* with the number of the pool that exists. Raises ShardNumberRefused."""
    stored = settings_of(signature)
    name, registration = parse_registration(stored.get("registry", ""))
    if name != registry.name:
        has = f"a number of the registry {name!r}" if name else "no number of a registry"
        raise ShardNumberRefused(
            config.name,
            registry.name,
            f"the pool exists and has {has}; a number is given to a new pool only. Nothing was changed. Use another "
            "pool name",
        )
    number = int(stored["datacenter"])
    if wanted not in (None, number):
        raise ShardNumberRefused(
            config.name, registry.name, f"the pool exists with the number {number}. Nothing was changed"
        )
    return replace(config, datacenter=number, registration=registration)


def refusal(reply: RegistryReply, pool: str, registry: Registry, wanted: int | None) -> ShardNumberRefused:
    """Return the error for a *reply* that gives no number."""
    name = registry.name
    create = f"snowredis pool create {pool} --datacenter"
    match reply.status, *reply.fields:
        case Status.MISSING, *_:
            reason = (
                f"there is no such registry at {registry.where}. If it never existed, create it once: snowredis "
                f"registry create {name} --layout LAYOUT. If Redis lost it, wait until its pools, whose processes "
                "confirm their numbers within a minute, have created it again"
            )
        case Status.CLOSED, *_:
            reason = (
                f"it gives no new numbers, since Redis may have forgotten some: "
                f"{CLOSED_TEXTS.get(reply.closed, reply.closed)}. If this pool had a number before, name it: {create} "
                f"NUMBER --registry {name}. Else see that every pool is in "
                f"`snowredis registry show {name}`, then run: snowredis registry open {name}"
            )
        case Status.FULL, *_:
            reason = (
                "all numbers were given. Use a layout with more datacenter bits and a new registry; or free the number "
                f"of a pool that will never be used again: snowredis registry free NUMBER --registry {name}, "
                f"then {create} NUMBER"
            )
        case Status.NAMED, number, age_ms, owner:
            reason = (
                f"another pool of this name has the number {number}: {owner}; confirmed {int(age_ms) / 1000:.0f} s "
                f"ago. In a registry, each pool needs a name of its own. If it is this pool, which was deleted, or "
                f"which Redis lost, and none of its processes runs: {create} {number} --registry {name}"
            )
        case Status.USED, other:
            reason = f"the number {wanted} belongs to pool {other!r}. Use another one, or auto"
        case Status.CONFLICT, number, other:
            instead = f"the registry has given {number} to pool {other!r}, in another registration"
            reason = (
                f"the number {wanted}, which this pool was created with, was not confirmed: "
                f"{instead if other else 'the registry forgot it meanwhile'}. Nobody can use this pool. Delete it: "
                f"snowredis pool delete {pool}; then create it again"
            )
        case _:
            reason = f"unexpected reply {reply.status}"
    return ShardNumberRefused(pool, name, reason)
