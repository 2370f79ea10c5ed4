"""Sources of a service's ids: its pools, and generators of other kinds.

For each pool there are one generator for ids and one WorkerPool for lookups. Other kinds are
for GET /id?kind=uuid7 and GET /id?tag=invoices: each is named by its tag, if the kind has tags, or by the name of its
kind, and opened at its first id. Everything that reads from Redis runs in a thread and does not block the event loop.
Reports of a pool are made once a second for all who look, and compressed once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from snowredis import errors
from snowredis.connection import connect
from snowredis.core.as_json import to_json
from snowredis.core.layout import Layout
from snowredis.kinds.base import IdGenerator
from snowredis.kinds.lookup import KindAndSettings, parse_kind
from snowredis.monitor.pool import Refusal, Snapshot
from snowredis.process.clock import now_ms
from snowredis.process.coroutines import OneThread, in_thread
from snowredis.process.log import log
from snowredis.settings import KIND, is_embedded
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.upkeep.pace import AGAIN_S
from snowredis.web.messages import HttpProblem, json_bytes, problem_of, seconds
from snowredis.worker_pool import WorkerPool

T = TypeVar("T")

# how old a response may be
FRESH_S = 1.0
# answers that are remembered; the oldest is forgotten
_MAX_ANSWERS = 100
# marks the generators of the service
SERVICE_LABEL = "snowredis serve"

# after this time a claim continues in the background, and requests get 503
START_LIMIT_S = 1.0
# between two readings of what the first claim found
_READ_EVERY_S = 0.02
# a start ends with these
_NO_START = (errors.PoolNotFound, errors.ConfigError, errors.LayoutError, errors.LayoutMismatch)


# --- what is read once for all -------------------------------------------------------------------------


class SharedAnswer(NamedTuple):
    """A body for several clients, whose tag is the same as long as nothing but its time has changed."""

    body: bytes
    zipped: bytes
    tag: str


def report_of(monitor: WorkerPool) -> dict[str, Any]:
    """Return the pool as `snowredis workers --json` shows it; without Redis, as it was read last.

    Blocks for a few round trips to Redis. Raises the error of the reading if the pool never could be read.
    """
    reading = monitor.read()
    if reading.error is not None and reading.snapshot is None:
        raise reading.error
    return dict(to_json(reading))


def part_of(report: dict[str, Any], text: str, limit: int | None) -> SharedAnswer:
    """Return the leases whose host, label, pid or worker id contains *text*, *limit* at most; with counts of all.

    Counts: ``found`` of the leases that contain *text*, by state; ``states`` of all but the processes of services.
    """
    body = dict(report)
    if text or limit is not None:
        # processes of the service are no workers of the fleet
        fleet = [row for row in report["leases"] if row["label"] != SERVICE_LABEL]
        found = [row for row in report["leases"] if not text or text in _text_of(row)]
        states = Counter(row["state"] for row in found)
        if limit is not None and len(found) > limit:
            # what a person has to see comes first
            found.sort(key=lambda row: row["state"] == "alive")
        body |= {"leases": found[:limit], "found": states, "services": len(report["leases"]) - len(fleet)}
        body["states"] = Counter(row["state"] for row in fleet)
        # a pool that cannot be read now has its figures of before, and all of its living workers are silent
        living = ("alive", "no-ids", *["silent"] * bool(report["status"]["stale_since"]))
        body["ids_per_second"] = sum(row["ids_per_second"] for row in fleet if row["state"] in living)
    # times of the reading, which are others at every reading
    tagged = {name: {**(body[name] or {}), "at": None, "floor_wait_ms": None} for name in ("pool", "status")}
    return answer_of(body, body | tagged)


def _text_of(row: dict[str, Any]) -> str:
    return " ".join(str(row.get(name) or "") for name in ("worker", "host", "pid", "label")).lower()


def answer_of(value: Any, tagged: Any = None) -> SharedAnswer:
    """Return *value* as an answer; its tag is of *tagged*, what has to be the same."""
    body = json_bytes(value)
    of = body if tagged is None else json_bytes(tagged)
    return SharedAnswer(body, gzip.compress(body, 4, mtime=0), hashlib.sha256(of).hexdigest()[:32])


class SharedAnswers:
    """Answers by name, each made once for all requests of FRESH_S, one after the other in a thread."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[float, asyncio.Future[Any]]] = {}
        self._thread = OneThread()

    async def get(self, name: Any, make: Callable[[], T]) -> T:
        """Return the answer *name*; call *make* for it if there is none or only an old one. Raises its errors."""
        made_at_s, future = self._made.get(name, (float("-inf"), None))
        if future is None or (future.done() and time.monotonic() - made_at_s >= FRESH_S):
            self._made.pop(name, None)
            while len(self._made) >= _MAX_ANSWERS:
                del self._made[next(iter(self._made))]
            future = asyncio.ensure_future(self._make(name, make))
            self._made[name] = time.monotonic(), future
        # a request that is cancelled does not cancel the others
        answer: T = await asyncio.shield(future)
        return answer

    async def _make(self, name: Any, make: Callable[[], T]) -> T:
        try:
            return await self._thread.call(make)
        finally:
            # an answer gets older from its end on
            if name in self._made:
                self._made[name] = time.monotonic(), self._made[name][1]


