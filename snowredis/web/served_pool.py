"""The pools of a service: each has one generator for ids, one WorkerPool for lookups, one feed for dashboards.

Everything that reads from Redis runs in a thread and does not block the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from snowredis.connection import connect
from snowredis.core.layout import Layout
from snowredis.errors import (
    ConfigError,
    LayoutError,
    LayoutMismatch,
    PoolNotFound,
    SnowredisError,
)
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.runtime.aio import in_thread
from snowredis.runtime.generator import Generator
from snowredis.runtime.lease import Lease
from snowredis.web.live_feed import LiveFeed
from snowredis.web.problems import Problem, problem_of

log = logging.getLogger("snowredis")
T = TypeVar("T")

# after that a claim continues in the background, and requests get 503
START_LIMIT_S = 5.0
CLAIM_AGAIN_S = 1.0


class ServedPool:
    """One pool of the service.

    Args:
        url, options: as connect() takes them; settings that are not given are those of the existing pool.
        wait_s: how long make_id() and make_ids() wait.
    """

    def __init__(self, url: Any, name: str, options: dict[str, Any], wait_s: float) -> None:
        self.name = name
        self._url, self._options, self._wait_s = url, options, wait_s
        self._monitor: WorkerPool | None = None
        self._ids: Generator | None = None
        self._problem: Problem | None = None
        self._task: asyncio.Task[None] | None = None
        self._batch_lock = asyncio.Lock()
        self._claim_failed = asyncio.Event()
        self.feed = LiveFeed(name, self.read)

    # --- start and stop ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Claim a worker id; after a failure, or after START_LIMIT_S, continue in the background.

        Raises:
            ConfigError, LayoutError, LayoutMismatch: trying again would not help.
        """
        self._task = asyncio.create_task(self._claim())
        failed = asyncio.create_task(self._claim_failed.wait())
        await asyncio.wait([self._task, failed], timeout=START_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        failed.cancel()
        if self._task.done():
            self._task.result()
        self.feed.start()

    async def _claim(self) -> None:
        while True:
            try:
                if self._ids is None:
                    self._ids = await in_thread(self._connect)
                await self._ids.aclaim()
            except (ConfigError, LayoutError, LayoutMismatch) as error:
                self._problem = problem_of(error)
                log.critical("pool %s: no ids are served: %s", self.name, error)
                raise
            except SnowredisError as error:
                if self._problem is None:
                    log.warning("pool %s: no worker id yet, trying again: %s", self.name, error)
                self._problem = problem_of(error)
                self._claim_failed.set()
                await asyncio.sleep(CLAIM_AGAIN_S)
            else:
                self._problem = None
                return

    def _connect(self) -> Generator:
        stored: dict[str, Any] = {}
        # a new pool is created with the options alone
        with contextlib.suppress(PoolNotFound):
            stored = self._open_monitor().info().options
        return connect(self._url, pool=self.name, **{"label": "snowredis serve"} | stored | self._options)

    async def stop(self) -> None:
        """Release the worker id."""
        await self.feed.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._ids is not None:
            await self._ids.aclose()
        if self._monitor is not None:
            await in_thread(self._monitor.close)

    # --- ids ---------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True while there is a lease whose reservation has not ended."""
        ids, lease = self._ids, self._lease
        return ids is not None and lease is not None and ids.clock_reading.now_ms < lease.until_ms

    @property
    def worker(self) -> int | None:
        """The worker id of this process; None without a lease."""
        return self._lease.worker if self._lease is not None else None

    @property
    def _lease(self) -> Lease | None:
        return self._ids.lease if self._ids is not None else None

    @property
    def layout(self) -> Layout | None:
        """None until Redis was reached."""
        return self._ids.layout if self._ids is not None else None

    async def make_id(self) -> int:
        """Make one id. Raises Problem, SnowredisError."""
        return await self._in_time(self._generator().anext_id())

    async def make_ids(self, count: int) -> list[int]:
        """Make *count* ids. Raises Problem, SnowredisError."""
        return await self._in_time(self._make_batch(self._generator(), count))

    async def _make_batch(self, ids: Generator, count: int) -> list[int]:
        # one batch after the other: at the layout's ceiling they would compete for ticks
        async with self._batch_lock:
            return await ids.anext_ids(count)

    async def _in_time(self, result: Awaitable[T]) -> T:
        """Wait for *result*, for the service's time limit at most. Raises Problem."""
        try:
            async with asyncio.timeout(self._wait_s):
                return await result
        except TimeoutError:
            detail = f"pool {self.name!r}: no id within {self._wait_s:g} s; a claim continues. Try again."
            raise _not_ready(detail) from None

    def _generator(self) -> Generator:
        if self._problem is not None:
            raise self._problem
        if self._ids is None:
            raise _not_ready(f"pool {self.name!r}: no worker id yet. Try again.")
        return self._ids

    # --- lookups -----------------------------------------------------------------------------------

    async def ask(self, question: Callable[[WorkerPool], T]) -> T:
        """Call *question* with the pool's monitor, in a thread. Raises SnowredisError."""
        return await in_thread(lambda: self.read(question))

    def read(self, question: Callable[[WorkerPool], T]) -> T:
        """Call *question* with the pool's monitor. Blocks for a few round trips to Redis."""
        return question(self._open_monitor())

    def _open_monitor(self) -> WorkerPool:
        if self._monitor is None:
            # two threads may do this at once: one of the objects is never used, and has no connection
            self._monitor = WorkerPool(self._url, self.name)
        return self._monitor


class ServedPools:
    """All pools of the service by name; they exist from start() to stop().

    Args:
        names: the first is the default of requests.
    """

    def __init__(self, url: Any, names: list[str], options: dict[str, Any], wait_s: float) -> None:
        self.url, self.names = url, names
        self._options, self._wait_s = options, wait_s
        self._pools: dict[str, ServedPool] = {}

    async def start(self) -> None:
        """Start all pools at once. Raises as ServedPool.start()."""
        pools = [ServedPool(self.url, name, self._options, self._wait_s) for name in self.names]
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
            raise _not_ready("the service has not started yet. Try again.")
        raise Problem(
            404, "PoolNotFound", f"this service has no pool {name[:64]!r}; it has {', '.join(self.names)}"
        )

    @property
    def ready(self) -> bool:
        """True while every pool can make ids."""
        return bool(self._pools) and all(pool.ready for pool in self._pools.values())

    @property
    def viewers(self) -> int:
        """Number of open dashboards."""
        return sum(pool.feed.viewers for pool in self._pools.values())

    def end_streams(self) -> None:
        """End all feeds, so that the server can stop."""
        for pool in self._pools.values():
            pool.feed.end_streams()


def _not_ready(detail: str) -> Problem:
    return Problem(503, "NotReady", detail, 1)
