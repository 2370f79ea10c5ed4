"""The history of a pool: its events, and which process made an id. The stream is trimmed, so old events are missing.

A script writes the end of a lease when it runs: within a heartbeat, if another process of the pool lives. The protocol
does not depend on these events, and hosts and labels in them are untrusted text.

The maker of an id is the last process in the events whose reservation had begun at the tick of the id: reservations of
one lane never overlap, and the next holder of a worker id begins where the one before stopped. So only ticks decide.
Missing events prove nothing: the stream is trimmed, or a server may have lost its newest events. What cannot be known
is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from snowredis.core.as_json import IdNumber, NowMs, Shown, TimeMs
from snowredis.core.layout import Parts
from snowredis.core.values import check_id, time_text
from snowredis.errors import InvalidId
from snowredis.monitor.lease import Lease, Owner, State, encodable, parse_owner
from snowredis.monitor.pool import PoolInfo, stored_int
from snowredis.monitor.pool_reader import PoolReader
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


# --- who made an id ----------------------------------------------------------------------------------

# events that end a lease -> its state after them
_ENDS: dict[EventKind, State] = {EventKind.RELEASED: "released", EventKind.EXPIRED: "expired", EventKind.DIED: "died"}


@dataclass(frozen=True, slots=True)
class Whois:
    """Which process made an id, as far as it can be known.

    Attributes:
        id: the id.
        parts: its fields in the pool's layout; null if it is not an id of that layout.
        maker: the lease under which it was made, if it was made in this pool; null if unknown.
        certainty: certain: no other process of this pool can have made it. probable: the best explanation of the
            events that are left. unknown: it cannot be known.
        reason: why it is not certain; may contain untrusted text.
        now_ms: time of the lookup on the Redis clock.
    """

    id: IdNumber
    parts: Parts | None
    maker: Lease | None
    certainty: Literal["certain", "probable", "unknown"]
    reason: str
    now_ms: NowMs = 0


@dataclass(frozen=True, slots=True)
class History:
    """Memory of Redis about a pool. Times are ms since 1970.

    Attributes:
        info: the pool.
        events: the oldest first.
        records: the leases that the records show, by worker id, read before the events; others may be missing.
    """

    info: PoolInfo
    events: Sequence[Event]
    records: Mapping[int, Lease] = field(default_factory=dict)


def read_history(reader: PoolReader, info: PoolInfo, workers: Sequence[int]) -> History:
    """Read the history of the pool of *info*, with the records of *workers*.

    Blocks for about 25 ms for each 1,000 events. Raises StoreUnavailable.
    """
    # in this order: an event may be newer than the records, but no record may be newer than the events
    records = {worker: lease for worker in workers if (lease := reader.worker(worker)) is not None}
    events = parse_all(read_entries(reader.client, reader.name))
    return History(info, events, records)


def find_makers(reader: PoolReader, ids: Sequence[int]) -> list[Whois]:
    """Return which process made each distinct id, in order.

    Blocks:
        about 0.8 s if the stream is full.

    Raises:
        PoolNotFound, StoreUnavailable; InvalidId: not a valid id.
    """
    info, distinct = reader.info(), dict.fromkeys(map(check_id, ids))
    layout = info.layout
    workers = {an_id >> layout.worker_shift & (layout.workers - 1) for an_id in distinct}
    history = read_history(reader, info, sorted(workers))
    return [find_maker(history, an_id) for an_id in distinct]


def find_maker(history: History, an_id: int) -> Whois:
    """Return which process made *an_id*, if it was made in the pool of *history*. Does not block.

    Raises:
        InvalidId: not a valid id.
    """
    layout, datacenter, now_ms = history.info.layout, history.info.config.datacenter, history.info.now_ms
    try:
        parts = layout.decode(an_id)
    except InvalidId:
        check_id(an_id)
        bits = f"it has {an_id.bit_length()} bits, and the layout {layout} {layout.total_bits}"
        return Whois(an_id, None, None, "unknown", f"not an id of this pool: {bits}", now_ms)
    if parts.datacenter == datacenter:
        maker, certainty, reason = _judge(history, parts.worker, parts.backup, parts.timestamp_ms)
    else:
        maker, certainty = None, "unknown"
        reason = f"its datacenter bits are {parts.datacenter}, and this pool makes ids of datacenter {datacenter}"
    return Whois(an_id, parts, maker, certainty, reason, now_ms)


_NOBODY = "no process had this worker id at that time, as far as the events go"
_TAKEN = "its process ended while Redis was unavailable, and a sibling may have had the lease before the next one"
Verdict = tuple[Lease | None, Literal["certain", "probable", "unknown"], str]


def _judge(history: History, worker: int, lane: int, tick_ms: int) -> Verdict:
    """Return who had *lane* of *worker* at *tick_ms*, the start of a tick."""
    info, config = history.info, history.info.config
    if tick_ms < info.created_ms - config.max_clock_lead_ms:
        reason = f"Redis knows nothing of its time, and this pool since {time_text(info.created_ms)} only: it was made "
        return None, "unknown", f"{reason}before Redis lost the pool, or elsewhere"
    if tick_ms >= info.now_ms + config.ttl_ms + config.max_clock_lead_ms:
        return None, "unknown", "its time is in the future: it was made elsewhere"
    maker, end, doubt = _trace(history, worker, lane, tick_ms)
    # the highest lane is the outage lane, if there is one
    is_ordinary, now = lane < info.layout.namespaces - 1, history.records.get(worker)
    now_until_ms = 0 if now is None else now.until_ms if is_ordinary else max(now.until_ms, now.outage_until_ms)
    if now is not None and now.state != "released":
        is_other = maker is None or (0 < now.owner.taken_ms <= tick_ms and now.owner.process != maker.owner.process)
        if is_other and max(now.from_ms, now.owner.taken_ms) <= tick_ms < now_until_ms:
            return now, "probable", "it has the worker id now; its claim is not among the events"
    if maker is None:
        return None, "unknown", doubt or _NOBODY
    claimed_ms = maker.at_ms if maker.kind == EventKind.CLAIMED else 0
    lease = Lease(worker, "expired", maker.owner, claimed_ms, maker.renewed_ms or 0, maker.until_ms)
    until_ms = 10**15
    if end is not None:
        # the part that was used, of the lane in use at the end; it may have been another lane
        outage_ms = max(end.outage_until_ms, maker.outage_until_ms if end.kind == EventKind.EXPIRED else 0)
        until_ms = end.until_ms if is_ordinary else max(end.until_ms, outage_ms)
        lease = end.lease(_ENDS[end.kind])
    elif now is not None and now.owner.process == maker.owner.process:
        lease, until_ms = now, now_until_ms
    if tick_ms >= until_ms:
        return None, "unknown", doubt or _NOBODY
    if not _is_known(maker, lane):
        doubt = doubt or f"its claim is not among the events, and with it where namespace {lane} of its lease began"
    return lease, "probable" if doubt else "certain", doubt


def _trace(history: History, worker: int, lane: int, tick_ms: int) -> tuple[Event | None, Event | None, str]:
    """Return which event shows who has *lane* at *tick_ms*; how that lease ended; and why that is not certain."""
    ttl_ms = history.info.config.ttl_ms
    maker: Event | None = None
    end: Event | None = None
    doubt, is_rolled_back = "", False
    # claims since the pool was created, if that is among the events
    claims, is_whole = 0, False
    for index, event in enumerate(history.events):
        claims += event.kind == EventKind.CLAIMED
        if event.kind == EventKind.FLOOR:
            # what happened just before it may be missing; of what is before the first event, nothing is known at all
            if event.reason in (FloorReason.ENDED, FloorReason.NO_POOL):
                maker = end = None
                claims, is_whole = 0, event.reason == FloorReason.NO_POOL
            is_rolled_back = event.reason == FloorReason.ROLLED_BACK
            doubt = f"Redis may have lost events before {time_text(event.at_ms)}: {event.text}" if index else ""
        elif event.worker != worker:
            continue
        elif event.kind == EventKind.LOST:
            if event.until_ms > tick_ms:
                doubt = f"a process was refused on this worker id at {time_text(event.at_ms)}: {event.text}"
        elif (begins_ms := _begins_ms(event, maker, lane)) is not None:
            if begins_ms <= tick_ms:
                maker, end, doubt = event, None, "" if _is_known(event, lane) else doubt
            elif tick_ms >= event.owner.taken_ms - ttl_ms and event.owner.taken_ms:
                doubt = doubt or _TAKEN
        elif maker is not None and (event.from_ms == maker.from_ms or event.kind not in _ENDS):
            end = event if event.kind in _ENDS else None
            if event.kind == EventKind.ADOPTED and event.from_ms == maker.from_ms and not is_rolled_back:
                # step 4 adopts a lease only if its process had it all the time
                doubt = ""
    record = history.records.get(worker)
    if record is not None and tick_ms < record.owner.taken_ms <= tick_ms + ttl_ms:
        doubt = doubt or _TAKEN
    if maker is not None and is_whole and claims < history.info.claims:
        doubt = doubt or "claims of this pool are missing among its events"
    return maker, end, doubt


def _begins_ms(event: Event, maker: Event | None, lane: int) -> int | None:
    """Return where *lane* begins for the process of *event*; None if that is the lease of *maker*, the event before."""
    is_claim = event.kind == EventKind.CLAIMED
    if not is_claim and maker is not None and event.owner.process == maker.owner.process:
        return None
    lanes = event.lanes_ms if is_claim and event.lanes_ms else (event.from_ms,)
    return max(lanes[lane] if lane < len(lanes) else lanes[0], event.owner.taken_ms)


def _is_known(event: Event, lane: int) -> bool:
    """Return whether *event* says where *lane* begins: a claim does, and any other event for the first lane."""
    return event.kind == EventKind.CLAIMED or lane == 0
