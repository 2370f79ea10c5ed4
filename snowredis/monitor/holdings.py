"""Holdings of worker ids, reconstructed from a pool's events. Pure: no Redis, no clock.

Reservations of one lane never overlap, and the next holder of a worker id starts where the previous one stopped. So a
holding of a lane is a half-open range of ticks, and only ticks decide who held it: a claim may begin with ticks that
lie before or after the time of the claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

from snowredis.core.as_json import Shown
from snowredis.monitor.events import NO_ID, Event, expiry_of
from snowredis.monitor.owner import Owned, OwnerNamed
from snowredis.monitor.snapshot import WorkerInfo, time_text
from snowredis.snowflake.record import EventKind, FloorReason
from snowredis.snowflake.replies import LossReason

FOREVER_MS = 10**15
# events that end a holding
_ENDS = (EventKind.RELEASED, EventKind.EXPIRED, EventKind.DIED)

# with a floor for one of these reasons, the worker ids of a pool begin anew
ANEW = (FloorReason.LAYOUT_CHANGED, FloorReason.ENDED)


@dataclass(frozen=True, slots=True)
class Past:
    """State of a pool that is needed to interpret its events. Times are ms since 1970.

    Attributes:
        ttl_ms, lead_ms: the pool's ttl and max_clock_lead.
        now_ms: on the Redis clock.
        created_ms: when the pool was created; 0 if unknown.
        claims: number of claims since then; -1 if unknown.
        trimmed, deleted_id: which events the stream does not hold any more; see read_gaps().
        records: the current records by worker id, read before the events; those of other worker ids may be missing.
    """

    ttl_ms: int = 30_000
    lead_ms: int = 2_500
    now_ms: int = FOREVER_MS
    created_ms: int = 0
    claims: int = -1
    trimmed: bool | None = False
    deleted_id: str = NO_ID
    records: Mapping[int, WorkerInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holder(Owned):
    """A process that had a worker id. Times are ms since 1970.

    Attributes:
        worker: the worker id.
        owner: the process.
        from_ms: when it claimed the worker id, on the Redis clock; None if unknown.
        to_ms: when it released the worker id, or when its lease ended; None if it still has it, or if that is unknown
            (see held).
        held: whether it has the worker id now.
        first_ms, until_ms: the ticks of the id's lane that only this process may have used: [first, until).
    """

    worker: int
    owner: OwnerNamed
    from_ms: Annotated[int | None, Shown("time", "claimed_at")] = None
    to_ms: Annotated[int | None, Shown("time", "ended_at")] = None
    held: bool = False
    first_ms: Annotated[int, Shown("time", "ids_from")] = 0
    until_ms: Annotated[int, Shown("time", "ids_until")] = FOREVER_MS


@dataclass(slots=True)
class Holding:
    """Holding of a worker id by one process.

    Attributes:
        start: its first event: the claim, unless that is missing.
        event_index: of *start* among all events.
        lanes_ms: first tick of each lane; only of the first lane if the claim is missing.
        end, end_index: its release or death, and the index of that among all events.
        adopted_index: that of its newest adoption; -1 if there is none.
        claimed_ms: times that a record may show as its claim: an adoption sets them anew.
        record: the current record of the worker id, if it is of this holding.
        next: the following holding of the worker id.
        lease_ms: where the lease begins that this process took over from the holder before; None: it claimed it itself.
    """

    start: Event
    event_index: int
    lanes_ms: tuple[int, ...]
    end: Event | None = None
    end_index: int = -1
    adopted_index: int = -1
    claimed_ms: list[int] = field(default_factory=list)
    record: WorkerInfo | None = None
    next: Holding | None = None
    lease_ms: int | None = None

    @property
    def begins_ms(self) -> int:
        """Begin of the lease in its first lane: two leases of a worker id that were used differ in it."""
        return self.lanes_ms[0] if self.lease_ms is None else self.lease_ms

    def taken_over(self, event: Event, index: int) -> Holding:
        """Return the holding of the process of *event*, which took this lease over after this holder had ended."""
        lanes_ms = tuple(max(ms, event.owner.taken_ms) for ms in self.lanes_ms)
        start = replace(event, outage_until_ms=self.start.outage_until_ms)
        return Holding(start, index, lanes_ms, claimed_ms=[*self.claimed_ms], lease_ms=self.begins_ms)

    def is_taken_over_by(self, event: Event | WorkerInfo, begins_ms: int) -> bool:
        """Return true if the process of *event* took this lease over."""
        is_same = event.owner.name == self.start.owner.name
        return event.owner.taken_ms > 0 and not is_same and begins_ms == self.begins_ms

    def unseen_from_ms(self, ttl_ms: int) -> int:
        """Return from when on others may have had the lease before the next holder, which took it over.

        They ended while Redis was unavailable. FOREVER_MS if the next holder did not take it over.
        """
        if self.next is None or self.next.lease_ms is None:
            return FOREVER_MS
        return (self.end and self.end.renewed_ms) or self.next.start.owner.taken_ms - ttl_ms

    def includes(self, event: Event) -> bool:
        """Return true if *event* is of the same lease."""
        return (self.start.owner.name, self.begins_ms) == (event.owner.name, event.from_ms)

    def has_returned(self, event: Event) -> bool:
        """Return true if *event* shows that the process went on with the lease after it had ended."""
        return self.end is not None and self.end.kind == EventKind.EXPIRED and self.includes(event)

    def first_ms(self, lane: int) -> int:
        """Return the first tick of *lane*; that of the first lane if it is unknown."""
        return self.lanes_ms[lane] if lane < len(self.lanes_ms) else self.lanes_ms[0]

    @property
    def outage_lane(self) -> int:
        """Number of the outage lane; -1 if none is known."""
        return len(self.lanes_ms) - 1 if self.start.outage_until_ms and len(self.lanes_ms) > 1 else -1

    def _outage_until_ms(self) -> int:
        """Return the end of the outage lane, which a lost lease keeps."""
        if self.end is not None and self.end.kind != EventKind.EXPIRED:
            return self.end.outage_until_ms
        return self.record.outage_until_ms if self.record is not None else FOREVER_MS

    def holder(self, lane: int) -> Holder:
        """Return the holder, with its range of ticks on *lane*."""
        start, end, record = self.start, self.end, self.record
        if self.outage_lane == lane:
            until_ms = self._outage_until_ms()
        else:
            until_ms = end.until_ms if end else record.reserved_until_ms if record else FOREVER_MS
        if self.next is not None:
            until_ms = min(until_ms, self.next.first_ms(lane))
        return Holder(
            start.worker,
            start.owner,
            from_ms=start.at_ms if start.kind == EventKind.CLAIMED else start.owner.taken_ms or None,
            to_ms=end.at_ms if end else record.lease_end_ms if record and not record.alive else None,
            held=end is None and record is not None and record.alive,
            first_ms=self.first_ms(lane),
            until_ms=until_ms,
        )


class RefusedRenewal(NamedTuple):
    """A refused renewal.

    Attributes:
        event_index: of the event among all events.
        event: of kind "lost".
        holder: the process whose renewal was refused.
    """

    event_index: int
    event: Event
    holder: Holder

    def may_have_reserved(self, tick_ms: int, past: Past) -> bool:
        """Return true if the last renewal of the refused lease may have reserved *tick_ms*."""
        return self.event.until_ms - past.ttl_ms - past.lead_ms <= tick_ms < self.event.until_ms


@dataclass(frozen=True, slots=True)
class Loss:
    """A moment at which Redis may have lost the newest events before it.

    Attributes:
        event_index: of the floor event among all events.
        event: the floor event.
        known_ms: no event up to this time on the Redis clock is missing.
    """

    event_index: int
    event: Event
    known_ms: int

    @property
    def rolled_back(self) -> bool:
        """True if the pool was replaced by an older copy."""
        return self.event.reason == FloorReason.ROLLED_BACK

    def affects(self, tick_ms: int, lead_ms: int) -> bool:
        """Return true if a process whose claim was lost may have used *tick_ms*, *lead_ms* ahead of Redis at most."""
        return self.known_ms - lead_ms <= tick_ms < max(self.event.from_ms, self.event.at_ms)


@dataclass(frozen=True, slots=True)
class LaneHistory:
    """Everything that is known of one lane.

    Attributes:
        history: of the whole pool.
        worker, lane: the lane.
        holders: holdings with their ranges of ticks on this lane, the oldest first.
        refusals: of renewals of the worker id, the oldest first.
        record_holder: the process of the current record, if none of the holdings is known to be its.
    """

    history: HoldingHistory
    worker: int
    lane: int
    holdings: list[tuple[Holding, Holder]]
    refusals: list[RefusedRenewal]
    record_holder: Holder | None

    def refused_copy(self, holding: Holding, tick_ms: int) -> RefusedRenewal | None:
        """Return the refusal of a copy of the process of *holding* that may have made ids of *tick_ms*, too."""
        past, end = self.history.past, holding.end
        for refusal in self.refusals:
            event, after = refusal.event, holding.next is not None and refusal.event_index > holding.next.event_index
            copied = event.reason == LossReason.COPIED and refusal.event_index > holding.event_index and not after
            # a process does not renew a lease that it released; a copy of the process may
            released = (
                end is not None
                and end.kind in (EventKind.RELEASED, EventKind.DIED)
                and refusal.event_index > holding.end_index
                and event.owner.name == holding.start.owner.name
                and holding.lanes_ms[0] < event.until_ms <= end.until_ms + past.ttl_ms
            )
            if (copied or released) and refusal.may_have_reserved(tick_ms, past):
                return refusal
        return None


class HoldingHistory:
    """Holdings of every worker id, and losses of events.

    Attributes:
        holders: holdings by worker id; the oldest first.
        refusals: of renewals, by worker id; the oldest first.
        losses: the oldest first.

    Args:
        events: of the pool, the oldest first.
        past: state of the pool.
    """

    def __init__(self, events: Sequence[Event], past: Past | None = None) -> None:
        self.events, self.past = events, past or Past()
        self.holdings: dict[int, list[Holding]] = {}
        self.refusals: dict[int, list[RefusedRenewal]] = {}
        self.losses: list[Loss] = []
        # index of the event that created the pool, and the number of claims since then
        self._created_index, self._claims = -1, 0
        for index, event in enumerate(events):
            self._add(index, event)
        for worker, holdings in self.holdings.items():
            record = self.past.records.get(worker)
            if record is not None and record.claimed_ms in holdings[-1].claimed_ms:
                if holdings[-1].is_taken_over_by(record, record.reserved_from_ms):
                    self._hand_over(len(events), replace(expiry_of(record), at_ms=record.owner.taken_ms))
                holdings[-1].record = record

    @property
    def has_holes(self) -> bool:
        """True if events are missing between the first and the last."""
        claims_are_missing = self._created_index >= 0 and self._claims < self.past.claims
        return claims_are_missing or self.past.deleted_id != NO_ID

    @property
    def gap(self) -> str:
        """Why the first event is not the creation of the pool; empty if it is."""
        if not self.events:
            return "this pool has no events"
        first = self.events[0]
        created = first.kind == EventKind.FLOOR and first.reason in (FloorReason.NO_POOL, *ANEW)
        if self.past.trimmed or (self.past.trimmed is None and not created):
            return f"older events were trimmed: the oldest that is left is of {time_text(first.at_ms)}"
        if not created or (first.reason == FloorReason.NO_POOL and first.from_ms > first.at_ms):
            return f"Redis knows nothing of this pool before {time_text(first.at_ms)}: it was new, or Redis had lost it"
        return ""

    def of_lane(self, worker: int, lane: int = 0) -> LaneHistory:
        """Return everything that is known of *lane* of *worker*."""
        holdings, record = self.holdings.get(worker, []), self.past.records.get(worker)
        record_holder = None
        if record is not None and record.token_hash and not (holdings and holdings[-1].record):
            record_holder = Holder(
                worker,
                record.owner,
                from_ms=record.claimed_ms,
                to_ms=None if record.alive else record.lease_end_ms,
                held=record.alive,
                until_ms=record.reserved_until_ms,
            )
        spans = [(holding, holding.holder(lane)) for holding in holdings]
        return LaneHistory(self, worker, lane, spans, self.refusals.get(worker, []), record_holder)

    def _add(self, index: int, event: Event) -> None:
        if event.kind == EventKind.FLOOR:
            self._add_floor(index, event)
        elif event.kind == EventKind.LOST:
            refused = Holder(event.worker, event.owner, to_ms=event.at_ms, until_ms=event.until_ms)
            self.refusals.setdefault(event.worker, []).append(RefusedRenewal(index, event, refused))
        elif event.worker >= 0:
            self._add_to_holding(index, event)

    def _add_floor(self, index: int, event: Event) -> None:
        if event.reason == FloorReason.NO_POOL:
            self._created_index, self._claims = index, 0
        if index == 0:
            # nothing before it is known at all; see gap
            return
        # an older copy of the pool may have served workers for a while before that was noticed
        rolled_back = event.reason == FloorReason.ROLLED_BACK
        limit_ms = event.at_ms - self.past.ttl_ms if rolled_back else FOREVER_MS
        known_ms = next((e.at_ms for e in reversed(self.events[:index]) if e.at_ms < limit_ms), 0)
        self.losses.append(Loss(index, event, known_ms))

    def _hand_over(self, index: int, event: Event) -> None:
        """Add the process of *event* as the holder that follows the last one, in the same lease."""
        holdings = self.holdings[event.worker]
        holdings.append(holdings[-1].taken_over(event, index))
        holdings[-2].next = holdings[-1]

    def _add_to_holding(self, index: int, event: Event) -> None:
        holdings = self.holdings.setdefault(event.worker, [])
        claimed = event.kind == EventKind.CLAIMED
        self._claims += claimed
        if holdings and not claimed and holdings[-1].has_returned(event):
            holdings[-1].end, holdings[-1].end_index = None, -1
        if holdings and not claimed and holdings[-1].is_taken_over_by(event, event.from_ms):
            self._hand_over(index, event)
        elif claimed or not holdings or holdings[-1].end is not None or not holdings[-1].includes(event):
            # if the claim is missing, only the first lane is known
            lanes_ms = (claimed and event.lanes_ms) or (event.from_ms,)
            holdings.append(Holding(event, index, lanes_ms, claimed_ms=[event.at_ms]))
            if len(holdings) > 1:
                holdings[-2].next = holdings[-1]
        holding = holdings[-1]
        if event.kind in _ENDS:
            holding.end, holding.end_index = event, index
        elif event.kind == EventKind.ADOPTED:
            holding.adopted_index = index
            holding.claimed_ms.append(event.at_ms)
