"""Checks from outside: no id is repeated, no tick is reserved twice.

A *claim* is what one token was granted: for each lane of a worker id the times [opens, until) in ms, where the outage
lane has another end than the others. They are read in the replies of the scripts, not in what the library makes of
these; whatever a process believes, and says in its requests, must lie in them. A tick belongs to the claim that has its
first ms.
Two kinds of fault lift the promise up to a point in time and no further: a clone of a running
process, and a Redis that went back in time unnoticed. They are entered here as *lifts*, and a
repetition above a lift's bound is a failure like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from snowredis.core.layout import Layout
from snowredis.snowflake.lease.held import HeldLease
from snowredis.snowflake.protocol.messages import Granted, ReleaseRequest
from tests.lab.simulation.world import START_US, World
from tests.lab.spec.log import flat, ints, request_of

if TYPE_CHECKING:
    from tests.lab.simulation.process import Process


class Reservation(NamedTuple):
    """Reservation that the replies to one process have granted to a claim, ms: where each lane begins and ends."""

    opens: tuple[int, ...]
    until: tuple[int, ...]


@dataclass
class Claim:
    """Claim of one token, ms. *ends* is set by a release, which may return whole lanes."""

    token: str
    worker: int
    who: str
    opens: tuple[int, ...]
    # end of the reservation of each lane
    until: tuple[int, ...]
    ends: tuple[int, ...] | None = None
    layout: Layout | None = None
    # the newest renewal that a holder was told of; empty until then
    renewal_id: str = ""
    # the ms of each lane before which a clone may repeat ids; empty: there is none
    cloned_until: tuple[int, ...] = ()
    # the ms of each lane before which it was granted by a clock that was ahead, and lost; empty: it was not
    lost_until: tuple[int, ...] = ()
    # its outage lane; -1: it has none
    outage_lane: int = -1
    # the first ms of the last tick of each lane that was used
    used: dict[int, int] = field(default_factory=dict)
    # a clone has released it, and Redis may have lost that
    may_return: bool = False
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


def first_ms(layout: Layout, tick: int) -> int:
    """Return the first ms of a tick, without the library's own conversions."""
    return layout.epoch_ms + tick * layout.tick_ms


