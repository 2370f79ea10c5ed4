"""Numbers of pools: what the server of a pool stores, and how a new pool gets its number.

RegisteredPool.register() takes a number, creates the pool with it, and confirms it. Killed at any moment, it can be run
again: a number that was taken and not confirmed stays with the pool's name, and no process uses a number before it was
confirmed once. So of two pools that a registry gave the same number, before and after it forgot the first one, only one
is ever used. confirm_pools() tells a registry of the pools that are in a Redis: each pool's own hash holds its number.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, LayoutMismatch, ShardNumberRefused, SnowredisError, StoreUnavailable
from snowredis.servers.clients import address, close_client, fresh_copy
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.settings import MinReplicas, Server, check
from snowredis.snowflake.open import is_in_memory, open_client, open_server, open_store, pool_config
from snowredis.snowflake.protocol import (
    PoolConfig,
    Store,
    StoredField,
    pool_keys,
    settings_of,
)
from snowredis.snowflake.redis_store import RedisStore
from snowredis.snowflake.registry import (
    CLOSED_TEXTS,
    NO_NUMBER,
    RedisRegistry,
    Registry,
    RegistryPlace,
    RegistryReply,
    RegistryStatus,
    parse_registration,
)
from snowredis.snowflake.replies import CreateReply

# a pool may be created by another process between two looks at it
_ATTEMPTS = 5
_POOL = re.compile(r"snowredis:\{([A-Za-z0-9_.-]{1,64})\}")


class PoolServer:
    """The server of a pool, read before its shard number is known.

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
        self.client = open_server(url, min_replicas, creates=True)
        if is_in_memory(self.client):
            raise ConfigError(
                f"pool {config.name!r} is in memory, where there is no registry of shard numbers. Give the number "
                "itself, such as datacenter=1, without a registry"
            )

    @property
    def where(self) -> str:
        """The address, without password."""
        where: str = self.client.where
        return where

    @property
    def urls(self) -> Sequence[str]:
        """The URLs with which another process reaches the server; none if it was opened without."""
        urls: Sequence[str] = self.client.urls
        return urls

    def stored(self, field: StoredField) -> str:
        """Return a field of the pool; "" if there is no pool. Raises StoreUnavailable."""
        return RedisStore(self.client, self._config).stored(field)

    def open_store(self, config: PoolConfig) -> Store:
        """Open the store of the pool with these constants."""
        min_replicas, default_slack = self._options
        return open_store(self.client, config, min_replicas=min_replicas, default_slack=default_slack)

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""
        if self.client.owned:
            self.client = self.client._replace(client=fresh_copy(self.client.client))

    def close(self) -> None:
        """Close the connections, except those of a client of the application's that is used as it is."""
        if self.client.owned:
            close_client(self.client.client)


