"""WorkerPool: a pool that people look at, create, and delete.

How it is seen stands in monitor/pool_monitor.py, and what an end does to it in snowflake/protocol/administration.py.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from snowredis.errors import ConfigError, LayoutMismatch, PoolNotFound, SnowredisError, StoreUnavailable, count
from snowredis.monitor.pool_monitor import PoolMonitor
from snowredis.process.clock import now_ms
from snowredis.servers.runner import translated
from snowredis.snowflake.protocol.administration import Ends, PoolAdministration
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys
from snowredis.snowflake.protocol.replies import Created, Seen
from snowredis.snowflake.protocol.requests import CreateRequest


@dataclass(frozen=True, slots=True)
class Deletion:
    """Result of WorkerPool.delete().

    Attributes:
        alive: how many workers had a lease.
        end_ms: the end of the pool, on the Redis clock. A pool of this name that is created later starts there.
        wait_ms: how long it is until then.
        over: whether a pool of this name can be created at once, with any settings; else from *end_ms* on.
        dropped: whether the settings of the pool could not be read, so that its keys were removed, as if Redis had
            lost them: new workers wait for the floor.
    """

    alive: int
    end_ms: int
    wait_ms: int
    over: bool
    dropped: bool = False


class WorkerPool(PoolMonitor):
    """A pool in a Redis, or in memory: what is seen of it, and what changes it.

    Args:
        url: as connect() takes it: a URL, a redis-py client, or a pool of snowredis.testing, of which whois() knows
            nothing.
        name: the pool's name.

    Every method blocks for a few round trips and raises StoreUnavailable and its subclasses.
    """

    def create(self, config: PoolConfig) -> bool:
        """Create the pool without a floor, so that its first worker does not wait, and outage lanes are open at once.

        For a person who knows that the pool is new: if a process of a pool of this name could make ids within the
        last outage_reserve, they can be repeated.

        Returns:
            False if it already exists with the same settings; nothing is changed then.

        Raises:
            LayoutMismatch: it exists with other settings.
        """
        store = PoolAdministration(self._server, config) if self._server else self._memory.memory_store(config)
        reply = store.ask(CreateRequest(Seen(), now_ms()))
        return isinstance(reply, Created)

    def delete(self, *, force: bool = False) -> Deletion:
        """Give the pool the earliest end. A pool of this name that is created later starts there, with any settings.

        The end is behind everything that was granted: at once if all workers ended in an orderly way, else when their
        reservations have ended. Living generators make ids until then.

        Raises:
            PoolNotFound; ConfigError: workers are alive, or the settings of the pool cannot be read, and *force* is
                not set. In the second case, *force* removes the keys of the pool.
            StoreUnavailable: also if a replica does not have the end. Repeat it then.
        """
        try:
            info = self.info()
        except (PoolNotFound, LayoutMismatch, StoreUnavailable) as error:
            with translated(self.where):
                # damaged, or only parts remain
                key, *_ = pool_keys(self.name)
                if not self.client.exists(key) or (self.client.hexists(key, "over") and not force):
                    raise
            return self._drop(str(error), force=force)
        if info.used and not force:
            raise ConfigError(
                f"pool {self.name!r} has {count(info.used, 'living worker')}; nothing was deleted. Stop them first, or "
                "delete it nevertheless with force=True (--force)."
            )
        try:
            reply = PoolAdministration(self.server, info.config).delete(now_ms())
        except (ConfigError, LayoutMismatch, StoreUnavailable) as error:
            if isinstance(error, StoreUnavailable) and error.code != "broken":
                raise
            return self._drop(str(error), force=force)
        if not isinstance(reply, Ends):
            raise PoolNotFound(self.name)
        return Deletion(info.used, reply.end_ms, max(0, reply.end_ms - reply.redis_ms), reply.over)

    def _drop(self, reason: str, *, force: bool) -> Deletion:
        """Remove the keys of a pool that cannot be given an end, as if Redis had lost it."""
        if not force:
            raise ConfigError(
                f"{reason.rstrip('.')}. So it cannot be said when its reservations end, and nothing was deleted. With "
                "force=True (--force) its keys are removed, as if Redis had lost them: new workers wait, and outage "
                "lanes are closed for a day."
            )
        alive = 0
        with contextlib.suppress(SnowredisError):
            alive = len(self.workers())
        with translated(self.where):
            self.client.delete(*pool_keys(self.name))
        return Deletion(alive, 0, 0, over=True, dropped=True)
