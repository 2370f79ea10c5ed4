"""Owners of each worker id, one after the other, as a pool's events show them. Pure: no Redis, no clock.

Reservations of one lane never overlap, and the next owner of a worker id starts where the one before stopped. So an
ownership of a lane is a half-open range of time, decided by ticks alone: a claim may begin with ticks that lie behind
or ahead of the time of the claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from snowredis.core.layout import utc_text
from snowredis.lease.codes import EventKind, FloorReason
from snowredis.lease.inspect import WorkerInfo
from snowredis.monitor.history.events import NO_ID, Event, StreamState

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


@dataclass(slots=True)
class Ownership:
    """Ownership of a worker id by one process.

    Attributes:
        start: the event that names it first; a claim, unless that is forgotten.
        place: of that event among all events.
        lanes_ms: where its lanes begin; only the first lane, if the claim is forgotten.
        end, end_place: its release or expiry.
        adopted: places of the events that took it up again after a loss.
        record: the present record of the worker id, if it is still this owner's.
        next: the owner after it.
    """

    start: Event
    place: int
    lanes_ms: tuple[int, ...]
    end: Event | None = None
    end_place: int = -1
    adopted: list[int] = field(default_factory=list)
    record: WorkerInfo | None = None
    next: Ownership | None = None

    @property
    def claimed(self) -> bool:
        """Whether its claim is known."""
        return self.start.kind == EventKind.CLAIMED

    @property
    def process(self) -> tuple[str, int, str]:
        return self.start.host, self.start.pid, self.start.label

    def has(self, event: Event) -> bool:
        """Whether *event* is one of this lease."""
        return (self.process, self.lanes_ms[0]) == ((event.host, event.pid, event.label), event.from_ms)

    def adopted_after(self, loss: Loss) -> bool:
        return any(place > loss.place for place in self.adopted)

    def knows(self, lane: int) -> bool:
        return lane < len(self.lanes_ms)

    def first_ms(self, lane: int) -> int:
        """Return where its ticks on *lane* begin; where the first lane's do, if that is not known."""
        return self.lanes_ms[lane] if self.knows(lane) else self.lanes_ms[0]

    def until_ms(self, lane: int) -> int:
        """Return where its ticks on *lane* end at the latest."""
        bounds = [FOREVER_MS]
        if self.end is not None:
            bounds.append(self.end.until_ms)
        elif self.record is not None:
            bounds.append(self.record.reserved_until_ms)
        if self.next is not None:
            bounds.append(self.next.first_ms(lane))
        return min(bounds)

    def holder(self, lane: int = 0) -> Holder:
        start, end, record = self.start, self.end, self.record
        return Holder(
            worker=start.worker,
            host=start.host,
            pid=start.pid,
            label=start.label,
            from_ms=start.at_ms if self.claimed else None,
            to_ms=end.at_ms if end else record.lease_end_ms if record and not record.alive else None,
            held=end is None and record is not None and record.alive,
            first_ms=self.first_ms(lane),
            until_ms=self.until_ms(lane),
            server=start.server,
        )


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


class History:
    """Owners of every worker id of one server, and the losses in between.

    Attributes:
        owners: by worker id, as this server numbers it; the oldest first.
        losses: the oldest first.
        gap: why the first event is not the beginning of the pool; empty if it is.

    Args:
        events: of one server, the oldest first.
        past: state of the pool.
    """

    def __init__(self, events: Sequence[Event], past: Past | None = None) -> None:
        self.events, self.past = events, past or Past()
        self.owners: dict[int, list[Ownership]] = {}
        self.losses: list[Loss] = []
        self._refusals: dict[int, list[tuple[int, Event]]] = {}
        # the event with which the present pool begins, and the claims since
        self._birth_place, self._claims = -1, 0
        for place, event in enumerate(events):
            self._add(place, event)
        for worker, owners in self.owners.items():
            last, record = owners[-1], self.past.records.get(worker)
            # an adoption sets the time of the claim in a record
            claims = (last.start, *(events[place] for place in last.adopted))
            if record is not None and record.claimed_ms in (event.at_ms for event in claims):
                last.record = record
        self.gap = self._gap()

    @property
    def has_holes(self) -> bool:
        """Whether events were deleted from the middle."""
        if self.past.state.deleted_id != NO_ID:
            return True
        return self._birth_place >= 0 and 0 <= self._claims < self.past.claims

    def refusals(
        self, worker: int, *, after: int = -1, tick_ms: int | None = None
    ) -> Iterator[tuple[int, Event]]:
        """Yield the refused renewals of *worker*, each with its place.

        Args:
            after: only those with a greater place.
            tick_ms: only those of a lease whose last renewal may have reserved this tick.
        """
        reach_ms = self.past.ttl_ms + self.past.lead_ms
        for place, event in self._refusals.get(worker, []):
            reaches = tick_ms is None or event.until_ms - reach_ms <= tick_ms < event.until_ms
            if place > after and reaches:
                yield place, event

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
            self._refusals.setdefault(event.worker, []).append((place, event))
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
            if owners:
                owners[-1].next = owner
            owners.append(owner)
        if event.kind in (EventKind.RELEASED, EventKind.EXPIRED):
            owners[-1].end, owners[-1].end_place = event, place
        elif event.kind == EventKind.ADOPTED:
            owners[-1].adopted.append(place)


def time_text(time_ms: int) -> str:
    """Return a time in UTC, for people."""
    # events are untrusted
    return (utc_text(time_ms) if time_ms >= 0 else None) or f"{time_ms} ms"


def duration_text(ms: int) -> str:
    """Return a length of time, for people."""
    return f"{ms} ms" if abs(ms) < 10_000 else f"{ms // 1000:,} s"
