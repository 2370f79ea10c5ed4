"""Members of a generator with lease="host": they make ids from the word of a page, and talk to Redis in its turns."""

from __future__ import annotations

import contextlib
import time

from snowredis.core.lanes import (
    ClaimAnother,
    Decision,
    Lanes,
    RaiseClockBack,
    RenewLease,
    UseTick,
    Wait,
    closest_fit,
    decide,
)
from snowredis.errors import ConfigError, StoreUnavailable
from snowredis.process.clock import nap
from snowredis.snowflake.allocator import IdAllocator, LaneChange, NoLease, Step
from snowredis.snowflake.context import Context
from snowredis.snowflake.host_lease import Host
from snowredis.snowflake.host_page import MADE, SEALED_BIT, TurnOver
from snowredis.snowflake.lease import Claimed, HeldLease
from snowredis.snowflake.lease_manager import LeaseManager
from snowredis.snowflake.lifecycle import LeaseLifecycle

# how long a call waits before it looks again whether the process with the turn is ready
PAUSE_S = 0.001
# how long close() waits for the turn
LEAVE_S = 1.0


class HostAllocator(IdAllocator):
    """Open the word of a host for the ticks of its lease, and seal it."""

    host: Host

    def advance(self, *, only_claim: bool, blocking: bool = True) -> Step:
        """Take an id, or return what has to be done first. See IdAllocator.advance()."""
        host = self.host
        if not host.join():
            return super().advance(only_claim=only_claim, blocking=blocking)
        if not only_claim and (an_id := self._generator._id_now()):
            return an_id, None
        decision = self._decide_by_word()
        if isinstance(decision, UseTick | Wait) and only_claim:
            return 0, None
        if isinstance(decision, Wait | RaiseClockBack):
            return 0, decision
        if not blocking:
            return 0, NoLease()
        step = host.in_turn(lambda: self._advance_in_turn(only_claim=only_claim))
        if step is None:
            nap(self._clock, PAUSE_S)
            return 0, Wait(0, clock_back=False)
        an_id, next_step = step
        if isinstance(next_step, LaneChange):
            self._context.clock_backs.note(next_step.behind_ms, "namespace", self.ids_made)
            next_step = None
        return an_id, next_step

    def _decide_by_word(self) -> Decision | NoLease:
        """Decide by the word and its limit alone; NoLease() if it is sealed."""
        host, page, layout = self.host, self.host.page, self._layout
        word = host.word
        if page is None or word & SEALED_BIT:
            return NoLease()
        _, now_ms = self._read_clock()
        tick = word >> layout.timestamp_shift
        until = layout.tick_at(page.limit_ms)
        decision = decide(Lanes((tick + 1,), (True,)), now_ms, until, layout.tick_ms, self._context.rules)
        # ids were taken, or a tick was opened, since
        return Wait(0, clock_back=False) if isinstance(decision, UseTick) else decision

    def lanes_of(self, held: HeldLease) -> Lanes:
        """Return up to which tick each ordinary lane of *held* is used, in a turn."""
        count, word = self._config.ordinary_lanes, self.host.word & ~SEALED_BIT
        opens, parts = held.lease.opens, self._layout.decode(word)
        first = tuple(map(self._layout.first_tick_from, held.lanes_ms))
        used = tuple(now > before for now, before in zip(opens, first, strict=True))[:count]
        if parts.worker == held.lease.worker and parts.backup < count:
            return Lanes(opens[:count], used, parts.backup)
        lanes = Lanes(opens[:count], used)
        if not any(used):
            return lanes
        # from the outage lane back to the lane of before, after its ids
        lane = closest_fit(lanes, parts.tick)
        return lanes if lane is None else lanes._replace(current=lane).after(parts.tick)

    def decide_in_turn(self, held: HeldLease) -> Decision:
        """Decide for the lanes of *held*, which was loaded in this turn."""
        _, now_ms = self._read_clock()
        until, tick_ms = held.lease.until, self._layout.tick_ms
        return decide(self.lanes_of(held), now_ms, until, tick_ms, self._context.rules)

    def _advance_in_turn(self, *, only_claim: bool) -> tuple[int, Decision | NoLease | LaneChange | None]:
        held = self._leases.held
        if held is None:
            return 0, NoLease()
        if not only_claim and (an_id := self._generator._id_now()):
            return an_id, None
        decision = self.decide_in_turn(held)
        if not isinstance(decision, UseTick):
            return 0, None if only_claim and isinstance(decision, Wait) else decision
        if only_claim:
            return 0, None
        lanes = self.lanes_of(held)
        an_id = self.open(held, decision, held.lease.until)
        if not an_id:
            return 0, Wait(0, clock_back=False)
        if lanes.current == decision.lane or not lanes.used[lanes.current]:
            return an_id, None
        behind_ms = self._layout.ms_at(lanes.opens[lanes.current] - 1) - self._context.now_ms()
        return an_id, LaneChange(behind_ms)

    def open(self, held: HeldLease, use_tick: UseTick, until: int) -> int:
        """Open the word at *use_tick* for ticks before *until*; return its first id, 0 if that tick is used meanwhile.

        In this order: nobody takes ids; the marks are in the page; so is the limit; ids can be taken. Raises TurnOver.
        """
        host, page, layout, (lane, tick) = self.host, self.host.page, self._layout, use_tick
        self._check_tick(tick)
        sealed = host.seal()
        credentials = host.credentials.read()
        if page is None or credentials is None or credentials["token"] != held.token:
            raise TurnOver
        marks = host.credentials.marks(credentials)
        if marks[lane] > layout.ms_at(tick):
            return 0
        if marks != tuple(credentials["marks_ms"]):
            page.write(lambda before: before and {**before, "marks_ms": marks})
        page.set_limit(host.limit_ms(until))
        an_id = layout.compose(
            tick=tick,
            datacenter=self._leases.config.datacenter,
            backup=lane,
            worker=held.lease.worker,
        )
        # 0 is not a valid id
        an_id = an_id or layout.sequence_step
        page.open(sealed, an_id)
        return an_id

    # --- as IdAllocator, of the word ---------------------------------------------------------------

    @property
    def usage(self) -> tuple[int, int]:
        """How many ids the host has made, counted at each tick, and the value of the backup bits of the last ones."""
        page, host = self.host.page, self.host
        if page is None:
            return super().usage
        return page.load(MADE), self._layout.decode(host.word & ~SEALED_BIT).backup

    @property
    def in_outage_lane(self) -> bool:
        """True if the last id was made in an outage lane, and the next one would be."""
        host = self.host
        if host.page is None:
            return super().in_outage_lane
        return not host.word & SEALED_BIT and host.is_outage_lane(host.word)

    def open_outage_lane(self, lease: HeldLease, until: int) -> bool:
        """Let ids be made in the outage lane of *lease*, in a turn. See IdAllocator.open_outage_lane()."""
        if self.host.page is None:
            return super().open_outage_lane(lease, until)
        first = max(lease.lease.opens[-1], (self.host.word & ~SEALED_BIT) >> self._layout.timestamp_shift)
        lanes = Lanes((first,), (first > lease.lease.opens[-1],))
        until = min(until, lease.lease.outage_until)
        _, now_ms = self._read_clock()
        decision = decide(lanes, now_ms, until, self._layout.tick_ms, self._outage_rules)
        if isinstance(decision, UseTick):
            self.open(lease, UseTick(self._layout.namespaces - 1, decision.tick), until)
        return isinstance(decision, UseTick | Wait | RaiseClockBack)

    def close_outage_lane(self) -> None:
        """Let no more ids be made in an outage lane, in a turn."""
        if self.host.page is None:
            super().close_outage_lane()
        elif self.in_outage_lane:
            self.seal()

    def seal(self) -> None:
        """Let nobody take ids of the lease; of the host's, if this is a turn."""
        if self.host.page is None:
            super().seal()
            return
        with contextlib.suppress(TurnOver):
            self.host.seal()

    def seal_through(self, serial: int) -> None:
        """Do nothing for a lease of the host: it was sealed before another one was recorded."""
        if self.host.page is None:
            super().seal_through(serial)

    def marks(self, held: HeldLease) -> tuple[int, ...] | None:
        """Return the marks of *held*, which is sealed, in the turn in which it is given back or was replaced."""
        host = self.host
        if host.page is None:
            return super().marks(held)
        credentials = host.credentials.read()
        if credentials is not None and credentials["token"] == held.token:
            return host.credentials.marks(credentials)
        return host.credentials.marks_before or None

    def after_fork(self) -> None:
        """Discard the parent's ids, in a forked child."""
        self.host.after_fork()
        super().after_fork()


