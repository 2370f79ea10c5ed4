"""The slow path: make an id when the fast path cannot. Claims, waits, renews or replaces the lease as needed.

ClaimWait is one call's wait for a worker id of a full pool, for the floor of a pool, and for the lanes of a lease to
open; SharedWaits is the state that the calls of a generator share.
"""

from __future__ import annotations

from concurrent.futures import Future

from snowredis import errors
from snowredis.core.lanes import ClaimAnother, NotOpen, RaiseClockBack, RenewLease, Wait
from snowredis.core.values import utc_text
from snowredis.process.clock import MAX_SLEEP_S, Clock, FrozenClockCheck, nap
from snowredis.process.log import log
from snowredis.snowflake.allocator import IdAllocator, NoLease, Step
from snowredis.snowflake.context import Context
from snowredis.snowflake.lease_manager import LeaseManager
from snowredis.snowflake.lifecycle import LeaseLifecycle

# a shorter wait is not worth a line
MIN_WAIT_MS = 1_000
# pause before a full pool is asked again; it doubles, so that a thousand who wait do not load Redis. The time until the
# next lease ends makes it FULL_PAUSE_S at most
FIRST_PAUSE_S, FULL_PAUSE_S, LAST_PAUSE_S = 0.02, 0.5, 2.0
# longest pause before a Redis that did not reply in time is asked again
TIMED_OUT_PAUSE_S = 1.0
# how long a refusal for the clock is repeated, so that Redis is not asked for every id
SKEWED_FOR_S = 0.5


class SharedWaits:
    """State that waiting calls of one generator share: the notices, a refusal for the clock, and one timeout.

    Args:
        timeout_s: how long calls may wait for a worker id, of a full pool or a slow Redis. Together: otherwise each
            thread, and each request that follows, would wait for all of it, one after another.
    """

    def __init__(self, pool: str, clock: Clock, timeout_s: float) -> None:
        self._pool, self._clock, self._timeout_s = pool, clock, timeout_s
        # end of the wait for a floor that was logged
        self._logged_until_s = -1e9
        # the last ClockSkewed, and until when it is raised again
        self._skew, self._skewed_until_s = (0, 0), -1e9
        # the wait that counts for the timeout: when it began, and its last failure
        self._began_s = 0.0
        self._failed_s: float | None = None

    def log_floor(self, left_ms: float) -> None:
        """Log that ids are *left_ms* away, once for each wait for a floor."""
        now_s = self._clock.monotonic()
        if left_ms > MIN_WAIT_MS and now_s > self._logged_until_s:
            self._logged_until_s = now_s + left_ms / 1000 + 1
            log.warning(
                "pool %s: new workers wait %.1f s, so that no id is repeated: Redis did not know the pool, or was "
                "restarted. A pool that no process has used before is created without this wait by: snowredis pool "
                "create %s",
                self._pool,
                left_ms / 1000,
                self._pool,
            )

    def skewed(self, offset_ms: int, limit_ms: int) -> errors.ClockSkewed:
        """Return the error, which check_skew() raises again for SKEWED_FOR_S."""
        self._skew, self._skewed_until_s = (offset_ms, limit_ms), self._clock.monotonic() + SKEWED_FOR_S
        return errors.ClockSkewed(offset_ms, limit_ms)

    def check_skew(self) -> None:
        """Raise the error of skewed() again if that was called less than SKEWED_FOR_S ago."""
        if self._clock.monotonic() < self._skewed_until_s:
            raise errors.ClockSkewed(*self._skew)

    def gives_up(self, began_s: float) -> bool:
        """Return whether a call that began at *began_s* gives up if the pool is full now."""
        now_s = self._clock.monotonic()
        return now_s >= (began_s if self._is_first(now_s) else self._began_s) + self._timeout_s

    def _is_first(self, now_s: float) -> bool:
        """Return whether a failure begins a wait: after a longer silence, there may have been worker ids meanwhile."""
        return self._failed_s is None or now_s - self._failed_s > self._timeout_s

    def left_s(self, error: errors.PoolExhausted | errors.StoreUnavailable, began_s: float) -> float:
        """Return how long a call that began at *began_s* may go on waiting after *error*; 0 or less: not at all."""
        if isinstance(error, errors.StoreUnavailable) and not error.timed_out:
            return 0
        now_s = self._clock.monotonic()
        if self._is_first(now_s):
            self._began_s = began_s
            if self._timeout_s > 0:
                reason = "Redis does not reply in time"
                if isinstance(error, errors.PoolExhausted):
                    reason = f"all {error.capacity} worker ids are leased"
                text = "pool %s: %s; waiting for a worker id, for %g s at most"
                log.warning(text, self._pool, reason, self._timeout_s)
        self._failed_s = now_s
        return self._began_s + self._timeout_s - now_s

    def end(self) -> None:
        """Forget the failures: there is a worker id."""
        self._failed_s = None


