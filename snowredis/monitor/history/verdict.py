"""Which process had a worker id at a tick, and how sure that is. Pure: no Redis, no clock.

Absent history is never trusted: the stream is trimmed, a server may have lost its newest events, and a person may
have deleted some. What cannot be known is reported as such, with the processes that it may have been.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from snowredis.lease.codes import EventKind, LossReason
from snowredis.monitor.history.ownership import (
    FOREVER_MS,
    Holder,
    LaneHistory,
    Loss,
    Ownership,
    Past,
    Refusal,
    duration_text,
    time_text,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which process had a worker id at a tick; the fields are those of Whois."""

    holder: Holder | None
    certainty: Literal["certain", "probable", "unknown"]
    reason: str
    candidates: tuple[Holder, ...] = ()

    @classmethod
    def unknown(cls, reason: str, candidates: Iterable[Holder] = ()) -> Verdict:
        return cls(None, "unknown", reason, tuple(dict.fromkeys(candidates)))


def judge(lane: LaneHistory, tick_ms: int) -> Verdict:
    """Return which process had a worker id when its ids of one lane showed *tick_ms*, the start of a tick."""
    past = lane.past
    if tick_ms >= past.now_ms + past.ttl_ms + past.lead_ms:
        return Verdict.unknown(
            f"its time lies {duration_text(tick_ms - past.now_ms)} in the future of this Redis, further than any "
            "process may have reserved: it was made with another layout or in another pool, or the clock of Redis "
            "went back"
        )
    owners = [
        (owner, holder)
        for owner, holder in lane.owners
        if holder.first_ms <= tick_ms < holder.until_ms and not _outlived(lane, owner, tick_ms)
    ]
    if not owners:
        return _without_owner(lane, tick_ms)
    # more than one only where a claim is forgotten; the newest is known best
    owner, holder = owners[-1]
    if tick_ms < past.created_ms - past.lead_ms:
        return Verdict.unknown(
            f"its time lies before this pool was created, {time_text(past.created_ms)}: it was made in another pool, "
            "in an earlier pool of this name, or by a process whose clock was that far behind",
            [holder],
        )
    copy = _copy_of(lane, owner, holder, tick_ms)
    if copy is not None:
        return Verdict.unknown(
            "two copies of this process had this very lease, as after a clone of a running machine: the other was "
            f"refused at {time_text(copy.event.at_ms)}",
            [holder, copy.holder],
        )
    return _with_owner(lane, owner, holder, tick_ms)


def reaches(refusal: Refusal, past: Past, tick_ms: int) -> bool:
    """Whether the last renewal of the refused lease may have reserved *tick_ms*."""
    until_ms = refusal.event.until_ms
    return until_ms - past.ttl_ms - past.lead_ms <= tick_ms < until_ms


def _copy_of(lane: LaneHistory, owner: Ownership, holder: Holder, tick_ms: int) -> Refusal | None:
    """Return the refusal of a copy of *owner*, which may have made ids of *tick_ms* with the same lease."""
    for refusal in lane.refusals:
        event, after = refusal.event, owner.next is not None and refusal.place > owner.next.place
        copied = event.reason == LossReason.COPIED and refusal.place > owner.place and not after
        # a process that released its lease renews it no more; a copy of it may
        released = (
            owner.end is not None
            and owner.end.kind == EventKind.RELEASED
            and refusal.place > owner.end_place
            and refusal.holder.process == holder.process
            and owner.lanes_ms[0] < event.until_ms <= owner.end.until_ms + lane.past.ttl_ms
        )
        if (copied or released) and reaches(refusal, lane.past, tick_ms):
            return refusal
    return None


def _outlived(lane: LaneHistory, owner: Ownership, tick_ms: int) -> bool:
    """Whether an owner whose end is not known cannot have reached *tick_ms*, since a floor lies before it."""
    if owner.end is not None or owner.record is not None:
        return False
    newest = max(owner.place, owner.adopted_place)
    floors = (loss.event.from_ms for loss in lane.losses if loss.place > newest)
    return tick_ms >= next(floors, FOREVER_MS)


# --- one owner -------------------------------------------------------------------------------------


