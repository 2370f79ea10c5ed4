"""The pools of a service: for each one generator for ids, one WorkerPool for lookups, one feed for dashboards.

Everything that reads from Redis runs in a thread and does not block the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from snowredis import errors
from snowredis.connection import connect
from snowredis.core.layout import Layout
from snowredis.monitor.snapshot import PoolInfo, Refusal, Snapshot
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.process.coroutines import in_thread
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.open import is_embedded, is_in_memory
from snowredis.web.feed import LiveFeed
from snowredis.web.messages import Problem, json_bytes, problem_of, seconds

log = logging.getLogger("snowredis")
T = TypeVar("T")

# after that a claim continues in the background, and requests get 503
START_LIMIT_S = 1.0
CLAIM_AGAIN_S = 1.0
# how long a request that gets no id waits for the reason
_REASON_LIMIT_S = 0.5
# errors of claims that Redis refused
_REFUSALS = ("StoreUnavailable", "StoreRefused")
# lookups that wait for another one
_MAX_WAITING = 10
# how old a response may be; a little more than the interval of the feed, whose reads are then enough for all
FRESH_S = 1.1


class SharedPool(WorkerPool):
    """A WorkerPool that remembers its snapshot for FRESH_S; also that Redis is unavailable.

    Args:
        refusal: returns why Redis takes no renewal of the generator of this process; None if it does.
    """

    def __init__(self, url: Any, name: str, refusal: Callable[[], Refusal | None]) -> None:
        super().__init__(url, name)
        self._refusal = refusal
        self._lock = threading.Lock()
        # by *idle*: when it was read, and the result
        self._remembered: dict[bool, tuple[float, Snapshot | errors.StoreUnavailable]] = {}

    def snapshot(self, *, idle: bool = False) -> Snapshot:
        # held during the read: all others wait for its result
        with self._lock:
            read_at_s, found = self._remembered.get(idle, (0.0, None))
            if found is None or time.monotonic() - read_at_s >= FRESH_S:
                try:
                    found = replace(super().snapshot(idle=idle), refusal=self._refusal())
                except errors.StoreUnavailable as error:
                    found = error
                self._remembered[idle] = time.monotonic(), found
        if isinstance(found, errors.StoreUnavailable):
            raise found.with_traceback(None)
        return found

    def forget_snapshot(self) -> None:
        """Let the next call read the pool."""
        self._remembered.pop(False, None)

    def info(self) -> PoolInfo:
        return self.snapshot().info


class SharedAnswers:
    """Answers by name, each made once for all requests of FRESH_S, in a thread."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, name: str, make: Callable[[], T]) -> T:
        """Return the answer *name*; call *make* for it if there is none or only an old one. Raises its errors."""
        made_at_s, future = self._made.get(name, (float("-inf"), None))
        if future is None or (future.done() and time.monotonic() - made_at_s >= FRESH_S):
            future = asyncio.ensure_future(self._make(name, make))
            self._made[name] = time.monotonic(), future
        # a request that is cancelled does not cancel the others
        answer: T = await asyncio.shield(future)
        return answer

    async def _make(self, name: str, make: Callable[[], T]) -> T:
        try:
            return await in_thread(make)
        finally:
            # its age counts from its end
            _, future = self._made[name]
            self._made[name] = time.monotonic(), future


