"""Administration of a pool in Redis by people: delete it, and change its layout.

Each change is put on every copy of the pool that can come back. Independent of redis-py up to PoolAdministration: a
simulation runs the scripts otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from snowredis.core.layout import Layout
from snowredis.servers.acknowledged import Acknowledged, save_snapshot
from snowredis.servers.failover import on_one_connection
from snowredis.servers.runner import translated
from snowredis.snowflake.redis_store import SCRIPTS, RedisStore, ScriptStore
from snowredis.snowflake.replies import Absent, CreateReply, Reply, Seen, flag

log = logging.getLogger("snowredis")

_Reply = TypeVar("_Reply", bound=Reply)

# how often replicas are asked whether they have what a person did; WAIT_MS each
ATTEMPTS = 6
# all scripts of pools
POOL_SCRIPTS = (*SCRIPTS, "change_layout", "delete")


class Deleted(Reply, guessed=flag):
    """Reply to a deletion: the pool was deleted.

    Attributes:
        guessed: True if its settings could not be read, so that those of the request were used.
    """

    guessed: bool


class Changing(Reply, new_floor_ms=int):
    """Reply to a change of the layout: it is planned.

    Attributes:
        new_floor_ms: ids of the old layout have earlier times, those of the new one this or later ones.
    """

    new_floor_ms: int


class Kept(Reply):
    """Reply to a change of the layout: nothing was planned; a plan that there was is undone."""


class Late(Kept):
    """Reply to a change of the layout: its moment has passed, or is over a year away; nothing changed."""


class Early(Kept, earliest_ms=int):
    """Reply to a change of the layout: outage lanes are reserved beyond its moment; nothing changed.

    Attributes:
        earliest_ms: the first moment that is behind all reservations.
    """

    earliest_ms: int


DeleteReply: TypeAlias = Deleted | Absent
ChangeReply: TypeAlias = Changing | Kept | Absent


class Administration(ScriptStore):
    """Base class of stores with which people administer a pool."""

    script_names = POOL_SCRIPTS

    def create(self, caller_ms: int) -> CreateReply:
        return self._lasting(lambda: super(Administration, self).create(caller_ms))

    def change_layout(self, layout: Layout, at_ms: int, caller_ms: int, *, force: bool = False) -> ChangeReply:
        """Plan that the pool has *layout* from *at_ms* on, on the Redis clock; the layout that it has undoes a plan.

        With *force* also if outage lanes are reserved beyond that.
        """

        def plan(layout: Layout) -> ChangeReply:
            args = (self.config.with_layout(layout).signature, at_ms, int(force))
            expected = (Changing, Kept, Late, Early, Absent)
            reply: ChangeReply = self._call("change_layout", expected, Seen(), caller_ms, *args)
            return reply

        undo = None if layout == self.config.layout else lambda: plan(self.config.layout)
        return self._lasting(lambda: plan(layout), undo)

    def delete(self, caller_ms: int) -> DeleteReply:
        """Delete the pool, whatever its settings."""
        expected = (Deleted, Absent)
        reply: DeleteReply = self._lasting(lambda: self._call("delete", expected, Seen(), caller_ms))
        return reply

    def _lasting(self, change: Callable[[], _Reply], undo: Callable[[], object] | None = None) -> _Reply:
        """Make a *change* that a person asked for; subclasses put it on every copy of the pool that can come back.

        With *undo*, they call that if a copy does not have it.
        """
        return change()


class PoolAdministration(RedisStore, Administration):
    """A pool in Redis or Valkey, for people."""

    def _lasting(self, change: Callable[[], _Reply], undo: Callable[[], object] | None = None) -> _Reply:
        """Make a *change* that a person asked for, and put it on every copy of the pool that can come back.

        Else a failover or a crash would undo it. Blocks until the replicas have it and a snapshot is written,
        SAVE_LIMIT_S and a few seconds. A warning says what does not have it.

        Raises:
            StoreUnavailable: a replica does not have it, so it was undone.
        """
        key, before = self._keys[0], self._acknowledged
        if self._fresh:
            # an embedded Redis, which creates its pools as new whenever it starts
            return change()
        with translated(self.where):
            (info,) = on_one_connection(self._client, key, [("INFO", "replication")])
        replicas = int(info.get("connected_slaves", 0)) if isinstance(info, dict) else 0
        acknowledged = Acknowledged(replicas, self.where, strict=False)
        try:
            self._acknowledged = acknowledged if replicas else before
            reply = change()
            for _ in range(ATTEMPTS - 1 if undo and acknowledged.error else 0):
                if acknowledged.error:
                    change()
            if undo and acknowledged.error:
                self._acknowledged = None
                undo()
                raise acknowledged.error
        finally:
            self._acknowledged = before
        with translated(self.where):
            is_saved = save_snapshot(self._client, key)
        if acknowledged.error or not is_saved:
            missing = "a replica does not have this" if acknowledged.error else "this user cannot make a snapshot"
            text = "pool %s: %s at %s. If Redis goes back to a time before, repeat this command"
            log.warning(text, self.config.name, missing, self.where)
        return reply
