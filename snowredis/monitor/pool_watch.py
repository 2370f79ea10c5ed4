"""Repeated readings of a pool that survive an outage: the last snapshot is kept, and since when it is stale."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from snowredis.errors import PoolNotFound, SnowredisError, StoreUnavailable
from snowredis.monitor.snapshot import Snapshot
from snowredis.monitor.status import Status, status_of, status_without
from snowredis.monitor.worker_pool import WorkerPool


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of one reading.

    Attributes:
        status: the verdict.
        snapshot: what was read last; None: the pool never could be read. If it cannot be read now, the states of its
            workers are unknown.
        error: why it could not be read now; None if it could.
        read_at_ms: when *snapshot* was read, on this host's clock; 0 without one.
    """

    status: Status
    snapshot: Snapshot | None
    error: SnowredisError | None = None
    read_at_ms: int = 0

    @property
    def stale_since_ms(self) -> int | None:
        """Since when the pool cannot be read, on this host's clock; None if it can."""
        return self.status.stale_since_ms


def _out_of_date(snapshot: Snapshot | None) -> Snapshot | None:
    """Return *snapshot* with unknown states: who was healthy then may be dead now."""
    if snapshot is None:
        return None
    return replace(snapshot, workers=tuple(replace(each, state="unknown") for each in snapshot.workers))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class PoolWatch:
    """Reads a pool again and again. One caller at a time.

    Args:
        clock_ms: returns this host's time, ms since 1970.
    """

    def __init__(self, pool: WorkerPool, clock_ms: Callable[[], int] = _now_ms) -> None:
        self._pool, self._clock_ms = pool, clock_ms
        self._snapshot: Snapshot | None = None
        self._read_at_ms = 0
        self._failed_since_ms: int | None = None

    def read(self, *, idle: bool = False) -> Reading:
        """Read the pool; if that fails, return the last snapshot and the error. Blocks as WorkerPool.snapshot()."""
        try:
            self._snapshot = self._pool.snapshot(idle=idle)
        except (PoolNotFound, StoreUnavailable) as error:
            now_ms = self._clock_ms()
            self._failed_since_ms = self._failed_since_ms or now_ms
            status = status_without(
                error,
                self._snapshot,
                failed_since_ms=self._failed_since_ms,
                now_ms=now_ms,
                last_read_ms=self._read_at_ms,
            )
            return Reading(status, _out_of_date(self._snapshot), error, self._read_at_ms)
        self._read_at_ms, self._failed_since_ms = self._clock_ms(), None
        return Reading(status_of(self._snapshot), self._snapshot, None, self._read_at_ms)