def _with_owner(lane: LaneHistory, owner: Ownership, holder: Holder, tick_ms: int) -> Verdict:
    doubts = []
    for loss in lane.losses:
        doubt = _doubt(lane, loss, owner, holder, tick_ms)
        if isinstance(doubt, Verdict):
            return doubt
        doubts += [doubt] if doubt else []
    if lane.lane >= len(owner.lanes_ms):
        doubts.append(f"its claim is forgotten, and with it where namespace {lane.lane} of its lease began")
    if lane.has_holes:
        doubts.append("events of this pool were deleted by hand, or could not be written")
    if doubts:
        return Verdict(holder, "probable", "; ".join(doubts))
    reason = f"nobody else may stamp namespace {lane.lane} of worker id {holder.worker} with times "
    reason += f"from {time_text(holder.first_ms)} " if holder.first_ms else ""
    reason += f"up to {time_text(holder.until_ms)}" if holder.until_ms < FOREVER_MS else "on"
    if holder.from_ms is not None and holder.from_ms - tick_ms > lane.past.lead_ms:
        behind = duration_text(holder.from_ms - tick_ms)
        reason += f"; its clock was {behind} behind at least when it made this id"
    return Verdict(holder, "certain", reason)


def _doubt(lane: LaneHistory, loss: Loss, owner: Ownership, holder: Holder, tick_ms: int) -> Verdict | str:
    """Return what a loss of events after the start of an ownership leaves of it; empty if it does not matter."""
    past = lane.past
    if owner.place > loss.place:
        return ""
    what = _loss_text(loss)
    others = [refusal.holder for refusal in lane.refusals if refusal.place > loss.place]
    others = [other for other in others if other.until_ms > tick_ms and other.process != holder.process]
    if loss.rolled_back and owner.start.at_ms >= loss.event.at_ms - past.ttl_ms - past.lead_ms:
        if tick_ms < loss.event.from_ms:
            return Verdict.unknown(f"{what}, and may have served this worker id twice", [holder, *others])
        return ""
    if owner.adopted_place > loss.place:
        # it came back with its own lease, and R4 lets nobody come back who did not have it all the time
        return ""
    known_ms, end = loss.known_ms, owner.end
    if end is not None and owner.end_place < loss.place:
        next_is_known = owner.next is not None and owner.next.place < loss.place
        used_only = end.stats is not None and end.stats.namespace == lane.lane and not end.stats.clock_backs
        # a forgotten next owner began where this one had stopped, on each lane
        if end.kind == EventKind.EXPIRED or next_is_known or used_only:
            return ""
        return f"{what}, and it is not known how far namespace {lane.lane} was used before"
    if end is not None and end.kind == EventKind.EXPIRED:
        # its last renewal that is known was so late at least
        known_ms = max(known_ms, end.until_ms - past.ttl_ms - past.lead_ms)
    if tick_ms >= known_ms - past.lead_ms:
        reason = f"{what}, and with them who had worker id {lane.worker} last"
        return Verdict.unknown(reason, [holder, *others])
    return f"{what}; it would have to be a process whose clock was over {duration_text(known_ms - tick_ms)} behind"


def _loss_text(loss: Loss) -> str:
    return f"Redis may have forgotten events before {time_text(loss.event.at_ms)} ({loss.event.text})"


# --- no owner --------------------------------------------------------------------------------------


def _without_owner(lane: LaneHistory, tick_ms: int) -> Verdict:
    past, recorded = lane.past, lane.record_holder
    if recorded is not None and recorded.from_ms is not None and tick_ms < recorded.until_ms:
        gap = f" ({lane.gap})" if lane.gap else ""
        if tick_ms >= recorded.from_ms + past.lead_ms:
            return Verdict(recorded, "probable", f"it has the worker id now; its claim is forgotten{gap}")
        return Verdict.unknown(f"the claim of this worker id is forgotten{gap}", [recorded])
    processes = {holder.process for _, holder in lane.owners}
    candidates = [
        refusal.holder
        for refusal in lane.refusals
        if refusal.holder.until_ms > tick_ms and refusal.holder.process not in processes
    ]
    return Verdict.unknown(_why_nobody(lane, tick_ms), candidates)


def _why_nobody(lane: LaneHistory, tick_ms: int) -> str:
    past, worker = lane.past, lane.worker
    first_ms = min((holder.first_ms for _, holder in lane.owners), default=FOREVER_MS)
    for loss in lane.losses:
        if loss.known_ms - past.lead_ms <= tick_ms < max(loss.event.from_ms, loss.event.at_ms):
            return f"{_loss_text(loss)}, and with them who had worker id {worker}"
    if lane.gap and tick_ms < first_ms:
        return f"{lane.gap}; who had worker id {worker} then is not known any more"
    if not lane.owners:
        return f"nobody ever had worker id {worker} in this pool: it was made elsewhere"
    if tick_ms < max(first_ms, past.created_ms):
        return f"its time lies before worker id {worker} was ever used in this pool"
    return (
        f"nobody had worker id {worker} reserved at that time in namespace {lane.lane}: it was made in another pool, "
        "or Redis has forgotten who"
    )
