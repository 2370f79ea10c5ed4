"""Of events, who had each worker id one after the other: a chain of tenures. Pure.

Reservations of one lane never overlap, and whoever gets a worker id next starts where the one before stopped. So a
tenure on a lane is a half-open range of time, decided by ticks alone: claims may begin with ticks that lie behind
or ahead of the time of the claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from snowredis.lease.codes import FloorReason
from snowredis.monitor.events import Event
from snowredis.monitor.snapshot import WorkerInfo

FOREVER_MS = 10**15


@dataclass(slots=True)
class Ownership:
    """One process' time with a worker id.

    Attributes:
        start: the event that names it first; a claim, unless that is forgotten.
        place: of that event among all events.
        lanes_ms: where its lanes begin; only the first lane, if the claim is forgotten.
        end, end_place: its release or expiry.
        adopted: places of the events that took it up again after a loss.
        next: who had the worker id after it.
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
        return self.start.kind == "claimed"

    def owned_by(self, event: Event) -> bool:
        mine = (self.start.host, self.start.pid, self.start.label, self.lanes_ms[0])
        return mine == (event.host, event.pid, event.label, event.from_ms)

    def first_ms(self, lane: int) -> int:
        """Where its ticks on *lane* begin; where the first lane's do, if that is not known."""
        return self.lanes_ms[lane] if lane < len(self.lanes_ms) else self.lanes_ms[0]

    def knows(self, lane: int) -> bool:
        return lane < len(self.lanes_ms)

    def until_ms(self, lane: int) -> int:
        """Where they end at the latest."""
        bounds = [FOREVER_MS]
        if self.end is not None:
            bounds.append(self.end.until_ms)
        elif self.record is not None:
            bounds.append(self.record.reserved_until_ms)
        if self.next is not None:
            bounds.append(self.next.first_ms(lane))
        return min(bounds)


@dataclass(frozen=True, slots=True)
class Loss:
    """A moment at which Redis may have forgotten the newest events before it.

    Attributes:
        place: of the floor event.
        event: the floor event.
        before_ms: events up to this time on the Redis clock are all there.
    """

    place: int
    event: Event
    before_ms: int


class Chains:
    """Tenures of every worker id, and the losses in between.

    Args:
        events: of one server, the oldest first.
        records: the pool's present records by worker id, read before the events; may be left out.
        ttl_ms: of the pool.
    """

    def __init__(
        self, events: Sequence[Event], records: Mapping[int, WorkerInfo] | None = None, ttl_ms: int = 0
    ) -> None:
        self.events = events
        self.tenures: dict[int, list[Ownership]] = {}
        self.lost: dict[int, list[tuple[int, Event]]] = {}
        self.losses: list[Loss] = []
        # where the pool's present life begins, and how many claims were seen since
        self.life_place, self.claims_in_life = -1, 0
        for place, event in enumerate(events):
            self._take(place, event, ttl_ms)
        for worker, tenures in self.tenures.items():
            last, record = tenures[-1], (records or {}).get(worker)
            if record is not None and record.claimed_ms in (event.at_ms for event in self._starts(last)):
                last.record = record

    def _starts(self, tenure: Ownership) -> Iterable[Event]:
        """Events that set the time of claim in a record."""
        return [tenure.start, *(self.events[place] for place in tenure.adopted)]

    def _take(self, place: int, event: Event, ttl_ms: int) -> None:
        if event.kind == "floor":
            self._take_floor(place, event, ttl_ms)
            return
        if event.worker < 0:
            return
        if event.kind == "lost":
            self.lost.setdefault(event.worker, []).append((place, event))
            return
        tenures = self.tenures.setdefault(event.worker, [])
        current = tenures[-1] if tenures else None
        if event.kind == "claimed":
            self.claims_in_life += 1
            self._append(tenures, Ownership(event, place, event.lanes_ms or (event.from_ms,)))
        elif current is None or current.end is not None or not current.owned_by(event):
            # its claim is forgotten; of its lanes only the first is known
            current = Ownership(event, place, (event.from_ms,))
            self._append(tenures, current)
        if event.kind in ("released", "expired"):
            last = tenures[-1]
            last.end, last.end_place = event, place
        elif event.kind == "adopted":
            tenures[-1].adopted.append(place)

    def _append(self, tenures: list[Ownership], tenure: Ownership) -> None:
        if tenures:
            tenures[-1].next = tenure
        tenures.append(tenure)

    def _take_floor(self, place: int, event: Event, ttl_ms: int) -> None:
        if event.reason == FloorReason.NO_POOL:
            self.life_place, self.claims_in_life = place, 0
        if place == 0:
            # nothing before it is known at all; whether there was something, History knows
            return
        # a copy that was put in the place of a newer one may have served others for a while before it was noticed
        limit_ms = event.at_ms - ttl_ms if event.reason == FloorReason.ROLLED_BACK else FOREVER_MS
        before = next((e.at_ms for e in reversed(self.events[:place]) if e.at_ms < limit_ms), 0)
        self.losses.append(Loss(place, event, before))
