"""Which process had a worker id at a tick, and how sure that is. Pure: no Redis, no clock.

Absent history is never trusted: the stream is trimmed, a server may have lost its newest events, and a person may
have deleted some. What cannot be known is reported as such, with the processes that it may have been.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from snowredis.lease.codes import EventKind, LossReason
from snowredis.monitor.history.events import Event
from snowredis.monitor.history.ownership import (
    FOREVER_MS,
    History,
    Holder,
    Loss,
    Ownership,
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


def judge(history: History, worker: int, tick_ms: int, lane: int = 0) -> Verdict:
    """Return which process had *worker* when its ids showed *tick_ms*.

    Args:
        worker: the worker id, as this server numbers it.
        tick_ms: the ms at which the tick begins.
        lane: the namespace, an id's backup bits.
    """
    past = history.past
    if tick_ms >= past.now_ms + past.ttl_ms + past.lead_ms:
        return Verdict.unknown(
            f"its time lies {duration_text(tick_ms - past.now_ms)} in the future of this Redis, further than any "
            "process may have reserved: it was made with another layout or in another pool, or the clock of Redis "
            "went back"
        )
    owners = [
        owner
        for owner in history.owners.get(worker, [])
        if owner.first_ms(lane) <= tick_ms < owner.until_ms(lane) and not _outlived(history, owner, tick_ms)
    ]
    if not owners:
        return _without_owner(history, worker, tick_ms, lane)
    # more than one only where a claim is forgotten; the newest is known best
    owner = owners[-1]
    if tick_ms < past.created_ms - past.lead_ms:
        return Verdict.unknown(
            f"its time lies before this pool was created, {time_text(past.created_ms)}: it was made in another pool, "
            "in an earlier pool of this name, or by a process whose clock was that far behind",
            [owner.holder()],
        )
    copy = _copy_of(history, owner, tick_ms)
    if copy is not None:
        return Verdict.unknown(
            "two copies of this process had this very lease, as after a clone of a running machine: the other was "
            f"refused at {time_text(copy.at_ms)}",
            [owner.holder(), Holder.of_refusal(copy)],
        )
    return _with_owner(history, owner, tick_ms, lane)


def _copy_of(history: History, owner: Ownership, tick_ms: int) -> Event | None:
    """Return the refusal of a copy of *owner*, which may have made ids of *tick_ms* with the same lease."""
    next_place = owner.next.place if owner.next else len(history.events)
    for place, refusal in history.refusals(owner.start.worker, tick_ms=tick_ms):
        if refusal.reason == LossReason.COPIED and owner.place < place < next_place:
            return refusal
        if _is_after_release(history, owner, place, refusal):
            return refusal
    return None


def _is_after_release(history: History, owner: Ownership, place: int, refusal: Event) -> bool:
    """Whether a copy of *owner* renewed a lease that the owner had released."""
    return (
        owner.end is not None
        and owner.end.kind == EventKind.RELEASED
        and place > owner.end_place
        and (refusal.host, refusal.pid, refusal.label) == owner.process
        and owner.lanes_ms[0] < refusal.until_ms <= owner.end.until_ms + history.past.ttl_ms
    )


def _outlived(history: History, owner: Ownership, tick_ms: int) -> bool:
    """Whether an owner whose end is not known cannot have reached *tick_ms*, since a floor lies before it."""
    if owner.end is not None or owner.record is not None:
        return False
    floors = (
        loss.event.from_ms
        for loss in history.losses
        if loss.place > owner.place and not owner.adopted_after(loss)
    )
    return tick_ms >= next(floors, FOREVER_MS)


# --- one owner -------------------------------------------------------------------------------------


def _with_owner(history: History, owner: Ownership, tick_ms: int, lane: int) -> Verdict:
    doubts = []
    for loss in history.losses:
        doubt = _doubt(history, loss, owner, tick_ms, lane)
        if isinstance(doubt, Verdict):
            return doubt
        doubts += [doubt] if doubt else []
    if not owner.knows(lane):
        doubts.append(f"its claim is forgotten, and with it where namespace {lane} of its lease began")
    if history.has_holes:
        doubts.append("events of this pool were deleted by hand, or could not be written")
    if doubts:
        return Verdict(owner.holder(lane), "probable", "; ".join(doubts))
    return Verdict(owner.holder(lane), "certain", _why_certain(history, owner, tick_ms, lane))


def _why_certain(history: History, owner: Ownership, tick_ms: int, lane: int) -> str:
    first_ms, until_ms = owner.first_ms(lane), owner.until_ms(lane)
    reason = f"nobody else may stamp namespace {lane} of worker id {owner.start.worker} with times "
    reason += f"from {time_text(first_ms)} " if first_ms else ""
    reason += f"up to {time_text(until_ms)}" if until_ms < FOREVER_MS else "on"
    behind_ms = owner.start.at_ms - tick_ms
    if owner.claimed and behind_ms > history.past.lead_ms:
        reason += f"; its clock was {duration_text(behind_ms)} behind at least when it made this id"
    return reason


def _doubt(history: History, loss: Loss, owner: Ownership, tick_ms: int, lane: int) -> Verdict | str:
    """Return what a loss of events after the start of an ownership leaves of it; empty if it does not matter."""
    past, worker = history.past, owner.start.worker
    if owner.place > loss.place:
        return ""
    what = _loss_text(loss)
    others = [Holder.of_refusal(refusal) for _, refusal in history.refusals(worker, after=loss.place)]
    candidates = [owner.holder()]
    candidates += [
        other
        for other in others
        if other.until_ms > tick_ms and (other.host, other.pid, other.label) != owner.process
    ]
    if loss.rolled_back and owner.start.at_ms >= loss.event.at_ms - past.ttl_ms - past.lead_ms:
        if tick_ms < loss.event.from_ms:
            return Verdict.unknown(f"{what}, and may have served this worker id twice", candidates)
        return ""
    if owner.adopted_after(loss):
        # it came back with its own lease, and R4 lets nobody come back who did not have it all the time
        return ""
    if owner.end is not None and owner.end_place < loss.place:
        return _doubt_after_end(loss, owner, owner.end, lane)
    known_ms = loss.known_ms
    if owner.end is not None and owner.end.kind == EventKind.EXPIRED:
        # its last renewal that is known was so late at least
        known_ms = max(known_ms, owner.end.until_ms - past.ttl_ms - past.lead_ms)
    if tick_ms >= known_ms - past.lead_ms:
        return Verdict.unknown(f"{what}, and with them who had worker id {worker} last", candidates)
    return f"{what}; it would have to be a process whose clock was over {duration_text(known_ms - tick_ms)} behind"


def _doubt_after_end(loss: Loss, owner: Ownership, end: Event, lane: int) -> str:
    """Return the same for an ownership that ended before: a forgotten next owner began where it had stopped."""
    next_is_known = owner.next is not None and owner.next.place < loss.place
    if end.kind == EventKind.EXPIRED or next_is_known:
        return ""
    used_only_lane = end.stats is not None and end.stats.namespace == lane and not end.stats.clock_backs
    if used_only_lane:
        return ""
    return f"{_loss_text(loss)}, and it is not known how far namespace {lane} was used before"


def _loss_text(loss: Loss) -> str:
    return f"Redis may have forgotten events before {time_text(loss.event.at_ms)} ({loss.event.text})"


# --- no owner --------------------------------------------------------------------------------------


def _without_owner(history: History, worker: int, tick_ms: int, lane: int) -> Verdict:
    past, owners = history.past, history.owners.get(worker, [])
    record = past.records.get(worker)
    unclaimed = record is not None and record.token_hash and (not owners or owners[-1].record is None)
    if record is not None and unclaimed and tick_ms < record.reserved_until_ms:
        holder, gap = Holder.of_record(record), f" ({history.gap})" if history.gap else ""
        if tick_ms >= record.claimed_ms + past.lead_ms:
            return Verdict(holder, "probable", f"it has the worker id now; its claim is forgotten{gap}")
        return Verdict.unknown(f"the claim of this worker id is forgotten{gap}", [holder])
    processes = {owner.process for owner in owners}
    candidates = [
        Holder.of_refusal(refusal)
        for _, refusal in history.refusals(worker)
        if refusal.until_ms > tick_ms and (refusal.host, refusal.pid, refusal.label) not in processes
    ]
    first_ms = min((owner.first_ms(lane) for owner in owners), default=FOREVER_MS)
    return Verdict.unknown(_why_nobody(history, worker, tick_ms, lane, first_ms), candidates)


def _why_nobody(history: History, worker: int, tick_ms: int, lane: int, first_ms: int) -> str:
    past = history.past
    for loss in history.losses:
        if loss.known_ms - past.lead_ms <= tick_ms < max(loss.event.from_ms, loss.event.at_ms):
            return f"{_loss_text(loss)}, and with them who had worker id {worker}"
    if history.gap and tick_ms < first_ms:
        return f"{history.gap}; who had worker id {worker} then is not known any more"
    if first_ms == FOREVER_MS:
        return f"nobody ever had worker id {worker} in this pool: it was made elsewhere"
    if tick_ms < max(first_ms, past.created_ms):
        return f"its time lies before worker id {worker} was ever used in this pool"
    return (
        f"nobody had worker id {worker} reserved at that time in namespace {lane}: it was made in another pool, or "
        "Redis has forgotten who"
    )