class ServedPool:
    """One pool of the service.

    Args:
        url, options: as connect() takes them; settings that are not given are those of the existing pool.
        wait_s: how long make_ids() waits.
        create: whether a pool that does not exist is created; embedded servers and pools in memory always are.

    Attributes:
        feed: for dashboards.
        answers: responses to lookups.
    """

    makes_text = False

    def __init__(self, url: Any, name: str, options: dict[str, Any], wait_s: float, create: bool) -> None:
        self.name = name
        self._url, self._options, self._wait_s = url, options, wait_s
        self._create = create or is_embedded(url) or is_in_memory(url)
        self._monitor: SharedPool | None = None
        self._ids: SnowflakeGenerator | None = None
        # why there is no lease, and since when
        self._problem: Problem | None = None
        self._refused_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._batch_lock = asyncio.Lock()
        self._started = False
        self._alone, self._waiting = asyncio.Lock(), 0
        self.answers = SharedAnswers()
        self.feed = LiveFeed(name, self._monitor_anew)

    # --- start and stop ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Claim a worker id; after START_LIMIT_S, continue in the background.

        Raises:
            PoolNotFound: there is no such pool, and it may not be created.
            ConfigError, LayoutError, LayoutMismatch: trying again would not help.
        """
        self._task = asyncio.create_task(self._claim())
        done, _ = await asyncio.wait([self._task], timeout=START_LIMIT_S)
        if done:
            self._task.result()
        self._started = True
        self.feed.start()

    async def _claim(self) -> None:
        while True:
            try:
                if self._ids is None:
                    self._ids = await in_thread(self._connect)
                await self._ids.aclaim()
            except errors.PoolNotFound as error:
                if not self._started:
                    raise
                # a person may create the pool later
                self._report(Problem(503, "PoolNotFound", str(error), seconds(CLAIM_AGAIN_S * 1000)))
                await asyncio.sleep(CLAIM_AGAIN_S)
            except (errors.ConfigError, errors.LayoutError, errors.LayoutMismatch) as error:
                self._problem = problem_of(error)
                log.critical("pool %s: no ids are served: %s", self.name, error)
                raise
            except errors.SnowredisError as error:
                self._report(problem_of(error))
                await asyncio.sleep(CLAIM_AGAIN_S)
            else:
                self._problem = None
                return

    def _report(self, problem: Problem) -> None:
        """Remember why there are no ids, and log it if it is new."""
        if self._problem is None or self._problem.error != problem.error:
            self._refused_ms = time.time_ns() // 1_000_000
            log.warning("pool %s: no worker id yet, trying again: %s", self.name, problem.detail)
        self._problem = problem

    def _connect(self) -> SnowflakeGenerator:
        stored: dict[str, Any] = {}
        try:
            # not a remembered one: a person may have created it just now
            stored = WorkerPool.info(self.monitor()).options
        except errors.PoolNotFound:
            # a new pool is created with the options alone
            if not self._create:
                raise errors.PoolNotFound(self.name, self.monitor().where) from None
        # a full pool is asked again by _claim(), and requests learn the reason at once
        defaults: dict[str, Any] = {"label": "snowredis serve", "claim_timeout": 0.0}
        return connect(self._url, pool=self.name, **defaults | stored | self._options)

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
        """True if the generator can make ids now, whether Redis replies or not."""
        ids = self._ids
        return ids is not None and ids.clock_reading.now_ms < ids.lasts_until_ms

    @property
    def layout(self) -> Layout | None:
        """None until Redis was reached."""
        return self._ids.layout if self._ids is not None else None

    def id_now(self) -> int:
        """Return an id if one can be made at once, else 0."""
        return self._ids._id_now() if self._ids is not None else 0

    async def make_ids(self, count: int) -> list[int]:
        """Make *count* ids. Raises Problem, SnowredisError."""
        if count == 1 and (an_id := self.id_now()):
            return [an_id]
        return await self._in_time(self._make(self._generator(), count))

    async def _make(self, ids: SnowflakeGenerator, count: int) -> list[int]:
        if count == 1:
            return [await ids.anext_id()]
        # one batch after the other: at the layout's ceiling they would compete for ticks
        async with self._batch_lock:
            return await ids.anext_ids(count)

    async def _in_time(self, result: Awaitable[T]) -> T:
        """Wait for *result*, for the service's time limit at most. Raises Problem."""
        try:
            async with asyncio.timeout(self._wait_s):
                return await result
        except TimeoutError:
            raise await self.reason() from None
        except errors.LayoutError as error:
            # the request was right: the layout is at its end
            raise Problem(503, "LayoutError", str(error)) from error

    def _generator(self) -> SnowflakeGenerator:
        # with a lease, the problem is over; _claim() is about to notice it
        if self._problem is not None and not self.ready:
            raise self._problem
        if self._ids is None:
            raise Problem(503, "NotReady", f"pool {self.name!r}: no worker id yet. Try again.", 1)
        return self._ids

    async def reason(self) -> Problem:
        """Return why there are no ids, with a true Retry-After. At most one look at Redis a second."""
        ids = self._ids
        if ids is not None and ids.clock_reading.now_ms >= ids.layout.end_ms:
            return Problem(503, "LayoutError", f"pool {self.name!r}: the layout is at its end; no ids can be made")
        if self._problem is not None:
            return self._problem
        try:
            async with asyncio.timeout(_REASON_LIMIT_S):
                info = await self.answers.get("info", self.monitor().info)
        except TimeoutError:
            return problem_of(errors.StoreUnavailable(self.monitor().where, "it does not respond"))
        except errors.SnowredisError as error:
            return problem_of(error)
        wait_ms = info.floor_ms - info.now_ms
        if wait_ms > 0 and not self.ready:
            detail = (
                f"pool {self.name!r} is new, or Redis may have forgotten some of it: new workers wait "
                f"{wait_ms / 1000:.1f} s more, so that no id is repeated."
            )
            return Problem(503, "FloorWait", detail, seconds(wait_ms))
        if not self.ready:
            why = "it has no lease, or its clock is past what Redis reserved"
            return Problem(503, "NotReady", f"pool {self.name!r}: this process can make no ids now: {why}", 1)
        return Problem(503, "NotReady", f"pool {self.name!r}: no id within {self._wait_s:g} s. Try again.", 1)

    # --- lookups -----------------------------------------------------------------------------------

    async def ask(self, question: Callable[[WorkerPool], T]) -> T:
        """Call *question* with the pool's monitor, in a thread. Raises SnowredisError."""
        return await in_thread(lambda: question(self.monitor()))

    async def answer(self, name: str, question: Callable[[WorkerPool], Any]) -> bytes:
        """Return what *question* returns as JSON, made once a second for all requests that call it *name*."""
        return await self.answers.get(name, lambda: json_bytes(question(self.monitor())))

    async def ask_alone(self, question: Callable[[WorkerPool], T]) -> T:
        """Call *question* as ask(), but after all others: it needs much of the interpreter. Raises Problem."""
        if self._waiting >= _MAX_WAITING:
            raise Problem(503, "Busy", "many such requests are waiting. Try again.", 1)
        self._waiting += 1
        try:
            async with self._alone:
                return await self.ask(question)
        finally:
            self._waiting -= 1

    def _monitor_anew(self) -> SharedPool:
        """Return the pool's monitor, to read the pool anew. The feed says when; lookups use what it read."""
        monitor = self.monitor()
        monitor.forget_snapshot()
        return monitor

    def monitor(self) -> SharedPool:
        """Return the pool's monitor, the same each time."""
        if self._monitor is None:
            # two threads may do this at once: one of the objects is never used, and has no connection
            self._monitor = SharedPool(self._url, self.name, self._refusal)
        return self._monitor

    def _refusal(self) -> Refusal | None:
        """Return why Redis takes no claim or no renewal from here, though it may reply to readers."""
        failure = self._ids.renewal_failure if self._ids is not None else None
        if failure is None and self._problem is not None and self._problem.error in _REFUSALS:
            failure = self._problem.detail, self._refused_ms
        return failure and Refusal(*failure)


