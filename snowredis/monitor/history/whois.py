"""Which process made an id: read the past of the server that has its worker id, and judge it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from snowredis.core.layout import Layout, Parts, check_id
from snowredis.errors import InvalidId, PoolNotFound, StoreUnavailable
from snowredis.monitor.history.duplicate_causes import DuplicateCause, duplicate_causes
from snowredis.monitor.history.events import read_events, read_stream_state
from snowredis.monitor.history.ownership import History, Holder, Past
from snowredis.monitor.history.verdict import Verdict, judge
from snowredis.monitor.pool_reader import list_pools, read_pool, read_worker, read_workers
from snowredis.monitor.snapshot import PoolInfo


@dataclass(frozen=True, slots=True)
class Whois:
    """Which process made an id, as far as it can be known.

    Attributes:
        id: the id.
        parts: its fields in the pool's layout; None if it is no id of that layout.
        holder: the process that made it, if it was made in this pool; None if that is unknown.
        certainty: certain: no other process of this pool can have made it. probable: the best reading of what is left
            of the history. unknown: it cannot be known.
        reason: why, for people; may hold untrusted text.
        candidates: under "unknown", the processes that may have made it.
        now_ms: on the Redis clock.
        duplicate_causes: how the id can stand in two places, if that was asked for.
    """

    id: int
    parts: Parts | None
    holder: Holder | None
    certainty: Literal["certain", "probable", "unknown"]
    reason: str
    candidates: tuple[Holder, ...] = ()
    now_ms: int = 0
    duplicate_causes: tuple[DuplicateCause, ...] | None = None


def find_makers(clients: Sequence[Any], info: PoolInfo, ids: Sequence[int]) -> list[Whois]:
    """Return who made each distinct id, in order; of an id that is given twice also how that can be.

    Args:
        clients: of all servers of the pool, in order.
        info: of the pool.

    Blocks:
        0.6 s for each server if the pool's stream is full; Redis is busy for 15 ms of it.

    Raises:
        PoolNotFound, StoreUnavailable; InvalidId: a number that no id can be.
    """
    index, count = info.share if len(clients) == 1 else (0, len(clients))
    histories: dict[int, History] = {}
    makers = []
    for an_id, times in Counter(ids).items():
        worker = check_id(an_id) >> info.layout.worker_shift & (info.layout.workers - 1)
        server = worker % len(clients)
        if server not in histories:
            only = worker // count if len(set(ids)) == 1 else None
            histories[server] = read_history(clients[server], info.name, only=only)
        history, share = histories[server], (index + server, count)
        datacenter = int(info.settings.get("datacenter", "0") or 0)
        maker = find_maker(history, an_id, info.layout, datacenter=datacenter, share=share)
        if times > 1:
            alike = _pools_alike(clients, info)
            causes = duplicate_causes(history, info, maker.parts, maker.certainty, alike)
            maker = replace(maker, duplicate_causes=tuple(causes))
        makers.append(maker)
    return makers


def read_history(client: Any, pool: str, *, only: int | None = None) -> History:
    """Read the past of *pool* on one server.

    Args:
        only: the one worker id that is needed, as the server numbers it: other records are not read.

    Blocks:
        about 25 ms for each 1,000 events.

    Raises:
        StoreUnavailable, PoolNotFound.
    """
    # in this order: an event that is not in the records yet is no contradiction, the other way round it is
    state, info = read_stream_state(client, pool), read_pool(client, pool)
    if only is None:
        records = read_workers(client, pool, alive_only=False)
    else:
        record = read_worker(client, pool, only)
        records = [] if record is None else [record]
    events = read_events(client, pool)
    by_worker = {record.worker: record for record in records}
    past = Past(info.ttl_ms, info.lead_ms, info.now_ms, info.created_ms, info.claims, state, by_worker)
    return History(events, past)


def find_maker(
    history: History, an_id: int, layout: Layout, *, datacenter: int = 0, share: tuple[int, int] = (0, 1)
) -> Whois:
    """Return who made *an_id*, if it was made in the pool of *history*. Does not block.

    Args:
        share: (index, count): of *count* independent servers this is number *index*.

    Raises:
        InvalidId: a number that no id can be.
    """
    try:
        parts = layout.decode(an_id)
    except InvalidId:
        check_id(an_id)
        reason = f"it has {an_id.bit_length()} bits, and the pool's layout {layout} only {layout.total_bits}"
        return Whois(
            an_id, None, None, "unknown", f"no id of this pool: {reason}", now_ms=history.past.now_ms
        )
    verdict = _judge_parts(history, parts, datacenter, share)

    def numbered(holder: Holder) -> Holder:
        return replace(holder, worker=parts.worker, server=share[0])

    return Whois(
        id=an_id,
        parts=parts,
        holder=numbered(verdict.holder) if verdict.holder else None,
        certainty=verdict.certainty,
        reason=verdict.reason,
        candidates=tuple(map(numbered, verdict.candidates)),
        now_ms=history.past.now_ms,
    )


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
            f"is server {index}: name all of them in --url, in the same order as the processes do"
        )
    return judge(history.of_lane(parts.worker // count, parts.backup), parts.timestamp_ms)


def _pools_alike(clients: Sequence[Any], info: PoolInfo) -> list[str]:
    """Return other pools of these servers that make the same ids."""
    alike = []
    for name in sorted({name for client in clients for name in list_pools(client)} - {info.name}):
        try:
            other = read_pool(clients[0], name)
        except (PoolNotFound, StoreUnavailable):
            # keys of another program may look like a pool
            continue
        alike += [name] if info.makes_same_ids_as(other) else []
    return alike