class Checker:
    """Checker of one pool."""

    def __init__(self, world: World) -> None:
        self._world = world
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
        # claims that were under way in a process when it was doubled; those that one clone released, before the other
        # one had the reply
        self._shared_tokens: set[str] = set()
        self._given_back: set[str] = set()

    def fail(self, what: str) -> None:
        at_s = (self._world.now_us - START_US) / 1e6
        self.failures.append(f"{at_s:.6f} s: {what}")
        if self._world.trace is not None:
            self._world.note("FAILURE: %s", what)

    def lift(self, until_ms: int, outage_until_ms: int) -> None:
        """Allow earlier ticks to be used twice: Redis went back in time."""
        self.lifted_until_ms = max(self.lifted_until_ms, until_ms)
        self.lifted_outage_until_ms = max(self.lifted_outage_until_ms, outage_until_ms)

    def lose_what_clones_did(self) -> None:
        """Let a holder be adopted whose lease a clone has renewed, or released: Redis lost that."""
        for claim in self.claims.values():
            if claim.cloned_until:
                claim.clone()
                claim.may_return = claim.may_return or bool(claim.ends)

    def lift_granted(self) -> None:
        """Allow what is granted now to be granted again: a clock was ahead, and Redis loses it."""
        for claim in self.claims.values():
            claim.lost_until = claim.until

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
        ms = first_ms(layout, tick)
        claim = self._claim_of(process, worker, lane, ms)
        shared = claim is not None and bool(claim.cloned_until)
        # a Redis that lost what a clone released refuses the lease, and leaves its outage lane
        refused = claim in process.refused_claims and claim not in self._begun(process) and not claim.may_return
        made = Emission(process.name, self._world.now_us, shared, refused)
        before = self._remember(an_id, made)
        if before is not None:
            self._repeated(process, before, made, worker, lane, ms)
        if process.config not in process.sim.configs:
            self.fail(f"{process.name} made an id with settings that are not the pool's")
            return
        self._compare_layouts(process, tick)
        if claim is not None:
            claim.used[lane] = max(ms, claim.used.get(lane, ms))
            return
        if not self._lifted(worker, lane, ms) or self._is_void(process, worker, lane, ms):
            self.fail(f"{process.name} made an id of worker {worker} lane {lane} at tick {tick}, not reserved by it")

    def _compare_layouts(self, process: Process, tick: int) -> None:
        """Check that no tick is used in two layouts, whose ids could be equal."""
        for other in self.claims.values():
            if other.layout is None or other.layout == process.config.layout:
                continue
            ms, ranges = first_ms(other.layout, tick), [other.range(lane) for lane in range(len(other.opens))]
            if any(first <= ms < end for first, end in ranges):
                self.duplicates += 1
                self.fail(
                    f"{process.name} made an id at tick {tick}, which is reserved in another layout by {other.who}"
                )

    def _remember(self, an_id: int, made: Emission) -> Emission | None:
        """Record an id; return its earlier emission, if there is one."""
        before = self.ids.setdefault(an_id, made)
        return None if before is made else before

    def _claim_of(self, process: Process, worker: int, lane: int, ms: int) -> Claim | None:
        """Return the claim of which *process* may use the tick that begins at *ms*, or could when its call began."""
        for claim in (*reversed(process.claims), *self._begun(process)):
            if claim.worker == worker:
                first, end = claim.range(lane)
                # a clone does not know that the other one released the lease
                shared_until = claim.cloned_until[lane] if claim.cloned_until else 0
                if first <= ms < max(end, shared_until):
                    return claim
        return None

    def _begun(self, process: Process) -> list[Claim]:
        """Return the claims that *process* had when the call of this task began."""
        return process.claims_of_calls.get(self._world.current, [])

    def _repeated(self, process: Process, before: Emission, made: Emission, worker: int, lane: int, ms: int) -> None:
        # a clone that knows that it lost the lease may share ticks with its original, and with nobody else
        shares_with_others = before.shared != made.shared and (before if before.shared else made).refused
        is_void = self._is_void(process, worker, lane, ms) or shares_with_others
        if self._lifted(worker, lane, ms) and not is_void:
            self.excused += 1
            return
        self.duplicates += 1
        self.fail(
            f"{process.name} repeated an id of {before.who} (made {(self._world.now_us - before.at_us) / 1e6:.3f} s "
            f"before): worker {worker} lane {lane} at {ms} ms"
        )

    def _lifted(self, worker: int, lane: int, ms: int) -> bool:
        claims = self._by_worker.get(worker, ())
        # a pool may have had other settings
        in_outage_lane = any(lane == claim.outage_lane for claim in claims)
        lifted_until_ms = self.lifted_outage_until_ms if in_outage_lane else self.lifted_until_ms
        if ms < lifted_until_ms:
            return True
        return any(until and ms < until[lane] for claim in claims for until in (claim.cloned_until, claim.lost_until))

    def _is_void(self, process: Process, worker: int, lane: int, ms: int) -> bool:
        """Return true for a tick of a lease of which the process was told that a copy of it has it.

        Unless the process was granted the tick again, by a later claim.
        """
        begun = self._begun(process)
        void = [claim for claim in process.void_claims if all(claim is not each for each in begun)]
        now = self._claim_of(process, worker, lane, ms)
        if now is not None and all(now is not claim for claim in void):
            return False
        for claim in void:
            first, end = claim.range(lane)
            if claim.worker == worker and first <= ms < end:
                return True
        return False

    # --- reservations ------------------------------------------------------------------------------

    def asked(self, process: Process, script: str, args: Sequence[str | int]) -> None:
        """Check that a process says nothing of its lease that it was not granted."""
        if script not in ("renew", "release"):
            return
        request = request_of(script, args)
        key = token, _ = request["token"], request["worker"]
        granted, claim = process.granted.get(key), self.claims.get(key)
        if token in self._shared_tokens and script == "release":
            # a process that withdraws its claim may release what a copy of it was granted by the same one
            if claim is None:
                self._given_back.add(token)
            elif request["until_ms"] >= claim.until[0]:
                claim.clone()
        if granted is None or token in self._shared_tokens:
            # a dead process had this lease, which may be a copy of this one
            return
        ends = self._ends(process, request["until_ms"], request["outage_ms"])
        self._compare_with(process, granted, request.get("lanes_ms", granted.opens), ends, f"{script} request")

    def replied(self, process: Process, script: str, args: Sequence[str | int], reply: Sequence[str]) -> None:
        """Record what a reply grants, as it came."""
        if reply[0] not in ("granted", "renewed"):
            return
        reply = flat(reply)
        request = request_of(script, args)
        if reply[0] == "granted":
            ends = self._ends(process, int(reply[7]), int(reply[10]))
            process.granted[request["token"], int(reply[6])] = Reservation(tuple(ints(reply[8])), ends)
            return
        key = request["token"], request["worker"]
        if key not in process.granted:
            self.fail(f"{process.name} renewed a lease of worker {request['worker']} that it was not granted")
            return
        opens, until = process.granted[key]
        ends = self._ends(process, int(reply[6]), int(reply[9]))
        if process.config.outage_reserve_ms:
            # a lane that was not reserved may begin later after a loss
            opens = (*opens[:-1], max(opens[-1], int(reply[8])))
        process.granted[key] = Reservation(opens, tuple(map(max, until, ends)))

    def _ends(self, process: Process, until_ms: int, outage_ms: int) -> tuple[int, ...]:
        """Return the end of the reservation of each lane."""
        ordinary, outage = process.config.ordinary_lanes, process.config.outage_reserve_ms > 0
        return (*[until_ms] * ordinary, *[outage_ms] * outage)

    def _compare_with(
        self, process: Process, granted: Reservation, opens: Sequence[int], until: Sequence[int], what: str
    ) -> None:
        """Check that a reservation, as a process has it, lies in what it was granted."""
        for lane, (first, end, from_ms, until_ms) in enumerate(zip(opens, until, *granted, strict=True)):
            if first < end and (first < from_ms or end > until_ms):
                granted_ms = f"[{from_ms}, {until_ms}) of lane {lane}"
                self.fail(f"{process.name} was granted {granted_ms}, and has [{first}, {end}): {what}")

    def _granted_to(self, process: Process, held: HeldLease) -> Reservation | None:
        """Return what the replies granted of this lease: to the process, or to one whose lease it took over."""
        key = held.token, held.lease.worker
        if key not in process.granted:
            others = [other.granted[key] for other in process.sim.processes if key in other.granted]
            if not others:
                self.fail(f"{process.name} has a lease of worker {held.lease.worker} that no reply granted")
                return None
            process.granted[key] = max(others, key=lambda each: each.until)
        return process.granted[key]

    def _taken(self, process: Process, claim: Claim, opens_ms: Sequence[int]) -> None:
        """Check that a process takes over only what one that has ended left unused."""
        if claim.cloned_until:
            return
        holders = [other.name for other in process.sim.processes if other.alive and claim in other.claims]
        if holders:
            self.fail(f"{process.name} took over the lease of {', '.join(holders)}, which has not ended")
        for lane, (from_ms, until_ms) in enumerate(zip(opens_ms, claim.until, strict=True)):
            if from_ms <= claim.used.get(lane, from_ms - 1) and from_ms < until_ms:
                self.fail(f"{process.name} took over ticks of lane {lane} that {claim.who} used")

    def believe(self, process: Process, held: HeldLease) -> None:
        """Record a lease that a process has from now on."""
        lease, layout = held.lease, process.config.layout
        granted = self._granted_to(process, held)
        if granted is None:
            return
        opens, until = granted
        ends = self._ends(process, lease.until, lease.outage_until)
        # the end of the last tick that it may use is the end of its first ms
        self._compare_with(
            process,
            granted,
            [first_ms(layout, tick) for tick in lease.opens],
            [first_ms(layout, tick - 1) + 1 for tick in ends],
            "lease",
        )
        claim = self.claims.get((held.token, lease.worker))
        if claim is not None:
            if held.terms.renewal_id in claim.shared_renewals or (
                held.token in self._shared_tokens and not lease.renewals
            ):
                claim.clone()
                claim.cloned_until = tuple(map(max, claim.cloned_until, until))
            if claim not in process.claims:
                if held.taken_ms:
                    *opens_ms, outage_ms = (first_ms(layout, tick) for tick in lease.opens)
                    self._taken(process, claim, [*opens_ms, max(outage_ms, held.outage_used_ms)])
                process.claims.append(claim)
            if until[0] >= claim.until[0]:
                claim.renewal_id = held.terms.renewal_id
            if claim.opens[-1] >= claim.until[-1]:
                # an outage lane that was not reserved yet may begin later after a loss
                claim.opens = opens
            # taken over: what the process that ended tried to release, it did not
            taken = bool(held.taken_ms) and claim.ends is not None
            if not taken and not any(end > before for end, before in zip(until, claim.until, strict=True)):
                return
            if taken:
                # a clone of it did release what it tried to: the heir has what was recorded
                recorded = tuple(map(min, until, (first_ms(layout, tick) for tick in ends)))
                claim.ends = recorded if claim.cloned_until else None
            if until[0] > claim.until[0]:
                # renewed after all: what a clone of the holder tried to release, it did not
                claim.ends = None
                if claim.may_return:
                    claim.cloned_until = tuple(map(max, claim.cloned_until, until))
            claim.until = tuple(map(max, claim.until, until))
        else:
            claim = Claim(held.token, lease.worker, process.name, opens, until)
            claim.renewal_id, claim.layout = held.terms.renewal_id, process.config.layout
            claim.outage_lane = len(until) - 1 if process.config.outage_reserve_ms else -1
            self.claims[held.token, lease.worker] = claim
            self._by_worker.setdefault(lease.worker, []).append(claim)
            process.claims.append(claim)
            if held.token in self._given_back:
                claim.clone()
        for other in self._by_worker[lease.worker]:
            if other is not claim and other.layout == claim.layout:
                self._compare(claim, other)

    def _compare(self, one: Claim, other: Claim) -> None:
        for lane, first, end in self._overlaps(one, other):
            if not self._lifted(one.worker, lane, end - 1):
                self.fail(
                    f"worker {one.worker} lane {lane}: [{first}, {end}) ms are reserved by {one.who} and by {other.who}"
                )

    def _overlaps(self, one: Claim, other: Claim) -> Iterator[tuple[int, int, int]]:
        for lane in range(len(one.opens)):
            (first, end), (first_2, end_2) = one.range(lane), other.range(lane)
            if max(first, first_2) < min(end, end_2):
                yield lane, max(first, first_2), min(end, end_2)

    def released(self, process: Process, held: HeldLease, opened: str) -> None:
        """Record a release: the holder is sealed and has reported which lanes it opened; it uses none any more."""
        claim = self.claims.get((held.token, held.lease.worker))
        # the last is what the slower of two clones tries: nothing is released
        granted = self._granted_to(process, held)
        if claim is not None and granted is not None and granted.until[0] >= claim.until[0]:
            self.ended(held.token, held.lease.worker, opened)

    def granted_again(self, token: str, reply: Granted) -> None:
        """Record that a parent repeated the claim of a killed process, whose clone may have the same lease."""
        claim = self.claims.get((token, reply.terms.worker))
        if claim is not None:
            claim.renewal_id = reply.terms.renewal_id

    def reclaimed(self, request: ReleaseRequest) -> None:
        """Record that a parent releases the lease of a killed process, unless a clone has renewed it since."""
        terms = request.lease
        claim = self.claims.get((request.token, terms.worker))
        if claim is not None and claim.renewal_id in (terms.renewal_id, request.pending):
            self.ended(request.token, terms.worker, "")

    def ended(self, token: str, worker: int, opened: str) -> None:
        """Record that a claim is used no more: a lane but the first that its holder never opened may go back whole."""
        claim = self.claims.get((token, worker))
        if claim is None:
            return
        if token in self._shared_tokens:
            # a clone may have been given the same lease
            claim.clone()
        now = tuple(self._end_of(claim, lane, flag) for lane, flag in enumerate(opened or "1" * len(claim.opens)))
        # a neighbor that finds the record later does not know what the holder said
        claim.ends = now if claim.ends is None else tuple(map(min, claim.ends, now))

    def _end_of(self, claim: Claim, lane: int, flag: str) -> int:
        """Return where the reservation of a lane ends after a release; *flag*: "0" if the holder never opened it."""
        if lane and flag == "0":
            if lane not in claim.used:
                return claim.opens[lane]
            if claim.cloned_until and claim.used[lane] < claim.cloned_until[lane]:
                # a clone used it
                return claim.cloned_until[lane]
        return claim.until[lane]

    def cloned(self, leases: Iterable[HeldLease | None], claim_token: str) -> None:
        """Record that a process was cloned while it had these leases, or was claiming."""
        if claim_token:
            self._shared_tokens.add(claim_token)
        for held in filter(None, leases):
            claim = self.claims.get((held.token, held.lease.worker))
            if claim:
                claim.clone()
                # a renewal that had a reply is not shared
                if held.pending_renewal_id not in ("", held.terms.renewal_id):
                    claim.shared_renewals.add(held.pending_renewal_id)
