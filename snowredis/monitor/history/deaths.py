"""Deaths: processes that ended without releasing their worker id, from the events of a pool. Pure.

A process that was paused, or cut off from Redis, for longer than a ttl can return: its death is taken back then.
"""

from __future__ import annotations

from collections.abc import Iterable

from snowredis.lease.codes import EventKind
from snowredis.monitor.history.events import Event
from snowredis.monitor.snapshot import Death

# events without which deaths_in() would return another result
KINDS = frozenset({EventKind.EXPIRED, EventKind.RECLAIMED, EventKind.RETURNED})


def deaths_in(events: Iterable[Event], since_ms: int = 0) -> list[Death]:
    """Return the deaths after *since_ms*, the newest first, each once, without those that were taken back."""
    deaths: dict[tuple[int, int, int, EventKind], Death] = {}
    returned = set()
    for event in events:
        if event.kind == EventKind.RETURNED and event.ended_ms is not None:
            returned.add((event.server, event.worker, event.ended_ms, EventKind.EXPIRED))
        elif event.kind in KINDS and event.at_ms > since_ms:
            deaths[event.server, event.worker, event.at_ms, event.kind] = _death_of(event)
    left = [death for place, death in deaths.items() if place not in returned]
    return sorted(left, key=lambda death: (-death.at_ms, death.server, death.worker))


def _death_of(event: Event) -> Death:
    return Death(
        at_ms=event.at_ms,
        worker=event.worker,
        host=event.host,
        pid=event.pid,
        label=event.label,
        kind="reclaimed" if event.kind == EventKind.RECLAIMED else "expired",
        heartbeat_ms=event.heartbeat_ms,
        claimed_ms=event.claimed_ms,
        until_ms=event.until_ms,
        ids_made=event.stats.ids_made if event.stats else 0,
        server=event.server,
        key=event.key,
    )
