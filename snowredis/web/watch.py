"""One reader of a pool for all who look at it: what changed since the last look, as server-sent events.

A viewer that has seen the look before gets the changes, any other the whole; so a slow one costs nothing,
and nothing queues up.
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
from snowredis.runtime.aio import in_thread
from snowredis.web.answers import Problem, plain, problem_of

log = logging.getLogger("snowredis")

# between two looks at Redis while somebody watches; else so that the chart has a past when somebody comes
LOOK_EVERY_S, IDLE_EVERY_S = 1.0, 5.0
# it reads every event that there is, which takes up to 0.2 s
FORECAST_EVERY_S = 60.0
# how far the chart reaches back
PAST_MS = 10 * 60 * 1000
MAX_POINTS = 1_000
MAX_EVENTS = 100
# a browser comes back by itself then, and its cookie is looked at again
STREAM_LIFE_S = 3600.0
# of a worker: what changes by itself, and would make news of every worker at every look
_LEFT_OUT = ("lease_left_ms", "heartbeat_age_ms", "state", "alive")
Row = dict[str, Any]


class Watch:
    """Args:
    name: the pool's.
    read: calls what it is given with the pool's monitor; in a thread.
    """

    def __init__(self, name: str, read: Callable[[Callable[[Any], Any]], Any]) -> None:
        self.name = name
        self.viewers = 0
        self._read = read
        self._number = 0
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopped = False
        self._task: asyncio.Task[None] | None = None
        self._rows: dict[int, Row] = {}
        self._head: dict[str, Any] = {}
        self._points: deque[list[int]] = deque(maxlen=MAX_POINTS)
        self._events: deque[Row] = deque(maxlen=MAX_EVENTS)
        self._delta = b""
        self._forecast: Row | None = None
        self._forecast_at_s = 0.0
        self._whole: tuple[int, bytes] = (-1, b"")

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def end_streams(self) -> None:
        """Let every viewer go: a server that stops waits for them."""
        self._stopped = True
        self._wake()

    async def stop(self) -> None:
        self.end_streams()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- reading -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopped:
            began_s = time.monotonic()
            try:
                self._take(*await in_thread(self._look))
            except (SnowredisError, Problem) as error:
                told = error if isinstance(error, Problem) else problem_of(error)
                self._head["trouble"] = {"error": told.error, "detail": told.detail}
                self._delta = sse("trouble", self._head["trouble"])
            except Exception:
                log.exception("pool %s: a look at it failed, trying again", self.name)
                self._head["trouble"] = {"error": "InternalError", "detail": "a look at the pool failed"}
                self._delta = sse("trouble", self._head["trouble"])
            self._number += 1
            self._wake()
            # a Redis that is slow is not asked more often for it
            every_s = LOOK_EVERY_S if self.viewers else IDLE_EVERY_S
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(every_s / 4, every_s - (time.monotonic() - began_s))):
                    await self._hurry.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _look(self) -> tuple[dict[int, Row], Row, list[int], list[Row], bytes]:
        """In a thread, and changes nothing: viewers are served meanwhile."""
        workers, info, events = self._read(self._everything)
        rows: dict[int, Row] = {}
        for worker in workers:
            row: Row = plain(worker)
            for name in _LEFT_OUT:
                row.pop(name, None)
            rows[worker.worker] = row
        head = pool_as_json(info) | {"forecast": self._forecast}
        # what a worker that is silent did last is no news of now
        point = [
            info.now_ms,
            sum(worker.ids_per_second for worker in workers if worker.state == "healthy"),
            info.used,
        ]
        told = {
            "pool": head,
            "workers": [row for number, row in rows.items() if self._rows.get(number) != row],
            "gone": [number for number in self._rows if number not in rows],
            "points": [point],
            "events": events,
        }
        return rows, head, point, events, sse("change", told)

    def _take(
        self, rows: dict[int, Row], head: Row, point: list[int], events: list[Row], delta: bytes
    ) -> None:
        self._rows, self._head, self._delta = rows, head, delta
        self._events.extend(events)
        self._points.append(point)
        while self._points[0][0] < point[0] - PAST_MS:
            self._points.popleft()

    def _everything(self, monitor: Any) -> tuple[Any, Any, list[Row]]:
        # the workers first: ages are then counted from a time after their heartbeats
        workers = monitor.workers()
        if self.viewers and time.monotonic() >= self._forecast_at_s:
            self._forecast = plain(monitor.forecast())
            self._forecast_at_s = time.monotonic() + FORECAST_EVERY_S
        return workers, monitor.info(), self._new_events(monitor)

    def _new_events(self, monitor: Any) -> list[Row]:
        known = {_place(event) for event in self._events}
        # as many are kept as are read, so what is not known is new
        return [event for event in last_events(monitor) if _place(event) not in known]

    # --- viewers -----------------------------------------------------------------------------------

    def _all(self) -> bytes:
        if self._whole[0] != self._number:
            told = {
                "pool": self._head,
                "workers": list(self._rows.values()),
                "points": list(self._points),
                "events": list(self._events),
            }
            self._whole = (self._number, sse("all", told))
        return self._whole[1]

    async def stream(self) -> AsyncIterator[bytes]:
        """Everything, then what changes, until the service stops or an hour has passed."""
        self.viewers += 1
        until_s = time.monotonic() + STREAM_LIFE_S
        seen = -1
        try:
            self._hurry.set()
            # what was read while nobody watched is a few seconds old
            while not self._stopped and time.monotonic() < until_s:
                changed, number = self._changed, self._number
                if number and number != seen:
                    yield self._delta if seen == number - 1 else self._all()
                    seen = number
                    continue
                await changed.wait()
        finally:
            self.viewers -= 1


def pool_as_json(info: Any) -> Row:
    """A pool's state, with its layout as a spec and its settings by name."""
    head: Row = plain(info)
    settings = {name: value for name, value in info.settings.items() if name != "layout"}
    return head | {"settings": plain(settings), "layout_end_ms": plain(info.layout.end_ms)}


def sse(event: str, data: Any) -> bytes:
    text = json.dumps(data, separators=(",", ":"))
    return f"event: {event}\ndata: {text}\n\n".encode()


def last_events(monitor: Any) -> list[Row]:
    """The newest events, the oldest of them first. Blocks for a round trip to Redis."""
    return [plain(event) for event in monitor.events(newest=MAX_EVENTS)]


def _place(event: Row) -> tuple[Any, ...]:
    return event["server"], event["id"]
