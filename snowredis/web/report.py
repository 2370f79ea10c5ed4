"""Reports of a pool for all who look: made once a second, and compressed once.

The only file of the service that knows the records of snowredis.monitor.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from snowredis.core.as_json import to_json
from snowredis.monitor.conditions import status_of
from snowredis.monitor.pool import Refusal, Snapshot
from snowredis.monitor.pool_monitor import Reading
from snowredis.process.coroutines import OneThread
from snowredis.web.messages import json_bytes
from snowredis.worker_pool import WorkerPool

T = TypeVar("T")

# how old a response may be
FRESH_S = 1.0
# answers that are remembered; the oldest is forgotten
_MAX_ANSWERS = 100
# marks the generators of the service
SERVICE_LABEL = "snowredis serve"


class SharedAnswer(NamedTuple):
    """A body for several clients, whose tag is the same as long as nothing but its time has changed."""

    body: bytes
    zipped: bytes
    tag: str


def report_of(monitor: WorkerPool) -> dict[str, Any]:
    """Return the pool as `snowredis workers --json` shows it. Blocks for a few round trips to Redis."""
    snapshot = monitor.snapshot()
    found: dict[str, Any] = to_json(Reading(status_of(snapshot), snapshot))
    return found


def part_of(report: dict[str, Any], text: str, limit: int | None) -> SharedAnswer:
    """Return the leases whose host, label, pid or worker id contains *text*, *limit* at most; with counts of all."""
    body = dict(report)
    if text or limit is not None:
        # processes of the service are no workers of the fleet
        fleet = [row for row in report["leases"] if row["label"] != SERVICE_LABEL]
        found = [row for row in report["leases"] if not text or text in _text_of(row)]
        body |= {"leases": found[:limit], "found": len(found), "services": len(report["leases"]) - len(fleet)}
        body["states"] = Counter(row["state"] for row in fleet)
        body["ids_per_second"] = sum(row["ids_per_second"] for row in fleet if row["state"] in ("alive", "no-ids"))
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
