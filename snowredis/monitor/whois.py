"""Which process made an id: read the history of its pool, and judge it."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from snowredis.core.as_json import IdNumber, NowMs
from snowredis.core.layout import Layout, Parts
from snowredis.core.values import check_id
from snowredis.errors import InvalidId, PoolNotFound, StoreUnavailable
from snowredis.monitor.events import parse_all, read_entries, read_gaps
from snowredis.monitor.holdings import ANEW, Holder, HoldingHistory, Past
from snowredis.monitor.pool_reader import RedisPoolReader, list_pools
from snowredis.monitor.snapshot import LayoutPeriod, PoolInfo, WorkerInfo
from snowredis.monitor.verdict import DuplicateCause, Verdict, duplicate_causes, judge
from snowredis.snowflake.codes import EventKind


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


def find_makers(client: Any, info: PoolInfo, ids: Sequence[int]) -> list[Whois]:
    """Return which process made each distinct id, in order; for an id that is given twice also the possible causes.

    Args:
        client: of the pool's server.
        info: of the pool.

    Blocks:
        about 0.8 s if the stream is full.

    Raises:
        PoolNotFound, StoreUnavailable; InvalidId: not a valid id.
    """
    datacenter = int(info.settings.get("datacenter", "0") or 0)
    periods = {an_id: info.layout_of(check_id(an_id)) for an_id in ids}
    workers = {an_id >> layout.worker_shift & (layout.workers - 1) for an_id, (layout, *_) in periods.items()}
    whole = read_history(RedisPoolReader(client, info.name), workers)
    makers = []
    for an_id, times in Counter(ids).items():
        period = periods[an_id]
        history = _in_period(whole, info, period) if len(info.layouts) > 1 else whole
        maker = find_maker(history, an_id, period.layout, datacenter=datacenter)
        if times > 1:
            causes = duplicate_causes(history, info, maker.parts, maker.certainty, _pools_alike(client, info))
            maker = replace(maker, duplicate_causes=tuple(causes))
        makers.append(maker)
    return makers


def _in_period(history: HoldingHistory, info: PoolInfo, period: LayoutPeriod) -> HoldingHistory:
    """Return the part of the *history* of one layout: worker ids mean another thing in the others."""
    changes = [
        index for index, event in enumerate(history.events) if event.kind == EventKind.FLOOR and event.reason in ANEW
    ]
    # old events are trimmed, so the parts are counted from the end; a planned layout has none before its first script
    parts = list(itertools.pairwise([0, *changes, len(history.events)]))
    present = len(info.layouts) - 1 - bool(info.changes_ms)
    back = present - info.layouts.index(period) if period in info.layouts else 0
    if back <= 0:
        start = parts[-1][0]
        return HoldingHistory(history.events[start:], history.past)
    first, last = parts[-1 - back] if back < len(parts) else (0, 0)
    return HoldingHistory(history.events[first:last], replace(history.past, records={}, claims=-1))


def read_history(reader: RedisPoolReader, workers: Iterable[int]) -> HoldingHistory:
    """Read the history of a pool, with the records of *workers*.

    Blocks for about 25 ms for each 1,000 events. Raises StoreUnavailable.
    """
    info, gaps = reader.stored(), read_gaps(reader.client, reader.name)
    # in this order: an event may be newer than the records, but no record may be newer than the events
    records = {worker: record for worker in workers if (record := reader.worker(worker)) is not None}
    past = Past(info.ttl_ms, info.lead_ms, info.now_ms, info.created_ms, info.claims, *gaps, records)
    return HoldingHistory(parse_all(read_entries(reader.client, reader.name)), past)


def find_maker(history: HoldingHistory, an_id: int, layout: Layout, *, datacenter: int = 0) -> Whois:
    """Return which process made *an_id*, if it was made in the pool of *history*. Does not block.

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
    if parts.datacenter == datacenter:
        verdict = judge(history.of_lane(parts.worker, parts.backup), parts.timestamp_ms)
    else:
        verdict = Verdict.unknown(
            f"its datacenter bits are {parts.datacenter}, and this pool makes ids of datacenter {datacenter}: it was "
            "made in another pool, or with another layout"
        )
    return Whois(an_id, parts, *verdict, now_ms=now_ms, worker_now=history.past.records.get(parts.worker))


def _pools_alike(client: Any, info: PoolInfo) -> list[str]:
    """Return other pools of this server that make the same ids."""
    alike = []
    for name in list_pools(client):
        # keys of another program may look like a pool
        with contextlib.suppress(PoolNotFound, StoreUnavailable):
            if name != info.name and info.makes_same_ids_as(RedisPoolReader(client, name).stored()):
                alike.append(name)
    return alike
