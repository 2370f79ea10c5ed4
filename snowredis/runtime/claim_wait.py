"""Wait, in one call, for a worker id of a full pool, for the floor of a pool, and for the lanes of a lease to open."""

from __future__ import annotations

import logging

from snowredis.errors import (
    ClockMovedBack,
    ClockSkewed,
    LeaseExpired,
    LeaseLost,
    PoolExhausted,
    StoreUnavailable,
    as_cause,
)
from snowredis.runtime.clock import Clock, nap
from snowredis.runtime.context import Context
from snowredis.runtime.lease_manager import LeaseManager
from snowredis.runtime.lifecycle import RETRY_S, LeaseLifecycle
from snowredis.runtime.wait_notice import WaitNotice

log = logging.getLogger("snowredis")

# pause before a full pool is asked again; it doubles up to RETRY_S, so that many who wait do not load Redis
FIRST_PAUSE_S = 0.02


class ClockSkewMemory:
    """The last ClockSkewed of a generator: raised again for RETRY_S, so that Redis is not asked for every id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = self._limit_ms = 0
        self._until_s = -1e9

    def error(self, offset_ms: int, limit_ms: int) -> ClockSkewed:
        """Return the error, and remember it."""
        self._offset_ms, self._limit_ms = offset_ms, limit_ms
        self._until_s = self._clock.monotonic() + RETRY_S
        return ClockSkewed(offset_ms, limit_ms)

    def check(self) -> None:
        """Raise the error again if it was returned less than RETRY_S ago."""
        if self._clock.monotonic() < self._until_s:
            raise ClockSkewed(self._offset_ms, self._limit_ms)


class FullPoolMemory:
    """Remaining time that calls may wait for a worker id of a full pool. They share one timeout.

    Otherwise each thread, and each request that follows, would wait for the whole timeout, one after another.
    """

    def __init__(self, pool: str, clock: Clock, timeout_s: float) -> None:
        self._pool, self._clock, self._timeout_s = pool, clock, timeout_s
        # of the wait that counts: its begin, and the last refusal
        self._began_s = 0.0
        self._refused_s: float | None = None

    def left_s(self, error: PoolExhausted, began_s: float) -> float:
        """Return how long a call that began at *began_s* may go on waiting after *error*; 0 or less: not at all."""
        now_s = self._clock.monotonic()
        # after a longer silence, the pool may have had worker ids meanwhile
        if self._refused_s is None or now_s - self._refused_s > self._timeout_s:
            self._began_s = began_s
            if self._timeout_s > 0:
                log.warning(
                    "pool %s: all %d worker ids are leased; waiting for one, for %g s at most",
                    self._pool,
                    error.capacity,
                    self._timeout_s,
                )
        self._refused_s = now_s
        return self._began_s + self._timeout_s - now_s

    def end(self) -> None:
        """Forget the refusals: there is a worker id."""
        self._refused_s = None


class ClaimWait:
    """The waits of one call that needs a lease."""

    def __init__(
        self,
        context: Context,
        leases: LeaseManager,
        lifecycle: LeaseLifecycle,
        skew: ClockSkewMemory,
        notice: WaitNotice,
        full: FullPoolMemory,
    ) -> None:
        self._context, self._clock, self._leases = context, context.clock, leases
        self._lifecycle, self._skew, self._notice, self._full = lifecycle, skew, notice, full
        self._began_s = self._clock.monotonic()
        self._ask_again_after_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    def claim(self) -> bool:
        """Claim a worker id, or wait a little: MAX_SLEEP_S at most, and a round trip to Redis.

        Returns:
            False if none is leased yet: call again.

        Raises:
            PoolExhausted, StoreUnavailable, LeaseLost, LeaseExpired, ClockSkewed: none can be claimed in time.
        """
        with self._notice.ended_by_errors():
            return self._claim()

    def _claim(self) -> bool:
        leases, config = self._leases, self._context.config
        waited_s = self._clock.monotonic() - self._began_s
        self._skew.check()
        if waited_s < self._ask_again_after_s:
            if leases.view.floor_ms > self._context.now_ms():
                self._notice.show(leases.view.floor_ms - self._context.now_ms())
            nap(self._clock, self._ask_again_after_s - waited_s)
            return False
        try:
            settling_ms = self._lifecycle.claim(self._context.longest_wait_ms).settling_ms
        except (PoolExhausted, StoreUnavailable) as error:
            left_s = self._full.left_s(error, self._began_s) if isinstance(error, PoolExhausted) else 0
            if isinstance(error, PoolExhausted) and left_s > 0:
                pause_s = max(self._pause_s, min(RETRY_S, error.next_expiry_ms / 1000))
                self._pause_s = min(RETRY_S, 2 * self._pause_s)
                self._ask_again_after_s = self._clock.monotonic() - self._began_s + min(pause_s, left_s)
                return False
            if leases.lost_worker is not None:
                raise LeaseLost(config.name, leases.lost_worker, str(error)) from as_cause(error)
            raise
        except ClockMovedBack as error:
            raise self._skew.error(-error.behind_ms, self._context.longest_wait_ms) from None
        self._full.end()
        if not settling_ms:
            return True
        self._notice.show(leases.view.floor_ms - self._context.now_ms())
        if waited_s > 2 * config.floor_ms / 1000 + 1:
            raise LeaseExpired(config.name, -1, "Redis keeps losing its state")
        # the floor may be raised once more meanwhile, so look now and then; more often than the silence that
        # guard_rollbacks takes for a rollback
        self._ask_again_after_s = waited_s + min(settling_ms, 1000, config.heartbeat_ms) / 1000
        return False

    def wait_for_opening(self, ms: float) -> None:
        """Wait, a little at a time, for the lanes of the lease to open in *ms*.

        Raises:
            ClockSkewed: that is later than any floor explains; the lease is given back.
        """
        config = self._context.config
        # twice: the floor may be raised once more while this waits for it
        limit_ms = 2 * config.floor_ms + config.layout.tick_ms
        if ms > limit_ms:
            self._lifecycle.give_back()
            raise self._skew.error(-int(ms), limit_ms)
        self._notice.show(ms)
        # without a heartbeat thread the reservation has to keep up with the wait
        if self._leases.held is not None and not self._clock.background and not self._leases.just_renewed():
            self._lifecycle.renew_in_need()
        with self._notice.ended_by_errors():
            nap(self._clock, ms / 1000)

    def end(self) -> None:
        """Count how long the call waited, now that there is a worker id and one of its lanes is open."""
        self._notice.end()
        self._context.counts.claim_waits.add(self._clock.monotonic() - self._began_s)
