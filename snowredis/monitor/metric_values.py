"""Values of metrics: of pools, read from Redis, and of the generators of this process; as text for Prometheus.

The totals of a process only grow, also when generators are closed. Needs no client library.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from snowredis.monitor.metrics import PROCESS, READING, SEGMENTS, SNAPSHOT, Metric
from snowredis.monitor.pool_monitor import Reading
from snowredis.snowflake.lease.context import BOUNDS_S, Durations

# a metric, and the values of its labels
Key: TypeAlias = tuple[Metric, tuple[str, ...]]
Samples: TypeAlias = dict[Key, Any]


def samples_of(metrics: Iterable[Metric], name: str, source: Any) -> Samples:
    """Return the values of *source*, the pool or tag *name*, of each of *metrics* that is known."""
    samples: Samples = {}
    for metric in metrics:
        value = metric.value(source) if metric.value is not None else None
        if metric.values and value is not None:
            samples |= {(metric, (name, label)): value[label] for label in metric.values}
        elif value is not None:
            samples[metric, (name,)] = value
    return samples


def samples_of_pools(readings: Mapping[str, Reading]) -> Samples:
    """Return the metrics of pools, by name; of one that could not be read only the status."""
    samples: Samples = {}
    for name, reading in readings.items():
        samples |= samples_of(READING, name, reading)
        samples |= samples_of(SNAPSHOT, name, reading.snapshot) if reading.error is None else {}
    return samples


def by_metric(samples: Samples) -> dict[Metric, dict[tuple[str, ...], Any]]:
    """Return each metric with its values by labels, however many pools have them."""
    found: dict[Metric, dict[tuple[str, ...], Any]] = {}
    for (metric, labels), value in samples.items():
        found.setdefault(metric, {})[labels] = value
    return found


def as_text(samples: Samples) -> str:
    """Return metrics of pools in the text format of Prometheus, version 0.0.4."""
    lines = []
    for metric, values in by_metric(samples).items():
        lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]
        for texts, value in values.items():
            # names of pools, states and codes have no character that must be escaped
            labels = (f'{name}="{text}"' for name, text in zip(metric.labels, texts, strict=True))
            lines.append(f"{metric.name}{{{','.join(labels)}}} {float(value)!r}")
    return "".join(f"{line}\n" for line in lines)


class TotalsTracker:
    """Sum the metrics of all generators of this process, also of those that no longer exist.

    Args:
        members: returns the generators of this process; other objects in it are ignored.

    A generator that no longer exists counts as of the last call of samples(). A forked child starts at 0.

    Attributes:
        metrics: those that it sums.
        start: gauges that are 0 without generators.
    """

    metrics: Sequence[Metric] = PROCESS
    start: Sequence[Metric] = tuple(metric for metric in PROCESS if metric.name == "snowredis_leases")

    def __init__(self, members: Callable[[], Iterable[Any]]) -> None:
        self._members = members
        self._reset()

    def _reset(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        # the numbers of counters and histograms: of each generator, and of all
        self._seen: weakref.WeakKeyDictionary[Any, _Numbers] = weakref.WeakKeyDictionary()
        self._totals: _Numbers = {}

    def read(self, member: Any) -> Samples:
        """Return the metrics of *member*; none if it is no generator of a pool."""
        return samples_of(PROCESS, member.pool, member) if hasattr(member, "ids_made") else {}

    def samples(self) -> Samples:
        """Return the metrics of all pools."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            return self._collect()

    def _collect(self) -> Samples:
        gauges: dict[Key, list[float]] = {}
        for member in self._members():
            for key, value in self.read(member).items():
                if key[0].kind == "gauge":
                    gauges.setdefault(key, []).append(value)
                else:
                    _count(self._totals, self._seen.setdefault(member, {}), key, _numbers(value))
        totals = {key: _value(numbers) for key, numbers in self._totals.items()}
        start = {(metric, labels[:1]): 0 for metric in self.start for _, labels in totals}
        return totals | start | {key: _MERGE[key[0].merged](known) for key, known in gauges.items()}


# a counter has one number; a histogram has the count of each bucket, then the sum of each
_Numbers: TypeAlias = dict[Key, list[float]]


def _numbers(value: float | Durations) -> list[float]:
    return [*value.counts, *value.sums_s] if isinstance(value, Durations) else [value]


def _value(numbers: list[float]) -> float | Durations:
    if len(numbers) == 1:
        return numbers[0]
    buckets = len(BOUNDS_S) + 1
    return Durations([int(count) for count in numbers[:buckets]], numbers[buckets:])


def _count(totals: _Numbers, seen: _Numbers, key: Key, numbers: list[float]) -> None:
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
    start = ()

    def read(self, member: Any) -> Samples:
        """Return the metrics of *member*; none if it is no segment generator."""
        if not isinstance(getattr(member, "tag", None), str) or not hasattr(member, "remaining"):
            return {}
        # a closed one has counters only
        known = (metric for metric in SEGMENTS if metric.kind == "counter" or not member.closed)
        return samples_of(known, member.tag, member)