class ServedMonitor(WorkerPool):
    """A WorkerPool whose snapshots say what the generator of this process knows.

    Args:
        refusal: returns why Redis takes no renewal of the generator of this process; None if it does.
    """

    def __init__(self, url: Any, name: str, refusal: Callable[[], Refusal | None]) -> None:
        super().__init__(url, name)
        self._refusal = refusal

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), refusal=self._refusal())


# --- pools and kinds -----------------------------------------------------------------------------------


class ServedPool:
    """One pool of the service.

    Args:
        url, options: as connect() takes them; settings that are not given are those of the existing pool.
        wait_s: how long make_ids() waits.
        create: whether a pool that does not exist is created; that of an embedded server always is.

    Attributes:
        answers: what monitor() has read for lookups.
    """

    makes_text = False

    def __init__(self, url: Any, name: str, options: dict[str, Any], wait_s: float, create: bool) -> None:
        self.name = name
        self._url, self._options, self._wait_s = url, options, wait_s
        self._create = create or is_embedded(url)
        self._monitor: ServedMonitor | None = None
        self._ids: SnowflakeGenerator | None = None
        # why the settings of the pool are not known; since when Redis refuses claims
        self._failure: errors.SnowredisError | None = None
        self._refused_ms = 0
        self._task: asyncio.Task[None] | None = None
        self._batch_lock = asyncio.Lock()
        self._started = False
        self.answers = SharedAnswers()

    # --- start and stop ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Claim a worker id; after START_LIMIT_S, the heartbeat continues in the background.

        Raises:
            PoolNotFound: there is no such pool, and it may not be created.
            ConfigError, LayoutError, LayoutMismatch: trying again would not help.
        """
        self._task = asyncio.create_task(self._open())
        done, _ = await asyncio.wait([self._task], timeout=START_LIMIT_S)
        if done:
            self._task.result()
        self._started = True

    async def _open(self) -> None:
        """Connect as soon as the settings of the pool are known, and wait for the first claim of the heartbeat."""
        while self._ids is None:
            try:
                self._ids = await in_thread(self._connect)
            except errors.SnowredisError as error:
                # later, a person may create the pool, or correct it
                if isinstance(error, _NO_START) and not self._started:
                    raise
                if type(self._failure) is not type(error):
                    log.warning("pool %s: no ids are served yet: %s", self.name, error)
                self._failure = error
                await asyncio.sleep(AGAIN_S)
        await in_thread(self._ids.claim_in_background)
        while self._ids.lease is None and not self._started:
            if isinstance(failure := self._ids.claim_failure, _NO_START):
                raise failure
            await asyncio.sleep(_READ_EVERY_S)

    def _connect(self) -> SnowflakeGenerator:
        stored: dict[str, Any] = {}
        try:
            # read anew, since a person may have created the pool just now
            stored = self.monitor().info().options
        except errors.PoolNotFound:
            # a new pool is created with the options alone
            if not self._create:
                raise errors.PoolNotFound(self.name, self.monitor().where) from None
        # a full pool is asked again by the heartbeat, and requests learn the reason at once
        defaults: dict[str, Any] = {"label": SERVICE_LABEL, "claim_timeout": 0.0}
        return connect(self._url, pool=self.name, **defaults | stored | self._options)

    async def stop(self) -> None:
        """Release the worker id."""
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
    def _problem(self) -> HttpProblem | None:
        """Why the last heartbeat, or the one before a lease, failed; None if it did not, or nothing is known yet."""
        failure = self._failure if self._ids is None else self._ids._beat_failure
        return None if failure is None else problem_of(failure)

    @property
    def layout(self) -> Layout | None:
        """None until Redis was reached."""
        return self._ids.layout if self._ids is not None else None

    async def make_ids(self, count: int) -> list[int]:
        """Make *count* ids. Raises HttpProblem, SnowredisError."""
        if count == 1 and self._ids is not None and (an_id := self._ids._id_now()):
            return [an_id]
        ids = self._generator()
        try:
            async with asyncio.timeout(self._wait_s):
                if count == 1:
                    return [await ids.anext_id()]
                # one batch after the other: at the layout's ceiling they would compete for ticks
                async with self._batch_lock:
                    return await ids.anext_ids(count)
        except TimeoutError:
            raise self.reason() from None
        except errors.LayoutError as error:
            # the request was right: the layout is at its end
            raise HttpProblem(503, "LayoutError", str(error)) from error

    def _generator(self) -> SnowflakeGenerator:
        if not self.ready and (problem := self._problem) is not None:
            raise problem
        if self._ids is None:
            raise HttpProblem(503, "NotReady", f"pool {self.name!r}: no worker id yet. Try again.", 1)
        return self._ids

    def reason(self) -> HttpProblem:
        """Return why there are no ids, with a true Retry-After, as far as the generator knows it."""
        ids, pool = self._ids, f"pool {self.name!r}"
        if ids is not None and ids.clock_reading.now_ms >= ids.layout.end_ms:
            return HttpProblem(503, "LayoutError", f"{pool}: the layout is at its end; no ids can be made")
        if self.ready:
            return HttpProblem(503, "NotReady", f"{pool}: no id within {self._wait_s:g} s. Try again.", 1)
        if (problem := self._problem) is not None:
            return problem
        wait_ms = 0 if ids is None else ids._lease_manager.view.floor_ms - ids.clock_reading.now_ms
        if wait_ms > 0:
            detail = (
                f"{pool} is new, or Redis may have forgotten some of it: new workers wait {wait_ms / 1000:.1f} s more, "
                "so that no id is repeated."
            )
            return HttpProblem(503, "FloorWait", detail, seconds(wait_ms))
        why = "it has no lease, or its clock is past what Redis reserved"
        return HttpProblem(503, "NotReady", f"{pool}: this process can make no ids now: {why}", 1)

    # --- lookups -----------------------------------------------------------------------------------

    def monitor(self) -> ServedMonitor:
        """Return the pool's monitor, the same each time."""
        if self._monitor is None:
            # two threads may do this at once: one of the objects is never used, and has no connection
            self._monitor = ServedMonitor(self._url, self.name, self._refusal)
        return self._monitor

    def _refusal(self) -> Refusal | None:
        """Return why Redis takes no claim or no renewal from here, though it may reply to readers."""
        failure, problem = self._ids.renewal_failure if self._ids is not None else None, self._problem
        if failure is None and problem is not None and problem.error == "StoreUnavailable":
            self._refused_ms = self._refused_ms or now_ms()
            return Refusal(problem.detail, self._refused_ms)
        self._refused_ms = 0
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
        """Return the pool that a request names. Raises HttpProblem."""
        name = query.get("pool", self.names[0])
        pool = self._pools.get(name)
        if pool is not None:
            return pool
        if name in self.names:
            detail = "the service has not started. Try again; if it stays so, nothing runs its lifespan, or its start()"
            raise HttpProblem(503, "NotReady", detail, 1)
        detail = f"this service has no pool {name[:64]!r}; it has {', '.join(self.names)}"
        raise HttpProblem(404, "PoolNotFound", detail)

    def chosen(self, query: Mapping[str, str]) -> list[ServedPool]:
        """Return the pool that a request names, else all. Raises HttpProblem."""
        return [self.find(query)] if "pool" in query or not self._pools else list(self._pools.values())

    def monitor(self, name: str) -> ServedMonitor:
        """Return the monitor of the pool *name*, which knows what its generator knows."""
        return self._pools[name].monitor()


