"""GET /metrics: request counts, the generators of this process, the pools. Needs prometheus-client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from snowredis.web.problems import Problem


class RequestCounts:
    """Counts of one process. Plain ints: only the event loop changes them."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.responses: dict[str, int] = {}
        self.refusals: dict[int, int] = {}

    def count_ids(self, pool: str, count: int) -> None:
        """Count a response with *count* ids."""
        self.ids[pool] = self.ids.get(pool, 0) + count
        self.responses[pool] = self.responses.get(pool, 0) + 1

    def count_refusal(self, status: int) -> None:
        """Count a response with an error status."""
        self.refusals[status] = self.refusals.get(status, 0) + 1

    def collect(self) -> Any:
        """Yield the metrics: this is a collector of prometheus-client."""
        from prometheus_client.core import CounterMetricFamily

        ids = CounterMetricFamily("snowredis_served_ids", "ids sent over HTTP", labels=["pool"])
        responses = CounterMetricFamily("snowredis_served_answers", "responses with ids", labels=["pool"])
        refusals = CounterMetricFamily("snowredis_refused", "requests refused", labels=["status"])
        for family, counts in ((ids, self.ids), (responses, self.responses), (refusals, self.refusals)):
            for label, number in list(counts.items()):
                family.add_metric([str(label)], number)
            yield family


class MetricsEndpoint:
    """Text of /metrics.

    Under PROMETHEUS_MULTIPROC_DIR it sums up all processes and leaves out RequestCounts, which is of one process.
    """

    def __init__(self, counts: RequestCounts, pools: Mapping[str, Any]) -> None:
        self._registry: Any = None
        try:
            from prometheus_client import CollectorRegistry, multiprocess

            from snowredis.integrations import prometheus
        except ImportError:
            return
        prometheus.register()
        self._registry = CollectorRegistry(auto_describe=False)
        self._multiprocess = bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))
        if self._multiprocess:
            multiprocess.MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        else:
            self._registry.register(counts)
        for name, url in pools.items():
            self._registry.register(prometheus.PoolCollector(url, name))

    def text(self) -> tuple[str, bytes]:
        """Return content type and text. Blocks for a few round trips to Redis.

        Raises:
            Problem: prometheus-client is not installed.
        """
        if self._registry is None:
            raise Problem(
                501,
                "NotSupported",
                "prometheus-client is not installed. Install it with: pip install 'snowredis[prometheus]'",
            )
        import prometheus_client

        text: bytes = prometheus_client.generate_latest(self._registry)
        if not self._multiprocess:
            text += prometheus_client.generate_latest(prometheus_client.REGISTRY)
        return "text/plain; version=0.0.4; charset=utf-8", text
