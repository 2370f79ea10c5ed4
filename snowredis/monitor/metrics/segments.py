"""Metrics of the segment generators of this process, by tag: totals that only grow, also when generators are closed.

Imports nothing of the segments, which are a layer of their own: it reads public attributes of generators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snowredis.monitor.metrics.catalog import SEGMENTS
from snowredis.monitor.metrics.process import Readings, TotalsTracker

# counter -> attribute of SegmentCounts
_COUNTS = {
    "snowredis_segment_fetches_total": "segments",
    "snowredis_segment_prefetch_hits_total": "prefetch_hits",
    "snowredis_segment_waits_total": "waits",
    "snowredis_segment_failures_total": "failures",
    "snowredis_segment_alarms_total": "alarms",
    "snowredis_segment_dropped_total": "dropped",
}


class SegmentTotals(TotalsTracker):
    """Sum the metrics of all segment generators of this process. See TotalsTracker."""

    metrics = SEGMENTS
    start: Mapping[str, float] = {}

    def read(self, member: Any) -> tuple[str, Readings] | None:
        """Return the tag of *member* and its metrics; None if it is no segment generator."""
        status = getattr(member, "status", None)
        if status is None or not hasattr(status, "used_up_in_s"):
            return None
        totals = {(name, ""): getattr(status.counts, attribute) for name, attribute in _COUNTS.items()}
        totals["snowredis_segment_numbers_total", ""] = status.made
        gauges = {
            "snowredis_segment_left": status.left,
            "snowredis_segment_step": status.step,
            "snowredis_segment_tag_rate": status.tag_rate,
            "snowredis_segment_used_up_seconds": status.used_up_in_s,
        }
        known = {} if member.closed else {name: value for name, value in gauges.items() if value is not None}
        return status.tag, Readings(totals, known)
