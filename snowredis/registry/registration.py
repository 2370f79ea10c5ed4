"""Give a new pool its shard number: take it in the registry, create the pool with it, confirm it. For people.

Killed at any moment, it can be run again: a number that was taken and not confirmed stays with the pool's name, and no
process uses a number before it was confirmed once. So of two pools that a registry gave the same number, before and
after it forgot the first one, only one is ever used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from snowredis.errors import LayoutMismatch, ShardNumberRefused
from snowredis.lease.model import PoolConfig, settings_of
from snowredis.lease.replies import CreateReply
from snowredis.registry.codes import CLOSED_TEXTS
from snowredis.registry.model import NO_NUMBER, Registry, RegistryReply, Status, parse_registration
from snowredis.registry.pool_servers import PoolServers

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
