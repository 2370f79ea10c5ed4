"""Renewals of the lease; and what follows where Redis does not reply: ids go on in the outage lane, or end."""

from __future__ import annotations

from snowredis import errors
from snowredis.core.values import time_text
from snowredis.process.log import log
from snowredis.process.threads import locked
from snowredis.snowflake.ids.allocator import IdAllocator
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.protocol.messages import WorkerStats, ids_until_ms
from snowredis.snowflake.upkeep.heartbeat import HeartbeatThread
from snowredis.snowflake.upkeep.pace import Asked, Pace

# for how long an outage lane is opened at once. This is recorded before: after a kill, the process that takes the lease
# over waits for the rest of it
OUTAGE_MS = 1_000

_CLOSED = (
    "The outage lane stays closed until Redis replies: this host's clock was set, or the machine was suspended or "
    "copied, since the last reply"
)


class Renewals:
    """Renews the lease of one generator, and opens and closes its outage lane.

    Attributes:
        clock_backs_before: the part of counts.clock_backs that happened under earlier leases.
    """

    def __init__(
        self, context: Context, leases: LeaseManager, allocator: IdAllocator, pace: Pace, thread: HeartbeatThread
    ) -> None:
        self._context, self._generator, self._clock = context, context.weak_generator, context.clock
        self._leases, self._allocator, self._pace, self._thread = leases, allocator, pace, thread
        self._pool = context.config.name
        self.clock_backs_before = 0
        # the clock and ids_made at the last stats()
        self._last_rate = (self._clock.monotonic(), 0)

    @property
    def lasts_until_ms(self) -> int:
        """Until when ids can be made if Redis takes no more renewals, on this host's clock; 0: there is no lease.

        An outage lane that stays closed does not count: the clock of this host was set, or it is so far ahead that
        what Redis reserves is over, though Redis replies. If the clock went back so far that no lane fits it, the
        result is the present.
        """
        leases, now_ms = self._leases, self._context.now_ms()
        if not self._allocator.fits_clock:
            return now_ms if leases.held else 0
        until_ms = leases.held.lease.until_ms if leases.held else 0
        is_recent = leases.view.renewed_ago_s < self._context.config.ttl_ms / 2000
        replies = is_recent and self._pace.failure(Asked.RENEWAL) is None
        is_over = leases.held is not None and replies and not self.has_opened and until_ms <= now_ms
        if is_over or not leases.view.clocks_agree:
            return until_ms
        # a lane may have opened after a gap
        lasts_ms = ids_until_ms(max(until_ms, now_ms), *leases.slot.outage_lanes_ms)
        return lasts_ms if lasts_ms > now_ms else until_ms

    @property
    def renewal_failure(self) -> tuple[str, int] | None:
        """Why the last renewal failed, and when the one before succeeded, on the Redis clock; None: it succeeded."""
        failure, view = self._pace.failure(Asked.RENEWAL), self._leases.view
        since_ms = self._context.now_ms() - view.offset_ms - round(view.renewed_ago_s * 1000)
        return (str(failure), since_ms) if failure is not None and self._leases.held is not None else None

    def renew_in_need(self) -> None:
        """Renew for a call that needs more time, once each AGAIN_S; open the outage lane if that fails.

        Blocks:
            for one round trip to Redis.

        Raises:
            LeaseExpired: Redis does not reply, and no outage lane is open.
        """
        held = self._leases.held
        cause: BaseException | None = None
        if held is None or (self._pace.failure(Asked.RENEWAL) and self._thread.runs and self.open_outage_lane()):
            return
        refusal = self._pace.refusal(Asked.RENEWAL, self._clock.monotonic())
        if refusal is None:
            try:
                self.renew()
                self._thread.start()
                return
            except errors.StoreUnavailable as error:
                refusal, cause = error, errors.as_cause(error)
        if not self.open_outage_lane():
            reason = str(refusal)
            if held.lease.outage_until and not self._leases.view.clocks_agree:
                reason = f"{reason.rstrip('.')}. {_CLOSED}"
            raise errors.LeaseExpired(self._pool, held.lease.worker, reason) from cause

    def renew(self) -> bool:
        """Renew; return False if the lease is lost, and sealed. See LeaseManager.send_renewal()."""
        try:
            renewed = self._leases.conversation.run(self._leases.send_renewal, self.stats())
            self._pace.succeeded(Asked.RENEWAL)
            if renewed:
                self.go_back()
            return renewed
        except errors.StoreUnavailable as error:
            # the time of the end: an attempt may have taken long
            self._pace.failed(Asked.RENEWAL, error, self._clock.monotonic())
            self.check_clocks()
            raise
        finally:
            self.seal_if_lost()

    @property
    def is_in_need(self) -> bool:
        """True if an outage lane may be opened: Redis did not reply, or the lease was lost."""
        is_away = self._pace.failure(Asked.RENEWAL) is not None
        return is_away or self.has_opened or self._leases.slot.lost_lease is not None

    @property
    def has_opened(self) -> bool:
        """True if an outage lane is open: it was opened since the last reply that granted something of use."""
        return self._allocator.outage_serial > 0

    def open_outage_lane(self) -> bool:
        """Let ids go on in an outage lane: of the lease, or of one that was lost. Return whether one can be used now.

        Without a heartbeat thread, the next call after a heartbeat's time talks to Redis again.
        """
        leases = self._leases.held, self._leases.slot.lost_lease
        for_ms = OUTAGE_MS if self._thread.runs else self._context.config.heartbeat_ms
        for lease in leases:
            if lease is None or not self._leases.view.clocks_agree:
                continue
            before = self._allocator.outage_serial
            if locked(self._generator._lock, self._allocator.open_outage_lane, lease, for_ms):
                if before != lease.serial:
                    log.warning(
                        "pool %s: ids are made in the outage lane of worker id %d, until %s at most",
                        self._pool,
                        lease.lease.worker,
                        time_text(lease.lease.outage_until_ms),
                    )
                return True
        return False

    def check_clocks(self) -> None:
        """Close the outage lane if this machine may have been stored, or copied, since the last reply."""
        if self.has_opened and not self._leases.view.clocks_agree:
            self._close_outage_lane()
            log.warning("pool %s: %s", self._pool, _CLOSED)

    def go_back(self) -> None:
        """Go back to the other lanes, now that Redis has granted something that is not over on this host's clock."""
        held = self._leases.held
        if held is not None and held.lease.until_ms > self._context.now_ms():
            self._close_outage_lane()

    def _close_outage_lane(self) -> None:
        """Let no more ids be made in an outage lane."""
        if self.has_opened:
            locked(self._generator._lock, self._allocator.close_outage_lane)

    def stats(self) -> WorkerStats:
        """Return the statistics of the next heartbeat; ids per second are counted since the last call."""
        (made, namespace), now_s = self._allocator.usage, self._clock.monotonic()
        since_s, before = self._last_rate
        rate = int((made - before) / (now_s - since_s)) if now_s > since_s else 0
        self._last_rate = (now_s, made)
        clock_backs = sum(self._context.counts.clock_backs.values()) - self.clock_backs_before
        return WorkerStats(made, max(0, rate), self._leases.view.offset_ms, namespace, clock_backs)

    def seal_if_lost(self) -> None:
        """Seal at once if there is no lease any more, not when the tick ends."""
        if self._leases.held is None:
            # a child that was forked in C meanwhile gets another lock: a thread of its parent may have held this one
            self._context.guard.check()
            locked(self._generator._lock, self._allocator.seal)