class ServedPools:
    """All pools of the service by name; they exist from start() to stop().

    Args:
        names: the first is the default of requests.
    """

    def __init__(self, url: Any, names: list[str], options: dict[str, Any], wait_s: float, create: bool) -> None:
        self.url, self.names = url, names
        self._make = partial(ServedPool, url, options=options, wait_s=wait_s, create=create)
        self._pools: dict[str, ServedPool] = {}

    async def start(self) -> None:
        """Start all pools at once. Raises as ServedPool.start()."""
        self._pools = {name: self._make(name) for name in self.names}
        await asyncio.gather(*(pool.start() for pool in self._pools.values()))

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
        detail = f"this service has no pool {name[:64]!r}; it has {', '.join(self.names)}"
        raise Problem(404, "PoolNotFound", detail)

    def chosen(self, query: Mapping[str, str]) -> list[ServedPool]:
        """Return the pool that a request names, else all. Raises Problem."""
        if "pool" in query:
            return [self.find(query)]
        return list(self._pools.values()) or [self.find(query)]

    def monitor(self, name: str) -> SharedPool:
        """Return the monitor of the pool *name*, which knows what its generator knows."""
        return self._pools[name].monitor()

    @property
    def viewers(self) -> int:
        """Number of open dashboards."""
        return sum(pool.feed.viewers for pool in self._pools.values())

    def end_streams(self) -> None:
        """End all feeds, so that the server can stop."""
        for pool in self._pools.values():
            pool.feed.end_streams()
