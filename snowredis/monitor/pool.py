"""A pool seen from outside: who is alive, how full it is; and its making and removal by a person."""

from __future__ import annotations

from typing import Any

from snowredis.embedded import FRESH_KEY, resolve
from snowredis.errors import ConfigError
from snowredis.lease.inspect import PoolInfo, WorkerInfo, list_pools, read_pool, read_workers
from snowredis.lease.model import POOL_NAME, PoolConfig, check_status
from snowredis.lease.redis_store import RedisStore, address, connect_client, translated, without_retries
from snowredis.lease.scripts import pool_keys


class WorkerPool:
    """A pool in one Redis.

    Args:
        url: redis://, rediss://, unix:// or embedded://, or a redis-py client.
        name: the pool's name.

    Every method blocks for a few round trips and raises StoreUnavailable and its kinds.
    """

    def __init__(self, url: Any, name: str = "default") -> None:
        if not isinstance(name, str) or not POOL_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no pool name: 1 to 64 letters, digits, '_', '.' or '-' make one")
        self._client = connect_client(resolve(url)) if isinstance(url, str) else without_retries(url)
        self.name = name

    @property
    def where(self) -> str:
        """The address, without password."""
        return address(self._client)

    def workers(self, *, alive_only: bool = True) -> list[WorkerInfo]:
        """Who holds which worker id, ordered by worker id. Raises PoolNotFound."""
        return read_workers(self._client, self.name, alive_only=alive_only)

    def info(self) -> PoolInfo:
        """The pool's own state. Raises PoolNotFound."""
        return read_pool(self._client, self.name)

    def pools(self) -> list[str]:
        """The names of all pools in this Redis."""
        return list_pools(self._client)

    def create(self, config: PoolConfig, caller_ms: int) -> bool:
        """Say that the pool is really new: nobody has to wait for its floor then.

        Only a person can know that. If ids were made in a pool of this name and layout less than
        ttl + max_clock_lead + redis_skew ago, they can be repeated.

        Returns:
            False if there is one already, with the same settings; nothing is changed then.

        Raises:
            LayoutMismatch: there is one with other settings.
        """
        answer = check_status(RedisStore(self._client, config).create(caller_ms), config)
        return answer.status == "ok"

    def delete(self, *, force: bool = False) -> int:
        """Remove the pool and all that is known of it.

        Living generators bring it back with their next heartbeat, and keep their worker ids; newcomers then
        wait for its floor, so no id is repeated.

        Returns:
            How many workers were alive.

        Raises:
            PoolNotFound; ConfigError: workers are alive, and *force* is not set.
        """
        alive = len(self.workers())
        if alive and not force:
            raise ConfigError(
                f"pool {self.name!r} has {alive} living workers; nothing was deleted. Stop them first, or force it."
            )
        with translated(self.where):
            # an embedded Redis says that it is new: not after a pool was deleted from it
            self._client.delete(*pool_keys(self.name))
            self._client.delete(FRESH_KEY)
        return alive

    def close(self) -> None:
        self._client.close()
