"""Prometheus: what this process' generators do, and how a pool is.

    from snowredis.integrations import prometheus
    prometheus.register()                                    # this process
    REGISTRY.register(prometheus.PoolCollector(url, "orders"))     # the pool; in one process is enough

Under gunicorn with PROMETHEUS_MULTIPROC_DIR every process writes its numbers to files every few seconds, so what a
worker counted survives its death; a worker that is killed takes the last few seconds along.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from snowredis.monitor.counters import COUNTERS, TotalsTracker
from snowredis.monitor.metrics import families_of
from snowredis.monitor.pool import WorkerPool
from snowredis.runtime.exit import EXIT

# how often a process writes its numbers for the others under PROMETHEUS_MULTIPROC_DIR
EVERY_S = 5.0


class ProcessMetrics:
    """Of the generators of this process; see register()."""

    def __init__(self) -> None:
        self._totals = TotalsTracker(lambda: EXIT.members)
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._before: dict[tuple[str, str], float] = {}
        self._counters = {
            name: Counter(f"snowredis_{name}", text, ["pool", *filter(None, [label])], registry=None)
            for name, (text, label) in COUNTERS.items()
        }
        self._leases = self._gauge("leases", "worker ids held", "livesum")
        self._left = self._gauge(
            "lease_left_seconds", "until the first reservation of this process ends", "livemin"
        )
        self._heartbeat = self._gauge("heartbeat_seconds", "round trip of the last heartbeat", "livemax")
        self._offset = self._gauge(
            "clock_offset_seconds", "this host's clock less that of Redis", "livemostrecent"
        )

    def _gauge(self, name: str, text: str, mode: Any) -> Gauge:
        return Gauge(f"snowredis_{name}", text, ["pool"], registry=None, multiprocess_mode=mode)

    def update(self) -> None:
        """Bring the metrics up to date; for prometheus_client, which then reads or stores them."""
        if self._pid != os.getpid():
            # in a forked child nothing was counted yet, and a lock may have been held
            self._lock, self._pid, self._before = threading.Lock(), os.getpid(), {}
        with self._lock:
            for pool, counted in self._totals.look().items():
                for full, value in counted.totals.items():
                    name, *detail = full.split(":")
                    grown = max(0, value - self._before.get((pool, full), 0))
                    self._counters[name].labels(pool, *detail).inc(grown)
                    self._before[pool, full] = value
                self._leases.labels(pool).set(counted.leases)
                for gauge, number in (
                    (self._left, counted.lease_left_s),
                    (self._heartbeat, counted.heartbeat_s),
                    (self._offset, counted.clock_offset_s),
                ):
                    if number is not None:
                        gauge.labels(pool).set(number)

    def describe(self) -> Iterable[Metric]:
        return [metric for one in self._all() for metric in one.describe()]

    def collect(self) -> Iterator[Metric]:
        self.update()
        for one in self._all():
            for metric in one.collect():
                # when a series was made says nothing here, and doubles their number
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
                yield metric

    def _all(self) -> list[Any]:
        return [*self._counters.values(), self._leases, self._left, self._heartbeat, self._offset]

    def close(self) -> None:
        """At exit: the last numbers, for those who outlive this process."""
        self.update()


class _Pump:
    """Writes the numbers again and again in a thread; starts anew in every forked child."""

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
_pumps: list[_Pump] = []


def register(registry: CollectorRegistry = REGISTRY, *, every_s: float = EVERY_S) -> ProcessMetrics:
    """Show the generators of this process in *registry*, those that are made later, too. May be called again.

    Under PROMETHEUS_MULTIPROC_DIR nothing is put into *registry*: MultiProcessCollector shows the numbers of all
    processes. Call it before forking or in each worker, as you like.

    Args:
        every_s: how often they are written then.
    """
    metrics = _registered.get(registry)
    if metrics is None:
        metrics = _registered[registry] = ProcessMetrics()
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            _pumps.append(_Pump(metrics, every_s))
            EXIT.watch(metrics)
        else:
            registry.register(metrics)
    return metrics


class PoolCollector:
    """How a pool is, read from Redis at every scrape: one for a fleet is enough.

    Args:
        url: as WorkerPool takes it, with rights to read.
        pool: its name.

    A Redis that does not answer, or has no such pool, shows as ``snowredis_pool_up 0``; a scrape then takes a second.
    """

    def __init__(self, url: Any, pool: str = "default") -> None:
        self._pool = WorkerPool(url, pool)

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not ask Redis."""
        return []

    def collect(self) -> Iterator[Metric]:
        for family in families_of(self._pool):
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            made = kind(family.name, family.text, labels=list(family.samples[0][0]))
            for labels, value in family.samples:
                made.add_metric(list(labels.values()), value)
            yield made
