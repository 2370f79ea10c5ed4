"""Which process made an id, how certain that is, and why one id can be in two places.

The history of the pool is read from Redis first; all that judges it is pure. Missing events prove nothing: the stream
is trimmed, a server may have lost its newest events, and a person may have deleted some. What cannot be known is
reported as unknown, with the processes that are possible.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from snowredis.core.as_json import IdNumber, NowMs
from snowredis.core.layout import Layout, Parts
from snowredis.core.values import check_id, duration
from snowredis.errors import InvalidId, PoolNotFound, StoreUnavailable
from snowredis.monitor.events import parse_all, read_entries, read_gaps
from snowredis.monitor.holdings import ANEW, FOREVER_MS, Holder, Holding, HoldingHistory, LaneHistory, Loss, Past
from snowredis.monitor.pool_reader import RedisPoolReader, list_pools
from snowredis.monitor.snapshot import LayoutPeriod, PoolInfo, WorkerInfo, time_text
from snowredis.snowflake.record import EventKind, FloorReason
from snowredis.snowflake.replies import LossReason


@dataclass(frozen=True, slots=True)
class DuplicateCause:
    """One reason why an id can be in two places.

    Attributes:
        shown: true if the history shows it, false if it is only possible.
        text: what happened and where to look; may contain untrusted text.
    """

    shown: bool
    text: str


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


class Verdict(NamedTuple):
    """Which process had a worker id at a tick; the fields are those of Whois."""

    holder: Holder | None
    certainty: Literal["certain", "probable", "unknown"]
    reason: str
    candidates: tuple[Holder, ...] = ()

    @classmethod
    def unknown(cls, reason: str, candidates: Iterable[Holder] = ()) -> Verdict:
        """Return a verdict without a holder; *candidates* may contain a process twice."""
        return cls(None, "unknown", reason, tuple(dict.fromkeys(candidates)))


# --- the history ------------------------------------------------------------------------------------


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


# --- the verdict ------------------------------------------------------------------------------------


def judge(lane: LaneHistory, tick_ms: int) -> Verdict:
    """Return which process had the worker id when it made ids of *lane* with *tick_ms*, the start of a tick."""
    past = lane.history.past
    if tick_ms >= past.now_ms + past.ttl_ms + past.lead_ms:
        return Verdict.unknown(
            f"its time lies {duration(tick_ms - past.now_ms)} in the future of this Redis, further than any "
            "process may have reserved: it was made with another layout or in another pool, or the clock of Redis "
            "went back"
        )
    holdings = [
        (holding, holder)
        for holding, holder in lane.holdings
        if holder.first_ms <= tick_ms < holder.until_ms and not _ended_before_floor(lane, holding, tick_ms)
    ]
    if not holdings:
        return _judge_without_holder(lane, tick_ms)
    # more than one only if a claim is missing; the newest is the most reliable
    holding, holder = holdings[-1]
    if tick_ms < past.created_ms - past.lead_ms:
        return Verdict.unknown(
            f"its time lies before this pool was created, {time_text(past.created_ms)}: it was made in another pool, "
            "in an earlier pool of this name, or by a process whose clock was that far behind",
            [holder],
        )
    refusal = lane.refused_copy(holding, tick_ms)
    if refusal is not None:
        return Verdict.unknown(
            "two copies of this process had the same lease, as after a clone of a running machine: the other was "
            f"refused at {time_text(refusal.event.at_ms)}",
            [holder, refusal.holder],
        )
    return _judge_holding(lane, holding, holder, tick_ms)


def _ended_before_floor(lane: LaneHistory, holding: Holding, tick_ms: int) -> bool:
    """Return true if a holder whose end is unknown cannot have reached *tick_ms*, because of a floor before it."""
    # an outage lane is the holder's to its end, whatever Redis forgot
    if holding.end is not None or holding.record is not None or lane.lane == holding.outage_lane:
        return False
    newest = max(holding.event_index, holding.adopted_index)
    floors = (loss.event.from_ms for loss in lane.history.losses if loss.event_index > newest)
    return tick_ms >= next(floors, FOREVER_MS)


# --- one holder -------------------------------------------------------------------------------------


def _judge_holding(lane: LaneHistory, holding: Holding, holder: Holder, tick_ms: int) -> Verdict:
    """Return how certain it is that *holder* had the lane at *tick_ms*, which its range includes."""
    doubts = []
    for loss in lane.history.losses:
        doubt = _doubt(lane, loss, holding, holder, tick_ms)
        if isinstance(doubt, Verdict):
            return doubt
        doubts += [doubt] if doubt else []
    if lane.lane >= len(holding.lanes_ms):
        doubts.append(f"its claim is missing, and with it where namespace {lane.lane} of its lease began")
    if tick_ms >= holding.unseen_from_ms(lane.history.past.ttl_ms):
        doubts.append(
            "it ended while Redis was unavailable, and another process of its host may have had the lease before "
            f"{time_text(holder.until_ms)}"
        )
    if lane.history.has_holes:
        doubts.append("events of this pool were deleted by hand, or could not be written")
    if doubts:
        return Verdict(holder, "probable", "; ".join(doubts))
    reason = f"no other process may use namespace {lane.lane} of worker id {holder.worker} with times "
    reason += f"from {time_text(holder.first_ms)} " if holder.first_ms else ""
    reason += f"up to {time_text(holder.until_ms)}" if holder.until_ms < FOREVER_MS else "on"
    if holder.from_ms is not None and holder.from_ms - tick_ms > lane.history.past.lead_ms:
        behind = duration(holder.from_ms - tick_ms)
        reason += f"; its clock was at least {behind} behind when it made this id"
    return Verdict(holder, "certain", reason)


def _doubt(lane: LaneHistory, loss: Loss, holding: Holding, holder: Holder, tick_ms: int) -> Verdict | str:
    """Return the doubt about *holder* that a loss of events causes: "" for none, a Verdict if nothing is known then."""
    past = lane.history.past
    if holding.event_index > loss.event_index:
        return ""
    later = [refusal.holder for refusal in lane.refusals if refusal.event_index > loss.event_index]
    candidates = [holder]
    candidates += [each for each in later if each.until_ms > tick_ms and each.owner.name != holder.owner.name]
    if loss.rolled_back and holding.start.at_ms >= loss.event.at_ms - past.ttl_ms - past.lead_ms:
        if tick_ms < loss.event.from_ms:
            return Verdict.unknown(f"{_loss_text(loss)}, and may have leased this worker id twice", candidates)
        return ""
    if holding.adopted_index > loss.event_index:
        # R4 adopts a lease only if its process had it all the time
        return ""
    known_ms, end = loss.known_ms, holding.end
    if end is not None and holding.end_index < loss.event_index:
        next_is_known = holding.next is not None and holding.next.event_index < loss.event_index
        used_only = end.stats is not None and end.stats.namespace == lane.lane and not end.stats.clock_backs
        # a next holder whose claim is missing began where this one had stopped, on each lane
        if end.kind == EventKind.EXPIRED or next_is_known or used_only:
            return ""
        return f"{_loss_text(loss)}, and it is unknown how far namespace {lane.lane} was used before"
    if end is not None and end.kind == EventKind.EXPIRED:
        # its last renewal was not earlier than this
        known_ms = max(known_ms, end.until_ms - past.ttl_ms - past.lead_ms)
    if tick_ms >= known_ms - past.lead_ms:
        reason = f"{_loss_text(loss)}, among them who had worker id {lane.worker} last"
        return Verdict.unknown(reason, candidates)
    behind = duration(known_ms - tick_ms)
    return f"{_loss_text(loss)}; another process is possible only if its clock was over {behind} behind"


def _loss_text(loss: Loss) -> str:
    return f"Redis may have lost events before {time_text(loss.event.at_ms)} ({loss.event.text})"


# --- no holder --------------------------------------------------------------------------------------


def _judge_without_holder(lane: LaneHistory, tick_ms: int) -> Verdict:
    past, recorded = lane.history.past, lane.record_holder
    if recorded is not None and recorded.from_ms is not None and tick_ms < recorded.until_ms:
        gap = f" ({lane.history.gap})" if lane.history.gap else ""
        if tick_ms >= recorded.from_ms + past.lead_ms:
            return Verdict(recorded, "probable", f"it has the worker id now; its claim is missing{gap}")
        return Verdict.unknown(f"the claim of this worker id is missing{gap}", [recorded])
    holders = {holder.owner.name for _, holder in lane.holdings}
    refused = [refusal.holder for refusal in lane.refusals]
    candidates = [each for each in refused if each.until_ms > tick_ms and each.owner.name not in holders]
    return Verdict.unknown(_reason_without_holder(lane, tick_ms), candidates)


def _reason_without_holder(lane: LaneHistory, tick_ms: int) -> str:
    history, past, worker = lane.history, lane.history.past, lane.worker
    first_ms = min((holder.first_ms for _, holder in lane.holdings), default=FOREVER_MS)
    for loss in history.losses:
        if loss.affects(tick_ms, past.lead_ms):
            return f"{_loss_text(loss)}, among them who had worker id {worker}"
    if history.gap and tick_ms < first_ms:
        return f"{history.gap}; who had worker id {worker} at that time is no longer known"
    if not lane.holdings:
        return f"no process ever had worker id {worker} in this pool: it was made elsewhere"
    if tick_ms < max(first_ms, past.created_ms):
        return f"its time lies before worker id {worker} was first used in this pool"
    return (
        f"no process had worker id {worker} reserved at that time in namespace {lane.lane}: it was made in another "
        "pool, or Redis lost the event"
    )


# --- duplicates ------------------------------------------------------------------------------------


def duplicate_causes(
    history: HoldingHistory, info: PoolInfo, parts: Parts | None, certainty: str, alike: Sequence[str] = ()
) -> list[DuplicateCause]:
    """Return why one id can be in two places, causes that the history shows first.

    Args:
        parts: of the id; None if it is not an id of this pool.
        certainty: how certain it is which process made the id; see Whois.
        alike: other pools of this Redis that make the same ids.
    """
    if parts is None:
        text = "it is not an id of this pool: both were made elsewhere, or one was changed later"
        return [DuplicateCause(False, text)]
    found = _causes_in_history(history, parts.worker, parts.timestamp_ms)
    causes = sorted(found, key=lambda cause: not cause.shown)
    is_explained = certainty != "certain" or any(cause.shown for cause in causes)
    texts = _possible_causes(history, info, parts, alike, is_explained)
    return causes + [DuplicateCause(False, text) for text in texts]


def _causes_in_history(history: HoldingHistory, worker: int, tick_ms: int) -> Iterator[DuplicateCause]:
    """Yield the causes in what happened to *worker*, and to the whole pool."""
    past = history.past
    for refusal in history.refusals.get(worker, []):
        event = refusal.event
        if event.reason == LossReason.COPIED and refusal.may_have_reserved(tick_ms, past):
            yield DuplicateCause(
                True,
                f"a process was cloned with its lease (a VM resumed twice from one snapshot?): a copy of "
                f"{event.host}:{event.pid} was refused at {time_text(event.at_ms)}, and until then both made "
                "the same ids. Call suspend() before a snapshot and resume() after it",
            )
    for loss in history.losses:
        if loss.affects(tick_ms, past.lead_ms):
            yield _cause_of_loss(loss)


def _cause_of_loss(loss: Loss) -> DuplicateCause:
    floor, time = loss.event, time_text(loss.event.at_ms)
    if loss.rolled_back:
        text = f"the memory of Redis was rolled back, which was detected at {time} and raised an alarm"
        return DuplicateCause(True, text)
    if floor.reason == FloorReason.NO_POOL and floor.from_ms <= floor.at_ms:
        text = f"the pool was created as a new one at {time}, although ids had just been made in it"
        return DuplicateCause(True, f"{text}: those can have been repeated")
    text = f"Redis was restarted, wiped or failed over about {time} ({floor.text})"
    text += ". The floor covers that, unless two masters replied for longer than failover_slack"
    return DuplicateCause(False, text)


def _possible_causes(
    history: HoldingHistory, info: PoolInfo, parts: Parts, alike: Sequence[str], is_explained: bool
) -> Iterator[str]:
    older_ms = info.created_ms - parts.timestamp_ms
    if older_ms > history.past.lead_ms:
        age = duration(older_ms)
        yield f"it is {age} older than this pool: one is of an earlier pool of this name, one of another pool"
    if alike:
        yield (
            f"two pools fill one table: {', '.join(alike[:5])} in this Redis "
            f"{'has' if len(alike) == 1 else 'have'} the same layout and datacenter, and make the same ids"
        )
    first_step = "" if is_explained else ". The history shows no other cause, so look here first"
    yield (
        "it was made once and written twice: a copied row, a restored backup, an import, a message that was delivered "
        f"again, an id that was taken before a fork or kept in a global variable{first_step}"
    )
    yield "another Redis (staging, another site) has a pool with the same layout and datacenter"
