"""Owners of each worker id, one after the other, as a pool's events show them. Pure: no Redis, no clock.

Reservations of one lane never overlap, and the next owner of a worker id starts where the one before stopped. So an
ownership of a lane is a half-open range of time, decided by ticks alone: a claim may begin with ticks that lie behind
or ahead of the time of the claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from snowredis.core.layout import utc_text
from snowredis.lease.codes import EventKind, FloorReason
from snowredis.monitor.history.events import NO_ID, Event, StreamState
from snowredis.monitor.snapshot import WorkerInfo

FOREVER_MS = 10**15


@dataclass(frozen=True, slots=True)
class Past:
    """State of a pool that is needed to judge its events. Times are ms since 1970.

    Attributes:
        ttl_ms, lead_ms: the pool's ttl and max_clock_lead.
        now_ms: on the Redis clock.
        created_ms: when the pool was created; 0 if unknown.
        claims: how often a worker id was claimed since; -1 if unknown.
        state: how much of the stream is left.
        records: the pool's present records by worker id, read before the events.
    """

    ttl_ms: int = 30_000
    lead_ms: int = 2_500
    now_ms: int = FOREVER_MS
    created_ms: int = 0
    claims: int = -1
    state: StreamState = field(default_factory=StreamState)
    records: Mapping[int, WorkerInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that had a worker id. Times are ms since 1970.

    Attributes:
        worker, host, pid, label: the worker id, and what the process says of itself; untrusted text.
        from_ms: when it claimed the worker id, on the Redis clock; None if that is not known any more.
        to_ms: when it released it, or when its lease was found to have ended; None if it still has it, or if that is
            not known (see held).
        held: whether it has it now.
        first_ms, until_ms: the ticks that only it may have stamped in the id's lane: [first, until).
        server: of several independent servers, which.
    """

    worker: int
    host: str
    pid: int
    label: str
    from_ms: int | None
    to_ms: int | None
    held: bool
    first_ms: int
    until_ms: int
    server: int = 0

    @classmethod
    def of_record(cls, record: WorkerInfo) -> Holder:
        """Return the process that a present record names."""
        return cls(
            worker=record.worker,
            host=record.host,
            pid=record.pid,
            label=record.label,
            from_ms=record.claimed_ms,
            to_ms=None if record.alive else record.lease_end_ms,
            held=record.alive,
            first_ms=0,
            until_ms=record.reserved_until_ms,
        )

    @classmethod
    def of_refusal(cls, refusal: Event) -> Holder:
        """Return the process whose renewal was refused: an event of kind "lost"."""
        return cls(
            worker=refusal.worker,
            host=refusal.host,
            pid=refusal.pid,
            label=refusal.label,
            from_ms=None,
            to_ms=refusal.at_ms,
            held=False,
            first_ms=0,
            until_ms=refusal.until_ms,
            server=refusal.server,
        )

    @property
    def process(self) -> tuple[str, int, str]:
        return self.host, self.pid, self.label


@dataclass(slots=True)
class Ownership:
    """Ownership of a worker id by one process.

    Attributes:
        start: the event that names it first; a claim, unless that is forgotten.
        place: of that event among all events.
        lanes_ms: where its lanes begin; only the first lane, if the claim is forgotten.
        end, end_place: its release or expiry.
        adopted_place: of the newest event that took it up again after a loss; -1 if there is none.
        claimed_ms: times that a record may show for its claim: an adoption sets it anew.
        record: the present record of the worker id, if it is still this owner's.
        next: the owner after it.
    """

    start: Event
    place: int
    lanes_ms: tuple[int, ...]
    end: Event | None = None
    end_place: int = -1
    adopted_place: int = -1
    claimed_ms: list[int] = field(default_factory=list)
    record: WorkerInfo | None = None
    next: Ownership | None = None

    def has(self, event: Event) -> bool:
        """Whether *event* is one of this lease."""
        start = self.start
        lease = (start.host, start.pid, start.label, self.lanes_ms[0])
        return lease == (event.host, event.pid, event.label, event.from_ms)

    def first_ms(self, lane: int) -> int:
        """Return where its ticks on *lane* begin; where the first lane's do, if that is not known."""
        return self.lanes_ms[lane] if lane < len(self.lanes_ms) else self.lanes_ms[0]

    def holder(self, lane: int) -> Holder:
        """Return the owner, with its range of ticks on *lane*."""
        start, end, record = self.start, self.end, self.record
        bounds = [FOREVER_MS]
        if end is not None:
            bounds.append(end.until_ms)
        elif record is not None:
            bounds.append(record.reserved_until_ms)
        if self.next is not None:
            bounds.append(self.next.first_ms(lane))
        return Holder(
            worker=start.worker,
            host=start.host,
            pid=start.pid,
            label=start.label,
            from_ms=start.at_ms if start.kind == EventKind.CLAIMED else None,
            to_ms=end.at_ms if end else record.lease_end_ms if record and not record.alive else None,
            held=end is None and record is not None and record.alive,
            first_ms=self.first_ms(lane),
            until_ms=min(bounds),
            server=start.server,
        )


class Refusal(NamedTuple):
    """A refused renewal.

    Attributes:
        place: of the event among all events.
        event: of kind "lost".
        holder: the process that was refused.
    """

    place: int
    event: Event
    holder: Holder