class HostLifecycle(LeaseLifecycle):
    """Talk to Redis for all processes of a host, in turns."""

    host: Host
    _allocator: HostAllocator

    @property
    def _is_alone(self) -> bool:
        """True if this process has a lease of its own."""
        return self.host.page is None

    def claim(self, wait_ms: int, instead_of: int = 0) -> Claimed:
        """Claim a worker id for the host, unless another process does."""
        if self._is_alone:
            return super().claim(wait_ms, instead_of)
        claimed = self.host.in_turn(lambda: self._claim(wait_ms, instead_of))
        if claimed is None:
            nap(self._clock, PAUSE_S)
        return claimed or Claimed()

    def renew_in_need(self) -> None:
        """Renew for a call that needs more time, unless another process has. See LeaseLifecycle."""
        if self._is_alone:
            super().renew_in_need()
            return
        if self.host.in_turn(self._renew_in_turn) is None:
            nap(self._clock, PAUSE_S)

    def _renew_in_turn(self) -> bool:
        held = self._leases.held
        if held is not None and isinstance(self._allocator.decide_in_turn(held), RenewLease):
            super().renew_in_need()
        return True

    def replace(self, behind_ms: int) -> None:
        """Claim a worker id whose lanes fit the clock, unless another process has. See LeaseLifecycle."""
        if self._is_alone:
            super().replace(behind_ms)
        elif self.host.in_turn(lambda: self._replace_in_turn(behind_ms)) is None:
            nap(self._clock, PAUSE_S)

    def _replace_in_turn(self, behind_ms: int) -> bool:
        held = self._leases.held
        if held is not None and isinstance(self._allocator.decide_in_turn(held), ClaimAnother):
            super().replace(behind_ms)
        return True

    def beat(self) -> float:
        """Renew the lease of the host, or claim one, if that is up to this process. Never raises."""
        page = self.host.page
        if page is None:
            return super().beat()
        is_due = self._failing or page.is_due(self._context.config.heartbeat_ms)
        if self.closed or self.suspended or not is_due:
            return self.beat_after_s()
        try:
            return self.host.in_turn(super().beat) or self.beat_after_s()
        except StoreUnavailable:
            return self.beat_after_s()

    def _claim(self, wait_ms: int, instead_of: int = 0) -> Claimed:
        self._note_attempt()
        return super()._claim(wait_ms, instead_of)

    def _renew(self) -> bool:
        self._note_attempt()
        return super()._renew()

    def _note_attempt(self) -> None:
        if self.host.page is not None:
            self.host.page.note_attempt()

    def open_outage_lane(self) -> bool:
        """Return False: the outage lane of a host is opened when a renewal has failed, in that turn."""
        return super().open_outage_lane() if self._is_alone else False

    def _close_outage_lane(self) -> None:
        self._opened = 0
        super()._close_outage_lane()
        if not self._is_alone:
            self._allocator.close_outage_lane()

    def give_back(self) -> None:
        """Be no member of the host any more; the last one releases its lease. Never raises."""
        host = self.host
        if self._is_alone:
            super().give_back()
            return
        with contextlib.suppress(StoreUnavailable):
            # the heartbeat may be in the middle of a renewal
            self._leases.end_conversation()
        if not host.leave():
            return
        deadline_s = time.monotonic() + LEAVE_S
        with contextlib.suppress(StoreUnavailable):
            while host.in_turn(self._release_in_turn) is None and time.monotonic() < deadline_s:
                time.sleep(PAUSE_S)
        host.page = None

    def _release_in_turn(self) -> bool:
        page = self.host.page
        # a process that has joined meanwhile goes on
        if page is not None and not page.pids:
            super().give_back()
            if self.suspended:
                # also a claim without a reply, or a lease that could not be released: a clone would have it, too
                self.host.credentials.clear()
        return True


def members_of_host(
    context: Context, leases: LeaseManager, sequence_start: str, sequence_start_bound: int | None
) -> tuple[IdAllocator, LeaseLifecycle]:
    """Return allocator and lifecycle of a generator with lease="host".

    Raises ConfigError for settings that it cannot have.
    """
    rules = context.rules
    if rules.policy == "ahead" or rules.overflow == "ahead" or sequence_start in ("random", "continue"):
        raise ConfigError(
            'lease="host" cannot be combined with clock_policy="ahead", overflow="ahead", sequence_start="random" or '
            'sequence_start="continue": these need a state of each process. Leave them out, or use lease="process".'
        )
    host = Host(context, leases)
    allocator = HostAllocator(context, leases, sequence_start, sequence_start_bound)
    lifecycle = HostLifecycle(context, leases, allocator)
    allocator.host = lifecycle.host = host
    host.on_join = lifecycle.start_heartbeat
    return allocator, lifecycle
