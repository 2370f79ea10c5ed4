"""Stores of pools by their settings: open_pool(), and RegisteredStore for a pool that has a registry of shard numbers.

RegisteredStore learns the pool's number before the first claim, and confirms it later on. Each process goes by the
pool's own hash: the number, and the registration that the registry gave it, are constants in its signature. The
registry is asked when a process starts and about once a minute. It may be away at any time, except before the first
process of a pool that was created, or was lost: a number is not used before it was confirmed once.

Blocks as the pool's store does, and in addition for the registry: before the first claim, and CONFIRM_LIMIT_S at most
after a renewal. Has no thread and no lock: one caller at a time, as the lease manager.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from snowredis.errors import ShardNumberRefused, StoreUnavailable
from snowredis.servers.time_limit import time_limit
from snowredis.settings import check
from snowredis.snowflake import replies
from snowredis.snowflake.open import Servers, is_in_memory, open_client, open_store_from_settings, pool_config
from snowredis.snowflake.protocol import (
    ClaimRequest,
    PoolConfig,
    ReleaseRequest,
    RenewRequest,
    Store,
    settings_of,
)
from snowredis.snowflake.registration import PoolServers
from snowredis.snowflake.registry import NO_NUMBER, Registry, RegistryReply, Status, parse_registration
from snowredis.snowflake.replies import Renewed, Seen

if TYPE_CHECKING:
    from snowredis.snowflake.protocol import PoolConfig, Store
    from snowredis.snowflake.registry import Place, Registry


log = logging.getLogger("snowredis")

# a third of model.ALIVE_MS: two confirmations may fail before a pool counts as idle
CONFIRM_EVERY_S = 60.0
# a renewal was granted already when the number is confirmed, and its caller waits
CONFIRM_LIMIT_S = 0.3


class RegisteredStore:
    """A Store whose pool has a number of *registry*.

    Args:
        config: of the pool; its datacenter and registration are not known yet.
        servers: of the pool.
        wanted: the number that the settings name; None: whichever is registered.
        owner: tells people where the pool is.
    """

    def __init__(
        self,
        config: PoolConfig,
        servers: PoolServers,
        registry: Registry,
        *,
        wanted: int | None,
        owner: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._servers, self._registry = config, servers, registry
        self._wanted, self._owner, self._monotonic = wanted, owner, monotonic
        # of the pool with its number; None until that is known
        self._store: Store | None = None
        # the registry has given its number to another pool
        self._refused_once = False
        self._highest = NO_NUMBER
        # the highest number that the pool's hash has
        self._noted = NO_NUMBER
        self._confirmed_at_s = 0.0

    @property
    def where(self) -> str:
        return self._servers.where

    @property
    def urls(self) -> Sequence[str]:
        return self._servers.urls

    @property
    def shared(self) -> bool:
        return bool(self.urls)

    @property
    def redundant(self) -> bool:
        return self._servers.redundant

    @property
    def config(self) -> PoolConfig:
        return self._config if self._store is None else self._store.config

    def prepare(self) -> None:
        """Learn the pool's number, from its own hash or, if that is lost, from the registry.

        Raises:
            ShardNumberRefused: the pool has no number, or another pool has it.
            StoreUnavailable: it cannot be known now.
        """
        if self._store is not None:
            if self._refused_once:
                self._confirm(self.config.datacenter, self.config.registration, first=False)
                self._refused_once = False
            return
        name, signature = self._config.name, self._servers.stored("signature")
        if signature:
            number, registration = self._number_in(signature)
            noted = self._servers.stored("highest_number")
            self._noted = int(noted) if noted.isdecimal() else NO_NUMBER
            self._highest = max(self._highest, self._noted)
        else:
            number, registration = self._number_of_lost_pool()
        try:
            reply = self._confirm(number, registration, first=self._noted == NO_NUMBER)
        except StoreUnavailable:
            # a confirmed number belongs to the pool whatever the registry does
            if self._noted == NO_NUMBER:
                raise
            log.warning(
                "pool %s: its number %d was not confirmed, since registry %s at %s is not available",
                name,
                number,
                self._registry.name,
                self._registry.where,
            )
            reply = None
        config = replace(self._config, datacenter=number, registration=registration)
        self._store = self._servers.open_store(config)
        self._confirmed_at_s = self._monotonic()
        if reply is not None and signature:
            self._note(reply)

    def _refused(self, reason: str) -> ShardNumberRefused:
        return ShardNumberRefused(self._config.name, self._registry.name, reason)

    def _number_in(self, signature: str) -> tuple[int, str]:
        """Return number and registration of the pool's *signature*. Raises ShardNumberRefused."""
        stored = settings_of(signature)
        registry, registration = parse_registration(stored.get("registry", ""))
        if not registration:
            raise self._refused(
                "the pool exists, but was created without a registry. A number is given to a new pool only: use "
                "another pool name, and create it with: snowredis pool create NAME --datacenter auto "
                f"--registry {self._registry.name}"
            )
        if registry != self._registry.name:
            raise self._refused(
                f"the pool has a number of the registry {registry!r}. Use registry={registry!r}"
            )
        number = int(stored["datacenter"])
        self._check_wanted(number)
        return number, registration

    def _check_wanted(self, number: int) -> None:
        if self._wanted not in (None, number):
            raise self._refused(
                f'the pool has the number {number}, and datacenter is {self._wanted} here. Use datacenter="auto"'
            )

    def _number_of_lost_pool(self) -> tuple[int, str]:
        """Return number and registration of a pool that its own Redis does not have.

        Raises:
            ShardNumberRefused: it never had a number, or it was deleted.
            StoreUnavailable: processes of the pool are alive, which create it again; here, if this is its Redis.
        """
        name = self._config.name
        found = self._registry.find(name)
        create = f"snowredis pool create {name} --datacenter auto --registry {self._registry.name}"
        if found is None:
            raise self._refused(
                f"it has no number there, and no pool of this name is at {self.where}. Create it with: {create}. If it "
                "had a number that Redis forgot, name it instead of auto"
            )
        number, record, now_ms = found
        again = create.replace("auto", str(number))
        self._check_wanted(number)
        if record.retired_ms:
            raise self._refused(f"the pool was deleted. To use it again: {again}")
        if not record.confirmed_ms:
            raise self._refused(f"its creation was not finished. Finish it with: {create}")
        if record.alive_at(now_ms):
            age_s = (now_ms - record.confirmed_ms) / 1000
            raise StoreUnavailable(
                self.where,
                f"it has no pool {name!r}, which is alive: its number {number} was confirmed {age_s:.0f} s ago, "
                f"{record.owner}",
                "If this Redis lost the pool, its processes create it again in a moment; else check the URL",
            )
        return number, record.id

    def _confirm(self, number: int, registration: str, *, first: bool) -> RegistryReply:
        """Confirm the number. Raises ShardNumberRefused if another pool has it; StoreUnavailable."""
        reply = self._registry.confirm(
            self._config.name,
            registration,
            number,
            highest=self._highest,
            first=first,
            owner=self._owner,
        )
        if reply.status is Status.CONFLICT:
            other_number, pool = reply.fields
            if not pool:
                raise self._refused(
                    f"its number {number} was never confirmed, and the registry has forgotten it. Delete the pool: "
                    f"snowredis pool delete {self._config.name}; then create it again"
                )
            raise self._refused(
                f"its number is {number} here, but the registry has given {other_number} to pool {pool!r}, with "
                "another registration. One of the two is a copy, or was created while the registry had forgotten the "
                f"other. See: snowredis registry show {self._registry.name}"
            )
        self._highest = max(self._highest, reply.highest)
        return reply

    def _note(self, reply: RegistryReply) -> None:
        """Store in the pool that its number is confirmed, if there is something new."""
        if self._store is None or reply.highest <= self._noted:
            return
        with contextlib.suppress(StoreUnavailable):
            noted = self._store.note_number(self._highest, reply.redis_ms)
            if isinstance(noted, replies.NumberNoted):
                self._noted = self._highest

    def _known_store(self) -> Store:
        self.prepare()
        store = self._store
        if store is None:
            raise StoreUnavailable(self.where, "the number of the pool is not known yet")
        return store

    def claim(self, request: ClaimRequest, seen: Seen) -> replies.ClaimReply:
        return self._known_store().claim(request, seen)

    def renew(self, request: RenewRequest, seen: Seen) -> replies.RenewReply:
        """Renew the lease; then, about once a minute and after a loss, confirm the number.

        Raises ShardNumberRefused, after the lease was renewed, if the registry has given the number to another pool.
        """
        reply = self._known_store().renew(request, seen)
        if isinstance(reply, Renewed):
            self._confirm_if_due(adopted=reply.adopted)
        return reply

    def _confirm_if_due(self, *, adopted: bool) -> None:
        if adopted:
            # the pool was created again, perhaps, and does not know that its number is confirmed
            self._noted = NO_NUMBER
        now_s = self._monotonic()
        if not adopted and now_s < self._confirmed_at_s + CONFIRM_EVERY_S:
            return
        self._confirmed_at_s = now_s
        config = self.config
        try:
            with time_limit(CONFIRM_LIMIT_S):
                self._note(self._confirm(config.datacenter, config.registration, first=False))
        except StoreUnavailable:
            return
        except ShardNumberRefused:
            self._refused_once = True
            raise

    def release(self, request: ReleaseRequest, seen: Seen) -> replies.ReleaseReply:
        if self._store is None:
            raise StoreUnavailable(self.where, "the number of the pool is not known yet")
        return self._store.release(request, seen)

    def create(self, caller_ms: int) -> replies.CreateReply:
        return self._known_store().create(caller_ms)

    def note_number(self, highest: int, caller_ms: int) -> replies.NoteReply:
        return self._known_store().note_number(highest, caller_ms)

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""
        self._servers.after_fork()
        if self._store is not None:
            self._store.after_fork()
        self._registry.after_fork()

    def close(self) -> None:
        self._servers.close()
        if self._store is not None:
            self._store.close()
        self._registry.close()


