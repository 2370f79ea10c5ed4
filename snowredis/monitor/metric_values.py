"""Values of metrics: of pools, read from Redis, and of the generators of this process; as text for Prometheus.

The totals of a process only grow, also when generators are closed. Needs no client library.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from snowredis.monitor.metrics import CONDITIONS, POOL, PROCESS, SEGMENTS, Metric
from snowredis.monitor.polling import PoolWatch, Reading
from snowredis.monitor.status import LEVELS
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.snowflake.counts import BOUNDS_S, Durations

# pools that are read at once: if Redis hangs, each takes about a second, and a scrape has ten
_AT_ONCE = 16
# of the status; those after them are of a snapshot
_UP, _LEVEL, _CONDITION = POOL[:3]
# the ends of the buckets as Prometheus writes them; the last bucket has none
BUCKETS = (*map(repr, BOUNDS_S), "+Inf")


@dataclass(slots=True)
class Family:
    """A metric and its samples: values by the values of its labels."""

    metric: Metric
    samples: dict[tuple[str, ...], float | Durations] = field(default_factory=dict)

    def labeled(self) -> Iterator[tuple[dict[str, str], float | Durations]]:
        """Yield each sample with its labels by name."""
        for values, value in self.samples.items():
            yield dict(zip(self.metric.labels, values, strict=True)), value


def collected(samples: Iterable[tuple[Metric, tuple[str, ...], float | Durations]]) -> list[Family]:
    """Return one family for each metric, however many pools have samples of it: two of one name are not valid."""
    families: dict[str, Family] = {}
    for metric, labels, value in samples:
        families.setdefault(metric.name, Family(metric)).samples[labels] = value
    return list(families.values())


def cumulative(durations: Durations) -> list[tuple[str, int]]:
    """Return the buckets of a histogram as Prometheus counts them: each with those below it."""
    return list(zip(BUCKETS, itertools.accumulate(durations.counts), strict=True))


def as_text(families: Iterable[Family]) -> str:
    """Return *families* in the text format of Prometheus, version 0.0.4."""
    lines = []
    for family in families:
        name = family.metric.name
        lines += [f"# HELP {name} {family.metric.text}", f"# TYPE {name} {family.metric.kind}"]
        for labels, value in family.labeled():
            if isinstance(value, Durations):
                buckets = cumulative(value)
                lines += [_line(f"{name}_bucket", labels | {"le": end}, count) for end, count in buckets]
                lines.append(_line(f"{name}_count", labels, buckets[-1][1]))
                lines.append(_line(f"{name}_sum", labels, sum(value.sums_s)))
            else:
                lines.append(_line(name, labels, value))
    return "".join(f"{line}\n" for line in lines)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


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
    yield _UP, (), float(readable)
    yield _LEVEL, (), float(LEVELS.index(status.level))
    levels = {condition.code: LEVELS.index(condition.level) for condition in status.conditions}
    for code in CONDITIONS:
        yield _CONDITION, (code,), float(levels.get(code, 0))
    if readable and reading.snapshot is not None:
        for metric, label, value in values_of(POOL, reading.snapshot):
            yield metric, (label,) if label else (), float(value)


def values_of(metrics: Iterable[Metric], source: Any) -> Iterator[tuple[Metric, str, Any]]:
    """Yield metric, value of its label or "", and value of *source*, of each of *metrics* that is known."""
    for metric in metrics:
        value = metric.value(source) if metric.value is not None else None
        if metric.values and value is not None:
            yield from ((metric, label, value[label]) for label in metric.values)
        elif value is not None:
            yield metric, "", value


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


def readings_of(metrics: Iterable[Metric], source: Any) -> Readings:
    """Return the *metrics* of a generator, or of the status of a segment generator."""
    totals: dict[Key, float] = {}
    gauges: dict[str, float] = {}
    for metric, label, value in values_of(metrics, source):
        if metric.kind == "gauge":
            gauges[metric.name] = value
        elif isinstance(value, Durations):
            totals |= {(f"{metric.name}:count", str(i)): number for i, number in enumerate(value.counts)}
            totals |= {(f"{metric.name}:sum", str(i)): seconds for i, seconds in enumerate(value.sums_s)}
        else:
            totals[metric.name, label] = value
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
        return (member.pool, readings_of(PROCESS, member)) if hasattr(member, "ids_made") else None

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


class SegmentTotals(TotalsTracker):
    """Sum the metrics of all segment generators of this process. See TotalsTracker."""

    metrics = SEGMENTS
    start: Mapping[str, float] = {}

    def read(self, member: Any) -> tuple[str, Readings] | None:
        """Return the tag of *member* and its metrics; None if it is no segment generator."""
        status = getattr(member, "status", None)
        if status is None or not hasattr(status, "used_up_in_s"):
            return None
        found = readings_of(SEGMENTS, status)
        return status.tag, Readings(found.totals, {} if member.closed else found.gauges)


# name of a counter, and value of its label or ""; of a histogram "count" or "sum", and the number of the bucket
Key = tuple[str, str]