@dataclass(frozen=True, slots=True)
class Loss:
    """A moment at which Redis may have forgotten the newest events before it.

    Attributes:
        place: of the floor event.
        event: the floor event.
        known_ms: events up to this time on the Redis clock are all there.
    """

    place: int
    event: Event
    known_ms: int

    @property
    def rolled_back(self) -> bool:
        return self.event.reason == FloorReason.ROLLED_BACK


@dataclass(frozen=True, slots=True)
class LaneHistory:
    """All that is known of one lane.

    Attributes:
        worker, lane: which; the worker id as its server numbers it.
        past: state of the pool.
        owners: with their ranges of ticks on this lane, the oldest first.
        refusals: of the worker id, the oldest first.
        record_holder: the process that the present record names, if it is not known to be one of the owners.
        losses, gap, has_holes: as in History.
    """

    worker: int
    lane: int
    past: Past
    owners: list[tuple[Ownership, Holder]]
    refusals: list[Refusal]
    record_holder: Holder | None
    losses: list[Loss]
    gap: str
    has_holes: bool


class History:
    """Owners of every worker id of one server, and the losses in between.

    Attributes:
        owners: by worker id, as this server numbers it; the oldest first.
        refusals: of renewals, by worker id; the oldest first.
        losses: the oldest first.
        gap: why the first event is not the beginning of the pool; empty if it is.

    Args:
        events: of one server, the oldest first.
        past: state of the pool.
    """

    def __init__(self, events: Sequence[Event], past: Past | None = None) -> None:
        self.events, self.past = events, past or Past()
        self.owners: dict[int, list[Ownership]] = {}
        self.refusals: dict[int, list[Refusal]] = {}
        self.losses: list[Loss] = []
        # the event with which the present pool begins, and the claims since
        self._birth_place, self._claims = -1, 0
        for place, event in enumerate(events):
            self._add(place, event)
        for worker, owners in self.owners.items():
            record = self.past.records.get(worker)
            if record is not None and record.claimed_ms in owners[-1].claimed_ms:
                owners[-1].record = record
        self.gap = self._gap()

    @property
    def has_holes(self) -> bool:
        """Whether events were deleted from the middle."""
        if self.past.state.deleted_id != NO_ID:
            return True
        return self._birth_place >= 0 and 0 <= self._claims < self.past.claims

    def of_lane(self, worker: int, lane: int = 0) -> LaneHistory:
        """Return all that is known of *lane* of *worker*, as this server numbers it."""
        owners, record = self.owners.get(worker, []), self.past.records.get(worker)
        if record is not None and (not record.token_hash or (owners and owners[-1].record is not None)):
            record = None
        return LaneHistory(
            worker=worker,
            lane=lane,
            past=self.past,
            owners=[(owner, owner.holder(lane)) for owner in owners],
            refusals=self.refusals.get(worker, []),
            record_holder=Holder.of_record(record) if record is not None else None,
            losses=self.losses,
            gap=self.gap,
            has_holes=self.has_holes,
        )

    def _gap(self) -> str:
        if not self.events:
            return "this pool has no events"
        first = self.events[0]
        born = first.kind == EventKind.FLOOR and first.reason == FloorReason.NO_POOL
        if self.past.state.trimmed or not born:
            return f"older events were trimmed: the oldest that is left is of {time_text(first.at_ms)}"
        return ""

    def _add(self, place: int, event: Event) -> None:
        if event.kind == EventKind.FLOOR:
            self._add_floor(place, event)
        elif event.kind == EventKind.LOST:
            refusal = Refusal(place, event, Holder.of_refusal(event))
            self.refusals.setdefault(event.worker, []).append(refusal)
        elif event.worker >= 0:
            self._add_to_owner(place, event)

    def _add_floor(self, place: int, event: Event) -> None:
        if event.reason == FloorReason.NO_POOL:
            self._birth_place, self._claims = place, 0
        if place == 0:
            # nothing before it is known at all; see gap
            return
        # a copy that was put in the place of a newer one may have served others for a while before it was noticed
        rolled_back = event.reason == FloorReason.ROLLED_BACK
        limit_ms = event.at_ms - self.past.ttl_ms if rolled_back else FOREVER_MS
        known_ms = next((e.at_ms for e in reversed(self.events[:place]) if e.at_ms < limit_ms), 0)
        self.losses.append(Loss(place, event, known_ms))

    def _add_to_owner(self, place: int, event: Event) -> None:
        owners = self.owners.setdefault(event.worker, [])
        claimed = event.kind == EventKind.CLAIMED
        self._claims += claimed
        if claimed or not owners or owners[-1].end is not None or not owners[-1].has(event):
            # of a claim that is forgotten, only the first lane is known
            owner = Ownership(
                event, place, event.lanes_ms if claimed and event.lanes_ms else (event.from_ms,)
            )
            owner.claimed_ms.append(event.at_ms)
            if owners:
                owners[-1].next = owner
            owners.append(owner)
        if event.kind in (EventKind.RELEASED, EventKind.EXPIRED):
            owners[-1].end, owners[-1].end_place = event, place
        elif event.kind == EventKind.ADOPTED:
            owners[-1].adopted_place = place
            owners[-1].claimed_ms.append(event.at_ms)


def time_text(time_ms: int) -> str:
    """Return a time in UTC, for people."""
    # events are untrusted
    return (utc_text(time_ms) if time_ms >= 0 else None) or f"{time_ms} ms"


def duration_text(ms: int) -> str:
    """Return a length of time, for people."""
    return f"{ms} ms" if abs(ms) < 10_000 else f"{ms // 1000:,} s"
