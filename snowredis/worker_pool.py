"""WorkerPool: a pool that people look at, create, and delete.

How it is seen stands in monitor/pool_monitor.py, and what an end does to it in snowflake/protocol/administration.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from snowredis.errors import ConfigError, LayoutMismatch, PoolNotFound, StoreUnavailable, count
from snowredis.monitor.pool_monitor import PoolMonitor
from snowredis.process.clock import now_ms
from snowredis.snowflake.protocol.administration import Ends, PoolAdministration
from snowredis.snowflake.protocol.messages import Created, CreateRequest, Seen
from snowredis.snowflake.protocol.pool_config import PoolConfig, pool_keys


@dataclass(frozen=True, slots=True)
class Deletion:
    """Result of WorkerPool.delete().

    Attributes:
        alive: how many workers had a lease.
        end_ms: the end of the pool, on the Redis clock. A pool of this name that is created later starts there.
        wait_ms: how long it is until then.
        over: whether a pool of this name can be created at once, with any settings; else from *end_ms* on.
    """

    alive: int
    end_ms: int
    wait_ms: int
    over: bool


class WorkerPool(PoolMonitor):
    """A pool in a Redis: what is seen of it, and what changes it.

    Args:
        url: a URL or a redis-py client, as connect() takes it.
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
        return isinstance(PoolAdministration(self.server, config).ask(CreateRequest(Seen(), now_ms())), Created)

    def delete(self, *, force: bool = False) -> Deletion:
        """Give the pool the earliest end. A pool of this name that is created later starts there, with any settings.

        The end is behind everything that was granted: at once if all workers ended in an orderly way, else when their
        reservations have ended. Living generators make ids until then.

        Raises:
            PoolNotFound; ConfigError: workers are alive, and *force* is not set; or the pool cannot be read, so that it
                cannot be said when its reservations end.
            StoreUnavailable: also if a replica does not have the end. Repeat it then.
        """
        try:
            info = self.info()
            if info.used and not force:
                raise ConfigError(
                    f"pool {self.name!r} has {count(info.used, 'living worker')}; nothing was deleted. Stop them "
                    "first, or delete it nevertheless with force=True (--force)."
                )
            reply = PoolAdministration(self.server, info.config).delete(now_ms())
        except (LayoutMismatch, StoreUnavailable) as error:
            if isinstance(error, StoreUnavailable) and error.code != "broken":
                raise
            keys = " ".join(f"'{key}'" for key in pool_keys(self.name))
            raise ConfigError(
                f"{str(error).rstrip('.')}. So it cannot be said when its reservations end, and nothing was deleted. "
                f"Remove it as if Redis had lost it: redis-cli DEL {keys}. New workers then wait, and outage lanes are "
                "closed for a day."
            ) from error
        if not isinstance(reply, Ends):
            raise PoolNotFound(self.name)
        return Deletion(info.used, reply.end_ms, max(0, reply.end_ms - reply.redis_ms), reply.over)
