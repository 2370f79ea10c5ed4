"""The slow path: make an id when the fast path cannot. Claims, waits, renews or replaces the lease as needed.

A call waits for a worker id of a full pool, for the floor of a pool, and for the lanes of a lease to open. When it asks
Redis again: pace.py.
"""

from __future__ import annotations

import functools
from concurrent.futures import Future

from snowredis import errors
from snowredis.core.lanes import ClaimAnother, NotOpen, RaiseClockBack, RenewLease, Wait
from snowredis.core.values import time_text
from snowredis.process.clock import MAX_SLEEP_S, FrozenClockCheck, nap
from snowredis.process.log import log
from snowredis.snowflake.ids.allocator import IdAllocator, NoLease, Step
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.upkeep.lifecycle import LeaseLifecycle
from snowredis.snowflake.upkeep.pace import FIRST_PAUSE_S, Asked, CallPause


class SlowPath:
    """Makes ids of one generator, whatever has to be done first."""

    def __init__(
        self, context: Context, leases: LeaseManager, allocator: IdAllocator, lifecycle: LeaseLifecycle
    ) -> None:
        self._context, self._guard = context, context.guard
        self._leases, self._allocator, self._lifecycle = leases, allocator, lifecycle
        self._clock, self._pool = context.clock, context.config.name
        # the call that makes this generator ready for coroutines, if one is under way or was
        self._preparing: Future[int] | None = None

    def next_id(self, *, only_claim: bool = False) -> int:
        """Make an id; or, with *only_claim*, claim or wait until a lease has open lanes, and return 0.

        Blocks:
            as SnowflakeGenerator.next_id() and SnowflakeGenerator.claim().

        Raises:
            As SnowflakeGenerator.next_id().
        """
        pause: CallPause | None = None
        frozen_check = FrozenClockCheck(self._clock)
        try:
            while True:
                self._guard.check()
                generation = self._guard.generation
                if self._leases.closed or self._leases.suspended:
                    self._lifecycle.release()
                    raise errors.GeneratorClosed(self._pool, suspended=not self._leases.closed)
                an_id, decision = self._allocator.advance(only_claim=only_claim)
                if decision is None:
                    if pause is not None:
                        self._context.counts.waited("claim", self._clock.monotonic() - pause.began_s)
                        pause = None
                    # checked last: in a child that a signal handler forked just now, this id is its parent's
                    if self._guard.is_still(generation):
                        return an_id
                elif isinstance(decision, Wait):
                    self._wait(decision)
                    self._check_clock(frozen_check, decision)
                elif isinstance(decision, RenewLease):
                    self._ask_for_time()
                elif isinstance(decision, ClaimAnother):
                    self._lifecycle.replace(decision.behind_ms)
                elif isinstance(decision, RaiseClockBack):
                    self._context.calls.clock_back(decision.behind_ms, "refusal", self._allocator.ids_made)
                    raise errors.ClockMovedBack(decision.behind_ms, self._context.rules.policy)
                else:
                    pause = pause or CallPause(self._clock.monotonic())
                    if not isinstance(decision, NotOpen):
                        self._ask_for_lease(pause)
                    elif not (self._lifecycle.renewals.is_in_need and self._lifecycle.renewals.open_outage_lane()):
                        self._wait_for_opening(decision.ms)
                        self._check_clock(frozen_check, Wait(decision.ms, clock_back=False))
        except errors.SnowredisError as error:
            self._context.calls.refused(error, self._allocator.ids_made)
            # the frames below say no more than the message
            raise error.with_traceback(None)  # noqa: B904 - the same error

    # --- coroutines --------------------------------------------------------------------------------

    async def anext_id(self) -> int:
        """Make an id. Async version of next_id(): what takes well under a millisecond is done on the event loop.

        All else is done in one thread for all coroutines that wait.
        """
        # loaded only for coroutines
        from snowredis.process.coroutines import in_background, result_of, sleep

        frozen_check = FrozenClockCheck(self._clock)
        while True:
            an_id, decision = self._try_step()
            if an_id:
                return an_id
            if not isinstance(decision, Wait):
                # claims, renews, or waits for the pool
                preparing = self._preparing
                if preparing is None or preparing.done():
                    preparing = self._preparing = in_background(functools.partial(self.next_id, only_claim=True))
                await result_of(preparing)
            elif self._clock.background:
                await sleep(min(decision.seconds, MAX_SLEEP_S))
                self._check_clock(frozen_check, decision)
            else:
                # a test clock, which sleeping moves
                self._clock.sleep(decision.seconds)
                await sleep(0)

    def _try_step(self) -> Step:
        """Take an id of the current tick or of a later one, or return what has to be done first. Never waits.

        ``NoLease()`` is also returned where only next_id() can tell what to do: another thread holds the lock.
        """
        self._guard.check()
        generation = self._guard.generation
        an_id, decision = self._allocator.advance(only_claim=False, blocking=False)
        if isinstance(decision, Wait):
            self._context.calls.wait(decision, self._allocator.ids_made)
        # checked last: in a child that a signal handler forked just now, this id is its parent's
        if not self._guard.is_still(generation):
            return 0, NoLease()
        return an_id, decision

    # --- steps ------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """Forget, in a forked child, what the threads of the parent were doing."""
        self._preparing = None

    def _check_clock(self, frozen_check: FrozenClockCheck, wait: Wait) -> None:
        """Raise ClockMovedBack if the wall clock stands still, after *wait*."""
        if still_ms := frozen_check.still_ms(min(wait.seconds, MAX_SLEEP_S)):
            raise errors.ClockMovedBack(still_ms, self._context.rules.policy, stopped=True)

    def _wait(self, wait: Wait) -> None:
        self._context.calls.wait(wait, self._allocator.ids_made)
        nap(self._clock, wait.seconds)

    def _ask_for_lease(self, pause: CallPause) -> None:
        """Ask for a worker id, or wait a little; meanwhile go on in an outage lane, if there is one."""
        lifecycle = self._lifecycle
        # without a heartbeat, this call has to claim
        if lifecycle.thread.runs and lifecycle.renewals.open_outage_lane():
            return
        try:
            claimed = self._ask_if_due(pause)
        except errors.SnowredisError:
            if not lifecycle.renewals.open_outage_lane():
                raise
            return
        if claimed:
            lifecycle.thread.start()
        else:
            lifecycle.renewals.open_outage_lane()

    def _ask_if_due(self, pause: CallPause) -> bool:
        """Ask for a worker id if it is time for that, or wait a little: MAX_SLEEP_S at most, and a round trip to Redis.

        Returns:
            False if none is leased yet: call again.

        Raises:
            PoolExhausted, StoreUnavailable, LeaseLost, LeaseExpired, ClockSkewed: none can be claimed in time.
        """
        leases, config, pace = self._leases, self._context.config, self._lifecycle.pace
        now_s = self._clock.monotonic()
        if refusal := pace.refusal(Asked.CLAIM, now_s):
            raise refusal
        if now_s < pause.due_s:
            self._lifecycle.log_floor()
            nap(self._clock, pause.due_s - now_s)
            return False
        try:
            gives_up = pace.gives_up(pause, now_s)
            settling_ms = self._lifecycle.claim(gives_up=gives_up).settling_ms
        except (errors.PoolExhausted, errors.StoreUnavailable) as error:
            failed_s = self._clock.monotonic()
            if pace.begins_wait(pause, error, failed_s):
                self._log_wait(error)
            if pace.waits(pause, error, failed_s, gave_up=gives_up):
                return False
            if leases.lost_worker is not None:
                raise errors.LeaseLost(config.name, leases.lost_worker, str(error)) from errors.as_cause(error)
            raise
        except errors.ClockMovedBack as error:
            stalled_ms = (self._clock.monotonic() - now_s) * 1000
            if error.behind_ms - stalled_ms <= self._context.longest_wait_ms:
                # the request was late, and not the clock
                pause.due_s = self._clock.monotonic() + FIRST_PAUSE_S
                return False
            raise self._skewed(-error.behind_ms, self._context.longest_wait_ms) from None
        pace.replied(pause, settling_ms, now_s)
        if settling_ms and now_s - pause.began_s > 2 * config.floor_ms / 1000 + 1:
            raise errors.LeaseExpired(config.name, -1, self._why_floor())
        return not settling_ms

    def _skewed(self, offset_ms: int, limit_ms: int) -> errors.ClockSkewed:
        """Return the error, which is raised again for a while."""
        error = errors.ClockSkewed(offset_ms, limit_ms)
        self._lifecycle.pace.failed(Asked.CLAIM, error, self._clock.monotonic())
        return error

    def _log_wait(self, error: errors.PoolExhausted | errors.StoreUnavailable) -> None:
        reason = "Redis does not reply in time"
        if isinstance(error, errors.PoolExhausted):
            reason = f"all {error.capacity} worker ids are leased"
        text = "pool %s: %s; waiting for a worker id, for %g s at most"
        log.warning(text, self._context.config.name, reason, self._lifecycle.pace.timeout_s)

    def _why_floor(self) -> str:
        """Return why the floor has not passed after twice the time that a loss explains."""
        floor_ms = self._leases.view.floor_ms
        if floor_ms - self._context.now_ms() <= self._context.config.floor_ms:
            return "Redis keeps losing its state"
        # the pool before has ended then
        return f"reservations of before may last until {time_text(floor_ms)}, and new ones start then"

    def _wait_for_opening(self, ms: float) -> None:
        """Wait, a little at a time, for the lanes of the lease to open in *ms*.

        Raises:
            ClockSkewed: that is later than any floor explains; the lease is released.
        """
        config = self._context.config
        # twice: the floor may be raised once more while this waits for it
        limit_ms = 2 * config.floor_ms + config.layout.tick_ms
        if ms > limit_ms:
            self._lifecycle.release()
            raise self._skewed(-int(ms), limit_ms)
        self._lifecycle.log_floor()
        # without a heartbeat thread the reservation has to keep up with the wait
        is_old = not self._lifecycle.pace.just_renewed(self._leases.view.renewed_ago_s)
        if self._leases.held is not None and not self._clock.background and is_old:
            self._lifecycle.renewals.renew_in_need()
        nap(self._clock, ms / 1000)

    def _ask_for_time(self) -> None:
        """Renew, since the next tick is past the reservation; if that was done just now, wait for the clock."""
        held = self._leases.held
        if held is None:
            return
        if not self._lifecycle.pace.just_renewed(self._leases.view.renewed_ago_s):
            self._lifecycle.renewals.renew_in_need()
            return
        config = self._context.config
        if config.layout.tick_at(self._context.now_ms()) >= held.lease.until:
            if self._lifecycle.renewals.has_opened and self._lifecycle.renewals.open_outage_lane():
                return
            offset_ms, limit_ms = self._leases.view.offset_ms, config.ttl_ms + config.max_clock_lead_ms
            if offset_ms >= limit_ms:
                raise errors.ClockSkewed(offset_ms, limit_ms)
            # the reply was longer under way than its reservation lasts; or that is short, since this clock is ahead
            self._lifecycle.renewals.renew_in_need()
            held = self._leases.held
            if held is not None and config.layout.tick_at(self._context.now_ms()) >= held.lease.until:
                reason = "replies of Redis come after the end of what they reserve. Look at its load and the network"
                raise errors.LeaseExpired(config.name, held.lease.worker, reason)
            return
        # the tick is borrowed ahead of the clock: each renewal allows a little more
        self._wait(Wait(min(config.heartbeat_ms / 10, config.layout.tick_ms), clock_back=False))
