"""GET /metrics: request counts, the generators of this process, the pools. Needs prometheus-client."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable
from typing import Any

from snowredis.monitor.metric_values import Family
from snowredis.monitor.metrics import SERVICE
from snowredis.web.messages import Problem
from snowredis.web.served_pools import ServedPools


class RequestCounts:
    """Counts of one process, from 0. Plain ints: only the event loop changes them."""

    def __init__(self, pools: Iterable[str] = ()) -> None:
        names = list(pools)
        self.ids, self.responses = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        self.errors = dict.fromkeys(SERVICE[2].values, 0)

    def count_ids(self, pool: str, count: int) -> None:
        """Count a response with *count* ids."""
        self.ids[pool] = self.ids.get(pool, 0) + count
        self.responses[pool] = self.responses.get(pool, 0) + 1

    def count_error(self, status: int) -> None:
        """Count a response with an error status."""
        self.errors[str(status)] = self.errors.get(str(status), 0) + 1

    def families(self) -> list[Family]:
        """Return the counts as metrics."""
        counts = (self.ids, self.responses, self.errors)
        return [
            Family(metric, {(label,): number for label, number in numbers.items()})
            for metric, numbers in zip(SERVICE, counts, strict=True)
        ]


class MetricsEndpoint:
    """Text of /metrics.

    Under PROMETHEUS_MULTIPROC_DIR it sums up all processes and leaves out RequestCounts, which is of one process.
    """

    def __init__(self, counts: RequestCounts, pools: ServedPools) -> None:
        self._sources: list[Callable[[], Iterable[Any]]] = []
        try:
            from prometheus_client import REGISTRY, CollectorRegistry, multiprocess

            from snowredis.integrations import prometheus
        except ImportError:
            return

        def exported(source: Any) -> Iterable[Any]:
            return map(prometheus.as_prometheus, source.families())

        prometheus.register()
        of_pools = prometheus.PoolCollector(None, *pools.names, open_pool=pools.monitor).collect

        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            all_processes = CollectorRegistry()
            multiprocess.MultiProcessCollector(all_processes)  # type: ignore[no-untyped-call]
            self._sources = [all_processes.collect, of_pools]
        else:
            self._sources = [lambda: exported(counts), of_pools, REGISTRY.collect]

    media_type = "text/plain; version=0.0.4; charset=utf-8"

    def text(self) -> bytes:
        """Return the text. Blocks for a few round trips to Redis.

        Raises:
            Problem: prometheus-client is not installed.
        """
        if not self._sources:
            detail = "prometheus-client is not installed. Install it with: pip install 'snowredis[prometheus]'"
            raise Problem(501, "NotSupported", detail)
        from prometheus_client import generate_latest

        return generate_latest(self)

    def collect(self) -> Iterable[Any]:
        """Return the metrics of all sources, with one family of each name.

        The application around the service may have registered its own PoolCollector.
        """
        merged: dict[str, Any] = {}
        for source in self._sources:
            for metric in source():
                first = merged.setdefault(metric.name, copy.copy(metric))
                known = {_series(sample) for sample in first.samples}
                first.samples = first.samples + [sample for sample in metric.samples if _series(sample) not in known]
        return merged.values()


def _series(sample: Any) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())
