"""Who held a worker id at a tick, of a pool's events; and how sure that is. Pure: no Redis, no clock.

Absent history is never trusted: the stream is trimmed, a server may have lost its newest events, and a person may
have deleted some. What cannot be known is said so, with those who may have been it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from snowredis.core.layout import Layout, Parts
from snowredis.errors import InvalidId
from snowredis.lease.codes import FloorReason, LossReason
from snowredis.monitor.chains import FOREVER_MS, Chains, Loss, Ownership
from snowredis.monitor.events import NO_ID, Event, StreamState
from snowredis.monitor.holders import holder_of, holder_of_lost, holder_of_record, is_same, span, time_text
from snowredis.monitor.snapshot import WorkerInfo
from snowredis.monitor.whois import Holder, Whois

__all__ = ["History", "Past", "Verdict", "who_held"]


# as far as is known, nothing was removed from the stream
UNTOUCHED = StreamState()


@dataclass(frozen=True, slots=True)
class Past:
    """What, besides its events, has to be known of a pool to judge them. Times are ms since 1970.

    Attributes:
        ttl_ms, lead_ms: the pool's constants.
        now_ms: on the Redis clock.
        created_ms: when the pool was made; 0 if unknown.
        claims: how often a worker id was claimed since; -1 if unknown.
        state: how much of the stream is left.
        records: the pool's present records, read before the events.
    """

    ttl_ms: int = 30_000
    lead_ms: int = 2_500
    now_ms: int = FOREVER_MS
    created_ms: int = 0
    claims: int = -1
    state: StreamState = UNTOUCHED
    records: Mapping[int, WorkerInfo] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who had a worker id at a tick; as in Whois."""

    holder: Holder | None
    certainty: str
    reason: str
    candidates: tuple[Holder, ...] = ()


def who_held(events: Sequence[Event], worker: int, tick_ms: int, *, lane: int = 0) -> Holder | None:
    """Who had *worker* when its ids showed *tick_ms*, the ms at which a tick begins; None if the events do not say.

    Args:
        events: of one server, the oldest first.
        lane: the namespace, an id's backup bits.
    """
    verdict = History(events).verdict(worker, tick_ms, lane)
    return verdict.holder


