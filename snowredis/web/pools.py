"""The pools that a service makes ids of and shows: one generator and one reader each, however many ask.

Everything that talks to Redis runs in a thread; the event loop only hands out what is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from snowredis.connection import connect
from snowredis.core.layout import Layout
from snowredis.errors import (
    ConfigError,
    LayoutError,
    LayoutMismatch,
    PoolNotFound,
    SnowredisError,
    StoreUnavailable,
)
from snowredis.lease.inspect import PoolInfo
from snowredis.monitor.pool import WorkerPool
from snowredis.runtime.aio import in_thread
from snowredis.runtime.generator import Generator
from snowredis.settings import POOL_DURATIONS
from snowredis.web.answers import Problem, problem_of
from snowredis.web.watch import Watch

log = logging.getLogger("snowredis")
T = TypeVar("T")

# a claim that takes longer than this goes on while the service already answers, with 503
START_LIMIT_S = 5.0
CLAIM_AGAIN_S = 1.0


class ServedPool:
    """A pool of the service.

    Args:
        url, options: as connect() takes them; what the options do not say is as the pool was made.
    """

    def __init__(self, url: Any, name: str, options: dict[str, Any], wait_s: float) -> None:
        self.name = name
        self._url, self._options, self._wait_s = url, options, wait_s
        self._monitor: WorkerPool | None = None
        self._ids: Generator | None = None
        self._trouble: Problem | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        # whether a claim has failed already
        self._tried = asyncio.Event()
        self.watch = Watch(name, self.read)

    # --- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Claim a worker id; if that fails, or after START_LIMIT_S, go on with that in the background.

        Raises:
            ConfigError, LayoutError, LayoutMismatch: no waiting makes that right.
        """
        self._task = asyncio.create_task(self._claim())
        tried = asyncio.create_task(self._tried.wait())
        await asyncio.wait([self._task, tried], timeout=START_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        tried.cancel()
        if self._task.done():
            self._task.result()
        self.watch.start()

    async def _claim(self) -> None:
        while True:
            try:
                if self._ids is None:
                    self._ids = await in_thread(self._connect)
                await self._ids.aclaim()
            except (ConfigError, LayoutError, LayoutMismatch) as error:
                self._trouble = problem_of(error)
                log.critical("pool %s: no ids will be served: %s", self.name, error)
                raise
            except SnowredisError as error:
                if self._trouble is None:
                    log.warning("pool %s: no worker id yet, trying again: %s", self.name, error)
                self._trouble = problem_of(error)
                self._tried.set()
                await asyncio.sleep(CLAIM_AGAIN_S)
            else:
                self._trouble = None
                return

    def _connect(self) -> Generator:
        found: dict[str, Any] = {}
        # a pool that is not there yet is made with the options alone
        with contextlib.suppress(PoolNotFound):
            found = options_of(self._monitored().info())
        return connect(self._url, pool=self.name, **{"label": "snowredis serve"} | found | self._options)

    async def stop(self) -> None:
        """Give the worker id back."""
        await self.watch.stop()
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
        """Whether it has a lease whose reservation goes on."""
        ids = self._ids
        lease = ids.lease if ids is not None else None
        return lease is not None and ids is not None and ids._clock.time_ns() // 1_000_000 < lease.until_ms

    @property
    def worker(self) -> int | None:
        """The worker id that this process holds."""
        lease = self._ids.lease if self._ids is not None else None
        return lease.worker if lease is not None else None

    @property
    def layout(self) -> Layout | None:
        """None: not known, as long as Redis was not reached."""
        return self._ids.layout if self._ids is not None else None

    async def make(self, count: int | None) -> list[int] | int:
        """An id, or so many. Raises Problem, SnowredisError; waits no longer than the limits say."""
        ids = self._ids
        if ids is None or self._trouble is not None:
            raise self._trouble or Problem(
                503, "NotReady", f"pool {self.name!r}: no worker id yet. Ask again.", 1
            )
        try:
            async with asyncio.timeout(self._wait_s):
                if count is None:
                    return await ids.anext_id()
                # one batch after the other: at the layout's ceiling they would take each other's ticks away
                async with self._turn:
                    return await ids.anext_ids(count)
        except TimeoutError:
            raise Problem(
                503,
                "NotReady",
                f"pool {self.name!r}: no id within {self._wait_s:g} s; a claim goes on. Ask again.",
                1,
            ) from None

    # --- looking -----------------------------------------------------------------------------------

    async def ask(self, question: Callable[[WorkerPool], T]) -> T:
        """Ask the monitor, in a thread. Raises Problem, SnowredisError."""
        return await in_thread(lambda: self.read(question))

    def read(self, question: Callable[[WorkerPool], T]) -> T:
        """The same for a caller in a thread. Blocks for a few round trips to Redis."""
        return question(self._monitored())

    def _monitored(self) -> WorkerPool:
        if self._monitor is None:
            # two threads may come here together: one of the two is never used, and holds no connection
            self._monitor = WorkerPool(self._url, self.name)
        return self._monitor


def options_of(info: PoolInfo) -> dict[str, Any]:
    """The settings that a pool was made with, as options of connect()."""
    stored = info.settings
    found: dict[str, Any] = {}
    try:
        found["layout"] = stored["layout"]
        found["datacenter"] = int(stored.get("datacenter", "0"))
        found |= {name: int(stored[f"{name}_ms"]) / 1000 for name in POOL_DURATIONS}
    except (KeyError, ValueError) as error:
        raise StoreUnavailable("?", f"pool {info.name!r} has settings that are none: {error}") from error
    return found
