"""Which process made an id: read the history of the server that leases its worker id, and judge it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from snowredis.core.as_json import IdNumber, NowMs
from snowredis.core.layout import Layout, Parts, check_id
from snowredis.errors import InvalidId, PoolNotFound, StoreUnavailable
from snowredis.monitor.events import (
    MOST_READ,
    StreamState,
    read_events,
    read_events_around,
    read_stream_state,
)
from snowredis.monitor.ownership import History, Holder, Past
from snowredis.monitor.pool_reader import RedisLook, list_pools, read_record
from snowredis.monitor.snapshot import LayoutPeriod, PoolInfo, WorkerInfo
from snowredis.monitor.verdict import DuplicateCause, Verdict, duplicate_causes, judge
from snowredis.snowflake.codes import EventKind, FloorReason


@dataclass(frozen=True, slots=True)
class Whois:
    """Which process made an id, as far as it can be known.

    Attributes:
        id: the id.
        parts: its fields in the pool's layout; None if it is not an id of that layout.
        holder: the process that made it, if it was made in this pool; None if unknown.
        certainty: certain: no other process of this pool can have made it. probable: the best explanation of the
            events that are left. unknown: it cannot be known.
        reason: why, for people; may contain untrusted text.
        candidates: if unknown, processes that may have made it.
        now_ms: time of the lookup on the Redis clock.
        worker_now: the process that has the worker id of the id now, or had it last; it may be another one.
        duplicate_causes: why the id can be in two places, if that was asked for.
    """

    id: IdNumber
    parts: Parts | None
    holder: Holder | None
    certainty: Literal["certain", "probable", "unknown"]
    reason: str
    candidates: tuple[Holder, ...] = ()
    now_ms: NowMs = 0
    worker_now: WorkerInfo | None = None
    duplicate_causes: tuple[DuplicateCause, ...] | None = None


def find_makers(clients: Sequence[Any], info: PoolInfo, ids: Sequence[int]) -> list[Whois]:
    """Return which process made each distinct id, in order; for an id that is given twice also the possible causes.

    Args:
        clients: of all servers of the pool, in order.
        info: of the pool.

    Blocks:
        at most 1 s for each server, and for each id if the stream was made longer than 22,000 events.

    Raises:
        PoolNotFound, StoreUnavailable; InvalidId: not a valid id.
    """
    index, count = info.share if len(clients) == 1 else (0, len(clients))
    states = [read_stream_state(client, info.name) for client in clients]
    datacenter = int(info.settings.get("datacenter", "0") or 0)
    histories: dict[tuple[int, int], History] = {}
    makers = []
    for an_id, times in Counter(ids).items():
        period = info.layout_of(check_id(an_id))
        layout = period.layout
        worker = an_id >> layout.worker_shift & (layout.workers - 1)
        server, local = worker % len(clients), worker // count
        # a long stream is read around the time of each id; layouts are counted from its end, so several need all of it
        is_long = states[server].length > MOST_READ and len(info.layouts) <= 1
        at_ms = layout.ms_at(an_id >> layout.timestamp_shift) if is_long else None
        place = (server, an_id if is_long else -1)
        if place not in histories:
            known = info if len(clients) == 1 else RedisLook(clients[server], info.name).stored()
            workers = [local] if is_long or len(set(ids)) == 1 else None
            histories[place] = read_history(
                clients[server], known, states[server], workers=workers, at_ms=at_ms
            )
        history, share = histories[place], (index + server, count)
        if len(info.layouts) > 1:
            history = _in_period(history, info, period)
        maker = find_maker(history, an_id, layout, datacenter=datacenter, share=share)
        if times > 1:
            alike = _pools_alike(clients, info)
            causes = duplicate_causes(history, info, maker.parts, maker.certainty, alike)
            maker = replace(maker, duplicate_causes=tuple(causes))
        makers.append(maker)
    return makers


def _in_period(history: History, info: PoolInfo, period: LayoutPeriod) -> History:
    """Return the part of the *history* of one layout: worker ids mean another thing in the others."""
    changes = [
        place
        for place, event in enumerate(history.events)
        if event.kind == EventKind.FLOOR and event.reason == FloorReason.LAYOUT_CHANGED
    ]
    # old events are trimmed, so the parts are counted from the end; a planned layout has none yet
    parts = list(itertools.pairwise([0, *changes, len(history.events)]))
    present = len(info.layouts) - 1 - (info.changes_ms > info.now_ms)
    back = present - info.layouts.index(period) if period in info.layouts else 0
    if back <= 0:
        start = parts[-1][0]
        return History(history.events[start:], history.past)
    first, last = parts[-1 - back] if back < len(parts) else (0, 0)
    return History(history.events[first:last], replace(history.past, records={}, claims=-1))


def read_history(
    client: Any,
    info: PoolInfo,
    state: StreamState,
    *,
    workers: Sequence[int] | None = None,
    at_ms: int | None = None,
) -> History:
    """Read the history of a pool on one server.

    Args:
        info, state: of the pool on this server, read before.
        workers: read only the records of these worker ids, as the server numbers them; None: all records.
        at_ms: read only the events around this time that concern the only one of *workers*; None: all events.

    Blocks:
        about 25 ms for each 1,000 events; of a stream with more than MOST_READ for these at most.

    Raises:
        PoolNotFound, StoreUnavailable.
    """
    # in this order: an event may be newer than the records, but no record may be newer than the events
    if workers is None:
        records = RedisLook(client, info.name).workers(alive_only=False)
    else:
        found = [read_record(client, info, worker) for worker in workers]
        records = [record for record in found if record is not None]
    by_worker = {record.worker: record for record in records}
    past = Past(info.ttl_ms, info.lead_ms, info.now_ms, info.created_ms, info.claims, state, by_worker)
    if at_ms is None or not workers:
        return History(read_events(client, info.name), past)
    events, is_complete = read_events_around(client, info.name, workers[0], at_ms)
    unread = (
        "" if is_complete else f"only those of {state.length:,} events were read that are around its time"
    )
    return History(events, replace(past, claims=-1, unread=unread))


def find_maker(
    history: History, an_id: int, layout: Layout, *, datacenter: int = 0, share: tuple[int, int] = (0, 1)
) -> Whois:
    """Return which process made *an_id*, if it was made in the pool of *history*. Does not block.

    Args:
        share: (index, count): the server of *history* is number *index* of *count* independent ones.

    Raises:
        InvalidId: not a valid id.
    """
    now_ms = history.past.now_ms
    try:
        parts = layout.decode(an_id)
    except InvalidId:
        check_id(an_id)
        bits = f"it has {an_id.bit_length()} bits, and the pool's layout {layout} only {layout.total_bits}"
        return Whois(an_id, None, *Verdict.unknown(f"not an id of this pool: {bits}"), now_ms=now_ms)
    verdict = _judge_parts(history, parts, datacenter, share)

    def numbered(holder: Holder) -> Holder:
        """Return *holder* with the worker id that the id contains, in place of the server's own number."""
        return replace(holder, worker=parts.worker, server=share[0])

    holder = numbered(verdict.holder) if verdict.holder else None
    candidates = tuple(map(numbered, verdict.candidates))
    record = history.past.records.get(parts.worker // share[1])
    worker_now = replace(record, worker=parts.worker) if record else None
    return Whois(an_id, parts, holder, verdict.certainty, verdict.reason, candidates, now_ms, worker_now)


def _judge_parts(history: History, parts: Parts, datacenter: int, share: tuple[int, int]) -> Verdict:
    index, count = share
    if parts.datacenter != datacenter:
        return Verdict.unknown(
            f"its datacenter bits are {parts.datacenter}, and this pool makes ids of datacenter {datacenter}: it was "
            "made in another pool, or with another layout"
        )
    if parts.worker % count != index:
        return Verdict.unknown(
            f"worker id {parts.worker} belongs to server {parts.worker % count} of {count} independent ones, and this "
            f"is server {index}: list all of them in --url, in the order that the processes use"
        )
    return judge(history.of_lane(parts.worker // count, parts.backup), parts.timestamp_ms)


def _pools_alike(clients: Sequence[Any], info: PoolInfo) -> list[str]:
    """Return other pools of these servers that make the same ids."""
    alike = []
    for name in sorted({name for client in clients for name in list_pools(client)} - {info.name}):
        try:
            other = RedisLook(clients[0], name).stored()
        except (PoolNotFound, StoreUnavailable):
            # keys of another program may look like a pool
            continue
        alike += [name] if info.makes_same_ids_as(other) else []
    return alike