# --- other kinds of ids ---------------------------------------------------------------------------------


class ServedKind:
    """One generator of the service, of any kind but Snowflakes.

    Attributes:
        tag: its tag; "" if its kind has none.
        makes_text: whether its ids are str.
    """

    def __init__(self, declared: KindAndSettings, wait_s: float) -> None:
        self.kind, self.tag = declared.kind.name, str(declared.settings.get("tag", ""))
        # in metrics; no pool can have it
        self.name = f"{self.kind}:{self.tag}"
        self.makes_text = declared.describe().type is str
        self._declared, self._wait_s = declared, wait_s
        self._generator: IdGenerator[Any] | None = None
        self._lock = asyncio.Lock()

    async def make_ids(self, count: int) -> list[Any]:
        """Make *count* ids. Raises HttpProblem, SnowredisError."""
        try:
            async with asyncio.timeout(self._wait_s):
                return await self._make(count)
        except TimeoutError:
            detail = f"{self.name}: no id within {self._wait_s:g} s. Try again."
            raise HttpProblem(503, "NotReady", detail, 1) from None

    async def _make(self, count: int) -> list[Any]:
        async with self._lock:
            if self._generator is None:
                self._generator = await in_thread(self._declared.open)
        if count == 1:
            return [await self._generator.anext_id()]
        return await self._generator.anext_ids(count)

    async def stop(self) -> None:
        """Close the generator."""
        if self._generator is not None:
            with contextlib.suppress(errors.SnowredisError):
                await self._generator.aclose()
            self._generator = None


