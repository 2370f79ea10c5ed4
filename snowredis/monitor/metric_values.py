"""Values of metrics: of pools, read from Redis, and of the generators of this process; as text for Prometheus.

The totals of a process only grow, also when generators are closed. Needs no client library.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from snowredis.monitor.metrics import POOL, PROCESS, READING, SEGMENTS, SNAPSHOT, Metric
from snowredis.monitor.pool_monitor import Reading
from snowredis.snowflake.lease.context import BOUNDS_S, Durations

# values of one source, such as a pool: by metric, and the value of its last label or ""
Samples: TypeAlias = dict[tuple[Metric, str], Any]


@dataclass(slots=True)
class Family:
    """A metric and its samples: values by the values of its labels."""

    metric: Metric
    samples: dict[tuple[str, ...], float | Durations] = field(default_factory=dict)


def samples_of(metrics: Iterable[Metric], source: Any) -> Samples:
    """Return the values of *source*, of each of *metrics* that is known."""
    samples: Samples = {}
    for metric in metrics:
        value = metric.value(source) if metric.value is not None else None
        if metric.values and value is not None:
            samples |= {(metric, label): value[label] for label in metric.values}
        elif value is not None:
            samples[metric, ""] = value
    return samples


def families_in(metrics: Iterable[Metric], by_name: Mapping[str, Samples]) -> list[Family]:
    """Return one family for each of *metrics* with samples, however many pools have them.

    Args:
        by_name: samples by the name of their pool or tag.
    """
    families = {metric: Family(metric) for metric in metrics}
    for name, samples in by_name.items():
        for (metric, label), value in samples.items():
            families[metric].samples[(name, label) if label else (name,)] = value
    return [family for family in families.values() if family.samples]


def families_of(readings: Mapping[str, Reading]) -> list[Family]:
    """Return the metrics of pools, by name; of one that could not be read only the status."""
    return families_in(POOL, {name: _samples(reading) for name, reading in readings.items()})


def _samples(reading: Reading) -> Samples:
    samples = samples_of(READING, reading)
    if reading.error is None:
        samples |= samples_of(SNAPSHOT, reading.snapshot)
    return {key: float(value) for key, value in samples.items()}


def as_text(families: Iterable[Family]) -> str:
    """Return *families* of pools in the text format of Prometheus, version 0.0.4."""
    lines = []
    for family in families:
        metric = family.metric
        lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]
        for values, value in family.samples.items():
            # names of pools, states and codes have no character that must be escaped
            labels = (f'{name}="{text}"' for name, text in zip(metric.labels, values, strict=True))
            lines.append(f"{metric.name}{{{','.join(labels)}}} {value!r}")
    return "".join(f"{line}\n" for line in lines)


class TotalsTracker:
    """Sum the metrics of all generators of this process, also of those that no longer exist.

    Args:
        members: returns the generators of this process; other objects in it are ignored.

    A generator that no longer exists counts as of the last call of by_pool(). A forked child starts at 0.

    Attributes:
        metrics: those that it sums.
        start: gauges of a pool without generators, by name.
    """

    metrics: Sequence[Metric] = PROCESS
    start: Mapping[str, float] = {"snowredis_leases": 0}

    def __init__(self, members: Callable[[], Iterable[Any]]) -> None:
        self._members = members
        self._reset()

    def _reset(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        # the numbers of counters and histograms: of each generator, and of all in a pool
        self._seen: weakref.WeakKeyDictionary[Any, _Numbers] = weakref.WeakKeyDictionary()
        self._totals: dict[str, _Numbers] = {}

    def read(self, member: Any) -> tuple[str, Samples] | None:
        """Return the pool of *member* and its metrics; None if it is no generator of a pool."""
        return (member.pool, samples_of(PROCESS, member)) if hasattr(member, "ids_made") else None

    def by_pool(self) -> dict[str, Samples]:
        """Return the metrics by pool."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            return self._collect()

    def families(self) -> list[Family]:
        """Return the metrics of all pools."""
        return families_in(self.metrics, self.by_pool())

    def _collect(self) -> dict[str, Samples]:
        gauges: dict[tuple[str, Metric], list[float]] = {}
        for member in self._members():
            found = self.read(member)
            if found is None:
                continue
            pool, samples = found
            seen = self._seen.setdefault(member, {})
            totals = self._totals.setdefault(pool, {})
            for key, value in samples.items():
                if key[0].kind == "gauge":
                    gauges.setdefault((pool, key[0]), []).append(value)
                else:
                    _count(totals, seen, key, _numbers(value))
        return {
            pool: {key: _value(numbers) for key, numbers in totals.items()} | self._gauges(pool, gauges)
            for pool, totals in self._totals.items()
        }

    def _gauges(self, pool: str, gauges: Mapping[tuple[str, Metric], list[float]]) -> Samples:
        """Return the gauges of one pool, of those of all its generators."""
        merged: Samples = {}
        for metric in self.metrics:
            if known := gauges.get((pool, metric)):
                merged[metric, ""] = _MERGE[metric.merged](known)
            elif metric.name in self.start:
                merged[metric, ""] = self.start[metric.name]
        return merged


# a counter has one number; a histogram has the count of each bucket, then the sum of each
_Numbers: TypeAlias = dict[tuple[Metric, str], list[float]]


def _numbers(value: float | Durations) -> list[float]:
    return [*value.counts, *value.sums_s] if isinstance(value, Durations) else [value]


def _value(numbers: list[float]) -> float | Durations:
    if len(numbers) == 1:
        return numbers[0]
    buckets = len(BOUNDS_S) + 1
    return Durations([int(count) for count in numbers[:buckets]], numbers[buckets:])


def _count(totals: _Numbers, seen: _Numbers, key: tuple[Metric, str], numbers: list[float]) -> None:
    """Add to *totals* what *numbers* of a generator are above those that were *seen* of it."""
    before = seen.get(key, [0] * len(numbers))
    # ids_made includes a block that was just given up for a moment, so it may shrink
    seen[key] = list(map(max, numbers, before))
    added = (now - then for now, then in zip(seen[key], before, strict=True))
    totals[key] = [sum(pair) for pair in zip(totals.get(key, [0] * len(numbers)), added, strict=True)]


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

    def read(self, member: Any) -> tuple[str, Samples] | None:
        """Return the tag of *member* and its metrics; None if it is no segment generator."""
        if not isinstance(getattr(member, "tag", None), str) or not hasattr(member, "remaining"):
            return None
        # a closed one has counters only
        known = (metric for metric in SEGMENTS if metric.kind == "counter" or not member.closed)
        return member.tag, samples_of(known, member)
