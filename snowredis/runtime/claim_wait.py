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
)
from snowredis.runtime.clock import Clock, nap
from snowredis.runtime.context import Context
from snowredis.runtime.lease_manager import LeaseManager
from snowredis.runtime.lifecycle import RETRY_S, LeaseLifecycle

log = logging.getLogger("snowredis")


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


class ClaimWait:
    """The waits of one call that needs a lease.

    Args:
        timeout_s: how long to ask a full pool again.
    """

    def __init__(
        self,
        context: Context,
        leases: LeaseManager,
        lifecycle: LeaseLifecycle,
        skew: ClockSkewMemory,
        timeout_s: float,
    ) -> None:
        self._context, self._clock, self._leases = context, context.clock, leases
        self._lifecycle, self._skew, self._timeout_s = lifecycle, skew, timeout_s
        self._began_s = self._clock.monotonic()
        self._ask_again_after_s = 0.0
        self._logged = False

    def claim(self) -> bool:
        """Claim a worker id, or wait a little: MAX_SLEEP_S at most, and a round trip to Redis.

        Returns:
            False if none is leased yet: call again.

        Raises:
            PoolExhausted, StoreUnavailable, LeaseLost, LeaseExpired, ClockSkewed: none can be claimed in time.
        """
        leases, config = self._leases, self._context.config
        waited_s = self._clock.monotonic() - self._began_s
        self._skew.check()
        if waited_s < self._ask_again_after_s:
            nap(self._clock, self._ask_again_after_s - waited_s)
            return False
        try:
            settling_ms = self._lifecycle.claim(self._context.longest_wait_ms).settling_ms
        except (PoolExhausted, StoreUnavailable) as error:
            if isinstance(error, PoolExhausted) and waited_s < self._timeout_s:
                self._ask_again_after_s = waited_s + max(0.01, min(RETRY_S, error.next_expiry_ms / 1000))
                return False
            if leases.lost_worker is not None:
                raise LeaseLost(config.name, leases.lost_worker, str(error)) from error
            raise
        except ClockMovedBack as error:
            raise self._skew.error(-error.behind_ms, self._context.longest_wait_ms) from error
        if not settling_ms:
            return True
        self._log_wait(leases.view.floor_ms - self._context.now_ms())
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
        self._log_wait(ms)
        # without a heartbeat thread the reservation has to keep up with the wait
        if self._leases.held is not None and not self._clock.background and not self._leases.just_renewed():
            self._lifecycle.renew_in_need()
        nap(self._clock, ms / 1000)

    def end(self) -> None:
        """Count how long the call waited, now that there is a worker id and one of its lanes is open."""
        self._context.counts.claim_waits.add(self._clock.monotonic() - self._began_s)

    def _log_wait(self, ms: float) -> None:
        if not self._logged and ms > 1000:
            self._logged = True
            pool = self._context.config.name
            log.warning(
                "pool %s: Redis had no such pool, or may have forgotten some of it; new workers wait %.1f s so that no "
                "id is repeated. If the pool is really new, run once: snowredis pool create %s",
                pool,
                ms / 1000,
                pool,
            )
