"""Values of metrics: of pools, read from Redis, and of the generators of this process.

The totals of a process only grow, also when generators are closed. Needs no client library.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from snowredis.monitor.metrics import CONDITIONS, POOL, PROCESS, SEGMENTS, Family, Metric, collected
from snowredis.monitor.polling import PoolWatch, Reading
from snowredis.monitor.snapshot import POOL_COUNTERS, Snapshot
from snowredis.monitor.status import LEVELS
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.snowflake.counts import BOUNDS_S, Durations

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
    levels = {condition.code: LEVELS.index(condition.level) for condition in status.conditions}
    for code in CONDITIONS:
        yield _METRICS["condition"], (code,), float(levels.get(code, 0))
    if readable and reading.snapshot is not None:
        yield from _snapshot_samples(reading.snapshot)


def _snapshot_samples(snapshot: Snapshot) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    info, workers = snapshot.info, snapshot.workers
    states = [worker.state for worker in (*workers, *snapshot.unknown)]
    for state in _METRICS["workers"].values:
        yield _METRICS["workers"], (state,), float(states.count(state))
    values: dict[str, float] = {
        "makes_ids": snapshot.makes_ids,
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


_HISTOGRAMS = {
    "snowredis_heartbeat_seconds": "heartbeats",
    "snowredis_claim_wait_seconds": "claim_waits",
    "snowredis_clock_wait_seconds": "clock_waits",
}


@dataclass(frozen=True, slots=True)
class Readings:
    """Metrics of one generator, or of all generators of a process in one pool, by the names of PROCESS.

    Attributes:
        totals: counters by name and value of the label; buckets of histograms too, see durations().
        gauges: those that are known.
    """

    totals: Mapping[Key, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)

    def values(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], float | Durations]]:
        """Yield the samples of *metric* with the value of its label, if it has one."""
        if metric.kind == "histogram":
            yield (), self.durations(metric)
        elif metric.kind == "gauge":
            if metric.name in self.gauges:
                yield (), self.gauges[metric.name]
        else:
            for value in metric.values or ("",):
                yield (value,) if value else (), self.totals.get((metric.name, value), 0)

    def durations(self, metric: Metric) -> Durations:
        """Return the buckets of a histogram."""
        buckets = range(len(BOUNDS_S) + 1)
        return Durations(
            [int(self.totals.get((f"{metric.name}:count", str(i)), 0)) for i in buckets],
            [self.totals.get((f"{metric.name}:sum", str(i)), 0.0) for i in buckets],
        )


def readings_of(generator: Any) -> Readings:
    """Return the metrics of *generator*, a snowredis.Generator."""
    counts, lease = generator.counts, generator.lease
    offset_ms = generator.clock_reading.offset_ms
    totals: dict[Key, float] = {
        ("snowredis_ids_total", ""): generator.ids_made,
        ("snowredis_waits_total", "ceiling"): counts.ceiling_waits,
        ("snowredis_waits_total", "clock"): counts.clock_back_waits,
        ("snowredis_ceiling_wait_seconds_total", ""): counts.ceiling_wait_s,
        ("snowredis_claims_total", ""): counts.claims,
        ("snowredis_renewals_total", ""): counts.renewals,
        ("snowredis_renewals_failed_total", ""): counts.renewals_failed,
        ("snowredis_leases_lost_total", ""): counts.leases_lost,
    }
    for step, number in counts.clock_backs_by_step.items():
        totals["snowredis_clock_backs_total", step] = number
    for reason, number in counts.claims_refused.items():
        totals["snowredis_claims_refused_total", reason] = number
    for name, attribute in _HISTOGRAMS.items():
        durations = getattr(counts, attribute)
        totals |= {(f"{name}:count", str(i)): number for i, number in enumerate(durations.counts)}
        totals |= {(f"{name}:sum", str(i)): seconds for i, seconds in enumerate(durations.sums_s)}
    gauges: dict[str, float] = {
        "snowredis_leases": int(lease is not None),
        "snowredis_lease_ttl_seconds": generator.ttl_ms / 1000,
    }
    if lease is not None:
        gauges["snowredis_lease_end_timestamp_seconds"] = (lease.until_ms - (offset_ms or 0)) / 1000
    if offset_ms is not None:
        gauges["snowredis_clock_offset_seconds"] = offset_ms / 1000
    return Readings(totals, gauges)


class TotalsTracker:
    """Sum the metrics of all generators of this process, also of those that no longer exist.

    Args:
        members: returns the generators of this process; other objects in it are ignored.

    A generator that no longer exists counts as of the last call of by_pool(). A forked child starts at 0.

    Attributes:
        metrics: those that it sums.
        start: gauges of a pool without generators.
    """

    metrics: Sequence[Metric] = PROCESS
    start: Mapping[str, float] = {"snowredis_leases": 0}

    def __init__(self, members: Callable[[], Iterable[Any]]) -> None:
        self._members = members
        self._reset()

    def _reset(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._seen: weakref.WeakKeyDictionary[Any, Mapping[Key, float]] = weakref.WeakKeyDictionary()
        self._totals: dict[str, Counter[Key]] = {}

    def read(self, member: Any) -> tuple[str, Readings] | None:
        """Return the pool of *member* and its metrics; None if it is no generator of a pool."""
        return (member.pool, readings_of(member)) if hasattr(member, "ids_made") else None

    def by_pool(self) -> dict[str, Readings]:
        """Return the metrics by pool."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            return dict(self._collect())

    def families(self) -> list[Family]:
        """Return the metrics of all pools."""
        by_pool = self.by_pool()
        return collected(
            (metric, (pool, *label), value)
            for metric in self.metrics
            for pool, readings in by_pool.items()
            for label, value in readings.values(metric)
        )

    def _collect(self) -> Iterator[tuple[str, Readings]]:
        current: dict[str, list[Mapping[str, float]]] = {}
        for member in self._members():
            found = self.read(member)
            if found is None:
                continue
            pool, readings = found
            before = self._seen.get(member, {})
            # ids_made includes a block that was just given up for a moment, so it may shrink
            highest = {key: max(value, before.get(key, 0)) for key, value in readings.totals.items()}
            totals = self._totals.setdefault(pool, Counter())
            for key, value in highest.items():
                totals[key] += value - before.get(key, 0)  # type: ignore[assignment]
            self._seen[member] = highest
            current.setdefault(pool, []).append(readings.gauges)
        for pool, totals in self._totals.items():
            yield pool, Readings(dict(totals), self._merged(current.get(pool, [])))

    def _merged(self, members: list[Mapping[str, float]]) -> dict[str, float]:
        """Return the gauges of one pool, of those of all its generators."""
        merged = dict(self.start)
        for metric in self.metrics:
            known = [gauges[metric.name] for gauges in members if metric.name in gauges]
            if known and metric.merged:
                merged[metric.name] = _MERGE[metric.merged](known)
        return merged


