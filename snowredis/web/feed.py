"""One reader of a pool for all: the dashboard's feed, its changes as server-sent events, and responses for lookups.

A viewer that has the previous state gets the changes, any other the complete state: nothing is queued for slow ones.
Times are ms since 1970 on the Redis clock; the page shows them in the viewer's zone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from snowredis.core.as_json import to_json
from snowredis.errors import SnowredisError, StoreUnavailable
from snowredis.monitor.conditions import status_unread
from snowredis.monitor.pool import POOL_COUNTERS, PoolInfo, Refusal, Snapshot
from snowredis.monitor.pool_monitor import PoolPoller, Reading
from snowredis.process.clock import now_ms
from snowredis.process.coroutines import in_thread
from snowredis.web.records import UsagePoint
from snowredis.worker_pool import WorkerPool

# length of the live chart
PAST_MS = 10 * 60 * 1000
MAX_POINTS = 1_000
MAX_EVENTS = 100
# a page with more of them would be of no use
MAX_ENDED = 2_000
# states of workers whose last rate is up to date
_REPORTING = ("alive", "no-ids")
T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
# ms since 1970, ids per second, living workers; None where nothing could be read
Point: TypeAlias = tuple[int, int | None, int | None]


@dataclass(frozen=True, slots=True)
class FeedState:
    """The state of a pool as viewers have it after a reading.

    Attributes:
        values: the pool, its status, and the leases that ended without a release.
        points: the live chart, the oldest first; so are the events.
        offset_ms: Redis clock minus the clock of this host.
    """

    values: Row = field(default_factory=dict)
    workers: dict[int, Row] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    events: tuple[Row, ...] = ()
    offset_ms: int = 0

    def after(self, reading: Reading, events: list[Row]) -> tuple[FeedState, bytes]:
        """Return the state after *reading*, and what a viewer of this state needs, as a server-sent event.

        Args:
            events: the newest ones, the oldest first; as many as are kept, so that all unknown ones are new.
        """
        snapshot, offset_ms = reading.snapshot, self.offset_ms
        values: Row = {
            "status": to_json(reading.status),
            "stale_since_ms": reading.status.stale_since_ms,
            "pool": None if snapshot is None else to_json(snapshot.info),
            "ended": [] if snapshot is None else ended_rows(snapshot),
            "answers": to_json(reading.report.answers),
        }
        workers = {} if snapshot is None else worker_rows(snapshot)
        point: Point = (reading.status.now_ms + offset_ms, None, None)
        if reading.error is None and snapshot is not None:
            offset_ms = snapshot.info.now_ms - reading.read_at_ms
            point = (snapshot.info.now_ms, rate_of(snapshot), len(snapshot.living))
        known = {event["id"] for event in self.events}
        new = [event for event in events if event["id"] not in known]
        change = {
            **{name: value for name, value in values.items() if self.values.get(name) != value},
            # the page takes its absence for null
            "stale_since_ms": reading.status.stale_since_ms,
            "now_ms": point[0],
            "workers": [row for worker, row in workers.items() if self.workers.get(worker) != row],
            "gone": [worker for worker in self.workers if worker not in workers],
            "points": [point],
            "events": new,
        }
        recent = [each for each in self.points if each[0] >= point[0] - PAST_MS]
        points, kept = (*recent, point)[-MAX_POINTS:], (*self.events, *new)[-MAX_EVENTS:]
        return FeedState(values, workers, points, kept, offset_ms), sse("change", change)

    def complete(self) -> bytes:
        """Return all of it as a server-sent event."""
        state = self.values | {
            "now_ms": self.points[-1][0] if self.points else None,
            "workers": list(self.workers.values()),
            "points": self.points,
            "events": self.events,
        }
        return sse("all", state)


def worker_rows(snapshot: Snapshot) -> dict[int, Row]:
    """Return the valid leases by worker id."""
    return {each.worker: to_json(each) for each in snapshot.living}


def ended_rows(snapshot: Snapshot) -> list[Row]:
    """Return the leases that ended without a release."""
    return [to_json(each) for each in snapshot.ended[:MAX_ENDED]]


def event_counts(snapshot: Snapshot) -> tuple[Any, ...]:
    """Return values of which at least one changes with every event of the pool."""
    info = snapshot.info
    counters = (getattr(info, name) for name in POOL_COUNTERS)
    clock_backs = sum(each.clock_backs for each in snapshot.living)
    return *counters, info.incarnation, info.floor_ms, clock_backs


def rate_of(snapshot: Snapshot) -> int | None:
    """Return the ids per second of all workers that report; None if there are workers, but none reports."""
    rates = [each.ids_per_second for each in snapshot.living if each.state in _REPORTING]
    return sum(rates) if rates or not snapshot.living else None


def sse(event: str, data: Any) -> bytes:
    """Return a server-sent event."""
    text = json.dumps(data, separators=(",", ":"))
    return f"event: {event}\ndata: {text}\n\n".encode()


log = logging.getLogger("snowredis")

# time between two points
STEP_MS = 60_000
POINTS = 24 * 60


class UsageHistory:
    """Use of a pool in the last day, in points of a minute, the newest of them still growing. One caller at a time.

    1,440 of them take about 200 KB in Python and 60 KB as JSON. They are made of the readings that the feed makes
    anyway, and begin anew when the service does.

    Args:
        points: how many are kept.
    """

    def __init__(self, points: int = POINTS) -> None:
        self._done: deque[UsagePoint] = deque(maxlen=points - 1)
        self._at_ms: int | None = None
        # each reading in the open step: workers alive, ids per second, and deaths less processes that returned
        self._readings: list[tuple[int, int, int]] = []
        # these deaths at the end of the last step with a reading
        self._deaths_before: int | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Add a reading."""
        self._go_to(snapshot.info.now_ms)
        # the last rate of a silent worker is out of date
        rate = sum(each.ids_per_second for each in snapshot.living if each.state == "alive")
        deaths = snapshot.info.expired + snapshot.info.died - snapshot.info.returned
        self._readings.append((len(snapshot.living), rate, deaths))
        if self._deaths_before is None or deaths < self._deaths_before:
            self._deaths_before = deaths

    def go_to(self, now_ms: int) -> None:
        """Note that it is *now_ms*, while the pool cannot be read: steps without a reading are gaps."""
        if self._at_ms is not None:
            self._go_to(now_ms)

    def points(self) -> list[UsagePoint]:
        """Return the points, the oldest first; also those of steps in which nothing could be read."""
        return [*self._done, *([] if self._at_ms is None else [self._point(self._at_ms)])]

    def _go_to(self, now_ms: int) -> None:
        at_ms = now_ms - now_ms % STEP_MS
        if self._at_ms is None:
            self._at_ms = at_ms
        # a clock that went back adds to the step that is open
        missed = min((at_ms - self._at_ms) // STEP_MS, (self._done.maxlen or 0) + 1)
        if missed <= 0:
            return
        self._done.append(self._point(self._at_ms))
        if self._readings:
            self._deaths_before = self._readings[-1][2]
        self._readings = []
        self._done.extend(UsagePoint(at_ms - left * STEP_MS) for left in range(missed - 1, 0, -1))
        self._at_ms = at_ms

    def _point(self, at_ms: int) -> UsagePoint:
        if not self._readings:
            return UsagePoint(at_ms)
        living, rates, deaths = zip(*self._readings, strict=True)
        return UsagePoint(at_ms, max(living), round(sum(rates) / len(rates)), deaths[-1] - (self._deaths_before or 0))


# time between two reads: with viewers, and without any, when the charts need a past for the next viewer
READ_EVERY_S, IDLE_EVERY_S = 1.0, 5.0
# after this time the browser reconnects, and its cookie is checked again
STREAM_LIFE_S = 3600.0


class LiveFeed:
    """State of one pool for its viewers.

    Args:
        name: of the pool.
        open_monitor: returns the pool's WorkerPool, the same each time; may block, so it is called in a thread.

    Attributes:
        viewers: how many streams are open.
        history: use of the pool in the last day.
    """

    def __init__(self, name: str, open_monitor: Callable[[], WorkerPool]) -> None:
        self.name = name
        self.viewers = 0
        self.history = UsageHistory()
        self._open_monitor = open_monitor
        self._poller: PoolPoller | None = None
        # the verdict of the last reading
        self.status = status_unread(now_ms())
        # number of reads so far; identifies the state that a viewer has
        self._number = 0
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopped = False
        self._task: asyncio.Task[None] | None = None
        self._state = FeedState()
        # event_counts() of the last reading: as long as they are the same, there is no new event
        self._event_counts: tuple[Any, ...] = ()
        # the last change, and the complete state if a viewer needed it, as server-sent events
        self._change = b""
        self._complete: bytes | None = None

    def start(self) -> None:
        """Begin to read."""
        self._task = asyncio.create_task(self._run())

    def end_streams(self) -> None:
        """End all streams: a server that stops waits for them."""
        self._stopped = True
        self._wake_viewers()

    async def stop(self) -> None:
        """End all streams and the reader."""
        self.end_streams()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- reading -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopped:
            started_s = time.monotonic()
            try:
                reading, state, change = await in_thread(self._read_state)
            except Exception:
                # viewers see by themselves that nothing comes any more
                log.exception("pool %s cannot be read; trying again", self.name)
            else:
                self._store(reading, state, change)
            every_s = READ_EVERY_S if self.viewers else IDLE_EVERY_S
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                # a slow Redis is read less often
                async with asyncio.timeout(max(every_s / 4, every_s - (time.monotonic() - started_s))):
                    await self._hurry.wait()

    def _read_state(self) -> tuple[Reading, FeedState, bytes]:
        """Return a reading, the state after it, and the change. Blocks for a few round trips to Redis, in a thread."""
        monitor = self._open_monitor()
        if self._poller is None:
            self._poller = PoolPoller(monitor)
        reading = self._poller.read()
        events: list[Row] = []
        if reading.error is None and reading.snapshot is not None:
            counts = event_counts(reading.snapshot)
            # the next reading reports a Redis that has just gone
            with contextlib.suppress(SnowredisError):
                if counts != self._event_counts:
                    events = to_json(monitor.events(newest=MAX_EVENTS))
                    self._event_counts = counts
        return reading, *self._state.after(reading, events)

    def _store(self, reading: Reading, state: FeedState, change: bytes) -> None:
        self._state, self.status = state, reading.status
        if reading.error is None and reading.snapshot is not None:
            self.history.add(reading.snapshot)
        else:
            self.history.go_to(state.points[-1][0])
        self._change, self._complete = change, None
        self._number += 1
        self._wake_viewers()

    # --- viewers -----------------------------------------------------------------------------------

    def _wake_viewers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def poll_now(self) -> None:
        """Read the pool at once: something has changed."""
        self._hurry.set()

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the complete state, then changes, until the service stops or STREAM_LIFE_S has passed."""
        self.viewers += 1
        until_s = time.monotonic() + STREAM_LIFE_S
        sent = -1
        try:
            # the state may be IDLE_EVERY_S old
            self.poll_now()
            while not self._stopped and time.monotonic() < until_s:
                changed, number = self._changed, self._number
                if number and number != sent:
                    yield self._change if sent == number - 1 else self._complete_state()
                    sent = number
                    continue
                await changed.wait()
        finally:
            self.viewers -= 1

    def _complete_state(self) -> bytes:
        """Return the complete state as a server-sent event, encoded once for all viewers."""
        if self._complete is None:
            self._complete = self._state.complete()
        return self._complete


# --- what was read, for all who ask -------------------------------------------------------------------

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
        # when it was read, and the result
        self._remembered: tuple[float, Snapshot | StoreUnavailable | None] = (0.0, None)

    def snapshot(self) -> Snapshot:
        # held during the read: all others wait for its result
        with self._lock:
            read_at_s, found = self._remembered
            if found is None or time.monotonic() - read_at_s >= FRESH_S:
                try:
                    found = replace(super().snapshot(), refusal=self._refusal())
                except StoreUnavailable as error:
                    found = error
                self._remembered = time.monotonic(), found
        if isinstance(found, StoreUnavailable):
            raise found.with_traceback(None)
        return found

    def forget_snapshot(self) -> None:
        """Let the next call read the pool."""
        self._remembered = (0.0, None)

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
            # an answer gets older from its end on
            _, future = self._made[name]
            self._made[name] = time.monotonic(), future