class ServedKinds:
    """All generators of the service that are no pools.

    Args:
        url: the service's Redis, for kinds whose URL is not given.
        texts: kinds, as snowredis.generator() takes them, with a URL for settings.

    Raises ConfigError for what cannot work. Connects to nothing.
    """

    def __init__(self, url: Any, texts: Sequence[str], wait_s: float) -> None:
        self.served: list[ServedKind] = []
        for text in texts:
            kind, settings = parse_kind(text)
            if kind.name == KIND.default:
                raise errors.ConfigError(f"{text!r}: Snowflakes are served by pool. Name the pool in pools instead.")
            if "url" in kind.settings:
                settings = {"url": url, **settings}
            one = ServedKind(KindAndSettings(kind, kind.check(settings)), wait_s)
            if any(one.name == other.name for other in self.served):
                raise errors.ConfigError(f"{text!r} is served twice. Name each kind, or each tag of it, once.")
            self.served.append(one)

    def find(self, query: Mapping[str, str]) -> ServedKind | None:
        """Return what a request names by ``kind`` or ``tag``; None if it names neither. Raises HttpProblem."""
        kind, tag = query.get("kind"), query.get("tag")
        if kind is None and tag is None:
            return None
        if "pool" in query:
            raise HttpProblem(400, "BadQuery", "name a pool, or a kind or a tag")
        found = [one for one in self.served if (kind is None or one.kind == kind) and (tag is None or one.tag == tag)]
        if len(found) == 1:
            return found[0]
        what = ", ".join(
            f"{name} {value[:64]!r}" for name, value in (("kind", kind), ("tag", tag)) if value is not None
        )
        served = ", ".join(f"kind={one.kind}" + (f"&tag={one.tag}" if one.tag else "") for one in self.served)
        if found:
            raise HttpProblem(400, "BadQuery", f"{what} is not one of what is served, but several: {served}")
        raise HttpProblem(404, "KindNotFound", f"this service has no {what}; it has {served or 'pools only'}")

    async def stop(self) -> None:
        """Close all generators."""
        await asyncio.gather(*(one.stop() for one in self.served))
