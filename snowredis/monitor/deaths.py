"""Deaths: processes that ended without releasing their worker id, and which of them somebody has seen already.

A process that was paused, or cut off from Redis, for longer than a ttl can return. Its death is taken back then: it
renewed its lease after all, its renewal was refused, or it claimed another worker id.

An acknowledgement says that a person has seen the deaths up to a time. It is stored in Redis, so that all viewers show
the same. It ends by itself when these deaths are too old to be shown.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from snowredis.core.as_json import TimeMs
from snowredis.errors import StoreRefused
from snowredis.monitor.events import Event
from snowredis.monitor.snapshot import DEATH_SHOWN_MS, Death
from snowredis.servers.clients import address
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.snowflake.codes import EventKind
from snowredis.snowflake.protocol import pool_keys

# events without which deaths_in() would return another result
KINDS = frozenset({EventKind.EXPIRED, EventKind.RECLAIMED, EventKind.RETURNED, EventKind.LOST})
# letters of a name that are kept
_MAX_NAME = 100


def deaths_in(events: Iterable[Event], since_ms: int = 0, claims: Iterable[tuple[int, str]] = ()) -> list[Death]:
    """Return the deaths after *since_ms*, the newest first, each once, without those that were taken back.

    Args:
        events: of the KINDS.
        claims: time and generator of each claim: the process of a generator that claims is alive.
    """
    claimed_ms = {generator: at_ms for at_ms, generator in sorted(claims) if generator}
    deaths: dict[tuple[int, int, int, EventKind], Event] = {}
    returned: set[tuple[int, int, int, EventKind]] = set()
    lost: dict[tuple[object, ...], int] = {}
    for event in events:
        if event.kind == EventKind.RETURNED and event.ended_ms is not None:
            returned.add((event.server, event.worker, event.ended_ms, EventKind.EXPIRED))
        elif event.kind == EventKind.LOST:
            lost[_process(event)] = max(event.at_ms, lost.get(_process(event), 0))
        elif event.kind in KINDS and event.at_ms > since_ms:
            deaths[event.server, event.worker, event.at_ms, event.kind] = event
    left = [
        _death_of(event)
        for place, event in deaths.items()
        if place not in returned
        and max(lost.get(_process(event), -1), claimed_ms.get(event.generator, -1)) < event.at_ms
    ]
    return sorted(left, key=lambda death: (-death.at_ms, death.server, death.worker))


def lanes_until_ms(events: Iterable[Event], since_ms: int) -> int:
    """Return the end of the last outage lane of the processes that lost their leases since *since_ms*; 0: no lane."""
    lost = (event for event in events if event.kind == EventKind.LOST and event.at_ms >= since_ms)
    return max((event.lane_until_ms for event in lost), default=0)


def _process(event: Event) -> tuple[object, ...]:
    """Return what is equal in two events of the same process on the same worker id."""
    return event.server, event.worker, event.host, event.pid, event.label


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


class RecentEvents:
    """Events of the KINDS of one server, of the last hour, for a reader that comes again. Thread-safe.

    Only what is new is read from Redis.

    Args:
        read: returns all events of one server since an id or a time, the oldest first.
    """

    def __init__(self, read: Callable[..., list[Event]]) -> None:
        self._read = read
        self._events: list[Event] = []
        # only times and generators: there may be thousands
        self._claims: list[tuple[int, str]] = []
        self._last_id = ""
        self._pid, self._lock = os.getpid(), threading.Lock()

    def read(self, now_ms: int) -> tuple[list[Event], list[tuple[int, str]]]:
        """Return the events up to now in the order of the stream, and time and generator of each claim.

        Blocks:
            for a round trip; the first call for all events that are kept.

        Raises:
            StoreUnavailable.
        """
        first_ms = max(0, now_ms - DEATH_SHOWN_MS)
        if self._pid != os.getpid():
            # forked: the thread that holds the lock may not exist here
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            if self._last_id and int(self._last_id.partition("-")[0]) > now_ms + DEATH_SHOWN_MS:
                # another stream, of a server whose clock is far behind
                self._events, self._claims, self._last_id = [], [], ""
            new = self._read(since=self._last_id or str(first_ms))
            if new:
                self._last_id = new[-1].id
            self._events += [event for event in new if event.kind in KINDS]
            self._events = [event for event in self._events if event.order[0] >= first_ms]
            self._claims += [(event.at_ms, event.generator) for event in new if event.kind == EventKind.CLAIMED]
            self._claims = [claim for claim in self._claims if claim[0] >= first_ms]
            return list(self._events), list(self._claims)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Statement of a person who has seen the deaths of a pool. Times are ms since 1970 on the Redis clock.

    Attributes:
        until_ms: all deaths up to this time have been seen.
        at_ms: when the person said so.
        by: who said so, as the person gave it; untrusted text, may be empty.
    """

    until_ms: TimeMs
    at_ms: TimeMs
    by: str = ""


def acknowledged(deaths: Iterable[Death], seen: Acknowledgement | None) -> tuple[Death, ...]:
    """Return *deaths* with those marked that *seen* covers."""
    until_ms = seen.until_ms if seen else -1
    return tuple(replace(death, acknowledged=death.at_ms <= until_ms) for death in deaths)


def read_acknowledgement(client: Any, name: str) -> Acknowledgement | None:
    """Return the acknowledgement of the pool *name*; None if there is none, no valid one, or no right to read it.

    Blocks for a round trip. Raises StoreUnavailable.
    """
    try:
        with translated(address(client)):
            stored = text_of(client.get(_key(name)) or b"")
    except StoreRefused:
        return None
    try:
        fields = json.loads(stored)
        return Acknowledgement(int(fields["until"]), int(fields["at"]), str(fields["by"])[:_MAX_NAME])
    except (ValueError, TypeError, KeyError):
        return None


def write_acknowledgement(client: Any, name: str, seen: Acknowledgement) -> None:
    """Store *seen* for the pool *name*, for as long as its deaths are shown.

    Blocks for a round trip. Raises StoreUnavailable.
    """
    fields = {"until": seen.until_ms, "at": seen.at_ms, "by": seen.by[:_MAX_NAME]}
    with translated(address(client)):
        client.set(_key(name), json.dumps(fields), px=DEATH_SHOWN_MS)


def _key(name: str) -> str:
    return f"{pool_keys(name)[0]}:acknowledged"
