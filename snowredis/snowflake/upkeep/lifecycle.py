"""The life of a generator's leases: what a heartbeat does, and how the last lease ends.

Claims: claiming.py. Renewals and the outage lane: renewing.py.
"""

from __future__ import annotations

import logging

from snowredis import errors
from snowredis.core.lanes import SEALED
from snowredis.process.log import log
from snowredis.process.threads import locked
from snowredis.snowflake.ids.allocator import IdAllocator
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.lease.held import HeldLease
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.upkeep.claiming import MOST_AT_ONCE, Claims
from snowredis.snowflake.upkeep.heartbeat import HeartbeatThread
from snowredis.snowflake.upkeep.pace import Asked, Pace
from snowredis.snowflake.upkeep.renewing import Renewals

# how often a heartbeat releases MOST_AT_ONCE leases of dead processes
TIMES_AT_BEAT = 25
# the part of the time between two heartbeats after which the rest of them wait for the next one
SWEEP_SHARE = 0.25


class LeaseLifecycle:
    """Keeps the lease of one generator alive, and ends it.

    Attributes:
        pace: says when Redis is asked again.
        thread: the heartbeat.
    """

    def __init__(self, context: Context, leases: LeaseManager, allocator: IdAllocator, claim_timeout: float) -> None:
        self._context, self._generator, self._clock = context, allocator.generator, context.clock
        self._leases, self._allocator = leases, allocator
        self._pool = context.config.name
        self.pace = Pace(context.config.heartbeat_ms / 1000, claim_timeout, context.random)
        self.thread = HeartbeatThread(context, leases, allocator.generator, self.pace)
        self.renewals = Renewals(context, leases, allocator, self.pace, self.thread)
        self.claims = Claims(context, leases, allocator, self.pace, self.renewals)

    def claim_in_background(self) -> None:
        """Let the heartbeat claim a worker id, if there is none; without a thread, try once here. Never raises."""
        self.thread.start(0.0)
        if not self.thread.runs and self._leases.held is None:
            self.beat()

    def beat(self) -> float:
        """Renew the lease, or claim another if it is lost. Never raises.

        Returns:
            the seconds until it should be called again.

        Blocks:
            one round trip to Redis; one more for each lease that is claimed or released.
        """
        settling_ms, is_first = 0, False
        try:
            if self._leases.held is not None and self.renewals.renew():
                self._after_renewal()
            elif not (self._leases.closed or self._leases.suspended):
                # a heartbeat never gives up: the calls that want an id do
                settling_ms = self.claims.claim(gives_up=False).settling_ms
                self._release_if_ended()
                held = self._leases.held
                is_first = held is not None
                if held is not None and self.pace.succeeded(Asked.BEAT):
                    log.warning("pool %s: this process has worker id %d now", self._pool, held.lease.worker)
        except Exception as error:
            # a warning once for each outage, not twice a second
            is_news = self.pace.failed(Asked.BEAT, error, self._clock.monotonic())
            if isinstance(error, errors.SnowredisError):
                level = logging.WARNING if is_news else logging.DEBUG
                log.log(level, "pool %s: heartbeat failed, trying again: %s", self._pool, error)
            else:
                log.exception("pool %s: heartbeat failed, trying again", self._pool)
        return self.pace.beat_in_s(settling_ms, is_first=is_first)

    def _after_renewal(self) -> None:
        """Log that heartbeats succeed again, if they failed, and release what dead processes left."""
        if self.pace.succeeded(Asked.BEAT):
            log.warning("pool %s: heartbeats succeed again", self._pool)
        # a few at a time, since other threads may want to talk to Redis, and no longer than leaves time for a renewal
        until_s = self._clock.monotonic() + self._context.config.heartbeat_ms / 1000 * SWEEP_SHARE
        for number in range(TIMES_AT_BEAT):
            if self.claims.release_dead(only_next=number == 0) < MOST_AT_ONCE or self._clock.monotonic() >= until_s:
                break

    def release(self) -> None:
        """Release the lease, if there is one, with the lanes that were never opened. Never raises.

        Blocks:
            one round trip to Redis; LOCK_LIMIT_S for another thread.
        """
        held, opened = locked(self._generator._lock, self._detach)
        if held is not None:
            self._leases.release(held, opened, self.renewals.stats())
        elif (kept := self._leases.held) is not None and not self._leases.conversation.is_here:
            text = "pool %s: could not release worker id %d; it is available again when its lease ends: %s"
            log.warning(text, self._pool, kept.lease.worker, "another thread waits for Redis")
        self._leases.withdraw()

    def _detach(self) -> tuple[HeldLease | None, str]:
        """Detach and seal; return the lease, if there was one, and which of its lanes were opened."""
        # step 5, own, in this order: from here on nothing is published for this lease; its range is sealed; which lanes
        # were opened is read; that is sent
        held = self._leases.detach()
        self._allocator.seal()
        return held, self._allocator.opened(held) if held is not None else ""

    def _release_if_ended(self) -> None:
        # close() or suspend() was called during a claim, and found nothing to release
        if self._leases.closed or self._leases.suspended:
            self.release()

    def suspend(self) -> None:
        """Release the lease and claim none until resume(). Blocks as release(); never raises."""
        self._leases.suspended = True
        self.release()
        self._make_void()
        self._leases.disown()

    def resume(self) -> None:
        """Allow claims again: the next call that needs a lease claims one. Does not talk to Redis.

        Blocks only while another thread releases the lease, if a handler has claimed one in the middle of this.
        """
        if self._leases.suspended:
            self._leases.slot.make_void()
            if self._generator._position[1] != SEALED:
                self.renewals.seal_if_lost()
            self._leases.suspended = False

    def _make_void(self) -> None:
        """Invalidate the lease and any claim under way, and seal the range.

        A lease may still be here: nothing is detached while another thread talks to the store, nor what a signal
        handler claims after that. The reply to a claim may be still to come: a clone of this machine has its token,
        and would get its lease.
        """
        self._leases.slot.make_void()
        self.renewals.seal_if_lost()

    def close(self) -> None:
        """Release the lease for good. Blocks as release(); never raises."""
        self._leases.closed = True
        heartbeat, self.thread.heartbeat = self.thread.heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()
        self.release()
        self._make_void()
        self._leases.close()
        if heartbeat is not None:
            # joined last: if this was interrupted, the lease is released at exit
            heartbeat.join()

    def after_fork(self) -> None:
        """Forget the parent's heartbeat thread and its counts, in a forked child."""
        self.thread.heartbeat, self.renewals.clock_backs_before = None, 0
        self.pace.reset()
