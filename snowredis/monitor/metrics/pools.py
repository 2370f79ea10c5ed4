"""Metrics of pools, read from Redis. Needs no client library."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from snowredis.monitor.metrics.catalog import CONDITIONS, POOL, Metric
from snowredis.monitor.metrics.families import Family, collected
from snowredis.monitor.pool_watch import PoolWatch, Reading
from snowredis.monitor.snapshot import POOL_COUNTERS, Snapshot
from snowredis.monitor.status import LEVELS
from snowredis.monitor.worker_pool import WorkerPool

# pools that are read at once: if Redis hangs, each takes about a second, and a scrape has ten
_AT_ONCE = 16
_METRICS = {metric.name.removeprefix("snowredis_pool_"): metric for metric in POOL}


class PoolsReader:
    """Reads the metrics of several pools."""

    def __init__(self, pools: Sequence[WorkerPool]) -> None:
        self._watches = {pool.name: PoolWatch(pool) for pool in pools}
        self._pid, self._lock = os.getpid(), threading.Lock()

    def read(self) -> dict[str, Reading]:
        """Read every pool once. Blocks for some round trips to Redis, for about a second if it does not reply."""
        if self._pid != os.getpid():
            # a thread of the parent may have had the lock
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            return self._read_all()

    def _read_all(self) -> dict[str, Reading]:
        if len(self._watches) == 1:
            return {name: watch.read() for name, watch in self._watches.items()}
        with ThreadPoolExecutor(min(_AT_ONCE, len(self._watches))) as executor:
            return dict(zip(self._watches, executor.map(PoolWatch.read, self._watches.values()), strict=True))

    def families(self) -> list[Family]:
        """Return the current metrics. Blocks as read()."""
        return families_of(self.read())


def families_of(readings: dict[str, Reading]) -> list[Family]:
    """Return the metrics of pools, by name; of one that could not be read only the status."""
    samples = [
        (metric, (name, *label), value)
        for name, reading in readings.items()
        for metric, label, value in _samples(reading)
    ]
    # in the order of the catalog, also if the first pool could not be read
    return collected(sorted(samples, key=lambda sample: POOL.index(sample[0])))


def _samples(reading: Reading) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    """Yield the samples of one pool: metric, value of its label if it has one, value."""
    status, readable = reading.status, reading.error is None
    yield _METRICS["up"], (), float(readable)
    yield _METRICS["level"], (), float(LEVELS.index(status.level))
    present = {condition.code for condition in status.conditions}
    for code in CONDITIONS:
        yield _METRICS["condition"], (code,), float(code in present)
    if readable and reading.snapshot is not None:
        yield from _snapshot_samples(reading.snapshot)


def _snapshot_samples(snapshot: Snapshot) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    info, workers = snapshot.info, snapshot.workers
    states = [worker.state for worker in (*workers, *snapshot.unknown)]
    for state in _METRICS["workers"].values:
        yield _METRICS["workers"], (state,), float(states.count(state))
    values: dict[str, float] = {
        "capacity": info.capacity,
        "used": info.used,
        "free": info.free,
        "peak": info.peak,
        "ids_per_second": sum(worker.ids_per_second for worker in workers),
        "ttl_seconds": info.ttl_ms / 1000,
        "floor_wait_seconds": max(0, info.floor_ms - info.now_ms) / 1000,
        "oldest_heartbeat_seconds": max((worker.heartbeat_age_ms for worker in workers), default=0) / 1000,
        "clock_offset_max_seconds": max((abs(worker.clock_offset_ms) for worker in workers), default=0)
        / 1000,
        "clock_lead_seconds": info.lead_ms / 1000,
        "layout_left_seconds": (info.layout_end_ms - info.now_ms) / 1000,
        "created_timestamp_seconds": info.created_ms / 1000,
        "alarm_timestamp_seconds": info.alarm_until_ms / 1000,
        "deaths_total": info.deaths,
        **{f"{name}_total": getattr(info, name) for name in POOL_COUNTERS},
    }
    for name, value in values.items():
        yield _METRICS[name], (), float(value)