class History:
    """Events of one server, ready to be asked about many ids.

    Args:
        events: the oldest first.
        past: what else is known.
    """

    def __init__(self, events: Sequence[Event], past: Past | None = None) -> None:
        self.events, self.past = events, past or Past()
        self.chains = Chains(events, self.past.records, self.past.ttl_ms)
        self.gap = self._gap()

    def _gap(self) -> str:
        """Why the beginning of these events is not the beginning of the pool; nothing if it is."""
        if not self.events:
            return "this pool has no events"
        first = self.events[0]
        if self.past.state.trimmed or first.kind != "floor" or first.reason != FloorReason.NO_POOL:
            return f"older events were trimmed: the oldest that is left is of {time_text(first.at_ms)}"
        return ""

    @property
    def _has_holes(self) -> bool:
        """Whether events were taken out of the middle."""
        if self.past.state.deleted_id != NO_ID:
            return True
        chains, claims = self.chains, self.past.claims
        return chains.life_place >= 0 and 0 <= chains.claims_in_life < claims

    # --- one id ------------------------------------------------------------------------------------

    def whois(
        self, an_id: int, layout: Layout, *, datacenter: int = 0, share: tuple[int, int] = (0, 1)
    ) -> Whois:
        """Who made *an_id*, if it was made in this pool.

        Args:
            share: (index, count): of *count* independent servers this is number *index*.

        Raises:
            InvalidId: it is no number that an id can be.
        """
        try:
            parts = layout.decode(an_id)
        except InvalidId:
            if not isinstance(an_id, int) or isinstance(an_id, bool) or not 0 <= an_id < 2**63:
                raise
            why = f"it has {an_id.bit_length()} bits, and the pool's layout {layout} only {layout.total_bits}"
            return Whois(an_id, None, None, "unknown", f"no id of this pool: {why}")
        verdict = self._of_parts(parts, datacenter, share)
        return Whois(an_id, parts, verdict.holder, verdict.certainty, verdict.reason, verdict.candidates)

    def _of_parts(self, parts: Parts, datacenter: int, share: tuple[int, int]) -> Verdict:
        index, count = share
        if parts.datacenter != datacenter:
            return _unknown(
                f"its datacenter bits say {parts.datacenter}, and this pool makes ids of datacenter "
                f"{datacenter}: it was "
                "made in another pool, or with another layout"
            )
        if parts.worker % count != index:
            return _unknown(
                f"worker id {parts.worker} belongs to server {parts.worker % count} of {count} independent "
                "ones, and this "
                f"is server {index}: name all of them in --url, in the same order as the processes do"
            )
        verdict = self.verdict(parts.worker // count, parts.timestamp_ms, parts.backup)

        def put(holder: Holder) -> Holder:
            return replace(holder, worker=parts.worker, server=index)

        return replace(
            verdict,
            holder=put(verdict.holder) if verdict.holder else None,
            candidates=tuple(map(put, verdict.candidates)),
        )

    def verdict(self, worker: int, tick_ms: int, lane: int = 0) -> Verdict:
        """Who had *worker*, as this server numbers it, at *tick_ms* on *lane*."""
        past = self.past
        if tick_ms >= past.now_ms + past.ttl_ms + past.lead_ms:
            return _unknown(
                f"its time lies {span(tick_ms - past.now_ms)} in the future of this Redis, further than "
                "any process may "
                "have reserved: it was made with another layout or in another pool, or the clock of Redis went back"
            )
        tenures = self.chains.tenures.get(worker, [])
        found = [
            tenure
            for tenure in tenures
            if tenure.first_ms(lane) <= tick_ms < tenure.until_ms(lane)
            and not self._outlived(tenure, tick_ms)
        ]
        if not found:
            return self._nobody(worker, tick_ms, lane, tenures)
        # more than one only where a claim is forgotten; the newest is known best
        tenure = found[-1]
        if tick_ms < past.created_ms - past.lead_ms:
            return self._perhaps(
                [tenure],
                f"its time lies before this pool was made, {time_text(past.created_ms)}: it was made in "
                "another pool, in an "
                "earlier life of this one, or by a process whose clock was that far behind",
            )
        return self._judge(tenure, worker, tick_ms, lane)

    def _outlived(self, tenure: Ownership, tick_ms: int) -> bool:
        """Whether a tenure whose end nobody wrote down cannot have reached *tick_ms*: floors are beyond it."""
        if tenure.end is not None or tenure.record is not None:
            return False
        floors = [
            loss.event.from_ms
            for loss in self.chains.losses
            if loss.place > tenure.place and not any(place > loss.place for place in tenure.adopted)
        ]
        return bool(floors) and tick_ms >= floors[0]

    # --- how sure ----------------------------------------------------------------------------------

    def _judge(self, tenure: Ownership, worker: int, tick_ms: int, lane: int) -> Verdict:
        holder = holder_of(tenure, lane)
        copy = self._copy(tenure, worker, tick_ms)
        if copy is not None:
            return self._perhaps(
                [tenure],
                f"two copies of this process had this very lease, as after a clone of a running machine: the other was "
                f"refused at {time_text(copy.at_ms)}",
                holder_of_lost(copy),
            )
        doubts = []
        for loss in self.chains.losses:
            verdict = self._doubt(loss, tenure, worker, tick_ms, lane)
            if isinstance(verdict, Verdict):
                return verdict
            doubts += [verdict] if verdict else []
        if not tenure.knows(lane):
            doubts.append(f"its claim is forgotten, and with it where namespace {lane} of its lease began")
        if self._has_holes:
            doubts.append("somebody deleted events of this pool by hand, or they could not be written")
        if doubts:
            return Verdict(holder, "probable", "; ".join(doubts))
        return Verdict(holder, "certain", self._why(tenure, tick_ms, lane))

    def _why(self, tenure: Ownership, tick_ms: int, lane: int) -> str:
        until_ms, start = tenure.until_ms(lane), tenure.start.at_ms
        reserved = f"nobody else may stamp namespace {lane} of worker id {tenure.start.worker} with times "
        reserved += f"from {time_text(tenure.first_ms(lane))} " if tenure.first_ms(lane) else ""
        reserved += f"up to {time_text(until_ms)}" if until_ms < FOREVER_MS else "on"
        behind_ms = start - tick_ms
        if tenure.claimed and behind_ms > self.past.lead_ms:
            reserved += f"; its clock was {span(behind_ms)} behind at least when it made this id"
        return reserved

    def _copy(self, tenure: Ownership, worker: int, tick_ms: int) -> Event | None:
        """The refusal of another process that had the same lease and may have made this id with it, too."""
        past, after = self.past, tenure.next.place if tenure.next else len(self.events)
        for place, lost in self.chains.lost.get(worker, []):
            presented = lost.reason == LossReason.COPIED and tenure.place < place < after
            # a process that gave its lease back renews it no more; a copy of it may
            given_back = (
                tenure.end is not None
                and tenure.end.kind == "released"
                and place > tenure.end_place
                and (lost.host, lost.pid, lost.label)
                == (tenure.start.host, tenure.start.pid, tenure.start.label)
                and tenure.lanes_ms[0] < lost.until_ms <= tenure.end.until_ms + past.ttl_ms
            )
            if (
                presented or given_back
            ) and lost.until_ms - past.ttl_ms - past.lead_ms <= tick_ms < lost.until_ms:
                return lost
        return None

    def _doubt(self, loss: Loss, tenure: Ownership, worker: int, tick_ms: int, lane: int) -> Verdict | str:
        """What a loss of events after the beginning of a tenure leaves of it; nothing if it does not matter."""
        past = self.past
        rolled_back = loss.event.reason == FloorReason.ROLLED_BACK
        if tenure.place > loss.place:
            return ""
        what = f"Redis may have forgotten events before {time_text(loss.event.at_ms)} ({loss.event.text})"
        others = [
            holder_of_lost(lost) for place, lost in self.chains.lost.get(worker, []) if place > loss.place
        ]
        others = [other for other in others if other.until_ms > tick_ms and not is_same(other, tenure)]
        if rolled_back and tenure.start.at_ms >= loss.event.at_ms - past.ttl_ms - past.lead_ms:
            if tick_ms < loss.event.from_ms:
                return self._perhaps([tenure], f"{what}, and may have served this worker id twice", *others)
            return ""
        if any(place > loss.place for place in tenure.adopted):
            # it came back with its own lease, and R4 lets nobody come back who did not have it all the time
            return ""
        if tenure.end is not None and tenure.end_place < loss.place:
            return self._doubt_of_ended(loss, tenure, lane, what)
        known_ms = loss.before_ms
        if tenure.end is not None and tenure.end.kind == "expired":
            # its last renewal that is known was so late at least
            known_ms = max(known_ms, tenure.end.until_ms - past.ttl_ms - past.lead_ms)
        if tick_ms >= known_ms - past.lead_ms:
            return self._perhaps([tenure], f"{what}, and with them who had worker id {worker} last", *others)
        return f"{what}; it would have to be a process whose clock was over {span(known_ms - tick_ms)} behind"

    def _doubt_of_ended(self, loss: Loss, tenure: Ownership, lane: int, what: str) -> str:
        """It ended before: whoever came after it and was forgotten began where it had stopped, on each lane."""
        if (
            tenure.end is None
            or tenure.end.kind == "expired"
            or (tenure.next is not None and tenure.next.place < loss.place)
        ):
            return ""
        stats = tenure.end.stats
        one_lane_only = stats is not None and stats.namespace == lane and stats.clock_backs == 0
        return (
            "" if one_lane_only else f"{what}, and it is not known how far namespace {lane} was used before"
        )

    # --- nobody ------------------------------------------------------------------------------------

    def _nobody(self, worker: int, tick_ms: int, lane: int, tenures: Sequence[Ownership]) -> Verdict:
        past = self.past
        record = (past.records or {}).get(worker)
        unknown_claim = (
            record is not None and record.token_hash and (not tenures or tenures[-1].record is None)
        )
        if record is not None and unknown_claim and tick_ms < record.reserved_until_ms:
            mine = holder_of_record(record)
            if tick_ms >= record.claimed_ms + past.lead_ms:
                return Verdict(
                    mine, "probable", f"it has the worker id now; its claim is forgotten{self._and_gap}"
                )
            return Verdict(
                None, "unknown", f"the claim of this worker id is forgotten{self._and_gap}", (mine,)
            )
        lost = [
            (place, event)
            for place, event in self.chains.lost.get(worker, [])
            if event.until_ms > tick_ms
            and not any(is_same(holder_of_lost(event), tenure) for tenure in tenures)
        ]
        candidates = tuple(dict.fromkeys(holder_of_lost(event) for _, event in lost))
        for loss in self.chains.losses:
            if loss.before_ms - past.lead_ms <= tick_ms < max(loss.event.from_ms, loss.event.at_ms):
                return Verdict(
                    None,
                    "unknown",
                    f"Redis may have forgotten events before {time_text(loss.event.at_ms)} "
                    f"({loss.event.text}), and with "
                    f"them who had worker id {worker}",
                    candidates,
                )
        first = min((tenure.first_ms(lane) for tenure in tenures), default=FOREVER_MS)
        if self.gap and (tick_ms < first or not tenures):
            return Verdict(
                None,
                "unknown",
                f"{self.gap}; who had worker id {worker} then is not known any more",
                candidates,
            )
        if not tenures:
            return Verdict(
                None,
                "unknown",
                f"nobody ever had worker id {worker} in this pool: it was made elsewhere",
                candidates,
            )
        if tick_ms < max(first, past.created_ms):
            return Verdict(
                None,
                "unknown",
                f"its time lies before worker id {worker} was ever used in this pool",
                candidates,
            )
        return Verdict(
            None,
            "unknown",
            f"nobody had worker id {worker} reserved at that time in namespace {lane}: it was made in another pool, or "
            "Redis has forgotten who",
            candidates,
        )

    @property
    def _and_gap(self) -> str:
        return f" ({self.gap})" if self.gap else ""

    def _perhaps(self, tenures: Sequence[Ownership], reason: str, *others: Holder) -> Verdict:
        mine = tuple(holder_of(tenure, 0) for tenure in tenures)
        return Verdict(None, "unknown", reason, tuple(dict.fromkeys((*mine, *others))))


def _unknown(reason: str) -> Verdict:
    return Verdict(None, "unknown", reason)
