"""The dashboard's feed: one reader of a pool for all viewers, and its changes as server-sent events.

A viewer that has the previous state gets the changes, any other the complete state: nothing is queued for slow ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from snowredis.errors import SnowredisError
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.runtime.aio import in_thread
from snowredis.web.json_values import jsonable, pool_state
from snowredis.web.problems import problem_of

log = logging.getLogger("snowredis")

# between two reads while there are viewers; otherwise, so that the chart has a past for the next viewer
READ_EVERY_S, IDLE_EVERY_S = 1.0, 5.0
# it reads all events, which takes up to 0.2 s
FORECAST_EVERY_S = 60.0
# length of the chart
PAST_MS = 10 * 60 * 1000
MAX_POINTS = 1_000
MAX_EVENTS = 100
# then the browser reconnects, and its cookie is checked again
STREAM_LIFE_S = 3600.0
# left out because they change at every read, so that every worker would be a change
_LEFT_OUT = ("lease_left_ms", "heartbeat_age_ms", "state", "alive")
Row = dict[str, Any]


class LiveFeed:
    """State of one pool for its viewers.

    Args:
        name: of the pool.
        read: calls its argument with the pool's WorkerPool; blocks, so it is called in a thread.

    Attributes:
        viewers: how many streams are open.
    """

    def __init__(self, name: str, read: Callable[[Callable[[WorkerPool], Any]], Any]) -> None:
        self.name = name
        self.viewers = 0
        self._read = read
        # number of reads so far; identifies the state that a viewer has
        self._number = 0
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopped = False
        self._task: asyncio.Task[None] | None = None
        self._workers: dict[int, Row] = {}
        self._pool: Row = {}
        self._points: deque[list[int]] = deque(maxlen=MAX_POINTS)
        self._events: deque[Row] = deque(maxlen=MAX_EVENTS)
        self._forecast: Row | None = None
        self._forecast_at_s = 0.0
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
                self._store(*await in_thread(lambda: self._read(self._read_state)))
            except SnowredisError as error:
                problem = problem_of(error)
                self._report({"error": problem.error, "detail": problem.detail})
            except Exception:
                log.exception("pool %s cannot be read; trying again", self.name)
                self._report({"error": "InternalError", "detail": "reading the pool failed"})
            self._number, self._complete = self._number + 1, None
            self._wake_viewers()
            every_s = READ_EVERY_S if self.viewers else IDLE_EVERY_S
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                # a slow Redis is read less often
                async with asyncio.timeout(max(every_s / 4, every_s - (time.monotonic() - started_s))):
                    await self._hurry.wait()

    def _wake_viewers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _report(self, problem: Row) -> None:
        self._pool["problem"] = problem
        self._change = sse("problem", problem)

    def _read_state(self, monitor: WorkerPool) -> tuple[dict[int, Row], Row, list[int], list[Row], bytes]:
        """Return workers, pool, chart point, new events, and the change as a server-sent event.

        Blocks for a few round trips to Redis, in a thread: it changes nothing that viewers are sent meanwhile.
        """
        # the workers first: their ages then count from a time after their heartbeats
        infos = monitor.workers()
        if self.viewers and time.monotonic() >= self._forecast_at_s:
            self._forecast = jsonable(monitor.forecast())
            self._forecast_at_s = time.monotonic() + FORECAST_EVERY_S
        pool_info = monitor.info()
        known = {_event_key(event) for event in self._events}
        # as many are kept as are read, so all unknown ones are new
        events = [event for event in newest_events(monitor) if _event_key(event) not in known]
        rows: list[Row] = [jsonable(info) for info in infos]
        workers = {row["worker"]: {k: v for k, v in row.items() if k not in _LEFT_OUT} for row in rows}
        pool = pool_state(pool_info) | {"forecast": self._forecast}
        # the last rate of a silent worker is out of date
        rate = sum(info.ids_per_second for info in infos if info.state == "healthy")
        point = [pool_info.now_ms, rate, pool_info.used]
        change = {
            "pool": pool,
            "workers": [row for worker, row in workers.items() if self._workers.get(worker) != row],
            "gone": [worker for worker in self._workers if worker not in workers],
            "points": [point],
            "events": events,
        }
        return workers, pool, point, events, sse("change", change)

    def _store(
        self, workers: dict[int, Row], pool: Row, point: list[int], events: list[Row], change: bytes
    ) -> None:
        self._workers, self._pool, self._change = workers, pool, change
        self._events.extend(events)
        self._points.append(point)
        while self._points[0][0] < point[0] - PAST_MS:
            self._points.popleft()

    # --- viewers -----------------------------------------------------------------------------------

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the complete state, then changes, until the service stops or STREAM_LIFE_S has passed."""
        self.viewers += 1
        until_s = time.monotonic() + STREAM_LIFE_S
        sent = -1
        try:
            # the state may be IDLE_EVERY_S old
            self._hurry.set()
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
            state = {
                "pool": self._pool,
                "workers": list(self._workers.values()),
                "points": list(self._points),
                "events": list(self._events),
            }
            self._complete = sse("all", state)
        return self._complete


def sse(event: str, data: Any) -> bytes:
    """Return a server-sent event."""
    text = json.dumps(data, separators=(",", ":"))
    return f"event: {event}\ndata: {text}\n\n".encode()


def newest_events(monitor: WorkerPool) -> list[Row]:
    """Return the newest events, oldest first. Blocks for a round trip to Redis."""
    return [jsonable(event) for event in monitor.events(newest=MAX_EVENTS)]


def _event_key(event: Row) -> tuple[Any, ...]:
    return event["server"], event["id"]
