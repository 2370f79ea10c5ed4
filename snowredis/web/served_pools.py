"""The pools of a service by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snowredis.monitor.status import TagVerdict
from snowredis.web.problems import Problem
from snowredis.web.served_pool import ServedPool


class ServedPools:
    """All pools of the service by name; they exist from start() to stop().

    Args:
        names: the first is the default of requests.
        tags: returns the tags that are shown with each pool.
    """

    def __init__(
        self,
        url: Any,
        names: list[str],
        options: dict[str, Any],
        wait_s: float,
        *,
        create: bool = False,
        tags: Callable[[], Sequence[TagVerdict]] = tuple,
    ) -> None:
        self.url, self.names = url, names
        self._options, self._wait_s, self._create, self._tags = options, wait_s, create, tags
        self._pools: dict[str, ServedPool] = {}

    async def start(self) -> None:
        """Start all pools at once. Raises as ServedPool.start()."""
        pools = [
            ServedPool(self.url, name, self._options, self._wait_s, create=self._create, tags=self._tags)
            for name in self.names
        ]
        self._pools = {pool.name: pool for pool in pools}
        await asyncio.gather(*(pool.start() for pool in pools))

    async def stop(self) -> None:
        """Release all worker ids."""
        pools, self._pools = self._pools, {}
        await asyncio.gather(*(pool.stop() for pool in pools.values()))

    def find(self, query: Mapping[str, str]) -> ServedPool:
        """Return the pool that a request names. Raises Problem."""
        name = query.get("pool", self.names[0])
        pool = self._pools.get(name)
        if pool is not None:
            return pool
        if name in self.names:
            raise Problem(503, "NotReady", "the service has not started yet. Try again.", 1)
        raise Problem(
            404, "PoolNotFound", f"this service has no pool {name[:64]!r}; it has {', '.join(self.names)}"
        )

    def chosen(self, query: Mapping[str, str]) -> list[ServedPool]:
        """Return the pool that a request names, else all. Raises Problem."""
        if "pool" in query:
            return [self.find(query)]
        return list(self._pools.values()) or [self.find(query)]

    @property
    def viewers(self) -> int:
        """Number of open dashboards."""
        return sum(pool.feed.viewers for pool in self._pools.values())

    def end_streams(self) -> None:
        """End all feeds, so that the server can stop."""
        for pool in self._pools.values():
            pool.feed.end_streams()
