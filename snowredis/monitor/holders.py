"""Tenures, records and refusals as holders; times and spans in words. Pure."""

from __future__ import annotations

from snowredis.core.layout import utc_text
from snowredis.monitor.chains import FOREVER_MS, Ownership
from snowredis.monitor.events import Event
from snowredis.monitor.snapshot import WorkerInfo
from snowredis.monitor.whois import Holder


def holder_of(tenure: Ownership, lane: int) -> Holder:
    start, end, record = tenure.start, tenure.end, tenure.record
    return Holder(
        worker=start.worker,
        host=start.host,
        pid=start.pid,
        label=start.label,
        from_ms=start.at_ms if tenure.claimed else None,
        to_ms=end.at_ms if end else record.lease_end_ms if record and not record.alive else None,
        held=end is None and record is not None and record.alive,
        first_ms=tenure.first_ms(lane),
        until_ms=min(tenure.until_ms(lane), FOREVER_MS),
        server=start.server,
    )


def holder_of_record(record: WorkerInfo) -> Holder:
    return Holder(
        worker=record.worker,
        host=record.host,
        pid=record.pid,
        label=record.label,
        from_ms=record.claimed_ms,
        to_ms=None if record.alive else record.lease_end_ms,
        held=record.alive,
        first_ms=0,
        until_ms=record.reserved_until_ms,
    )


def holder_of_lost(lost: Event) -> Holder:
    return Holder(
        lost.worker, lost.host, lost.pid, lost.label, None, lost.at_ms, False, 0, lost.until_ms, lost.server
    )


def is_same(holder: Holder, tenure: Ownership) -> bool:
    start = tenure.start
    return (holder.host, holder.pid, holder.label) == (start.host, start.pid, start.label)


def time_text(time_ms: int) -> str:
    """A time in UTC, for people."""
    # events are untrusted
    return (utc_text(time_ms) if time_ms >= 0 else None) or f"{time_ms} ms"


def span(ms: int) -> str:
    """A length of time, for people."""
    return f"{ms} ms" if abs(ms) < 10_000 else f"{ms // 1000:,} s"
