"""Convert what the monitor shows to values for JSON. Pure.

Times are ISO 8601 in UTC, in fields that end in ``at``, ``from`` or ``until``; durations are in ms, in fields that end
in ``_ms``. Fields without a meaning for a kind of event are left out; what is unknown is null. Hashes of tokens are
left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from snowredis.core.layout import utc_text
from snowredis.core.presets import layout_spec
from snowredis.monitor.events import Event
from snowredis.monitor.ownership import Holder
from snowredis.monitor.polling import UsagePoint
from snowredis.monitor.snapshot import POOL_COUNTERS, Death, PoolInfo, Snapshot, WorkerInfo
from snowredis.monitor.status import Status
from snowredis.monitor.whois import Whois
from snowredis.snowflake.codes import EventKind
from snowredis.snowflake.protocol import WorkerStats

# the end of the range of an owner that has no end yet
_FOREVER_MS = 10**15


def time_as_json(time_ms: int | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None if it is unknown, or past the year 9999."""
    return None if time_ms is None or time_ms < 0 else utc_text(time_ms)


def worker_as_json(worker: WorkerInfo) -> dict[str, Any]:
    """Return a worker; ``reserved_until`` is on the clock of its host."""
    return {
        "worker": worker.worker,
        "state": worker.state,
        "alive": worker.alive,
        "host": worker.host,
        "pid": worker.pid,
        "label": worker.label,
        "claimed_at": time_as_json(worker.claimed_ms),
        "heartbeat_at": time_as_json(worker.renewed_ms),
        "heartbeat_age_ms": worker.heartbeat_age_ms,
        "lease_ends_at": time_as_json(worker.lease_end_ms),
        "lease_left_ms": worker.lease_left_ms,
        "reserved_until": time_as_json(worker.reserved_until_ms),
        "ids_made": worker.ids_made,
        "ids_per_second": worker.ids_per_second,
        "clock_offset_ms": worker.clock_offset_ms,
        "namespace": worker.namespace,
        "clock_backs": worker.clock_backs,
    }


def death_as_json(death: Death) -> dict[str, Any]:
    """Return a death; ``key`` identifies it."""
    return {
        "key": death.key,
        "at": time_as_json(death.at_ms),
        "kind": death.kind,
        "worker": death.worker,
        "host": death.host,
        "pid": death.pid,
        "label": death.label,
        "heartbeat_at": time_as_json(death.heartbeat_ms),
        "claimed_at": time_as_json(death.claimed_ms),
        "reserved_until": time_as_json(death.until_ms),
        "ids_made": death.ids_made,
        "server": death.server,
    }


def pool_as_json(info: PoolInfo) -> dict[str, Any]:
    """Return a pool with its layout as a spec and its settings by name."""
    alarm = {
        "text": info.alarm,
        "from": time_as_json(info.alarm_from_ms or None),
        "until": time_as_json(info.alarm_until_ms or None),
    }
    return {
        "name": info.name,
        "layout": layout_spec(info.layout),
        "settings": {name: text for name, text in info.settings.items() if name != "layout"},
        "at": time_as_json(info.now_ms),
        "created_at": time_as_json(info.created_ms or None),
        "layout_ends_at": time_as_json(info.layout_end_ms),
        "floor_at": time_as_json(info.floor_ms or None),
        "floor_wait_ms": max(0, info.floor_ms - info.now_ms),
        "floor_reason": info.floor_reason,
        "incarnation": info.incarnation,
        "version": info.version,
        "capacity": info.capacity,
        "used": info.used,
        "free": info.free,
        "peak": info.peak,
        **{name: getattr(info, name) for name in POOL_COUNTERS},
        "deaths": info.deaths,
        "alarm": alarm if info.alarms else None,
    }


def status_as_json(status: Status) -> dict[str, Any]:
    """Return a verdict; the times in its texts are in UTC."""
    return {
        "level": status.level,
        "headline": status.headline,
        "at": time_as_json(status.now_ms),
        "stale_since": time_as_json(status.stale_since_ms),
        "conditions": [
            {
                "code": condition.code,
                "level": condition.level,
                "text": condition.text,
                "advice": condition.advice,
                "since": time_as_json(condition.since_ms),
                "until": time_as_json(condition.until_ms),
                "count": condition.count,
            }
            for condition in status.conditions
        ],
    }


def snapshot_as_json(snapshot: Snapshot, status: Status) -> dict[str, Any]:
    """Return the pool, its status, its workers, and the deaths of the last hour."""
    return {
        "pool": pool_as_json(snapshot.info),
        "status": status_as_json(status),
        "workers": [worker_as_json(worker) for worker in snapshot.workers],
        "unknown": [worker_as_json(worker) for worker in snapshot.unknown],
        "deaths": [death_as_json(death) for death in snapshot.deaths],
    }


