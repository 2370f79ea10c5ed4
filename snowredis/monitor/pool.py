"""A pool seen from outside: who is alive, how full it is; and its making and removal by a person."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snowredis.embedded import FRESH_KEY, resolve
from snowredis.errors import ConfigError, PoolNotFound
from snowredis.lease.clients import address, connect_client, without_retries
from snowredis.lease.inspect import PoolInfo, WorkerInfo, list_pools, read_pool, read_workers
from snowredis.lease.model import POOL_NAME, PoolConfig, check_status
from snowredis.lease.redis_store import RedisStore, translated
from snowredis.lease.scripts import pool_keys

# of several servers: the sum of what each says
_SUMMED = ("capacity", "used", "free", "peak", "claims", "releases", "expired", "adopted", "lost", "alarms")


class WorkerPool:
    """A pool in one Redis, or in several independent ones.

    Args:
        url: as connect() takes it, but for pools in memory: a URL, a redis-py client, or a list of those.
        name: the pool's name.

    Every method blocks for a few round trips to each server and raises StoreUnavailable and its kinds.
    """

    def __init__(self, url: Any, name: str = "default") -> None:
        if not isinstance(name, str) or not POOL_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no pool name: 1 to 64 letters, digits, '_', '.' or '-' make one")
        urls = url if isinstance(url, list | tuple) else [url]
        if not urls:
            raise ConfigError("there is no server in the list of URLs. Name one at least.")
        self._clients = [
            connect_client(resolve(url)) if isinstance(url, str) else without_retries(url) for url in urls
        ]
        self.name = name

    @property
    def where(self) -> str:
        """The address, without password."""
        return ", ".join(map(address, self._clients))

    def workers(self, *, alive_only: bool = True) -> list[WorkerInfo]:
        """Who holds which worker id, ordered by worker id. Raises PoolNotFound.

        Of several servers one that has no such pool, as after a loss, has no workers; one that does not
        answer is an error.
        """
        count = len(self._clients)
        found = self._each(lambda client: read_workers(client, self.name, alive_only=alive_only))
        return sorted(
            (replace(info, worker=info.worker * count + i) for i, infos in found for info in infos),
            key=lambda info: info.worker,
        )

    def info(self) -> PoolInfo:
        """The pool's own state; of several servers that of the first that has it, with their numbers added up.

        Raises PoolNotFound.
        """
        infos: list[PoolInfo] = [info for _, info in self._each(lambda client: read_pool(client, self.name))]
        summed = {name: sum(getattr(info, name) for info in infos) for name in _SUMMED}
        alarm = next((info.alarm for info in infos if info.alarm), "")
        return replace(infos[0], **summed, alarm=alarm) if len(infos) > 1 else infos[0]

    def _each(self, read: Any) -> list[tuple[int, Any]]:
        """What every server that has the pool says, with its place in the list."""
        found = []
        for index, client in enumerate(self._clients):
            try:
                found.append((index, read(client)))
            except PoolNotFound:
                continue
        if not found:
            raise PoolNotFound(self.name)
        return found

    def pools(self) -> list[str]:
        """The names of all pools there."""
        return sorted({name for client in self._clients for name in list_pools(client)})

    def create(self, config: PoolConfig, caller_ms: int) -> bool:
        """Say that the pool is really new: nobody has to wait for its floor then.

        Only a person can know that. If ids were made in a pool of this name and layout less than
        ttl + max_clock_lead + redis_skew ago, they can be repeated.

        Returns:
            False if there is one already, with the same settings; nothing is changed then.

        Raises:
            LayoutMismatch: there is one with other settings.
        """
        made = False
        for index, client in enumerate(self._clients):
            share = replace(config, share=(index, len(self._clients)))
            answer = check_status(RedisStore(client, share).create(caller_ms), share)
            made = made or answer.status == "ok"
        return made

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
        for client in self._clients:
            with translated(address(client)):
                # an embedded Redis says that it is new: not after a pool was deleted from it
                client.delete(*pool_keys(self.name))
                client.delete(FRESH_KEY)
        return alive

    def close(self) -> None:
        for client in self._clients:
            client.close()
