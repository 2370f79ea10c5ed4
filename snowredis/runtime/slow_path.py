"""The slow path: make an id when the fast path cannot. Claims, waits, renews or replaces the lease as needed."""

from __future__ import annotations

from concurrent.futures import Future

from snowredis.core.lanes import ClaimAnother, NotOpen, RaiseClockBack, RenewLease, Wait
from snowredis.errors import ClockMovedBack, ClockSkewed, ClockStopped, GeneratorClosed, GeneratorSuspended
from snowredis.runtime.claim_wait import ClaimWait, ClockSkewMemory, FullPoolMemory
from snowredis.runtime.clock import MAX_SLEEP_S, FrozenClockCheck, nap
from snowredis.runtime.context import Context
from snowredis.runtime.id_allocator import IdAllocator, NoLease, Step
from snowredis.runtime.lease_manager import LeaseManager
from snowredis.runtime.lifecycle import LeaseLifecycle
from snowredis.runtime.wait_notice import WaitNotice


class SlowPath:
    """Makes ids of one generator, whatever has to be done first.

    Attributes:
        clock: the generator's.
        preparing: the call that makes this generator ready for coroutines, if one is under way or was.
    """

    def __init__(
        self,
        context: Context,
        leases: LeaseManager,
        allocator: IdAllocator,
        lifecycle: LeaseLifecycle,
        claim_timeout_s: float,
    ) -> None:
        self._context, self._guard = context, context.guard
        self._leases, self._allocator, self._lifecycle = leases, allocator, lifecycle
        self.clock, self._pool, self._claim_timeout_s = context.clock, context.config.name, claim_timeout_s
        self._skew = ClockSkewMemory(context.clock)
        self._full = FullPoolMemory(self._pool, context.clock, claim_timeout_s)
        self._notice = WaitNotice(self._pool, context.clock.monotonic)
        self.preparing: Future[None] | None = None

    def next_id(self, *, only_claim: bool = False) -> int:
        """Make an id; or, with *only_claim*, claim or wait until a lease has open lanes, and return 0.

        Blocks:
            as Generator.next_id() and Generator.claim().

        Raises:
            As Generator.next_id().
        """
        claim_wait: ClaimWait | None = None
        frozen_check: FrozenClockCheck | None = None
        while True:
            self._guard.check()
            generation = self._guard.generation
            if self._lifecycle.closed or self._lifecycle.suspended:
                self._lifecycle.give_back()
                raise (GeneratorClosed if self._lifecycle.closed else GeneratorSuspended)(self._pool)
            an_id, decision = self._allocator.advance(only_claim=only_claim)
            if decision is None:
                if claim_wait is not None:
                    claim_wait.end()
                    claim_wait = None
                # checked last: in a child that a signal handler forked just now, this id is its parent's
                if self._guard.generation == generation and self._guard.alive:
                    return an_id
            elif isinstance(decision, Wait):
                frozen_check = frozen_check or FrozenClockCheck(self.clock)
                self._wait(decision)
                self.check_clock(frozen_check, decision)
            elif isinstance(decision, RenewLease):
                self._renew()
            elif isinstance(decision, ClaimAnother):
                self._lifecycle.replace(decision.behind_ms)
            elif isinstance(decision, RaiseClockBack):
                self._context.clock_backs.note(decision.behind_ms, "refusal", self._allocator.ids_made)
                raise ClockMovedBack(decision.behind_ms, self._context.rules.policy)
            else:
                claim_wait = claim_wait or ClaimWait(
                    self._context,
                    self._leases,
                    self._lifecycle,
                    self._skew,
                    self._notice,
                    self._full,
                )
                if isinstance(decision, NotOpen):
                    claim_wait.wait_for_opening(decision.ms)
                elif claim_wait.claim():
                    self._lifecycle.start_heartbeat()

    def try_step(self) -> Step:
        """Take an id of the current tick or of a later one, or return what has to be done first. Never waits.

        ``NoLease()`` is also returned where only next_id() can tell what to do: another thread holds the lock, or the
        generator is closed.
        """
        self._guard.check()
        generation = self._guard.generation
        if self._lifecycle.closed or self._lifecycle.suspended:
            return 0, NoLease()
        an_id, decision = self._allocator.advance(only_claim=False, blocking=False)
        if isinstance(decision, Wait):
            self._context.clock_backs.note_wait(decision, self._allocator.ids_made)
        # last: in a child that a signal handler forked just now, this id is its parent's
        if self._guard.generation != generation or not self._guard.alive:
            return 0, NoLease()
        return an_id, decision

    def check_clock(self, frozen_check: FrozenClockCheck, wait: Wait) -> None:
        """Raise ClockStopped if the wall clock stands still, after *wait*."""
        if still_ms := frozen_check.still_ms(min(wait.seconds, MAX_SLEEP_S)):
            raise ClockStopped(still_ms, self._context.rules.policy)

    def after_fork(self) -> None:
        """Forget, in a forked child, which errors the parent had and what its threads were doing."""
        self.preparing = None
        self._skew = ClockSkewMemory(self.clock)
        self._full = FullPoolMemory(self._pool, self.clock, self._claim_timeout_s)
        self._notice = WaitNotice(self._pool, self.clock.monotonic)

    def _wait(self, wait: Wait) -> None:
        self._context.clock_backs.note_wait(wait, self._allocator.ids_made)
        nap(self.clock, wait.seconds)

    def _renew(self) -> None:
        """Renew, since the next tick is past the reservation; if that was done just now, wait for the clock."""
        held = self._leases.held
        if held is None:
            return
        if not self._leases.just_renewed():
            self._lifecycle.renew_in_need()
            return
        config = self._context.config
        if config.layout.tick_at(self._context.now_ms()) >= held.lease.until:
            raise ClockSkewed(self._leases.view.offset_ms, config.ttl_ms + config.max_clock_lead_ms)
        # the tick is borrowed ahead of the clock: each renewal allows a little more
        self._wait(Wait(min(config.heartbeat_ms / 10, config.layout.tick_ms), clock_back=False))
