"""The life of a generator's leases: claims, what a heartbeat does, and how the last lease ends.

A claim may take over what dead processes of this host left. No lease is released before its range is sealed and its
marks are read. Renewals and the outage lane: renewing.py.
"""

from __future__ import annotations

import logging

from snowredis import errors
from snowredis.core.lanes import SEALED
from snowredis.process.log import log
from snowredis.process.threads import locked
from snowredis.snowflake.crash.record import Credentials
from snowredis.snowflake.ids.allocator import IdAllocator
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.lease.held import Claimed, HeldLease
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.protocol.messages import NO_STATS, pool_id
from snowredis.snowflake.upkeep.heartbeat import HeartbeatThread
from snowredis.snowflake.upkeep.pace import Asked, Pace
from snowredis.snowflake.upkeep.renewing import OUTAGE_MS, Renewals

_NO_LEASE = (
    "This process has no lease, and no process with the same parent ended with one: it makes ids as soon as Redis "
    "replies. Processes that have a lease go on meanwhile, so do not restart them"
)


class LeaseLifecycle:
    """Claims the leases of one generator, keeps them alive, and ends them.

    Attributes:
        pace: says when Redis is asked again.
        thread: the heartbeat.
    """

    def __init__(self, context: Context, leases: LeaseManager, allocator: IdAllocator, claim_timeout: float) -> None:
        self._context, self._generator, self._clock = context, context.weak_generator, context.clock
        self._leases, self._allocator = leases, allocator
        self._pool = context.config.name
        self.pace = Pace(context.config.heartbeat_ms / 1000, claim_timeout, context.random)
        self.thread = HeartbeatThread(context, leases, self.pace)
        self.renewals = Renewals(context, leases, allocator, self.pace, self.thread)

    # --- claims ------------------------------------------------------------------------------------

    def claim(self, *, instead_of: int = 0, now: bool = False, gives_up: bool = True) -> Claimed:
        """Claim a worker id, and release the lease that it replaces. See LeaseManager.send_claim()."""
        conversation = self._leases.conversation
        if refusal := self.pace.refusal(Asked.SETTINGS, self._clock.monotonic()):
            raise refusal
        try:
            # this comes first: ids contain the number of the pool. A process that does not know it takes nothing over
            conversation.run(self._leases.store.prepare)
            try:
                try:
                    claimed = conversation.run(self._leases.send_claim, now, instead_of, gives_up)
                except errors.PoolExhausted:
                    if not self._leases.dead_processes.release():
                        raise
                    claimed = conversation.run(self._leases.send_claim, now, instead_of, gives_up)
            except errors.StoreUnavailable as error:
                if not error.retry or not conversation.run(self._take_over):
                    self._explain(error)
                    raise
                self._context.counts.claims_refused["unavailable"] += 1
                self.pace.failed(Asked.RENEWAL, error, self._clock.monotonic())
                return Claimed()
            self.pace.succeeded(Asked.RENEWAL)
            self.pace.succeeded(Asked.SETTINGS)
        except errors.SnowredisError as error:
            if isinstance(error, errors.StoreUnavailable):
                self._context.counts.claims_refused["unavailable"] += 1
            if isinstance(error, errors.LayoutMismatch):
                self._context.counts.claims_refused["mismatch"] += 1
                self.pace.failed(Asked.SETTINGS, error, self._clock.monotonic())
                self.renewals.seal_if_lost()
            self.renewals.check_clocks()
            raise
        fresh, old = claimed.granted, claimed.replaced
        if fresh is not None:
            if claimed.void:
                # suspended meanwhile, so no id was made; in a forked child this does nothing
                self._leases.release(fresh, "0" * len(fresh.terms.lanes_ms))
            self.renewals.go_back()
        if old is not None:
            opened = locked(self._generator._lock, self._allocator.seal_through, old)
            self._leases.release(old, opened, self.renewals.stats())
        if fresh is not None:
            # a clock-back under another lease is no event of this one
            self.renewals.clock_backs_before = sum(self._context.counts.clock_backs.values())
            if not claimed.void:
                log.info("pool %s: claimed worker id %d", self._pool, fresh.lease.worker)
        if self._leases.held is not None:
            # Redis replies; the next claims find the worker ids
            self._leases.dead_processes.release()
        if claimed.settling_ms:
            self.log_floor()
        return claimed

    def log_floor(self) -> None:
        """Log how far ids are away, once for each wait for a floor."""
        left_s = (self._leases.view.floor_ms - self._context.now_ms()) / 1000
        if self.pace.says_floor(left_s, self._clock.monotonic()):
            log.warning(
                "pool %s: new workers wait %.1f s, so that no id is repeated: Redis did not know the pool, or was "
                "restarted. A pool that no process has used before is created without this wait by: snowredis pool "
                "create %s",
                self._pool,
                left_s,
                self._pool,
            )

    def _explain(self, error: errors.StoreUnavailable) -> None:
        """Say in *error* what it means for a process that has just started, in a pool with outage lanes."""
        slot = self._leases.slot
        if slot.latest is None and slot.lost_lease is None and self._context.config.outage_reserve_ms and error.retry:
            error.advice = f"{error.advice}. {_NO_LEASE}"
            error.args = error.where, error.reason, error.advice

    def _take_over(self) -> bool:
        """Go on with the lease of a dead sibling, while Redis is away; return whether there is one."""
        leases, slot, guard = self._leases, self._leases.slot, self._context.guard
        if slot.lent or slot.latest is not None or slot.lost_lease is not None or leases.closed or leases.suspended:
            return False
        serial, generation = slot.next_serial(), guard.generation
        # opened before the credentials are read, as for a claim: a child that is forked meanwhile records nothing
        record = slot.open_record(serial)

        def accept(credentials: Credentials) -> HeldLease | None:
            now_ms = self._context.now_ms()
            taken = HeldLease.taken_over(credentials, leases.store.config, serial, generation)._replace(taken_ms=now_ms)
            seen = leases.view.seen.incarnation
            is_ours = not seen or pool_id(seen) == pool_id(taken.lease.incarnation)
            is_ours = is_ours and leases.view.agree_since(taken.clocks_s)
            return taken if is_ours and self._is_of_use(taken) else None

        taken = leases.dead_processes.take_over(accept)
        if taken is None:
            return False
        # first: what is recorded of a lease includes what the process before may have used
        record.note_outage_use(taken.outage_used_ms)
        if guard.forked_since(generation) or not slot.hold(taken, NO_STATS, fresh=True):
            return False
        leases.view.note_granted(taken.clocks_s)
        leases.lost_worker = None
        text = "pool %s: Redis does not reply; took over worker id %d of a process with the same parent that has ended"
        log.warning(text, self._pool, taken.lease.worker)
        return True

    def _is_of_use(self, taken: HeldLease) -> bool:
        """Return whether the outage lane of *taken* is open soon: it may open a day later, and another be better."""
        soon = self._context.config.layout.tick_at(self._context.now_ms() + OUTAGE_MS) + 1
        return self._allocator.outage_begins(taken) <= soon < taken.lease.outage_until

    def replace(self, behind_ms: int) -> None:
        """Claim a worker id whose lanes fit a clock that went back by *behind_ms*, then release the old one.

        Raises:
            ClockMovedBack: none is available, or none was a moment ago.
        """
        held, now_s = self._leases.held, self._clock.monotonic()
        if held is None:
            return
        if self.pace.refusal(Asked.REPLACEMENT, now_s):
            raise errors.ClockMovedBack(behind_ms, self._context.rules.policy)
        claimed, cause = Claimed(), None
        try:
            # with durability none, each new lease begins as after a loss
            claimed = self.claim(instead_of=held.serial, now=self._context.config.durability != "none")
        except (errors.PoolExhausted, errors.ClockMovedBack, errors.StoreUnavailable) as error:
            cause = errors.as_cause(error)
        if claimed.settling_ms or cause is not None:
            self._context.calls.clock_back(behind_ms, "refusal", self._allocator.ids_made)
            refused = errors.ClockMovedBack(behind_ms, self._context.rules.policy)
            self.pace.failed(Asked.REPLACEMENT, refused, now_s)
            raise refused from cause
        if claimed.replaced is not None:
            self._context.calls.clock_back(behind_ms, "worker", self._allocator.ids_made)

    # --- the heartbeat -----------------------------------------------------------------------------

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
                settling_ms = self.claim(gives_up=False).settling_ms
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
        self._leases.dead_processes.release(self._context.config.heartbeat_ms / 1000)

    # --- the end -----------------------------------------------------------------------------------

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
            # a thread that holds the lock may wait for a conversation, which a handler that calls this interrupted
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
