"""Which process made an id: the last one in the pool's events whose reservation had begun at the tick of the id.

Reservations of one lane never overlap, and the next holder of a worker id begins where the one before stopped. So only
ticks decide. Missing events prove nothing: the stream is trimmed, or a server may have lost its newest events. What
cannot be known is unknown. Pure, but for what reads the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from snowredis.core.as_json import IdNumber, NowMs
from snowredis.core.layout import Parts
from snowredis.core.values import check_id, time_text
from snowredis.errors import InvalidId
from snowredis.monitor.events import Event, parse_all, read_entries
from snowredis.monitor.lease import Lease, State
from snowredis.monitor.pool import PoolInfo
from snowredis.monitor.pool_reader import PoolReader
from snowredis.snowflake.protocol.record import EventKind, FloorReason

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
