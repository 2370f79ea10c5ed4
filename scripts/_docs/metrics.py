"""The metrics of pools and of processes, as a scrape returns them."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from scripts._docs.tables import table
from snowredis.connection import connect
from snowredis.integrations.prometheus import PoolCollector, ProcessMetrics
from snowredis.testing import memory_pool


def of_pools() -> str:
    """Return the table of the metrics of a pool."""
    pool = memory_pool()
    with pool.connect(pool="orders") as ids:
        ids.next_id()
        return _table(PoolCollector(pool, "orders").collect())


def of_processes() -> str:
    """Return the table of the metrics of a process."""
    metrics = ProcessMetrics()
    with connect(memory_pool(), pool="orders") as ids:
        ids.next_id()
        registry = CollectorRegistry()
        registry.register(metrics)
        return _table(registry.collect())


def _table(metrics: Iterable[Metric]) -> str:
    rows = []
    for metric in metrics:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = {label: None for sample in metric.samples for label in sample.labels}
        rows.append((f"`{name}`", metric.type, ", ".join(labels), metric.documentation))
    return table(("metric", "type", "labels", "what"), rows)
