"""What the service counts by itself, and /metrics, if prometheus-client is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from snowredis.web.answers import Problem


class Counts:
    """Of one process. Plain ints: the event loop is the only one that counts."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.answers: dict[str, int] = {}
        self.refusals: dict[int, int] = {}

    def made(self, pool: str, count: int) -> None:
        self.ids[pool] = self.ids.get(pool, 0) + count
        self.answers[pool] = self.answers.get(pool, 0) + 1

    def refused(self, status: int) -> None:
        self.refusals[status] = self.refusals.get(status, 0) + 1

    def collect(self) -> Any:
        """For prometheus-client: this is a collector."""
        from prometheus_client.core import CounterMetricFamily

        ids = CounterMetricFamily("snowredis_served_ids", "ids handed out over HTTP", labels=["pool"])
        answers = CounterMetricFamily("snowredis_served_answers", "answers with ids", labels=["pool"])
        refusals = CounterMetricFamily("snowredis_refused", "requests refused", labels=["status"])
        for family, found in ((ids, self.ids), (answers, self.answers), (refusals, self.refusals)):
            for label, number in list(found.items()):
                family.add_metric([str(label)], number)
            yield family


class Metrics:
    """What /metrics says: the service, the generators of this process, and the pools as Redis has them.

    Under PROMETHEUS_MULTIPROC_DIR the numbers are those of all processes, and the service's own counts, which are of
    one process, are left out.
    """

    def __init__(self, counts: Counts, pools: Mapping[str, Any]) -> None:
        self._registry: Any = None
        try:
            from prometheus_client import CollectorRegistry, multiprocess

            from snowredis.integrations import prometheus
        except ImportError:
            return
        prometheus.register()
        self._registry = CollectorRegistry(auto_describe=False)
        self._shared = bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))
        if self._shared:
            multiprocess.MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        else:
            self._registry.register(counts)
        for name, url in pools.items():
            self._registry.register(prometheus.PoolCollector(url, name))

    def text(self) -> tuple[str, bytes]:
        """Content type and text. Blocks for a few round trips to Redis. Raises Problem without prometheus-client."""
        if self._registry is None:
            raise Problem(
                501,
                "NotSupported",
                "prometheus-client is not installed: pip install 'snowredis[prometheus]' brings it",
            )
        import prometheus_client

        text: bytes = prometheus_client.generate_latest(self._registry)
        if not self._shared:
            text += prometheus_client.generate_latest(prometheus_client.REGISTRY)
        return "text/plain; version=0.0.4; charset=utf-8", text
