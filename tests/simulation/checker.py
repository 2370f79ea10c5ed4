"""Checks from outside: no id is repeated, no tick is reserved twice.

A *claim* is what one token was granted: for each lane of a worker id the ticks [opens, until), where the outage lane
has another end than the others.
Two kinds of fault lift the promise up to a point in time and no further: a clone of a running
process, and a Redis that went back in time unnoticed. They are entered here as *lifts*, and a
repetition above a lift's bound is a failure like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from snowredis.core.layout import Layout
from snowredis.snowflake.lease import HeldLease
from snowredis.snowflake.protocol import ReleaseRequest
from snowredis.snowflake.replies import Granted
from tests.simulation.world import START_US, World

if TYPE_CHECKING:
    from tests.simulation.process import Process


@dataclass
class Claim:
    """Claim of one token. *ends* is set by a release, which returns ticks."""

    token: str
    worker: int
    who: str
    opens: tuple[int, ...]
    # of each lane
    until: tuple[int, ...]
    ends: tuple[int, ...] | None = None
    layout: Layout | None = None
    # the newest renewal that a holder was told of; empty until then
    renewal_id: str = ""
    # the ticks of each lane below which a clone may repeat ids; empty: there is none
    cloned_until: tuple[int, ...] = ()
    # its outage lane; -1: it has none
    outage_lane: int = -1
    # renewals that were under way when the clone was made, so that both may be answered
    shared_renewals: set[str] = field(default_factory=set)

    def range(self, lane: int) -> tuple[int, int]:
        return self.opens[lane], (self.until if self.ends is None else self.ends)[lane]

    def clone(self) -> None:
        """Let a clone share what is reserved now."""
        self.cloned_until = tuple(map(max, self.cloned_until or self.until, self.until))


@dataclass(frozen=True)
class Emission:
    """Process and time that made an id.

    Attributes:
        shared: whether a clone has the lease of that time.
        refused: whether the process was told that it lost the lease.
    """

    who: str
    at_us: int
    shared: bool = False
    refused: bool = False


class Checker:
    """Checker of one pool."""

    def __init__(self, world: World, layout: Layout) -> None:
        self._world, self._layout = world, layout
        # by token and worker id: a claim that is answered twice may have been given two
        self.claims: dict[tuple[str, int], Claim] = {}
        self._by_worker: dict[int, list[Claim]] = {}
        self.ids: dict[int, Emission] = {}
        self.failures: list[str] = []
        # how many ids were repeated where the promise is lifted
        self.excused = 0
        self.duplicates = 0
        # no promise for ticks that begin before this, in outage lanes and in others
        self.lifted_until_ms = self.lifted_outage_until_ms = 0
        self.made: dict[str, int] = {}
        # claims that were under way in a process when it was doubled
        self._shared_tokens: set[str] = set()

    def fail(self, what: str) -> None:
        at_s = (self._world.now_us - START_US) / 1e6
        self.failures.append(f"{at_s:.6f} s: {what}")
        if self._world.trace is not None:
            self._world.note("FAILURE: %s", what)

    def lift(self, until_ms: int, outage_until_ms: int) -> None:
        """Allow earlier ticks to be used twice: Redis went back in time."""
        self.lifted_until_ms = max(self.lifted_until_ms, until_ms)
        self.lifted_outage_until_ms = max(self.lifted_outage_until_ms, outage_until_ms)

    # --- ids ---------------------------------------------------------------------------------------

    def emit(self, process: Process, an_id: int) -> None:
        """Check an id that is about to be returned."""
        self.made[process.name] = self.made.get(process.name, 0) + 1
        # a pool may have had another one
        layout = process.config.layout
        tick = an_id >> layout.timestamp_shift
        worker = an_id >> layout.worker_shift & (layout.workers - 1)
        lane = an_id >> layout.backup_shift & (layout.namespaces - 1)
        if self._world.trace is not None:
            sequence = an_id & (layout.sequences - 1)
            self._world.note("%s: id worker %d lane %d tick %d sequence %d", process.name, worker, lane, tick, sequence)
        if process.sim.tracer is not None:
            sequence = an_id >> layout.sequence_shift & (layout.sequences - 1)
            process.sim.tracer.used(process.name, worker, lane, tick, sequence)
        claim = self._claim_of(process, worker, lane, tick)
        shared, refused = claim is not None and bool(claim.cloned_until), claim in process.refused_claims
        made = Emission(process.name, self._world.now_us, shared, refused)
        before = self._remember(an_id, made)
        if before is not None:
            self._repeated(process, before, made, worker, lane, tick)
        if process.config not in process.sim.configs:
            self.fail(f"{process.name} made an id with settings that are not the pool's")
            return
        self._compare_layouts(process, tick)
        if claim is not None:
            return
        if not self._lifted(worker, lane, tick) or self._is_void(process, worker, lane, tick):
            self.fail(f"{process.name} made an id of worker {worker} lane {lane} at tick {tick}, not reserved by it")

    def _compare_layouts(self, process: Process, tick: int) -> None:
        """Check that no tick is used in two layouts, whose ids could be equal."""
        for other in self.claims.values():
            ranges = [other.range(lane) for lane in range(len(other.opens))]
            if other.layout != process.config.layout and any(first <= tick < end for first, end in ranges):
                self.duplicates += 1
                self.fail(
                    f"{process.name} made an id at tick {tick}, which is reserved in another layout by {other.who}"
                )

    def _remember(self, an_id: int, made: Emission) -> Emission | None:
        """Record an id; return its earlier emission, if there is one."""
        before = self.ids.setdefault(an_id, made)
        return None if before is made else before

    def _claim_of(self, process: Process, worker: int, lane: int, tick: int) -> Claim | None:
        """Return the claim of which *process* may use this tick."""
        for claim in reversed(process.claims):
            if claim.worker == worker:
                first, end = claim.range(lane)
                # a clone does not know that the other one gave the lease back
                shared_until = claim.cloned_until[lane] if claim.cloned_until else 0
                if first <= tick < max(end, shared_until):
                    return claim
        return None

    def _repeated(self, process: Process, before: Emission, made: Emission, worker: int, lane: int, tick: int) -> None:
        # a clone that knows that it lost the lease may share ticks with its original, and with nobody else
        shares_with_others = before.shared != made.shared and (before if before.shared else made).refused
        is_void = self._is_void(process, worker, lane, tick) or shares_with_others
        if self._lifted(worker, lane, tick) and not is_void:
            self.excused += 1
            return
        self.duplicates += 1
        self.fail(
            f"{process.name} repeated an id of {before.who} (made {(self._world.now_us - before.at_us) / 1e6:.3f} s "
            f"before): worker {worker} lane {lane} tick {tick}"
        )

    def _lifted(self, worker: int, lane: int, tick: int) -> bool:
        claims = self._by_worker.get(worker, ())
        # a pool may have had other settings
        in_outage_lane = any(lane == claim.outage_lane for claim in claims)
        lifted_until_ms = self.lifted_outage_until_ms if in_outage_lane else self.lifted_until_ms
        if self._layout.ms_at(tick) < lifted_until_ms:
            return True
        return any(claim.cloned_until and tick < claim.cloned_until[lane] for claim in claims)

    def _is_void(self, process: Process, worker: int, lane: int, tick: int) -> bool:
        """Return true for a tick of a lease of which the process was told that a copy of it has it.

        Unless the process was granted the tick again, by a later claim.
        """
        now = self._claim_of(process, worker, lane, tick)
        if now is not None and all(now is not claim for claim in process.void_claims):
            return False
        for claim in process.void_claims:
            first, end = claim.range(lane)
            if claim.worker == worker and first <= tick < end:
                return True
        return False

    # --- reservations ------------------------------------------------------------------------------

    def believe(self, process: Process, held: HeldLease) -> None:
        """Record a lease that a process was granted."""
        lease = held.lease
        until = self._ends_of(process, held)
        claim = self.claims.get((held.token, lease.worker))
        if claim is not None:
            if held.renewal_id in claim.shared_renewals or (held.token in self._shared_tokens and not lease.renewals):
                claim.clone()
                claim.cloned_until = tuple(map(max, claim.cloned_until, until))
            if claim not in process.claims:
                process.claims.append(claim)
            if lease.until >= claim.until[0]:
                claim.renewal_id = held.renewal_id
            if claim.opens[-1] >= claim.until[-1]:
                # an outage lane that was not reserved yet may begin later after a loss
                claim.opens = lease.opens
            # taken over: what the process that ended tried to release, it did not
            taken = bool(held.taken_ms) and claim.ends is not None
            if not taken and not any(end > before for end, before in zip(until, claim.until, strict=True)):
                return
            claim.ends = None if taken else claim.ends
            if lease.until > claim.until[0]:
                # renewed after all: what a clone of the holder tried to release, it did not
                claim.ends = None
            claim.until = tuple(map(max, claim.until, until))
        else:
            claim = Claim(held.token, lease.worker, process.name, lease.opens, until)
            claim.renewal_id, claim.layout = held.renewal_id, process.config.layout
            claim.outage_lane = len(until) - 1 if process.config.outage_reserve_ms else -1
            self.claims[held.token, lease.worker] = claim
            self._by_worker.setdefault(lease.worker, []).append(claim)
            process.claims.append(claim)
        for other in self._by_worker[lease.worker]:
            if other is not claim and other.layout == claim.layout:
                self._compare(claim, other)

    def _ends_of(self, process: Process, held: HeldLease) -> tuple[int, ...]:
        """Return the end of the reservation of each lane."""
        lease = held.lease
        ends = (lease.until,) * len(lease.opens)
        return (*ends[:-1], lease.outage_until) if process.config.outage_reserve_ms else ends

    def _compare(self, one: Claim, other: Claim) -> None:
        for lane, first, end in self._overlaps(one, other):
            if not self._lifted(one.worker, lane, end - 1):
                self.fail(
                    f"worker {one.worker} lane {lane}: ticks [{first}, {end}) are reserved by {one.who} "
                    f"and by {other.who}"
                )

    def _overlaps(self, one: Claim, other: Claim) -> Iterator[tuple[int, int, int]]:
        for lane in range(len(one.opens)):
            (first, end), (first_2, end_2) = one.range(lane), other.range(lane)
            if max(first, first_2) < min(end, end_2):
                yield lane, max(first, first_2), min(end, end_2)

    def released(self, held: HeldLease, marks_ms: tuple[int, ...] | None) -> None:
        """Record a release: the holder is sealed and has reported what it used; the rest is not its own any more."""
        claim = self.claims.get((held.token, held.lease.worker))
        # the last is what the slower of two clones tries: nothing is given back
        if claim is not None and held.lease.until >= claim.until[0]:
            self.given_back(held.token, held.lease.worker, marks_ms)

    def granted_again(self, token: str, reply: Granted) -> None:
        """Record that a parent repeated the claim of a killed process, whose clone may have the same lease."""
        claim = self.claims.get((token, reply.worker))
        if claim is not None:
            claim.renewal_id = reply.renewal_id

    def reclaimed(self, request: ReleaseRequest) -> None:
        """Record that a parent releases the lease of a killed process, unless a clone has renewed it since."""
        claim = self.claims.get((request.token, request.worker))
        if claim is not None and claim.renewal_id in (request.renewal_id, request.pending_renewal_id):
            self.given_back(request.token, request.worker, request.marks_ms)

    def given_back(self, token: str, worker: int, marks_ms: tuple[int, ...] | None) -> None:
        """Record the ticks that a claim was used for; no id is made with it any more."""
        claim = self.claims.get((token, worker))
        if claim is None or marks_ms is None:
            return
        if token in self._shared_tokens:
            # a clone may have been given the same lease
            claim.clone()
        shared = claim.cloned_until or (0,) * len(claim.opens)
        ends = (
            max(opens, cloned_until, self._layout.first_tick_from(ms)) if ms else opens
            for opens, cloned_until, ms in zip(claim.opens, shared, marks_ms, strict=True)
        )
        claim.ends = tuple(ends)

    def cloned(self, leases: Iterable[HeldLease | None], claim_token: str) -> None:
        """Record that a process was cloned while it had these leases, or was claiming."""
        if claim_token:
            self._shared_tokens.add(claim_token)
        for held in filter(None, leases):
            claim = self.claims.get((held.token, held.lease.worker))
            if claim:
                claim.clone()
                if held.pending_renewal_id:
                    claim.shared_renewals.add(held.pending_renewal_id)
