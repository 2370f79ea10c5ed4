"""Events of a pool: parse them, read them from its stream, follow it. The stream is trimmed, so old events are missing.

A script writes the end of a lease when it runs; until then, expiry_of() derives the same event from the record. Uses
plain commands. The protocol does not depend on these events, and hosts and labels in them are untrusted text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from snowredis.core.as_json import Shown, TimeMs, in_json
from snowredis.monitor.owner import Owned, OwnerNamed, encodable, parse_owner
from snowredis.monitor.snapshot import WorkerInfo, stored_int
from snowredis.servers.clients import address
from snowredis.servers.runner import translated
from snowredis.servers.scripts import text_of
from snowredis.snowflake.protocol import WorkerStats, lane_until_ms, pool_keys
from snowredis.snowflake.record import REASONS, EventKind, FloorReason, parse_stats

# events read in one command, which takes Redis about 1 ms
PAGE = 1_000
_LANES = re.compile(r"\d{1,15}(,\d{1,15}){0,63}", re.ASCII)
_KINDS = {kind.value: kind for kind in EventKind}
# comes before every id in a stream; as the id of a deleted entry: none was deleted
NO_ID = "0-0"
# id and fields of an entry of a stream
Entry: TypeAlias = tuple[bytes | str, dict[Any, Any]]


@dataclass(frozen=True, slots=True)
class Event(Owned):
    """One event of a pool. Times are ms since 1970.

    Attributes:
        at_ms: when it happened, on the Redis clock. Of an expiry, the end of the lease, which may be earlier than other
            events that were written before it.
        kind: what happened.
        worker: the worker id; -1 if the event concerns the whole pool.
        owner: the process that it concerns.
        from_ms, until_ms: the reservation of the lease's first lane [from, until). If it was released or reclaimed, its
            used part; of a floor, the floor and 0; of a lost lease, 0 and the end of its reservation; of an alarm, the
            times between which ids may have been repeated.
        reason: a code of snowflake/record.py; empty for events without one. Untrusted text.
        text: the reason for people; the code itself if it is unknown.
        lanes_ms: where the reservation of each lane begins, if the event is a claim; else empty.
        stats: of a release, a death or a clock-back; else None.
        id: its id in the stream, such as "1763700000000-0"; empty for an expiry that no script has written yet.
        claimed_ms, renewed_ms: of a release or a death, when the process had claimed the worker id, and its last
            heartbeat; else None.
        ended_ms: if a process returned, when its lease had ended; else None.
        outage_until_ms: end of the reservation of the outage lane; of a release, of its used part. 0 if there is none.
    """

    at_ms: TimeMs
    kind: EventKind
    worker: Annotated[int, Shown(null=-1)]
    owner: OwnerNamed
    from_ms: TimeMs
    until_ms: TimeMs
    id: Annotated[str, Shown(null="")]
    reason: str = ""
    text: str = ""
    lanes_ms: Annotated[tuple[TimeMs, ...], Shown(name="lanes_from")] = ()
    stats: WorkerStats | None = None
    claimed_ms: TimeMs | None = None
    renewed_ms: Annotated[int | None, Shown("time", "heartbeat_at")] = None
    ended_ms: TimeMs | None = None
    outage_until_ms: TimeMs = 0

    @property
    @in_json
    def key(self) -> str:
        """Identity of the event: of an expiry, the same before and after a script wrote it."""
        if self.kind == EventKind.EXPIRED:
            return f"{self.kind}-{self.worker}-{self.at_ms}"
        return self.id

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key: the time, then the place in the stream. Only of expiries it is not the order of the stream."""
        return (self.at_ms, -1, self.worker) if self.kind == EventKind.EXPIRED else (*_place(self.id), self.worker)


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


def expiry_of(ended: WorkerInfo) -> Event:
    """Return the event of a lease that ended without a release, before a script writes it."""
    return Event(
        at_ms=ended.lease_end_ms,
        kind=EventKind.EXPIRED,
        worker=ended.worker,
        owner=ended.owner,
        from_ms=ended.reserved_from_ms,
        until_ms=ended.reserved_until_ms,
        id="",
        stats=WorkerStats(*(getattr(ended, name) for name in WorkerStats._fields)),
        claimed_ms=ended.claimed_ms,
        renewed_ms=ended.renewed_ms,
        outage_until_ms=lane_until_ms(ended.reserved_until_ms, (ended.outage_from_ms, ended.outage_until_ms)),
    )


def reason_text(kind: EventKind, reason: str) -> str:
    """Return the text of a reason of *kind*; the code itself if it is unknown."""
    try:
        return REASONS[kind](reason).text
    except (KeyError, ValueError):
        return reason


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


def read_gaps(client: Any, name: str) -> tuple[bool | None, str]:
    """Return which events the stream does not hold any more. Raises StoreUnavailable.

    Returns:
        whether older entries were removed, None if unknown, with Redis 6.2; and the id of the newest entry that was
        deleted by hand, NO_ID if none was.
    """
    key = pool_keys(name)[2]
    with translated(address(client)):
        if not client.exists(key):
            return False, NO_ID
        stream = {text_of(k): v for k, v in client.xinfo_stream(key).items()}
    length, added = int(stream["length"]), stream.get("entries-added")
    trimmed = None if added is None else int(added) > length
    return trimmed, text_of(stream.get("max-deleted-entry-id", NO_ID))


def read_memory(pool: Any, name: str, *, newest: int | None = None, since: str | None = None) -> list[Entry]:
    """Return the entries of a pool of snowredis.testing as read_entries() does."""
    store = pool._stores.get(name)
    after = (0, -1) if since is None else _place(since)
    entries = [entry for entry in list(store._entries) if _place(entry[0]) > after] if store else []
    return entries if newest is None else entries[max(0, len(entries) - newest) :]


def _place(event_id: str) -> tuple[int, int]:
    """Return a key by which ids of events are compared; a time alone comes before the events of its ms."""
    time_ms, _, number = event_id.partition("-")
    return int(time_ms), int(number or -1)


class Follower:
    """Reads what happens in a pool from now on, or since a place in its stream. One caller at a time.

    Args:
        read: returns events of the stream, with *since* as read_entries() takes it.
        read_ended: returns the expiries that no script has written yet.
        after: a place in the stream: the id of an event, or ms since 1970.
        known: keys of expiries that the caller has seen before a script wrote them.
    """

    def __init__(
        self,
        read: Callable[..., list[Event]],
        read_ended: Callable[[], list[Event]],
        after: str,
        known: Iterable[str] = (),
    ) -> None:
        self._read, self._read_ended = read, read_ended
        # expiries that were returned, or that are older than *after*, until they are written, too
        self._known = set(known)
        self._last_id, self._after_ms = after, int(after.partition("-")[0])

    def read(self) -> list[Event]:
        """Return each event since the last call, also each expiry that no script has written yet, once.

        Blocks for a few round trips. Raises StoreUnavailable; the next call returns what this one would have.
        """
        written, ended = self._read(since=self._last_id), self._read_ended()
        found = [event for event in written if event.key not in self._known]
        self._known.difference_update(event.key for event in written)
        new = [each for each in ended if each.key not in self._known and each.at_ms > self._after_ms]
        self._known.update(event.key for event in new)
        if written:
            self._last_id = written[-1].id
        return found + new