_MERGE: dict[str, Callable[[list[float]], float]] = {
    "livesum": sum,
    "livemin": min,
    "livemax": max,
    "livemostrecent": lambda known: known[-1],
}


def new_durations(before: Durations, now: Durations) -> Iterator[float]:
    """Yield a duration for each that was added since *before*: the average of the new ones in its bucket.

    For histograms that take one duration at a time: their counts and their sum come out the same.
    """
    for i, end in enumerate((*BOUNDS_S, float("inf"))):
        number = now.counts[i] - before.counts[i]
        if number > 0:
            average = min(end, (now.sums_s[i] - before.sums_s[i]) / number)
            yield from [average] * number


# counter -> attribute of SegmentCounts
_COUNTS = {
    "snowredis_segment_fetches_total": "segments",
    "snowredis_segment_prefetch_hits_total": "prefetch_hits",
    "snowredis_segment_waits_total": "waits",
    "snowredis_segment_failures_total": "failures",
    "snowredis_segment_alarms_total": "alarms",
    "snowredis_segment_dropped_total": "dropped",
}


class SegmentTotals(TotalsTracker):
    """Sum the metrics of all segment generators of this process. See TotalsTracker."""

    metrics = SEGMENTS
    start: Mapping[str, float] = {}

    def read(self, member: Any) -> tuple[str, Readings] | None:
        """Return the tag of *member* and its metrics; None if it is no segment generator."""
        status = getattr(member, "status", None)
        if status is None or not hasattr(status, "used_up_in_s"):
            return None
        totals = {(name, ""): getattr(status.counts, attribute) for name, attribute in _COUNTS.items()}
        totals["snowredis_segment_numbers_total", ""] = status.made
        gauges = {
            "snowredis_segment_left": status.left,
            "snowredis_segment_step": status.step,
            "snowredis_segment_tag_rate": status.tag_rate,
            "snowredis_segment_used_up_seconds": status.used_up_in_s,
        }
        known = {} if member.closed else {name: value for name, value in gauges.items() if value is not None}
        return status.tag, Readings(totals, known)


# name of a counter, and value of its label or ""; of a histogram "count" or "sum", and the number of the bucket
Key = tuple[str, str]
