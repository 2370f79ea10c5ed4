"""Pools that have a number of a registry: how a new pool gets its number, and the store of such a pool.

RegisteredStore.register() takes a number, creates the pool with it, and confirms it. Killed at any moment, it can be
run again: a number that was taken and not confirmed stays with the pool's name, and no process uses a number before it
was confirmed once. So of two pools that a registry gave the same number, before and after it forgot the first one, only
one is ever used. confirm_pools() tells a registry of the pools that are in a Redis: each pool's own hash holds its
number.

Each process goes by the pool's own hash: the number, and the registration that the registry gave it, are constants in
its signature, and the hash notes that the registry has confirmed the number. From then on the registry may be away at
any time: a process asks it when it starts, only to notice a number that two pools have.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, LayoutMismatch, ShardNumberRefused, SnowredisError, StoreUnavailable
from snowredis.process.log import log
from snowredis.registry.registry import NO_NUMBER, NumberPlace, RedisRegistry, Registry, RegistryReply, RegistryStatus
from snowredis.servers.clients import address, close_client, open_client
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.settings import Server, check, is_in_memory
from snowredis.snowflake import replies
from snowredis.snowflake.administration import PoolAdministration
from snowredis.snowflake.open import layout_of, open_pool
from snowredis.snowflake.protocol import (
    ClaimRequest,
    PoolConfig,
    ReleaseRequest,
    RenewRequest,
    pool_keys,
    signature_fields,
)
from snowredis.snowflake.replies import Renewed, Seen

_POOL = re.compile(r"snowredis:\{([A-Za-z0-9_.-]{1,64})\}")


class RegisteredStore:
    """A Store whose pool has, or gets, a number of *registry*. It learns the number before the first claim.

    Blocks as the pool's store does, and for the registry before the first claim. Has no thread and no lock: one caller
    at a time, as the lease manager.

    Args:
        store: of the pool; the number and the registration in its constants are not known yet.
        wanted: the number that the settings, or a person, name; None: whichever it has, or the next one.
    """

    def __init__(self, store: PoolAdministration, registry: Registry, *, wanted: int | None) -> None:
        self._store, self.registry, self._wanted = store, registry, wanted
        self.where, self.locator = store.where, store.locator
        self._is_known, self._highest = False, NO_NUMBER
        self._pool_at = f"host {socket.gethostname()}, pool at {store.where}"[:300]

    @property
    def config(self) -> PoolConfig:
        return self._store.config

    # --- the number --------------------------------------------------------------------------------

    def register(
        self, now_ms: Callable[[], int], *, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> replies.CreateReply | None:
        """Create the pool with a number, or confirm the number that it has. Return the reply of the pool's creation.

        Returns None if the pool existed.

        Raises:
            ShardNumberRefused: no number was given, with the reason.
            LayoutMismatch: the pool exists with other settings.
            StoreUnavailable: run it again.
        """
        created: replies.CreateReply | None = None
        if not self._learn_number():
            registration = random_bytes(8).hex()
            taken = self.registry.take(self.config.name, registration, wanted=self._wanted, where=self._pool_at)
            if taken.status is not RegistryStatus.TAKEN:
                raise self._refusal(taken)
            self._use(int(taken.fields[0]), registration)
            try:
                created = self._store.create(now_ms())
            except LayoutMismatch:
                # another process created it meanwhile
                if not self._learn_number():
                    raise
        confirmed = self._confirm(self._noted())
        self._store.note_number(confirmed.highest, now_ms())
        return created

    def prepare(self) -> None:
        """Learn the pool's number from its own hash, and have the registry confirm it.

        Raises:
            ShardNumberRefused: the pool has no number, or another pool has it.
            StoreUnavailable: the pool's Redis is not available, or does not have the pool; or the number was never
                confirmed, and the registry is not available.
        """
        if self._is_known:
            return
        if not self._learn_number():
            raise self._lost()
        noted = self._noted()
        reply = None
        try:
            reply = self._confirm(noted)
        except StoreUnavailable:
            # a confirmed number belongs to the pool whatever the registry does
            if noted == NO_NUMBER:
                raise
            log.warning(
                "pool %s: its number %d was not confirmed, since registry %s at %s is not available",
                *(self.config.name, self.config.datacenter, self.registry.name, self.registry.where),
            )
        self._is_known, self._highest = True, noted
        if reply is not None and reply.highest > noted:
            self._highest = reply.highest
            self._note(reply.redis_ms)

    def _use(self, number: int, registration: str) -> None:
        self._store.use(replace(self.config, datacenter=number, registration=registration))

    def _learn_number(self) -> bool:
        """Read the pool's number; return False if the pool does not exist. Raises ShardNumberRefused."""
        signature = self._store.stored("signature")
        if not signature:
            return False
        stored = signature_fields(signature)
        registry, _, registration = stored.get("registry", "").partition("/")
        if not registration:
            raise self._refused(
                "the pool exists, but was created without a registry. A number is given to a new pool only: use "
                "another pool name, and create it with: snowredis pool create NAME --datacenter auto "
                f"--registry {self.registry.name}"
            )
        if registry != self.registry.name:
            raise self._refused(f"the pool has a number of the registry {registry!r}. Use registry={registry!r}")
        number = int(stored["datacenter"])
        if self._wanted not in (None, number):
            raise self._refused(
                f'the pool has the number {number}, and datacenter is {self._wanted} here. Use datacenter="auto"'
            )
        self._use(number, registration)
        return True

    def _noted(self) -> int:
        """Return the highest number that the pool's hash has; NO_NUMBER if the pool's own was never confirmed."""
        text = self._store.stored("highest_number")
        return int(text) if text.isdecimal() else NO_NUMBER

    def _confirm(self, noted: int) -> RegistryReply:
        """Confirm the number; *noted*: result of _noted(). Raises ShardNumberRefused if another pool has the number."""
        reply = self.registry.confirm(
            self.config.name,
            self.config.registration,
            self.config.datacenter,
            highest=noted,
            first=noted == NO_NUMBER,
            where=self._pool_at,
        )
        if reply.status is not RegistryStatus.CONFIRMED:
            raise self._refusal(reply, used=noted != NO_NUMBER)
        return reply

    def _note(self, now_ms: int) -> None:
        """Store in the pool that its number is confirmed. If that fails, the next process that starts does it."""
        with contextlib.suppress(StoreUnavailable):
            self._store.note_number(self._highest, now_ms)

    # --- as the pool's store -----------------------------------------------------------------------

    def claim(self, request: ClaimRequest, seen: Seen) -> replies.ClaimReply:
        self.prepare()
        reply = self._store.claim(request, seen)
        self._note_again(reply, seen)
        return reply

    def renew(self, request: RenewRequest, seen: Seen) -> replies.RenewReply:
        reply = self._store.renew(request, seen)
        self._note_again(reply, seen)
        return reply

    def _note_again(self, reply: replies.Reply, seen: Seen) -> None:
        """Note that the number is confirmed if *reply* shows that the pool was created again, perhaps by this call."""
        is_another = seen.incarnation not in ("", reply.incarnation)
        if is_another or (isinstance(reply, Renewed) and reply.adopted):
            self._note(reply.redis_ms)

    def release(self, request: ReleaseRequest, seen: Seen) -> replies.ReleaseReply:
        return self._store.release(request, seen)

    def create(self, caller_ms: int) -> replies.CreateReply:
        self.prepare()
        return self._store.create(caller_ms)

    def after_fork(self) -> None:
        """In a forked child: use nothing of the parent's connections and locks."""
        self._store.after_fork()
        self.registry.after_fork()

    def close(self) -> None:
        """Close the connections to the pool's server and to the registry."""
        self._store.close()
        self.registry.close()

    # --- errors ------------------------------------------------------------------------------------

    def _refused(self, reason: str) -> ShardNumberRefused:
        return ShardNumberRefused(self.config.name, self.registry.name, reason)

    def _lost(self) -> SnowredisError:
        """Return the error for a pool that its own Redis does not have."""
        name, registry = self.config.name, self.registry.name
        create = f"snowredis pool create {name} --datacenter auto --registry {registry}"
        found = self.registry.find(name)
        if found is None:
            return self._refused(
                f"it has no number there, and no pool of this name is at {self.where}. Create it with: "
                f"{create}. If it had a number that Redis forgot, name it instead of auto"
            )
        number, record = found
        if not record.confirmed_ms:
            return self._refused(f"its creation was not finished. Finish it with: {create}")
        return StoreUnavailable(
            self.where,
            f"it has no pool {name!r}, whose number {number} of registry {registry!r} was confirmed: {record.where}",
            "If this Redis lost the pool, its living processes create it again in a moment. Else check the URL. If the "
            f"pool was lost or deleted, and none of its processes runs: {_again(name, number, registry)}",
        )

    def _refusal(self, reply: RegistryReply, *, used: bool = False) -> ShardNumberRefused:
        """Return the error for a *reply* that gives or confirms no number; *used*: the pool's was confirmed before."""
        pool, name, own = self.config.name, self.registry.name, self.config.datacenter
        create = f"snowredis pool create {pool} --datacenter"
        match reply.status, *reply.fields:
            case RegistryStatus.MISSING, *_:
                reason = self.registry.missing
            case RegistryStatus.CLOSED, *_:
                reason = (
                    "it gives no new numbers, since Redis may have forgotten some: "
                    f"{reply.closed.text}. See that every pool is in "
                    f"`snowredis registry show {name}`, then run: snowredis registry open {name}"
                )
            case RegistryStatus.FULL, *_:
                reason = (
                    "all numbers were given. Use a layout with more datacenter bits and a new registry; or free the "
                    "number of a pool that will never be used again: snowredis registry free NUMBER --registry "
                    f"{name}, then {create} NUMBER --registry {name}"
                )
            case RegistryStatus.NAMED, number, where:
                reason = (
                    f"another pool of this name has the number {number}: {where}. In a registry, each pool needs a "
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
        return self._refused(reason)


def _again(pool: str, number: int | str, registry: str) -> str:
    """Return the commands that create a pool again with the number that it had."""
    return (
        f"snowredis registry free {number} --registry {registry}, then snowredis pool create {pool} --datacenter "
        f"{number} --registry {registry}"
    )


def open_registered(url: Server, settings: Mapping[str, Any]) -> RegisteredStore:
    """Return the store of the pool that *settings*, arguments of snowredis.connect(), describe. Connects to nothing.

    Raises:
        ConfigError, LayoutError: a setting, or a combination, that cannot work.
        StoreUnavailable: the server of embedded:// does not start.
    """
    settings = {name: check(name, value) for name, value in settings.items()}
    # refused before a server is started
    place = NumberPlace.of(layout_of(settings.get("layout")))
    server, config = open_pool(url, settings)
    if is_in_memory(server):
        raise ConfigError(
            f"pool {config.name!r} is in memory, where there is no registry of shard numbers. Give the number itself, "
            "such as datacenter=1, without a registry"
        )
    other, wanted = settings.get("registry_url"), settings.get("datacenter", "auto")
    registry = RedisRegistry(server if other is None else other, config.registry, place)
    store = PoolAdministration(server, config, min_replicas=settings.get("min_replicas", 0))
    return RegisteredStore(store, registry, wanted=None if wanted == "auto" else wanted)


def confirm_pools(server: Any, registry: Registry) -> Iterator[str]:
    """Confirm the numbers of all pools at *server* that have one of *registry*; yield a line about each.

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
            stored = signature_fields(signature)
            of, _, registration = stored.get("registry", "").partition("/")
            if of != registry.name:
                continue
            number = int(stored["datacenter"])
            try:
                registry.use(NumberPlace.of(resolve_layout(stored["layout"])))
                reply = registry.confirm(
                    name,
                    registration,
                    number,
                    highest=int(highest) if highest.isdecimal() else NO_NUMBER,
                    first=not highest,
                    where=f"pool at {address(client)}",
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
        registry.use(None)
        if opened.owned:
            close_client(client)