# the rest of this package is loaded for pools of a registry only


def open_pool(url: Servers, settings: Mapping[str, Any]) -> Store:
    """Open the store of the pool that *settings*, arguments of snowredis.connect(), describe. Connects to nothing.

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work.
        StoreUnavailable: the server of embedded:// does not start.
    """
    settings = {name: check(name, value) for name, value in settings.items()}
    if settings.get("registry") is None and settings.get("datacenter") != "auto":
        return open_store_from_settings(url, settings)

    config, servers, registry = open_registered(url, settings)
    wanted = settings.get("datacenter", 0)
    return RegisteredStore(
        config,
        servers,
        registry,
        # 0 is what connect() has without a word: a pool whose registry is named has its number
        wanted=None if wanted in ("auto", 0) else wanted,
        owner=owner_of(servers),
    )


def open_registered(url: Servers, settings: Mapping[str, Any]) -> tuple[PoolConfig, PoolServers, Registry]:
    """Return the constants of a pool of a registry, without its number; its servers; and the registry."""
    from snowredis.snowflake.registration import PoolServers
    from snowredis.snowflake.registry import Place

    config = pool_config(settings)
    place = Place.of(config.layout)
    servers = PoolServers(
        url,
        config,
        min_replicas=settings.get("min_replicas", 0),
        default_slack=settings.get("failover_slack") is None,
    )
    server = settings.get("registry_url")
    return config, servers, open_registry(servers.first if server is None else server, config.registry, place)


def open_registry(server: Any, name: str, place: Place | None = None) -> Registry:
    """Return the registry of that name at *server*: a URL, a redis-py client, or a pool of snowredis.testing.

    Args:
        place: where the caller's layout has the number; None: any.
    """
    check("registry", name)
    if is_in_memory(server):
        registry: Registry = server.memory_registry(name, place)
        return registry
    from snowredis.snowflake.registry_stores import RedisRegistry

    return RedisRegistry(open_client(server), name, place)


def owner_of(servers: PoolServers) -> str:
    """Return text that tells people where a pool is."""
    return f"host {socket.gethostname()}, pool at {servers.where}"[:300]
