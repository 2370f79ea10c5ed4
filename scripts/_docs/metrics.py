"""The metrics, from their declaration."""

from __future__ import annotations

from collections.abc import Iterable

from scripts._docs.tables import table
from snowredis.monitor.metrics import POOL, PROCESS, SEGMENTS, SERVICE, Metric


def of_pools() -> str:
    """Return the table of the metrics of a pool."""
    return _table(POOL)


def of_processes() -> str:
    """Return the table of the metrics of a process."""
    return _table(PROCESS)


def of_segments() -> str:
    """Return the table of the metrics of segments."""
    return _table(SEGMENTS)


def of_the_service() -> str:
    """Return the table of the metrics of a process of the service."""
    return _table(SERVICE)


def _table(metrics: Iterable[Metric]) -> str:
    rows = ((f"`{metric.name}`", metric.kind, _text(metric)) for metric in metrics)
    return table(("metric", "type", "what"), rows)


def _text(metric: Metric) -> str:
    """Return what it measures, and its labels besides the pool."""
    *_, last = metric.labels
    values = ", ".join(f"`{value}`" for value in metric.values)
    return f"{metric.text}<br>{last}: {values}" if values else metric.text
