"""How long one call waits: for a worker id of a full pool, for a pool that settles, for lanes that open."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from snowredis.errors import (
    ClockMovedBack,
    ClockSkewed,
    LeaseExpired,
    LeaseLost,
    PoolExhausted,
    StoreUnavailable,
)
from snowredis.runtime.lease_manager import RETRY_S

if TYPE_CHECKING:
    from snowredis.runtime.generator import Generator

log = logging.getLogger("snowredis")


class ClaimWait:
    """How long one call may wait for a worker id, and for its lanes to open."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._began_s: float | None = None
        self._ask_again_after_s = 0.0
        self._told = False

    def _waited_s(self) -> float:
        now_s = self._generator._clock.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        return now_s - self._began_s

    def claim(self) -> None:
        """Claim, or wait a little and let the caller ask again."""
        ids = self._generator
        waited_s = self._waited_s()
        if ids._skewed is not None and ids._clock.monotonic() < ids._claim_again_s:
            # refused a moment ago, and Redis is not to be asked for every id
            raise ClockSkewed(*ids._skewed)
        if waited_s < self._ask_again_after_s:
            ids._sleep(self._ask_again_after_s - waited_s)
            return
        try:
            settling_ms = ids._claim(wait_ms=ids._longest_wait_ms).settling_ms
        except (PoolExhausted, StoreUnavailable) as error:
            if isinstance(error, PoolExhausted) and waited_s < ids._claim_timeout_s:
                self._ask_again_after_s = waited_s + max(0.01, min(RETRY_S, error.next_expiry_ms / 1000))
                return
            if ids._lease_manager.lost_worker is not None:
                raise LeaseLost(ids.pool, ids._lease_manager.lost_worker, str(error)) from error
            raise
        except ClockMovedBack as error:
            raise self._skewed(error.behind_ms, ids._longest_wait_ms) from error
        if not settling_ms:
            ids._start_heartbeat()
            return
        self._tell(ids._lease_manager.floor_ms - ids._clock.time_ns() // 1_000_000)
        if waited_s > 2 * ids._config.floor_ms / 1000 + 1:
            raise LeaseExpired(ids.pool, -1, "Redis keeps losing its state")
        # the floor may be raised once more meanwhile, so look now and then; more often than what is guarded
        # against rollbacks takes for a silence
        self._ask_again_after_s = waited_s + min(settling_ms, 1000, ids._config.heartbeat_ms) / 1000

    def wait_for_opening(self, ms: float) -> None:
        ids = self._generator
        # twice: the floor may be raised once more while this waits for it
        limit_ms = 2 * ids._config.floor_ms + ids._config.layout.tick_ms
        if ms > limit_ms:
            ids._give_back()
            raise self._skewed(int(ms), limit_ms)
        self._waited_s()
        self._tell(ms)
        held = ids._lease_manager.held
        # without a heartbeat thread the reservation has to keep up with the wait
        if held is not None and not ids._clock.background and not ids._lease_manager.just_renewed():
            ids._renew_in_need()
        ids._sleep(ms / 1000)

    def _skewed(self, behind_ms: int, limit_ms: int) -> ClockSkewed:
        """The error, noted for the calls that come next."""
        ids = self._generator
        ids._skewed = (-behind_ms, limit_ms)
        ids._claim_again_s = ids._clock.monotonic() + RETRY_S
        return ClockSkewed(*ids._skewed)

    def _tell(self, ms: float) -> None:
        ids = self._generator
        if not self._told and ms > 1000:
            self._told = True
            log.warning(
                "pool %s: Redis had no such pool, or may have forgotten some of it; new workers wait %.1f s so that no "
                "id is repeated. If the pool is really new, run once: snowredis pool create %s",
                ids.pool,
                ms / 1000,
                ids.pool,
            )
