"""Make the ids of a held lease: decide which ticks the fast path may use, publish them, seal them.

Knows no store and never waits: where something has to be done first, advance() returns what. It runs when the fast
path (fast_path.py) cannot go on by itself: it asks core.lanes what comes next, and publishes a new range of ticks only
if the range and tick that it started from are still current, in one step with that test. So a range is discarded if
anything was opened, published or sealed (close, fork, lost lease) while it was computed. What publishes or seals
also exhausts the ids before, which reaches a thread, or a frame below a signal handler, that is taking one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

from snowredis.core.lanes import (
    LONG_WAIT_MS,
    SEALED,
    ClaimAnother,
    Decision,
    Lanes,
    NotOpen,
    Position,
    RaiseClockBack,
    RenewLease,
    TickRange,
    UseTick,
    Wait,
    decide,
    first_sequence,
)
from snowredis.errors import ClockMovedBack, LayoutError
from snowredis.process.threads import NotAcquired, locked
from snowredis.snowflake.ids.fast_path import FastPath
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.lease.held import HeldLease
from snowredis.snowflake.lease.requests import LeaseManager

# outage lanes that are remembered: of the lease, of the one that was lost before, and one to spare
MOST_OUTAGES = 3
# with longer ticks, a service that had used the end of a tick would wait for too long
MAX_SPREAD_TICK_MS = 10
# the last time that the fast path can compute with, ns since 1970: in the year 2262
LAST_NS = (1 << 63) - 1


class State(NamedTuple):
    """The allocator's data of a range of ticks.

    Attributes:
        serial: of the lease that *lanes* belong to; serials only grow.
        lanes: up to which tick the lease's lanes were used before the range, without its outage lane.
        lane: the lane of the range.
        outage: serial of the lease whose outage lane the range is of; 0 for other lanes.
        outages: outage lanes that were used before the range: (serial of the lease, first unused tick).
        last: the last tick that was used before the range, of any lane; -1 if there was none.
    """

    serial: int
    lanes: Lanes
    lane: int = 0
    outage: int = 0
    outages: tuple[tuple[int, int], ...] = ()
    last: int = -1


NO_STATE = State(0, Lanes((), ()))


class OpenLane(NamedTuple):
    """The outage lane in which ids may be made: that of the lease with *serial*, up to the tick *until*."""

    serial: int
    until: int


NO_LANE = OpenLane(0, 0)


class NoLease(NamedTuple):
    """Decision: claim a worker id first."""


class LaneChange(NamedTuple):
    """The clock went back by *behind_ms*, so an id was made on another lane."""

    behind_ms: float


class Choice(NamedTuple):
    """A decision, and the range that follows if it is to use a tick.

    Attributes:
        lease: whose ticks they are; None if there is none.
        serial, lanes, outage: as in State.
        until: the end of what may be published of an outage lane, a tick.
    """

    lease: HeldLease | None
    serial: int
    lanes: Lanes
    decision: Decision | NoLease
    outage: int = 0
    until: int = 0


# an id and None; or 0, and what has to be done first (None: nothing, since only a lease was asked for)
Step = tuple[int, Decision | NoLease | None]


class IdAllocator:
    """Publish ranges of ticks of the lease that *leases* holds, on the generator of *context*.

    Args:
        sequence_start: where the sequence of a tick begins: "spread" or "zero".
    """

    def __init__(self, context: Context, leases: LeaseManager, sequence_start: str) -> None:
        layout = context.config.layout
        # with worker_last, the low bits are those of the worker
        short = layout.tick_ms <= MAX_SPREAD_TICK_MS and layout.sequence_bits < 32 and not layout.worker_last
        self._spread = layout.sequences - 1 if sequence_start == "spread" and short else 0
        self._context, self._clock = context, context.clock
        self._generator = cast(FastPath, context.weak_generator)
        self._config, self._leases, self._layout = context.config, leases, layout
        # the only place that says which outage lane is open; the lease may be gone meanwhile
        self._open_lane = NO_LANE
        # the only lane of an outage cannot be changed for another one
        rules = context.rules
        wait_ms = max(rules.max_wait_ms, LONG_WAIT_MS)
        self._outage_rules = replace(rules, policy="wait", max_wait_ms=wait_ms) if rules.policy == "backup" else rules
        self._sealed = TickRange(
            first_id=SEALED,
            early_ns=0,
            limit_ns=0,
            epoch_ms=self._layout.epoch_ms,
            tick_ms=self._layout.tick_ms,
            low=0,
            sequence_mask=(layout.sequences - 1) * self._layout.sequence_step,
            timestamp_shift=self._layout.timestamp_shift,
            sequence_shift=self._layout.sequence_shift,
            spread=self._spread,
            salt=0,
            is_reset=b"",
            clock=context.clock,
            state=NO_STATE,
        )
        self._generator._supersede(None, SEALED, self._sealed)

    @property
    def outage_serial(self) -> int:
        """Serial of the lease whose outage lane is open; 0 if none is."""
        return self._open_lane.serial

    @property
    def usage(self) -> tuple[int, int]:
        """Return (ids_made, namespace of the last ids)."""
        position = self._generator._position
        state: State = position[0].state
        is_sealed = not state.outage and position[1] == SEALED
        return position[2], state.lanes.current if is_sealed else state.lane

    @property
    def in_outage_lane(self) -> bool:
        """True if the last id was made in an outage lane, and the next one would be: its end has not come."""
        state: State = self._generator._position[0].state
        opened = self._opened_lease() if state.outage > 0 else None
        return opened is not None and self._context.now_ms() < opened.lease.outage_until_ms

    @property
    def ids_made(self) -> int:
        """About how many ids this generator made so far: unused ids of a sealed tick may count."""
        return self._generator._position[2]

    @property
    def fits_clock(self) -> bool:
        """False if the clock shows a time for which an id is refused: it went back too far, or is out of the layout."""
        try:
            _, now_ms = self._read_clock()
        except LayoutError:
            return False
        state = self._state(self._generator._position)
        decision = self._choose(state, self._leases.held, self._opened_lease(), now_ms).decision
        if isinstance(decision, ClaimAnother):
            # unless that was refused when an id was asked for
            return self._context.calls.refusal(self.ids_made) != ClockMovedBack.__name__
        return not isinstance(decision, RaiseClockBack)

    def _tick(self, position: Position) -> int:
        """Return the tick that was opened last; SEALED if the range is sealed."""
        _, last_id, _ = position
        return SEALED if last_id == SEALED else last_id >> self._layout.timestamp_shift

    def _state(self, position: Position) -> State:
        """Return the data of the range with what was used of the range, too. The newest outage lane comes first."""
        state: State = position[0].state
        tick = self._tick(position)
        if tick == SEALED:
            return state
        if not state.outage:
            return state._replace(lanes=state.lanes.using(state.lane, tick), last=tick)
        others = [pair for pair in state.outages if pair[0] != state.outage]
        return state._replace(outages=((state.outage, tick + 1), *others[:MOST_OUTAGES]), last=tick)

    def advance(self, *, only_claim: bool, blocking: bool = True) -> Step:
        """Take an id of the current tick or of a later one, or return what has to be done first.

        Args:
            only_claim: take no id; only make sure that there is a lease whose lanes are open.
            blocking: if false, return ``NoLease()`` if another thread holds the generator's lock.

        Blocks:
            for the generator's lock, which nobody holds while waiting, except to detach a lease.

        Raises:
            LayoutError: the clock is before the layout's epoch or after its end.
        """
        timeout_s = -1 if blocking else 0
        try:
            an_id, decision = locked(self._generator._lock, self._advance, only_claim, timeout_s=timeout_s)
        except NotAcquired:
            return 0, NoLease()
        if isinstance(decision, LaneChange):
            # logged without the lock: a logging handler may be busy in a thread that waits for this lock
            self._context.calls.clock_back(decision.behind_ms, "namespace", self.ids_made)
            return an_id, None
        return an_id, decision

    def open_outage_lane(self, lease: HeldLease, for_ms: int) -> bool:
        """Let ids be made in the outage lane of *lease* for a time, and for one tick at least.

        The caller holds the generator's lock.

        Returns:
            whether ids can be made there.
        """
        layout, state = self._layout, self._state(self._generator._position)
        now_ns, now_ms = self._read_clock()
        later = layout.tick_at(now_ns // 1_000_000 + for_ms)
        until = min(max(later, self._outage_first(state, lease)) + 1, lease.lease.outage_until)
        decision = self._decide_outage(state, lease, now_ms, until)
        is_usable = isinstance(decision, UseTick | Wait | RaiseClockBack)
        if is_usable:
            # step 5, own: this has to be known before an id is made
            self._leases.slot.record.note_outage_use(layout.ms_at(until))
            self._open_lane = OpenLane(lease.serial, until)
        return is_usable

    def close_outage_lane(self) -> None:
        """Let no more ids be made in an outage lane. The caller holds the generator's lock."""
        self._open_lane = NO_LANE
        state: State = self._generator._position[0].state
        if state.outage:
            self.seal()

    def _opened_lease(self) -> HeldLease | None:
        """Return the lease whose outage lane is open, if it is still there."""
        serial, leases = self.outage_serial, (self._leases.held, self._leases.slot.lost_lease)
        return next((each for each in leases if each and each.serial == serial), None)

    def _advance(self, only_claim: bool) -> tuple[int, Decision | NoLease | LaneChange | None]:
        # read before the lease: detaching that seals next, and then this is not current any more
        position = self._generator._position
        state = self._state(position)
        held, outage = self._leases.held, self._opened_lease()
        if held is None and outage is None:
            self.seal()
            return 0, NoLease()
        leased = outage if state.outage else held
        is_current = leased is not None and leased.serial == (state.outage or state.serial)
        if is_current and not only_claim and (an_id := self._generator._id_now()):
            # another thread published meanwhile, or a wait is over
            return an_id, None
        layout = self._layout
        now_ns, now_ms = self._read_clock()
        choice = self._choose(state, held, outage, now_ms)
        decision, lanes, lease = choice.decision, choice.lanes, choice.lease
        if lease is not None and isinstance(decision, UseTick) and not only_claim:
            an_id = self._publish(position, state, lease, choice, decision, now_ns)
            if not an_id:
                # another thread or a signal handler published meanwhile: decide again
                return 0, Wait(0, clock_back=False)
            if choice.outage or state.serial != choice.serial or lanes.current == decision.lane:
                return an_id, None
            behind_ms = layout.ms_at(lanes.opens[lanes.current] - 1) - now_ns // 1_000_000
            return an_id, LaneChange(behind_ms)
        if only_claim and isinstance(decision, UseTick | Wait):
            return 0, None
        return 0, decision

    def _read_clock(self) -> tuple[int, float]:
        """Return the clock's time, ns since 1970 and ms since the layout's epoch. Raises LayoutError."""
        layout, now_ns = self._layout, self._clock.time_ns()
        # whole microseconds: a float of the time in ns may be rounded up into the next tick
        now_ms = (now_ns - layout.epoch_ms * 1_000_000) // 1000 / 1000
        if now_ms < 0 or now_ns > LAST_NS - layout.tick_ms * 1_000_000:
            raise LayoutError(
                f"the clock of this host shows a time {-now_ms:.0f} ms before the layout's epoch; no id was made. "
                "Set the clock, or choose a layout with an earlier epoch."
                if now_ms < 0
                else "the clock of this host shows a time after the year 2261; no id was made. Set the clock."
            )
        return now_ns, now_ms

    def _choose(self, state: State, held: HeldLease | None, outage: HeldLease | None, now_ms: float) -> Choice:
        """Choose a lane of the lease *held*; else the outage lane of *outage*, which may be the same lease."""
        serial, lanes = state.serial, state.lanes
        decision: Decision | NoLease = NoLease()
        if held is not None:
            if serial != held.serial:
                serial, lanes = held.serial, Lanes.fresh(held.lease.opens[: self._config.ordinary_lanes])
            if state.outage and state.last < held.lease.until:
                # if the clock was very far ahead in the outage, these lanes could not follow, and stay as they are
                lanes = lanes.after(state.last)
            rules = self._context.rules
            decision = decide(lanes, now_ms, held.lease.until, self._layout.tick_ms, rules)
        if outage is not None and isinstance(decision, NoLease | NotOpen | RenewLease):
            until = min(self._open_lane.until, outage.lease.outage_until)
            instead = self._decide_outage(state, outage, now_ms, until)
            if isinstance(instead, UseTick | Wait | RaiseClockBack):
                if isinstance(decision, NotOpen):
                    until = min(until, *lanes.opens)
                if outage.serial != serial:
                    # a tick of a lease that was lost: what is known of the present one stays as it is
                    serial, lanes = state.serial, state.lanes
                return Choice(outage, serial, lanes, instead, outage.serial, until)
        return Choice(held, serial, lanes, decision)

    def _decide_outage(self, state: State, lease: HeldLease, now_ms: float, until: int) -> Decision:
        """Decide for the outage lane of *lease*, whose ids are later than all before."""
        begins, first = self.outage_begins(lease), self._outage_first(state, lease)
        if first >= until:
            return RenewLease(first)
        lane = Lanes((first,), (first > begins,))
        decision = decide(lane, now_ms, until, self._layout.tick_ms, self._outage_rules)
        if isinstance(decision, NotOpen) and begins > lease.lease.opens[-1]:
            # the process before had opened the lane for this moment
            return Wait(decision.ms, clock_back=False)
        return decision

    def outage_begins(self, lease: HeldLease) -> int:
        """Return the first tick of the outage lane of *lease* that this process may use."""
        return max(lease.lease.opens[-1], self._layout.first_tick_from(lease.outage_used_ms))

    def _outage_first(self, state: State, lease: HeldLease) -> int:
        """Return the first tick of the outage lane of *lease* that is unused, and later than all ids."""
        used = dict(state.outages).get(lease.serial, 0)
        return max(self.outage_begins(lease), used, state.last + 1)

    def _publish(
        self, position: Position, before: State, held: HeldLease, choice: Choice, use_tick: UseTick, now_ns: int
    ) -> int:
        """Publish the range that begins with *use_tick* and take its first id; 0 if *position* is not current."""
        layout, (lane, tick) = self._layout, use_tick
        if choice.outage:
            lane = layout.namespaces - 1
        if tick > layout.max_tick:
            raise LayoutError(
                f"the layout's {layout.timestamp_bits} timestamp bits are used up since {layout.end}; no id was made. "
                "Move to a layout with more timestamp bits or a later epoch."
            )
        worker, datacenter = held.lease.worker, self._leases.store.config.datacenter
        salt = self._context.random.getrandbits(31) if self._spread else 0
        first = self._first_sequence(position, tick, salt)
        an_id = layout.compose(tick=tick, datacenter=datacenter, backup=lane, worker=worker, sequence=first)
        # 0 is not a valid id: tick 0, worker 0, sequence 0 of a layout whose epoch is now, and which has a sequence
        an_id = an_id or layout.sequence_step
        # a borrowed tick begins ahead of the clock; its ids are current from the clock's tick on
        early_ms = layout.ms_at(tick) - layout.ms_at(min(tick, layout.tick_at(now_ns // 1_000_000)))
        ticks = self._sealed._replace(
            first_id=an_id,
            early_ns=early_ms * 1_000_000,
            limit_ns=min(
                layout.ms_at(self._limit(tick, choice.until or held.lease.until, early_ms)) * 1_000_000, LAST_NS
            ),
            low=layout.compose(tick=0, datacenter=datacenter, backup=lane, worker=worker),
            salt=salt,
            is_reset=self._context.guard.is_reset,
            state=State(choice.serial, choice.lanes, lane, choice.outage, before.outages, before.last),
        )
        return an_id if self._generator._supersede(position[0], self._tick(position), ticks) else 0

    def _limit(self, tick: int, until: int, early_ms: int) -> int:
        """Return the first tick that the fast path must not open by itself, later than *tick*; *until* at most."""
        if early_ms or not self._context.guard.sees_all_forks:
            return tick + 1
        return max(tick, min(until - 1, self._layout.max_tick)) + 1

    def _first_sequence(self, position: Position, tick: int, salt: int) -> int:
        """Return the first sequence of *tick*; *position*: of the range before."""
        old, last_id, _ = position
        # the tick after one that was used up has all of its ids, as in the fast path
        used_up = last_id != SEALED and not ~last_id & old.sequence_mask
        return 0 if used_up else first_sequence(tick, self._spread, salt)

    def seal(self) -> None:
        """Remove all ids from the current range, also for a thread that is taking one."""
        while True:
            position = self._generator._position
            # it must stay known how far the lanes are used
            sealed = self._sealed._replace(state=self._state(position))
            if self._generator._supersede(position[0], self._tick(position), sealed):
                return

    def seal_through(self, held: HeldLease) -> str:
        """Seal the current range unless that is of a lease later than *held*; return opened()."""
        state: State = self._generator._position[0].state
        if state.serial <= held.serial:
            # even if that lease has no range: a frame below this signal handler may be about to publish the first one
            self.seal()
        return self.opened(held)

    def opened(self, held: HeldLease) -> str:
        """Return for each lane of *held*, which must be sealed, "1" if ids were made in it, else "0".

        "" if that is unknown: another program, or the process from which it was taken over, may have made some. The
        caller holds the generator's lock.
        """
        # read once: a signal handler may publish a range of another lease
        state = self._state(self._generator._position)
        if state.serial > held.serial or self._leases.slot.lent or held.taken_ms:
            return ""
        # without ids of this lease, no lane was used
        lanes = state.lanes.used if state.serial == held.serial else ()
        used = (*lanes, *[False] * (self._config.ordinary_lanes - len(lanes)))
        if len(used) < self._layout.namespaces:
            used = (*used, held.serial in dict(state.outages))
        return "".join("1" if each else "0" for each in used)

    def after_fork(self) -> None:
        """Discard the parent's ids, in a forked child."""
        self._open_lane = NO_LANE
        # published after whatever the parent was about to publish, so that a call that goes on here cannot
        while True:
            position = self._generator._position
            state: State = position[0].state
            # if it is not void, a signal handler of this child has claimed that lease, and may have made ids of it
            is_own = state.serial >= self._leases.slot.oldest
            sealed = self._sealed._replace(state=NO_STATE)
            if is_own or self._generator._supersede(position[0], self._tick(position), sealed):
                return
