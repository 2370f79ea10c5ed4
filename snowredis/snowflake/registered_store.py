"""RegisteredStore: the store of a pool that has a number of a registry of shard numbers.

Each process goes by the pool's own hash: the number, and the registration that the registry gave it, are constants in
its signature. A number is not used before the registry has confirmed it once, which the pool's hash notes. From then on
the registry may be away at any time: a process asks it when it starts, only to notice a number that two pools have.

Blocks as the pool's store does, and for the registry before the first claim. Has no thread and no lock: one caller at a
time, as the lease manager.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from snowredis.errors import StoreUnavailable
from snowredis.snowflake import replies
from snowredis.snowflake.protocol import ClaimRequest, PoolConfig, ReleaseRequest, RenewRequest, Store
from snowredis.snowflake.registration import RegisteredPool
from snowredis.snowflake.registry import NO_NUMBER
from snowredis.snowflake.replies import Renewed, Seen

log = logging.getLogger("snowredis")


class RegisteredStore:
    """A Store whose pool has a number of a registry. It learns the number before the first claim."""

    def __init__(self, pool: RegisteredPool) -> None:
        self._pool = pool
        # of the pool with its number; None until that is known
        self._store: Store | None = None
        self._highest = NO_NUMBER

    @property
    def where(self) -> str:
        return self._pool.server.where

    @property
    def urls(self) -> Sequence[str]:
        return self._pool.server.urls

    @property
    def shared(self) -> bool:
        return bool(self.urls)

    @property
    def config(self) -> PoolConfig:
        return self._pool.config if self._store is None else self._store.config

    def prepare(self) -> None:
        """Learn the pool's number from its own hash, and have the registry confirm it.

        Raises:
            ShardNumberRefused: the pool has no number, or another pool has it.
            StoreUnavailable: the pool's Redis is not available, or does not have the pool; or the number was never
                confirmed, and the registry is not available.
        """
        if self._store is not None:
            return
        pool = self._pool
        if not pool.learn_number():
            raise pool.lost()
        noted = pool.noted()
        reply = None
        try:
            reply = pool.confirm(noted)
        except StoreUnavailable:
            # a confirmed number belongs to the pool whatever the registry does
            if noted == NO_NUMBER:
                raise
            log.warning(
                "pool %s: its number %d was not confirmed, since registry %s at %s is not available",
                pool.config.name,
                pool.config.datacenter,
                pool.registry.name,
                pool.registry.where,
            )
        self._store, self._highest = pool.server.open_store(pool.config), noted
        if reply is not None and reply.highest > noted:
            self._highest = reply.highest
            self._note(reply.redis_ms)

    def _note(self, now_ms: int) -> None:
        """Store in the pool that its number is confirmed. If that fails, the next process that starts does it."""
        with contextlib.suppress(StoreUnavailable):
            self._known_store().note_number(self._highest, now_ms)

    def _known_store(self) -> Store:
        self.prepare()
        store = self._store
        if store is None:
            raise StoreUnavailable(self.where, "the number of the pool is not known yet")
        return store

    def claim(self, request: ClaimRequest, seen: Seen) -> replies.ClaimReply:
        return self._known_store().claim(request, seen)

    def renew(self, request: RenewRequest, seen: Seen) -> replies.RenewReply:
        """Renew the lease. If that created the pool again, note there that its number is confirmed."""
        reply = self._known_store().renew(request, seen)
        if isinstance(reply, Renewed) and reply.adopted:
            self._note(reply.redis_ms)
        return reply

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
        self._pool.server.after_fork()
        if self._store is not None:
            self._store.after_fork()
        self._pool.registry.after_fork()

    def close(self) -> None:
        self._pool.close()
        if self._store is not None:
            self._store.close()
