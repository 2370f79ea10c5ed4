"""Prometheus metrics of the generators of this process, and of pools.

    from snowredis.integrations import prometheus
    prometheus.register()                                           # this process
    REGISTRY.register(prometheus.PoolCollector(url, "orders", "users"))   # the pools; one process is enough

Under gunicorn with PROMETHEUS_MULTIPROC_DIR every process writes its metrics to files every few seconds, so they
survive its end. Those of the last few seconds are lost if it is killed. A directory that cannot be used costs the
metrics, and a warning in the log: it disturbs no id, and no release of a worker id.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import starmap
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Exported
from prometheus_client.multiprocess import mark_process_dead

from snowredis.monitor.metrics import (
    POOL,
    PROCESS,
    SEGMENTS,
    Metric,
    ProcessTotals,
    Samples,
    by_metric,
    samples_of_pools,
)
from snowredis.monitor.pool_monitor import PoolMonitor
from snowredis.process.exit import EXIT
from snowredis.process.fork import GUARD, run_in_forked_children
from snowredis.process.log import log
from snowredis.settings import required_pool

# the directory of the files, of prometheus_client
VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# between two writes
EVERY_S = 5.0
# the value of a gauge that has none: it hides no other process' value, no reservation seems to end, and no value of a
# closed generator stays
_UNKNOWN = {"livemin": inf, "livesum": 0.0, "livemax": 0.0}
# pools that are read at once: if Redis hangs, each takes about a second, and a scrape has ten
_AT_ONCE = 16


class MetricFiles:
    """Writes the metrics of this process every *every_s* and at its end. Starts again in every forked child."""

    def __init__(self, every_s: float) -> None:
        self._totals = ProcessTotals(lambda: GUARD.members)
        self._every_s = every_s
        # the last warning, which is not repeated
        self._warning = ""
        self._metrics = {metric: _made(metric) for metric in (*PROCESS, *SEGMENTS)}
        run_in_forked_children(self._start)
        self._warn(directory_problem())
        self._start()

    def _start(self) -> None:
        # a forked child starts at 0, and the lock may be held by a thread of the parent
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._before: Samples = {}
        threading.Thread(target=self._run, name="snowredis-metrics", daemon=True).start()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self.update()

    def update(self) -> None:
        """Write the metrics, and remove the gauges of processes that were killed. Logs errors; never raises."""
        problem = directory_problem()
        if not problem:
            try:
                self._write_all()
            except Exception as error:  # noqa: BLE001 - whatever it is, ids go on
                problem = f"{type(error).__name__}: {error}"
        self._warn(problem)

    def _write_all(self) -> None:
        forget_dead_processes(Path(os.environ[VARIABLE]))
        with self._lock:
            samples = self._totals.samples()
            # pools, and tags
            names = {(metric.labels[0], labels[0]) for metric, labels in samples}
            gauges = [metric for metric in self._metrics if metric.merged in _UNKNOWN]
            unknown = {(one, (name,)): _UNKNOWN[one.merged] for one in gauges for of, name in names if of in one.labels}
            for (metric, labels), value in (unknown | samples).items():
                self._write(metric, labels, value)

    def _warn(self, problem: str) -> None:
        if problem and problem != self._warning:
            log.warning(
                "%s: %s. No metrics are written there until that is corrected; ids are made as before.",
                VARIABLE,
                problem,
            )
        self._warning = problem

    def _write(self, metric: Metric, labels: tuple[str, ...], value: Any) -> None:
        written = self._metrics[metric].labels(*labels)
        if metric.kind == "gauge":
            written.set(value)
        else:
            written.inc(max(0, value - self._before.get((metric, labels), 0)))
        self._before[metric, labels] = value

    def close(self) -> None:
        """Write the last metrics, at exit."""
        self.update()


def directory_problem() -> str:
    """Return why this process cannot write to PROMETHEUS_MULTIPROC_DIR; "" if it can."""
    path = os.environ.get(VARIABLE, "")
    if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK):
        return ""
    return f"{path!r} is no directory that this process can write to. Create it before the processes start"


def forget_dead_processes(directory: Path) -> None:
    """Remove the gauges of processes that no longer exist: a reservation of theirs would seem to end.

    child_exit of gunicorn is the usual place for it, if somebody has written that hook.
    """
    for path in directory.glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        try:
            if pid.isdecimal():
                os.kill(int(pid), 0)
        except ProcessLookupError:
            # another process may have done it first
            with contextlib.suppress(FileNotFoundError):
                mark_process_dead(int(pid), str(directory))  # type: ignore[no-untyped-call]
        except OSError:
            # it exists, and belongs to another user
            continue


def _made(metric: Metric) -> Any:
    if metric.kind == "gauge":
        mode: Any = metric.merged
        return Gauge(metric.name, metric.text, metric.labels, registry=None, multiprocess_mode=mode)
    return Counter(metric.name, metric.text, metric.labels, registry=None)


def as_prometheus(metric: Metric, values: Mapping[tuple[str, ...], Any] = MappingProxyType({})) -> Exported:
    """Return a metric with its values by labels as prometheus_client has it."""
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    converted = kind(metric.name, metric.text, labels=metric.labels)
    for labels, value in values.items():
        converted.add_metric(labels, value)
    return converted


class ProcessMetrics:
    """Collector for the generators of this process; see register()."""

    def __init__(self) -> None:
        self._totals = ProcessTotals(lambda: GUARD.members)

    def describe(self) -> Iterable[Exported]:
        """Return the metrics without samples, so that two collectors in one registry are refused."""
        return list(map(as_prometheus, (*PROCESS, *SEGMENTS)))

    def collect(self) -> Iterator[Exported]:
        return starmap(as_prometheus, by_metric(self._totals.samples()).items())


_registered: weakref.WeakKeyDictionary[CollectorRegistry, ProcessMetrics | MetricFiles] = weakref.WeakKeyDictionary()


def register(registry: CollectorRegistry = REGISTRY, *, every_s: float = EVERY_S) -> ProcessMetrics | MetricFiles:
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
        pools: their names, by default that of SNOWREDIS_POOL. A registry takes one PoolCollector, since all pools share
            the same metrics.
        open_pool: makes the PoolMonitor of a name, in place of one that is opened at *url*.

    If Redis is unavailable or has no such pool, ``snowredis_pool_up`` is 0, and a scrape may take two seconds.
    """

    def __init__(self, url: Any, *pools: str, open_pool: Callable[[str], PoolMonitor] | None = None) -> None:
        opened = open_pool or partial(PoolMonitor, url)
        self._watches = {name: opened(name) for name in pools or (required_pool(None, url),)}
        self._pid, self._lock = os.getpid(), threading.Lock()

    def describe(self) -> Iterable[Exported]:
        """Return the metrics without samples: registering does not read from Redis."""
        return list(map(as_prometheus, POOL))

    def collect(self) -> Iterator[Exported]:
        if self._pid != os.getpid():
            # a thread of the parent may have had the lock
            self._pid, self._lock = os.getpid(), threading.Lock()
        watches = self._watches
        with self._lock, ThreadPoolExecutor(min(_AT_ONCE, len(watches))) as executor:
            readings = dict(zip(watches, executor.map(PoolMonitor.read, watches.values()), strict=True))
        return starmap(as_prometheus, by_metric(samples_of_pools(readings)).items())