class ClaimWait:
    """The waits of one call that needs a lease."""

    def __init__(self, context: Context, leases: LeaseManager, lifecycle: LeaseLifecycle, shared: SharedWaits) -> None:
        self._context, self._clock, self._leases = context, context.clock, leases
        self._lifecycle, self._shared = lifecycle, shared
        self._began_s = self._clock.monotonic()
        # when it is time to ask again
        self._due_s = self._began_s
        self._pause_s = FIRST_PAUSE_S

    def ask_if_due(self) -> bool:
        """Ask for a worker id if it is time for that, or wait a little: MAX_SLEEP_S at most, and a round trip to Redis.

        Returns:
            False if none is leased yet: call again.

        Raises:
            PoolExhausted, StoreUnavailable, LeaseLost, LeaseExpired, ClockSkewed: none can be claimed in time.
        """
        leases, config, shared = self._leases, self._context.config, self._shared
        now_s = self._clock.monotonic()
        shared.check_skew()
        if now_s < self._due_s:
            shared.log_floor(leases.view.floor_ms - self._context.now_ms())
            nap(self._clock, self._due_s - now_s)
            return False
        try:
            gives_up = shared.gives_up(self._began_s)
            settling_ms = self._lifecycle.claim(self._context.longest_wait_ms, gives_up=gives_up).settling_ms
        except (errors.PoolExhausted, errors.StoreUnavailable) as error:
            left_s = shared.left_s(error, self._began_s)
            if left_s > 0 or (not gives_up and isinstance(error, errors.PoolExhausted)):
                self._due_s = self._clock.monotonic() + min(self._pause_after(error), left_s)
                return False
            if leases.lost_worker is not None:
                raise errors.LeaseLost(config.name, leases.lost_worker, str(error)) from errors.as_cause(error)
            raise
        except errors.ClockMovedBack as error:
            stalled_ms = (self._clock.monotonic() - now_s) * 1000
            if error.behind_ms - stalled_ms <= self._context.longest_wait_ms:
                # the request was late, and not the clock
                self._due_s = self._clock.monotonic() + FIRST_PAUSE_S
                return False
            raise shared.skewed(-error.behind_ms, self._context.longest_wait_ms) from None
        shared.end()
        if not settling_ms:
            return True
        shared.log_floor(leases.view.floor_ms - self._context.now_ms())
        if now_s - self._began_s > 2 * config.floor_ms / 1000 + 1:
            raise errors.LeaseExpired(config.name, -1, self._why_floor())
        # the floor may be raised once more meanwhile, so look now and then
        self._due_s = now_s + min(settling_ms, 1000, config.heartbeat_ms) / 1000
        return False

    def _pause_after(self, error: errors.PoolExhausted | errors.StoreUnavailable) -> float:
        if isinstance(error, errors.StoreUnavailable):
            # processes that timed out together do not ask together again
            return self._context.random.uniform(0, TIMED_OUT_PAUSE_S)
        pause_s = max(self._pause_s, min(FULL_PAUSE_S, error.next_expiry_ms / 1000))
        self._pause_s = min(LAST_PAUSE_S, 2 * self._pause_s)
        return pause_s

    def _why_floor(self) -> str:
        """Return why the floor has not passed after twice the time that a loss explains."""
        floor_ms = self._leases.view.floor_ms
        if floor_ms - self._context.now_ms() <= self._context.config.floor_ms:
            return "Redis keeps losing its state"
        # the pool before has ended then
        return f"reservations of before may last until {utc_text(floor_ms)}, and new ones start then"

    def wait_for_opening(self, ms: float) -> None:
        """Wait, a little at a time, for the lanes of the lease to open in *ms*.

        Raises:
            ClockSkewed: that is later than any floor explains; the lease is released.
        """
        config = self._context.config
        # twice: the floor may be raised once more while this waits for it
        limit_ms = 2 * config.floor_ms + config.layout.tick_ms
        if ms > limit_ms:
            self._lifecycle.release()
            raise self._shared.skewed(-int(ms), limit_ms)
        if self._leases.view.floor_ms > self._context.now_ms():
            # else another process had reserved these times
            self._shared.log_floor(ms)
        # without a heartbeat thread the reservation has to keep up with the wait
        if self._leases.held is not None and not self._clock.background and not self._leases.view.just_renewed():
            self._lifecycle.renew_in_need()
        nap(self._clock, ms / 1000)

    def end(self) -> None:
        """Count how long the call waited, now that there is a worker id and one of its lanes is open."""
        self._context.counts.claim_waits.add(self._clock.monotonic() - self._began_s)


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
        self._shared = SharedWaits(self._pool, context.clock, claim_timeout_s)
        self.preparing: Future[int] | None = None

    def next_id(self, *, only_claim: bool = False) -> int:
        """Make an id; or, with *only_claim*, claim or wait until a lease has open lanes, and return 0.

        Blocks:
            as SnowflakeGenerator.next_id() and SnowflakeGenerator.claim().

        Raises:
            As SnowflakeGenerator.next_id().
        """
        claim_wait: ClaimWait | None = None
        frozen_check: FrozenClockCheck | None = None
        try:
            while True:
                self._guard.check()
                generation = self._guard.generation
                if self._leases.closed or self._leases.suspended:
                    self._lifecycle.release()
                    raise (errors.GeneratorClosed if self._leases.closed else errors.GeneratorSuspended)(self._pool)
                an_id, decision = self._allocator.advance(only_claim=only_claim)
                if decision is None:
                    if claim_wait is not None:
                        claim_wait.end()
                        claim_wait = None
                    # checked last: in a child that a signal handler forked just now, this id is its parent's
                    if self._guard.is_still(generation):
                        return an_id
                elif isinstance(decision, Wait):
                    frozen_check = frozen_check or FrozenClockCheck(self.clock)
                    self._wait(decision)
                    self.check_clock(frozen_check, decision)
                elif isinstance(decision, RenewLease):
                    self._ask_for_time()
                elif isinstance(decision, ClaimAnother):
                    self._lifecycle.replace(decision.behind_ms)
                elif isinstance(decision, RaiseClockBack):
                    self._context.clock_backs.note(decision.behind_ms, "refusal", self._allocator.ids_made)
                    raise errors.ClockMovedBack(decision.behind_ms, self._context.rules.policy)
                else:
                    claim_wait = claim_wait or ClaimWait(self._context, self._leases, self._lifecycle, self._shared)
                    if not isinstance(decision, NotOpen):
                        self._ask_for_lease(claim_wait)
                    elif not (self._lifecycle.is_in_need and self._lifecycle.open_outage_lane()):
                        claim_wait.wait_for_opening(decision.ms)
                        frozen_check = frozen_check or FrozenClockCheck(self.clock)
                        self.check_clock(frozen_check, Wait(decision.ms, clock_back=False))
        except errors.SnowredisError as error:
            self._context.refusals.note(error, self._allocator.ids_made)
            # the frames below say no more than the message
            raise error.with_traceback(None)  # noqa: B904 - the same error

    def try_step(self) -> Step:
        """Take an id of the current tick or of a later one, or return what has to be done first. Never waits.

        ``NoLease()`` is also returned where only next_id() can tell what to do: another thread holds the lock, or the
        generator is closed.
        """
        self._guard.check()
        generation = self._guard.generation
        if self._leases.closed or self._leases.suspended:
            return 0, NoLease()
        an_id, decision = self._allocator.advance(only_claim=False, blocking=False)
        if isinstance(decision, Wait):
            self._context.clock_backs.note_wait(decision, self._allocator.ids_made)
        # checked last: in a child that a signal handler forked just now, this id is its parent's
        if not self._guard.is_still(generation):
            return 0, NoLease()
        return an_id, decision

    def check_clock(self, frozen_check: FrozenClockCheck, wait: Wait) -> None:
        """Raise ClockStopped if the wall clock stands still, after *wait*."""
        if still_ms := frozen_check.still_ms(min(wait.seconds, MAX_SLEEP_S)):
            raise errors.ClockStopped(still_ms, self._context.rules.policy)

    def after_fork(self) -> None:
        """Forget, in a forked child, which errors the parent had and what its threads were doing."""
        self.preparing = None
        self._shared = SharedWaits(self._pool, self.clock, self._claim_timeout_s)

    def _wait(self, wait: Wait) -> None:
        self._context.clock_backs.note_wait(wait, self._allocator.ids_made)
        nap(self.clock, wait.seconds)

    def _ask_for_lease(self, claim_wait: ClaimWait) -> None:
        """Ask for a worker id, or wait a little; meanwhile go on in an outage lane, if there is one."""
        lifecycle = self._lifecycle
        # without a heartbeat, this call has to claim
        if lifecycle.beats and lifecycle.open_outage_lane():
            return
        try:
            claimed = claim_wait.ask_if_due()
        except errors.SnowredisError:
            if not lifecycle.open_outage_lane():
                raise
            return
        if claimed:
            lifecycle.start_heartbeat()
        else:
            lifecycle.open_outage_lane()

    def _ask_for_time(self) -> None:
        """Renew, since the next tick is past the reservation; if that was done just now, wait for the clock."""
        held = self._leases.held
        if held is None:
            return
        if not self._leases.view.just_renewed():
            self._lifecycle.renew_in_need()
            return
        config = self._context.config
        if config.layout.tick_at(self._context.now_ms()) >= held.lease.until:
            if self._lifecycle.has_opened and self._lifecycle.open_outage_lane():
                return
            offset_ms, limit_ms = self._leases.view.offset_ms, config.ttl_ms + config.max_clock_lead_ms
            if offset_ms >= limit_ms:
                raise errors.ClockSkewed(offset_ms, limit_ms)
            # the reply was longer under way than its reservation lasts; or that is short, since this clock is ahead
            self._lifecycle.renew_in_need()
            held = self._leases.held
            if held is not None and config.layout.tick_at(self._context.now_ms()) >= held.lease.until:
                reason = "replies of Redis come after the end of what they reserve. Look at its load and the network"
                raise errors.LeaseExpired(config.name, held.lease.worker, reason)
            return
        # the tick is borrowed ahead of the clock: each renewal allows a little more
        self._wait(Wait(min(config.heartbeat_ms / 10, config.layout.tick_ms), clock_back=False))
