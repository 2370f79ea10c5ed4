"""Events of a pool: parse them, read them from its stream. The stream is trimmed, so old events are missing.

A script writes the end of a lease when it runs: within a heartbeat, if another process of the pool lives. Uses plain
commands. The protocol does not depend on these events, and hosts and labels in them are untrusted text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from snowredis.core.as_json import Shown, TimeMs
from snowredis.monitor.lease import Lease, Owner, State, encodable, parse_owner
from snowredis.monitor.pool import stored_int
from snowredis.servers.clients import address
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.snowflake.protocol.messages import NO_STATS, WorkerStats
from snowredis.snowflake.protocol.pool_config import pool_keys
from snowredis.snowflake.protocol.record import REASONS, EventKind, FloorReason, parse_stats

# events read in one command, which takes Redis about 1 ms
PAGE = 1_000
_LANES = re.compile(r"\d{1,15}(,\d{1,15}){0,63}", re.ASCII)
_KINDS = {kind.value: kind for kind in EventKind}
# id and fields of an entry of a stream
Entry: TypeAlias = tuple[bytes | str, dict[Any, Any]]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a pool. Times are ms since 1970.

    Attributes:
        at_ms: when it happened, on the Redis clock. Of an expiry, the end of the lease, which may be earlier than other
            events that were written before it.
        kind: what happened.
        worker: the worker id; -1 if the event concerns the whole pool.
        owner: the process that it concerns.
        from_ms, until_ms: the reservation of the lease's first lane [from, until). If it was released, or its process
            died, its used part; of a floor, the floor and 0; of a lost lease, 0 and the end of its reservation; of an
            alarm, the times between which ids may have been repeated.
        reason: a code of snowflake/protocol/record.py; empty for events without one. Untrusted text.
        text: what happened, or its reason, for people.
        lanes_ms: where the reservation of each lane begins, if the event is a claim; else empty.
        stats: at the end of a lease, or when its clock went back; else null.
        id: its id in the stream, such as "1763700000000-0".
        claimed_ms, renewed_ms: at the end of a lease, when the process had claimed it, and its last heartbeat.
        ended_ms: if a process returned, when its lease had ended.
        outage_until_ms: end of the reservation of the outage lane; of a release, of its used part. 0 if there is none.
    """

    at_ms: TimeMs
    kind: EventKind
    worker: Annotated[int, Shown(null=-1)]
    owner: Annotated[Owner, Shown("parts", "host pid label")]
    from_ms: TimeMs
    until_ms: TimeMs
    id: str
    reason: str = ""
    text: str = ""
    lanes_ms: Annotated[tuple[TimeMs, ...], Shown(name="lanes_from")] = ()
    stats: WorkerStats | None = None
    claimed_ms: TimeMs | None = None
    renewed_ms: Annotated[int | None, Shown("time", "heartbeat_at")] = None
    ended_ms: TimeMs | None = None
    outage_until_ms: TimeMs = 0

    @property
    def process(self) -> tuple[object, ...]:
        """Values that are equal in two events of the same process on the same worker id."""
        return self.worker, *self.owner.process

    def lease(self, state: State) -> Lease:
        """Return the lease that ended with this event."""
        times = self.claimed_ms or 0, self.renewed_ms or 0, self.at_ms, self.from_ms, self.until_ms
        return Lease(
            self.worker, state, self.owner, *times, *(self.stats or NO_STATS), outage_until_ms=self.outage_until_ms
        )


def parse_event(event_id: bytes | str, fields: dict[Any, Any]) -> Event | None:
    """Return the event in an entry of the stream; None if it is not valid."""
    values = {text_of(name): text_of(value) for name, value in fields.items()}
    numbers = {name: stored_int(text) for name, text in values.items()}
    at_ms, worker = numbers.get("at"), -1 if values.get("worker") == "-1" else numbers.get("worker")
    kind = _KINDS.get(values.get("event", ""))
    if kind is None or at_ms is None or worker is None:
        return None
    reason, from_ms = encodable(values.get("reason", "")), numbers.get("from") or 0
    # after a loss, workers wait
    is_new = (kind, reason) == (EventKind.FLOOR, FloorReason.NO_POOL) and from_ms <= at_ms
    lanes, stats = values.get("lanes", ""), values.get("stats")
    return Event(
        at_ms=at_ms,
        kind=kind,
        worker=worker,
        owner=parse_owner(values.get("owner", "")),
        from_ms=from_ms,
        until_ms=numbers.get("until") or 0,
        id=text_of(event_id),
        reason=reason,
        text="the pool was created as a new one" if is_new else reason_text(kind, reason),
        lanes_ms=tuple(map(int, lanes.split(","))) if _LANES.fullmatch(lanes) else (),
        stats=None if stats is None else parse_stats(stats),
        claimed_ms=numbers.get("claimed"),
        renewed_ms=numbers.get("renewed"),
        ended_ms=numbers.get("ended"),
        outage_until_ms=numbers.get("outage") or 0,
    )


# what events without a reason say
_SAID = {
    EventKind.EXPIRED: "its lease ended without a release",
    EventKind.DIED: "another process found it dead, and released its worker id",
    EventKind.RETURNED: "it renewed its lease, which had expired",
    EventKind.CLOCK_BACK: "its clock went back",
}


def reason_text(kind: EventKind, reason: str) -> str:
    """Return the text of an event of *kind*, or that of its *reason*; the code itself if that is unknown."""
    try:
        return REASONS[kind](reason).text
    except (KeyError, ValueError):
        return reason or _SAID.get(kind, "")


def read_entries(client: Any, name: str, *, newest: int | None = None, since: str | None = None) -> list[Entry]:
    """Return entries of the stream of a pool in Redis, the oldest first. Raises StoreUnavailable.

    Args:
        newest: at most this many, the newest ones; None: all.
        since: only events after this: the id of an event, or ms since 1970.
    """
    key = pool_keys(name)[2]
    low = "-" if since is None else f"({since}"
    entries: list[Entry] = []
    with translated(address(client)):
        if newest is not None:
            entries = list(client.xrevrange(key, "+", low, count=newest))[::-1] if newest > 0 else []
        else:
            while True:
                page = client.xrange(key, low, "+", count=PAGE)
                entries += page
                if len(page) < PAGE:
                    break
                low = f"({text_of(page[-1][0])}"
    return entries


def parse_all(entries: Iterable[Entry]) -> list[Event]:
    """Return the events in entries of the stream, without those that are not valid."""
    events = (parse_event(event_id, fields or {}) for event_id, fields in entries)
    return [event for event in events if event is not None]


def field_of(entry: Entry, name: str) -> str:
    """Return a field of *entry*, which parse_event() would take longer for; "" if there is none."""
    fields = entry[1] or {}
    return text_of(fields.get(name.encode()) or fields.get(name) or b"")
