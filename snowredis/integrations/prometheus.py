"""Prometheus metrics of the generators of this process, and of pools.

    from snowredis.integrations import prometheus
    prometheus.register()                                           # this process
    REGISTRY.register(prometheus.PoolCollector(url, "orders", "users"))   # the pools; one process is enough

Under gunicorn with PROMETHEUS_MULTIPROC_DIR every process writes its metrics to files every few seconds, so they
survive its end; those of the last few seconds are lost if it is killed: prometheus_files.py.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from snowredis.integrations.prometheus_files import EVERY_S, MetricFiles
from snowredis.monitor.metric_values import PoolsReader, SegmentTotals, TotalsTracker
from snowredis.monitor.metrics import POOL, PROCESS, SEGMENTS, Family, cumulative
from snowredis.monitor.worker_pool import WorkerPool
from snowredis.process.exit import EXIT
from snowredis.process.fork import GUARD
from snowredis.snowflake.counts import Durations


def as_prometheus(family: Family) -> Metric:
    """Return *family* as prometheus_client has it."""
    metric = family.metric
    kind = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    converted: Any = kind[metric.kind](metric.family, metric.text, labels=list(metric.labels))
    for labels, value in family.samples.items():
        if isinstance(value, Durations):
            converted.add_metric(labels, cumulative(value), sum(value.sums_s))
        else:
            converted.add_metric(labels, value)
    return converted  # type: ignore[no-any-return]


class ProcessMetrics:
    """Collector for the generators of this process; see register()."""

    def __init__(self) -> None:
        self._totals = (TotalsTracker(lambda: EXIT.members), SegmentTotals(lambda: GUARD.members))

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without samples, so that two collectors in one registry are refused."""
        return [as_prometheus(Family(metric)) for metric in (*PROCESS, *SEGMENTS)]

    def collect(self) -> Iterator[Metric]:
        for totals in self._totals:
            yield from map(as_prometheus, totals.families())


_registered: weakref.WeakKeyDictionary[CollectorRegistry, ProcessMetrics | MetricFiles] = (
    weakref.WeakKeyDictionary()
)


def register(
    registry: CollectorRegistry = REGISTRY, *, every_s: float = EVERY_S
) -> ProcessMetrics | MetricFiles:
    """Register the generators of this process, also later ones, in *registry*. May be called again.

    Under PROMETHEUS_MULTIPROC_DIR nothing is put into *registry*: MultiProcessCollector reads the metrics of all
    processes. Call it before forking or in each worker. If that directory cannot be used, a warning is logged, and no
    metrics are written until it can; nothing is raised.

    Args:
        every_s: seconds between two writes under PROMETHEUS_MULTIPROC_DIR.
    """
    metrics = _registered.get(registry)
    if metrics is None:
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            metrics = MetricFiles(every_s)
            EXIT.close_at_exit(metrics)
        else:
            metrics = ProcessMetrics()
            registry.register(metrics)
        _registered[registry] = metrics
    return metrics


class PoolCollector:
    """Collector for pools, which reads from Redis at every scrape: one for a fleet is enough.

    Args:
        url: as WorkerPool takes it, with rights to read.
        pools: their names. A registry takes one PoolCollector: all pools share the same metrics.

    If Redis is unavailable or has no such pool, ``snowredis_pool_up`` is 0, and a scrape may take two seconds.
    """

    def __init__(self, url: Any, *pools: str) -> None:
        self._reader = PoolsReader([WorkerPool(url, name) for name in pools or ("default",)])

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without samples: registering does not read from Redis."""
        return [as_prometheus(Family(metric)) for metric in POOL]

    def collect(self) -> Iterator[Metric]:
        return map(as_prometheus, self._reader.families())