class RegisteredPool:
    """A pool that has, or gets, a number of *registry*.

    Args:
        config: of the pool; its datacenter and registration are not known yet.
        server: of the pool.
        wanted: the number that the settings, or a person, name; None: whichever it has, or the next one.
    """

    def __init__(self, config: PoolConfig, server: PoolServer, registry: Registry, *, wanted: int | None) -> None:
        self.config, self.server, self.registry, self._wanted = config, server, registry, wanted
        self._owner = f"host {socket.gethostname()}, pool at {server.where}"[:300]

    def register(
        self, now_ms: Callable[[], int], *, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> CreateReply | None:
        """Create the pool with a number, or confirm the number that it has. Return the reply of the pool's creation.

        Returns None if the pool existed.

        Raises:
            ShardNumberRefused: no number was given, with the reason.
            LayoutMismatch: the pool exists with other settings.
            StoreUnavailable: run it again.
        """
        for attempt in range(_ATTEMPTS):
            created: CreateReply | None = None
            if not self.learn_number():
                registration = random_bytes(8).hex()
                taken = self.registry.take(self.config.name, registration, wanted=self._wanted, owner=self._owner)
                if taken.status is not RegistryStatus.TAKEN:
                    raise self._refusal(taken)
                self.config = replace(self.config, datacenter=int(taken.fields[0]), registration=registration)
                try:
                    created = self.server.open_store(self.config).create(now_ms())
                except LayoutMismatch:
                    # another process created it meanwhile
                    if attempt + 1 < _ATTEMPTS:
                        continue
                    raise
            confirmed = self.confirm(self.noted())
            self.server.open_store(self.config).note_number(confirmed.highest, now_ms())
            return created
        raise AssertionError("unreachable")

    def learn_number(self) -> bool:
        """Read the pool's number; return False if the pool does not exist. Raises ShardNumberRefused."""
        signature = self.server.stored("signature")
        if not signature:
            return False
        stored = settings_of(signature)
        registry, registration = parse_registration(stored.get("registry", ""))
        if not registration:
            raise self.refused(
                "the pool exists, but was created without a registry. A number is given to a new pool only: use "
                "another pool name, and create it with: snowredis pool create NAME --datacenter auto "
                f"--registry {self.registry.name}"
            )
        if registry != self.registry.name:
            raise self.refused(f"the pool has a number of the registry {registry!r}. Use registry={registry!r}")
        number = int(stored["datacenter"])
        if self._wanted not in (None, number):
            raise self.refused(
                f'the pool has the number {number}, and datacenter is {self._wanted} here. Use datacenter="auto"'
            )
        self.config = replace(self.config, datacenter=number, registration=registration)
        return True

    def noted(self) -> int:
        """Return the highest number that the pool's hash has; NO_NUMBER if the pool's own was never confirmed."""
        text = self.server.stored("highest_number")
        return int(text) if text.isdecimal() else NO_NUMBER

    def confirm(self, noted: int) -> RegistryReply:
        """Confirm the number; *noted*: result of noted(). Raises ShardNumberRefused if another pool has the number."""
        config = self.config
        reply = self.registry.confirm(
            config.name,
            config.registration,
            config.datacenter,
            highest=noted,
            first=noted == NO_NUMBER,
            owner=self._owner,
        )
        if reply.status is not RegistryStatus.CONFIRMED:
            raise self._refusal(reply, used=noted != NO_NUMBER)
        return reply

    def refused(self, reason: str) -> ShardNumberRefused:
        """Return the error for this pool."""
        return ShardNumberRefused(self.config.name, self.registry.name, reason)

    def close(self) -> None:
        """Close the connections to the pool's server and to the registry."""
        self.server.close()
        self.registry.close()

    def lost(self) -> SnowredisError:
        """Return the error for a pool that its own Redis does not have."""
        name, registry = self.config.name, self.registry.name
        create = f"snowredis pool create {name} --datacenter auto --registry {registry}"
        found = self.registry.find(name)
        if found is None:
            return self.refused(
                f"it has no number there, and no pool of this name is at {self.server.where}. Create it with: "
                f"{create}. If it had a number that Redis forgot, name it instead of auto"
            )
        number, record = found
        if not record.confirmed_ms:
            return self.refused(f"its creation was not finished. Finish it with: {create}")
        return StoreUnavailable(
            self.server.where,
            f"it has no pool {name!r}, whose number {number} of registry {registry!r} was confirmed: {record.owner}",
            "If this Redis lost the pool, its living processes create it again in a moment. Else check the URL. If the "
            f"pool was lost or deleted, and none of its processes runs: {_again(name, number, registry)}",
        )

    def _refusal(self, reply: RegistryReply, *, used: bool = False) -> ShardNumberRefused:
        """Return the error for a *reply* that gives or confirms no number; *used*: the pool's was confirmed before."""
        pool, name, own = self.config.name, self.registry.name, self.config.datacenter
        create = f"snowredis pool create {pool} --datacenter"
        match reply.status, *reply.fields:
            case RegistryStatus.MISSING, *_:
                reason = (
                    f"there is no such registry at {self.registry.where}. If it never existed, create it once: "
                    f"snowredis registry create {name} --layout LAYOUT. If Redis lost it, name the servers of its "
                    f"pools: snowredis registry open {name} --from URL..."
                )
            case RegistryStatus.CLOSED, *_:
                reason = (
                    "it gives no new numbers, since Redis may have forgotten some: "
                    f"{CLOSED_TEXTS.get(reply.closed, reply.closed)}. See that every pool is in "
                    f"`snowredis registry show {name}`, then run: snowredis registry open {name}"
                )
            case RegistryStatus.FULL, *_:
                reason = (
                    "all numbers were given. Use a layout with more datacenter bits and a new registry; or free the "
                    "number of a pool that will never be used again: snowredis registry free NUMBER --registry "
                    f"{name}, then {create} NUMBER --registry {name}"
                )
            case RegistryStatus.NAMED, number, owner:
                reason = (
                    f"another pool of this name has the number {number}: {owner}. In a registry, each pool needs a "
                    "name of its own. If it is this pool, which was deleted, or which Redis lost, and none of its "
                    f"processes runs: {_again(pool, number, name)}"
                )
            case RegistryStatus.USED, other:
                reason = f"the number {self._wanted} belongs to pool {other!r}. Use another one, or auto"
            case RegistryStatus.CONFLICT, number, other if used:
                reason = (
                    f"its number is {own} here, but the registry has given {number} to pool {other!r}, with another "
                    "registration. One of the two is a copy, or was created while the registry had forgotten the "
                    f"other. See: snowredis registry show {name}"
                )
            case RegistryStatus.CONFLICT, number, other:
                instead = f"has given {number} to pool {other!r}, with another registration"
                reason = (
                    f"its number {own} was never confirmed, and the registry {instead if other else 'has forgotten it'}"
                    f". No process can use this pool. Delete it: snowredis pool delete {pool}; then create it again"
                )
            case _:
                reason = f"unexpected reply {reply.status}"
        return self.refused(reason)


def _again(pool: str, number: int | str, registry: str) -> str:
    """Return the commands that create a pool again with the number that it had."""
    return (
        f"snowredis registry free {number} --registry {registry}, then snowredis pool create {pool} --datacenter "
        f"{number} --registry {registry}"
    )


def open_registered(url: Server, settings: Mapping[str, Any]) -> RegisteredPool:
    """Return the pool of a registry that *settings*, arguments of snowredis.connect(), describe. Connects to nothing.

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work.
        StoreUnavailable: the server of embedded:// does not start.
    """
    settings = {name: check(name, value) for name, value in settings.items()}
    config = pool_config(settings, url)
    place = RegistryPlace.of(config.layout)
    default_slack = settings.get("failover_slack") is None
    server = PoolServer(url, config, min_replicas=settings.get("min_replicas", 0), default_slack=default_slack)
    other = settings.get("registry_url")
    registry = open_registry(server.client if other is None else other, config.registry, place)
    wanted = settings.get("datacenter", "auto")
    return RegisteredPool(config, server, registry, wanted=None if wanted == "auto" else wanted)


def open_registry(server: Any, name: str, place: RegistryPlace | None = None) -> Registry:
    """Return the registry of that name at *server*: a URL, or a redis-py client.

    Args:
        place: where the caller's layout has the number; None: any.
    """
    return RedisRegistry(open_client(server), check("registry", name), place)


def confirm_pools(
    server: Any, registry: Registry, open_for: Callable[[RegistryPlace], contextlib.closing[Registry]]
) -> Iterator[str]:
    """Confirm the numbers of all pools at *server* that have one of *registry*; yield a line about each.

    Args:
        open_for: opens the registry for layouts that have their number in this place.

    Raises StoreUnavailable. Scans all keys of the server.
    """
    opened = open_client(server)
    client = opened.client
    try:
        with translated(opened.where):
            keys = map(text_of, client.scan_iter(match="snowredis:{*}", count=1000))
            names = sorted(match[1] for key in keys if (match := _POOL.fullmatch(key)))
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
                with open_for(RegistryPlace.of(resolve_layout(stored["layout"]))) as placed:
                    reply = placed.confirm(
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
            if reply.status is RegistryStatus.CONFLICT and not reply.fields[1]:
                yield f"{name}: number {number} was never confirmed: delete the pool and create it again"
            elif reply.status is RegistryStatus.CONFLICT:
                yield f"{name}: CONFLICT: its number {number} belongs to pool {reply.fields[1]}; it is refused"
            elif reply.status is RegistryStatus.CLOSED:
                yield f"{name}: number {number} was never confirmed; repeat its creation when the registry is open"
            else:
                yield f"{name}: number {number} confirmed"
    finally:
        if opened.owned:
            close_client(client)