def point_as_json(point: UsagePoint) -> dict[str, Any]:
    """Return a point of the use of a pool; null: nothing could be read."""
    return {"at": time_as_json(point.at_ms)} | {
        name: getattr(point, name) for name in ("living", "ids_per_second", "deaths")
    }


def event_as_json(event: Event) -> dict[str, Any]:
    """Return an event with the fields that its kind has; ``key`` identifies it, ``id`` is null until it is written."""
    fields: dict[str, Any] = {
        "key": event.key,
        "id": event.id or None,
        "at": time_as_json(event.at_ms),
        "kind": str(event.kind),
        "server": event.server,
    }
    if event.worker >= 0:
        fields |= {"worker": event.worker, "host": event.host, "pid": event.pid, "label": event.label}
    return fields | _EVENT_FIELDS[event.kind](event)


def _reserved(event: Event) -> dict[str, Any]:
    # 0: as early as its clock went
    return {
        "reserved_from": time_as_json(event.from_ms or None),
        "reserved_until": time_as_json(event.until_ms),
    }


def _used(event: Event) -> dict[str, Any]:
    return {"used_from": time_as_json(event.from_ms or None), "used_until": time_as_json(event.until_ms)}


def _stats(event: Event) -> dict[str, Any]:
    stats = event.stats or WorkerStats()
    return {
        "ids_made": stats.ids_made,
        "ids_per_second": stats.ids_per_s,
        "clock_offset_ms": stats.clock_offset_ms,
        "namespace": stats.namespace,
        "clock_backs": stats.clock_backs,
    }


def _life(event: Event) -> dict[str, Any]:
    return {"claimed_at": time_as_json(event.claimed_ms), "heartbeat_at": time_as_json(event.heartbeat_ms)}


def _reason(event: Event) -> dict[str, Any]:
    return {"reason": event.reason, "text": event.text}


_EVENT_FIELDS: dict[EventKind, Callable[[Event], dict[str, Any]]] = {
    EventKind.CLAIMED: lambda it: (
        _reserved(it) | {"lanes_from": [time_as_json(ms or None) for ms in it.lanes_ms]}
    ),
    EventKind.RELEASED: lambda it: _used(it) | _life(it) | _stats(it),
    EventKind.RECLAIMED: lambda it: _used(it) | _life(it) | _stats(it),
    EventKind.EXPIRED: lambda it: _reserved(it) | _life(it) | _stats(it),
    EventKind.RETURNED: lambda it: _reserved(it) | {"ended_at": time_as_json(it.ended_ms)},
    EventKind.CLOCK_BACK: lambda it: _reserved(it) | _stats(it),
    EventKind.ADOPTED: lambda it: _reserved(it) | _reason(it),
    EventKind.LOST: lambda it: {"reserved_until": time_as_json(it.until_ms)} | _reason(it),
    EventKind.FLOOR: lambda it: {"floor_at": time_as_json(it.from_ms or None)} | _reason(it),
    EventKind.ALARM: lambda it: (
        {"from": time_as_json(it.from_ms), "until": time_as_json(it.until_ms)} | _reason(it)
    ),
}


def holder_as_json(holder: Holder) -> dict[str, Any]:
    """Return a process that had a worker id, and the times of the ids that only it can have made."""
    until_ms = holder.until_ms if holder.until_ms < _FOREVER_MS else None
    return {
        "worker": holder.worker,
        "host": holder.host,
        "pid": holder.pid,
        "label": holder.label,
        "claimed_at": time_as_json(holder.from_ms),
        "ended_at": time_as_json(holder.to_ms),
        "held": holder.held,
        "ids_from": time_as_json(holder.first_ms or None),
        "ids_until": time_as_json(until_ms),
        "server": holder.server,
    }


def whois_as_json(whois: Whois) -> dict[str, Any]:
    """Return which process made an id; the id is text, since it may have more digits than JavaScript numbers."""
    parts = None
    if whois.parts is not None:
        fields = ("tick", "datacenter", "backup", "worker", "sequence")
        parts = {"at": time_as_json(whois.parts.timestamp_ms)} | {
            name: getattr(whois.parts, name) for name in fields
        }
    causes = whois.duplicate_causes
    return {
        "id": str(whois.id),
        "parts": parts,
        "holder": holder_as_json(whois.holder) if whois.holder else None,
        "certainty": whois.certainty,
        "reason": whois.reason,
        "candidates": [holder_as_json(holder) for holder in whois.candidates],
        "at": time_as_json(whois.now_ms),
        "duplicate_causes": None if causes is None else [asdict(cause) for cause in causes],
    }
