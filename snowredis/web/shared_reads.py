"""One look at Redis a second for all readers of a pool, and one text of it.

SharedPool remembers what it read, for the feed and the lookups. SharedAnswers remembers responses.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from snowredis.core.as_json import to_json
from snowredis.errors import StoreUnavailable
from snowredis.monitor.snapshot import PoolInfo, Refusal, Snapshot
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.process.coroutines import in_thread

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
        self._remembered: dict[bool, tuple[float, Snapshot | StoreUnavailable]] = {}

    def snapshot(self, *, idle: bool = False) -> Snapshot:
        # held during the read: all others wait for its result
        with self._lock:
            read_at_s, found = self._remembered.get(idle, (0.0, None))
            if found is None or time.monotonic() - read_at_s >= FRESH_S:
                try:
                    found = replace(super().snapshot(idle=idle), refusal=self._refusal())
                except StoreUnavailable as error:
                    found = error
                self._remembered[idle] = time.monotonic(), found
        if isinstance(found, StoreUnavailable):
            raise found.with_traceback(None)
        return found

    def forget_snapshot(self) -> None:
        """Let the next call read the pool."""
        self._remembered.pop(False, None)

    def info(self) -> PoolInfo:
        return self.snapshot().info


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
