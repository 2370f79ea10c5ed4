"""GET /metrics: request counts, the generators of this process, the pools, the tags. Needs prometheus-client."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from typing import Any

from snowredis.monitor.metric_values import Family
from snowredis.monitor.metrics import SERVICE
from snowredis.web.messages import Problem


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

    Args:
        tags: has the metrics of the tags.

    Under PROMETHEUS_MULTIPROC_DIR it sums up all processes and leaves out RequestCounts, which is of one process.
    """

    def __init__(self, counts: RequestCounts, url: Any, pools: Sequence[str], tags: Any) -> None:
        self._registry: Any = None
        try:
            from prometheus_client import REGISTRY, CollectorRegistry, multiprocess

            from snowredis.integrations import prometheus
        except ImportError:
            return
        prometheus.register()
        pool_collector = prometheus.PoolCollector(url, *pools)
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            all_processes = CollectorRegistry()
            multiprocess.MultiProcessCollector(all_processes)  # type: ignore[no-untyped-call]
            self._registry = _Merged(all_processes, pool_collector, _Collector(tags))
        else:
            self._registry = _Merged(_Collector(counts), pool_collector, _Collector(tags), REGISTRY)

    media_type = "text/plain; version=0.0.4; charset=utf-8"

    def text(self) -> bytes:
        """Return the text. Blocks for a few round trips to Redis.

        Raises:
            Problem: prometheus-client is not installed.
        """
        if self._registry is None:
            detail = (
                "prometheus-client is not installed. Install it with: pip install 'snowredis[prometheus]'"
            )
            raise Problem(501, "NotSupported", detail)
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


class _Collector:
    """Collector of prometheus-client for *source*, which has families()."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def collect(self) -> Iterable[Any]:
        from snowredis.integrations.prometheus import as_prometheus

        return map(as_prometheus, self._source.families())


class _Merged:
    """Several collectors as one, with one family of each name.

    The application around the service may have registered its own PoolCollector.
    """

    def __init__(self, *sources: Any) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Any]:
        merged: dict[str, Any] = {}
        for source in self._sources:
            for metric in source.collect():
                first = merged.setdefault(metric.name, copy.copy(metric))
                known = {_series(sample) for sample in first.samples}
                first.samples = first.samples + [
                    sample for sample in metric.samples if _series(sample) not in known
                ]
        return merged.values()


def _series(sample: Any) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())
