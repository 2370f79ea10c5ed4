"""Prometheus metrics of the generators of this process, and of pools.

    from snowredis.integrations import prometheus
    prometheus.register()                                    # this process
    REGISTRY.register(prometheus.PoolCollector(url, "orders"))     # the pool; one process is enough

Under gunicorn with PROMETHEUS_MULTIPROC_DIR every process writes its metrics to files every few seconds, so they
survive its end; those of the last few seconds are lost if it is killed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from snowredis.monitor.pool_metrics import families_of
from snowredis.monitor.process_metrics import COUNTERS, GAUGES, TotalsTracker
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.runtime.exit import EXIT

# between two writes under PROMETHEUS_MULTIPROC_DIR
EVERY_S = 5.0
# field of Counters -> name of the metric, and how processes are combined under PROMETHEUS_MULTIPROC_DIR
_GAUGES: dict[str, tuple[str, Any]] = {
    "leases": ("leases", "livesum"),
    "lease_left_s": ("lease_left_seconds", "livemin"),
    "heartbeat_s": ("heartbeat_seconds", "livemax"),
    "clock_offset_s": ("clock_offset_seconds", "livemostrecent"),
}


class ProcessMetrics:
    """Collector for the generators of this process; see register()."""

    def __init__(self) -> None:
        self._totals = TotalsTracker(lambda: EXIT.members)
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._before: dict[tuple[str, str], float] = {}
        self._counters = {
            name: Counter(f"snowredis_{name}", text, ["pool", *filter(None, [label])], registry=None)
            for name, (text, label) in COUNTERS.items()
        }
        self._gauges = {
            field: Gauge(f"snowredis_{name}", GAUGES[field], ["pool"], registry=None, multiprocess_mode=mode)
            for field, (name, mode) in _GAUGES.items()
        }

    def update(self) -> None:
        """Update the metrics of prometheus_client, which reads or stores them afterwards."""
        if self._pid != os.getpid():
            # a forked child starts at 0, and the lock may be held by a thread of the parent
            self._lock, self._pid, self._before = threading.Lock(), os.getpid(), {}
        with self._lock:
            for pool, counters in self._totals.by_pool().items():
                for full_name, value in counters.totals.items():
                    name, *label = full_name.split(":")
                    increase = max(0, value - self._before.get((pool, full_name), 0))
                    self._counters[name].labels(pool, *label).inc(increase)
                    self._before[pool, full_name] = value
                for field, gauge in self._gauges.items():
                    number = getattr(counters, field)
                    if number is not None:
                        gauge.labels(pool).set(number)

    def describe(self) -> Iterable[Metric]:
        return [metric for source in self._all() for metric in source.describe()]

    def collect(self) -> Iterator[Metric]:
        self.update()
        for source in self._all():
            for metric in source.collect():
                # creation times of series double their number and are of no use here
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
                yield metric

    def _all(self) -> list[Any]:
        return [*self._counters.values(), *self._gauges.values()]

    def close(self) -> None:
        """Write the last metrics, at exit."""
        self.update()


class _PeriodicWriter:
    """Thread that writes the metrics every *every_s*; starts again in every forked child."""

    def __init__(self, metrics: ProcessMetrics, every_s: float) -> None:
        self._metrics, self._every_s = metrics, every_s
        self._stop = threading.Event()
        os.register_at_fork(after_in_child=self.start)
        self.start()

    def start(self) -> None:
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="snowredis-metrics", daemon=True).start()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._metrics.update()


_registered: weakref.WeakKeyDictionary[CollectorRegistry, ProcessMetrics] = weakref.WeakKeyDictionary()
_writers: list[_PeriodicWriter] = []


def register(registry: CollectorRegistry = REGISTRY, *, every_s: float = EVERY_S) -> ProcessMetrics:
    """Register the generators of this process, also later ones, in *registry*. May be called again.

    Under PROMETHEUS_MULTIPROC_DIR nothing is put into *registry*: MultiProcessCollector reads the metrics of all
    processes. Call it before forking or in each worker.

    Args:
        every_s: seconds between two writes under PROMETHEUS_MULTIPROC_DIR.
    """
    metrics = _registered.get(registry)
    if metrics is None:
        metrics = _registered[registry] = ProcessMetrics()
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            _writers.append(_PeriodicWriter(metrics, every_s))
            EXIT.watch(metrics)
        else:
            registry.register(metrics)
    return metrics


class PoolCollector:
    """Collector for a pool, which reads from Redis at every scrape: one for a fleet is enough.

    Args:
        url: as WorkerPool takes it, with rights to read.
        pool: name of the pool.

    If Redis is unavailable or has no such pool, ``snowredis_pool_up`` is 0, and a scrape may take a second.
    """

    def __init__(self, url: Any, pool: str = "default") -> None:
        self._pool = WorkerPool(url, pool)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not read from Redis."""
        return []

    def collect(self) -> Iterator[Metric]:
        for family in families_of(self._pool):
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(family.name, family.text, labels=list(family.samples[0][0]))
            for labels, value in family.samples:
                metric.add_metric(list(labels.values()), value)
            yield metric
