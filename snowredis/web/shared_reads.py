"""One look at Redis a second for all readers of a pool, and one text of it.

SharedPool remembers what it read, for the feed and the lookups. SharedAnswers remembers responses.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from snowredis.core.as_json import to_json
from snowredis.errors import PoolNotFound, StoreUnavailable
from snowredis.monitor.events import Event
from snowredis.monitor.snapshot import POOL_COUNTERS, PoolInfo, Snapshot
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.process.coroutines import in_thread

T = TypeVar("T")

# how old a response may be; a little more than the interval of the feed, whose reads are then enough for all
FRESH_S = 1.1
# of events, while no counter of the pool says that there are new ones
EVENTS_FRESH_S = 10.0


class SharedPool(WorkerPool):
    """A WorkerPool that remembers its snapshot and its newest events for FRESH_S; also that Redis is unavailable."""

    def __init__(self, url: Any, name: str) -> None:
        super().__init__(url, name)
        self._lock = threading.Lock()
        self._remembered: dict[Any, _Read] = {}

    def snapshot(self, *, idle: bool = False) -> Snapshot:
        return self._shared(("snapshot", idle), lambda: super(SharedPool, self).snapshot(idle=idle))

    def forget_snapshot(self) -> None:
        """Let the next call read the pool."""
        self._remembered.pop(("snapshot", False), None)

    def info(self) -> PoolInfo:
        return self.snapshot().info

    def events(self, *, newest: int | None = None, since: int | str | None = None) -> list[Event]:
        def read() -> list[Event]:
            return super(SharedPool, self).events(newest=newest, since=since)

        # others are large, or different each time
        if newest is None or since is not None:
            return read()
        try:
            info = self.snapshot().info
        except PoolNotFound:
            return read()
        # all events but those of clocks are counted
        counters = tuple(getattr(info, name) for name in POOL_COUNTERS)
        return self._shared(("events", newest), read, while_same=counters)

    def _shared(self, key: Any, read: Callable[[], T], while_same: object = None) -> T:
        """Return what *read* returned less than FRESH_S ago.

        With *while_same*: less than EVENTS_FRESH_S ago, and while that was the same.
        """
        # held during the read: all others wait for its result
        with self._lock:
            known = self._remembered.get(key)
            if known is None or not known.is_fresh(while_same):
                known = _Read(while_same)
                try:
                    known.value = read()
                except StoreUnavailable as error:
                    known.error = error
                known.at_s = time.monotonic()
                self._remembered[key] = known
        if known.error is not None:
            raise known.error.with_traceback(None)
        result: T = known.value
        return result


class _Read:
    """One remembered read: its value, or the error."""

    def __init__(self, while_same: object) -> None:
        self.while_same = while_same
        self.at_s = 0.0
        self.value: Any = None
        self.error: StoreUnavailable | None = None

    def is_fresh(self, while_same: object) -> bool:
        age_s = time.monotonic() - self.at_s
        if while_same is None or self.error is not None:
            return age_s < FRESH_S
        # a reader that has seen other counters does not ask again for the events that they count
        return while_same == self.while_same and age_s < EVENTS_FRESH_S


def json_bytes(value: Any) -> bytes:
    """Return *value* as compact JSON, as snowredis.core.as_json says.

    Lists of an object are encoded row by row: json.dumps() keeps all other threads waiting until it returns.
    """
    converted = to_json(value)
    if not isinstance(converted, dict):
        return _dumps(converted).encode()
    members = (
        f"{_dumps(name)}:" + (f"[{','.join(map(_dumps, item))}]" if isinstance(item, list) else _dumps(item))
        for name, item in converted.items()
    )
    return f"{{{','.join(members)}}}".encode()


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class SharedAnswers:
    """Answers by name, each made once for all requests of FRESH_S, in a thread."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[float, asyncio.Future[bytes]]] = {}

    async def get(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the answer *name*; call *make* for it if there is none or only an old one. Raises its errors."""
        made_at_s, future = self._made.get(name, (float("-inf"), None))
        if future is None or (future.done() and time.monotonic() - made_at_s >= FRESH_S):
            future = asyncio.ensure_future(self._make(name, make))
            self._made[name] = time.monotonic(), future
        # a request that is cancelled does not cancel the others
        return await asyncio.shield(future)

    async def _make(self, name: str, make: Callable[[], bytes]) -> bytes:
        try:
            return await in_thread(make)
        finally:
            # its age counts from its end
            _, future = self._made[name]
            self._made[name] = time.monotonic(), future
