"""The lifecycle of a generator's leases: claim, renew, replace, release; and what a heartbeat does.

Joins LeaseManager, which talks to Redis, and allocator.py, which knows what each lane was used for: no lease is
released before its range is sealed and its marks are read. While Redis does not reply, a claim takes over the lease
of a dead process of this host.
"""

from __future__ import annotations

import logging

from snowredis import errors
from snowredis.core.lanes import SEALED
from snowredis.core.values import utc_text
from snowredis.process.exit import EXIT
from snowredis.process.heartbeat import Heartbeat
from snowredis.process.log import log
from snowredis.process.threads import locked, may_start_threads
from snowredis.snowflake.crash.record import Credentials
from snowredis.snowflake.ids.allocator import IdAllocator
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.lease.values import Claimed, HeldLease
from snowredis.snowflake.protocol.replies import ids_until_ms, pool_id
from snowredis.snowflake.protocol.requests import NO_STATS, WorkerStats
from snowredis.snowflake.upkeep.pace import Asked, Pace

# for how long an outage lane is opened at once. This is recorded before: after a kill, the process that takes the lease
# over waits for the rest of it
OUTAGE_MS = 1_000
# leases of dead processes that are released by a claim, for which an id has to wait; and how often so by a heartbeat
MOST_AT_ONCE, TIMES_AT_BEAT = 8, 25

_CLOSED = (
    "The outage lane stays closed until Redis replies: this host's clock was set, or the machine was suspended or "
    "copied, since the last reply"
)


_NO_LEASE = (
    "This process has no lease, and no process with the same parent ended with one: it makes ids as soon as Redis "
    "replies. Processes that have a lease go on meanwhile, so do not restart them"
)


class LeaseLifecycle:
    """Starts, renews, replaces and ends the leases of one generator.

    Attributes:
        pace: says when Redis is asked again.
    """

    def __init__(self, context: Context, leases: LeaseManager, allocator: IdAllocator, claim_timeout: float) -> None:
        self._context, self._generator, self._clock = context, allocator.generator, context.clock
        self._leases, self._allocator = leases, allocator
        self._pool = context.config.name
        self._heartbeat: Heartbeat | None = None
        self.pace = Pace(context.config.heartbeat_ms / 1000, claim_timeout, context.random)
        # whether a refused thread was logged
        self._refused = False
        # the clock and ids_made at the last stats()
        self._last_rate = (self._clock.monotonic(), 0)
        # the part of counts.clock_backs that happened under earlier leases
        self._clock_backs_before = 0

    @property
    def lasts_until_ms(self) -> int:
        """Until when ids can be made if Redis takes no more renewals, on this host's clock; 0: there is no lease.

        An outage lane that stays closed does not count: the clock of this host was set, or it is so far ahead that
        what Redis reserves is over, though Redis replies.
        """
        leases, now_ms = self._leases, self._context.now_ms()
        until_ms = leases.held.lease.until_ms if leases.held else 0
        is_recent = leases.view.renewed_ago_s < self._context.config.ttl_ms / 2000
        replies = is_recent and self.pace.failure(Asked.RENEWAL) is None
        is_over = leases.held is not None and replies and not self.has_opened and until_ms <= now_ms
        if is_over or not leases.view.clocks_agree:
            return until_ms
        # a lane may have opened after a gap
        lasts_ms = ids_until_ms(max(until_ms, now_ms), *leases.slot.outage_lanes_ms)
        return lasts_ms if lasts_ms > now_ms else until_ms

    @property
    def renewal_failure(self) -> tuple[str, int] | None:
        """Why the last renewal failed, and when the one before succeeded, on the Redis clock; None: it succeeded."""
        failure, view = self.pace.failure(Asked.RENEWAL), self._leases.view
        since_ms = self._context.now_ms() - view.offset_ms - round(view.renewed_ago_s * 1000)
        return (str(failure), since_ms) if failure is not None and self._leases.held is not None else None

    def claim(self, *, instead_of: int = 0, now: bool = False, gives_up: bool = True) -> Claimed:
        """Claim a worker id, and release the lease that it replaces. See LeaseManager.send_claim()."""
        conversation = self._leases.conversation
        if refusal := self.pace.refusal(Asked.SETTINGS, self._clock.monotonic()):
            raise refusal
        try:
            # this comes first: ids contain the number of the pool. A process that does not know it takes nothing over
            conversation.run(self._leases.prepare)
            try:
                try:
                    claimed = conversation.run(self._leases.send_claim, now, instead_of, gives_up)
                except errors.PoolExhausted:
                    if not self._release_dead():
                        raise
                    claimed = conversation.run(self._leases.send_claim, now, instead_of, gives_up)
            except errors.StoreUnavailable as error:
                is_away = type(error) is errors.StoreUnavailable
                if not is_away or not conversation.run(self._take_over):
                    self._explain(error)
                    raise
                self.pace.failed(Asked.RENEWAL, error, self._clock.monotonic())
                return Claimed()
            self.pace.succeeded(Asked.RENEWAL)
            self.pace.succeeded(Asked.SETTINGS)
        except errors.SnowredisError as error:
            if isinstance(error, errors.LayoutMismatch):
                self.pace.failed(Asked.SETTINGS, error, self._clock.monotonic())
                self._seal_if_lost()
            self._check_clocks()
            raise
        fresh, old = claimed.granted, claimed.replaced
        if fresh is not None:
            if claimed.void:
                # suspended meanwhile, so no id was made; in a forked child this does nothing
                self._leases.release(fresh, "0" * len(fresh.lanes_ms))
            self._go_back()
        if old is not None:
            opened = locked(self._generator._lock, self._allocator.seal_through, old)
            self._leases.release(old, opened, self.stats())
        if fresh is not None:
            # a clock-back under another lease is no event of this one
            self._clock_backs_before = sum(self._leases.counts.clock_backs.values())
            if not claimed.void:
                log.info("pool %s: claimed worker id %d", self._pool, fresh.lease.worker)
        if self._leases.held is not None:
            # Redis replies; the next claims find the worker ids
            self._release_dead()
        if claimed.settling_ms:
            self.log_floor(self._leases.view.floor_ms - self._context.now_ms())
        return claimed

    def log_floor(self, left_ms: float) -> None:
        """Log that ids are *left_ms* away, once for each wait for a floor."""
        if self.pace.says_floor(left_ms / 1000, self._clock.monotonic()):
            log.warning(
                "pool %s: new workers wait %.1f s, so that no id is repeated: Redis did not know the pool, or was "
                "restarted. A pool that no process has used before is created without this wait by: snowredis pool "
                "create %s",
                self._pool,
                left_ms / 1000,
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
            taken = HeldLease.taken_over(credentials, leases.config, serial, generation)._replace(taken_ms=now_ms)
            seen = leases.view.seen.incarnation
            is_ours = not seen or pool_id(seen) == pool_id(taken.lease.incarnation)
            is_ours = is_ours and leases.view.agree_since(taken.clocks_s)
            return taken if is_ours and self._is_of_use(taken) else None

        taken = leases.dead_processes.take_over(accept, lambda taken: slot.record_taken(record, taken))
        if guard.forked_since(generation) or taken is None or not slot.hold(taken, NO_STATS):
            return False
        leases.view.note_taken(taken.clocks_s)
        leases.lost_worker = None
        text = "pool %s: Redis does not reply; took over worker id %d of a process with the same parent that has ended"
        log.warning(text, self._pool, taken.lease.worker)
        return True

    def _is_of_use(self, taken: HeldLease) -> bool:
        """Return whether the outage lane of *taken* is open soon: it may open a day later, and another be better."""
        layout, lease = self._context.config.layout, taken.lease
        soon = layout.tick_at(self._context.now_ms() + OUTAGE_MS) + 1
        return max(lease.opens[-1], layout.first_tick_from(taken.outage_used_ms)) <= soon < lease.outage_until

    def renew_in_need(self) -> None:
        """Renew for a call that needs more time, once each AGAIN_S; open the outage lane if that fails.

        Blocks:
            for one round trip to Redis.

        Raises:
            LeaseExpired: Redis does not reply, and no outage lane is open.
        """
        held = self._leases.held
        cause: BaseException | None = None
        if held is None or (self.pace.failure(Asked.RENEWAL) and self.beats and self.open_outage_lane()):
            return
        refusal = self.pace.refusal(Asked.RENEWAL, self._clock.monotonic())
        if refusal is None:
            try:
                self._renew()
                self.start_heartbeat()
                return
            except errors.StoreUnavailable as error:
                refusal, cause = error, errors.as_cause(error)
        if not self.open_outage_lane():
            reason = str(refusal)
            if held.lease.outage_until and not self._leases.view.clocks_agree:
                reason = f"{reason.rstrip('.')}. {_CLOSED}"
            raise errors.LeaseExpired(self._pool, held.lease.worker, reason) from cause

    def _renew(self) -> bool:
        """Renew; return False if the lease is lost, and sealed. See LeaseManager.send_renewal()."""
        try:
            renewed = self._leases.conversation.run(self._leases.send_renewal, self.stats())
            self.pace.succeeded(Asked.RENEWAL)
            if renewed:
                self._go_back()
            return renewed
        except errors.StoreUnavailable as error:
            # the time of the end: an attempt may have taken long
            self.pace.failed(Asked.RENEWAL, error, self._clock.monotonic())
            self._check_clocks()
            raise
        finally:
            self._seal_if_lost()

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
            self._context.clock_backs.note(behind_ms, "refusal", self._allocator.ids_made)
            refused = errors.ClockMovedBack(behind_ms, self._context.rules.policy)
            self.pace.failed(Asked.REPLACEMENT, refused, now_s)
            raise refused from cause
        if claimed.replaced is not None:
            self._context.clock_backs.note(behind_ms, "worker", self._allocator.ids_made)

    @property
    def is_in_need(self) -> bool:
        """True if an outage lane may be opened: Redis did not reply, or the lease was lost."""
        is_away = self.pace.failure(Asked.RENEWAL) is not None
        return is_away or self.has_opened or self._leases.slot.lost_lease is not None

    @property
    def has_opened(self) -> bool:
        """True if an outage lane is open: it was opened since the last reply that granted something of use."""
        return self._allocator.outage_serial > 0

    @property
    def beats(self) -> bool:
        """True if a thread renews the lease, or claims another one."""
        return self._heartbeat is not None

    def open_outage_lane(self) -> bool:
        """Let ids go on in an outage lane: of the lease, or of one that was lost. Return whether one can be used now.

        Without a heartbeat thread, the next call after a heartbeat's time talks to Redis again.
        """
        leases = self._leases.held, self._leases.slot.lost_lease
        for_ms = OUTAGE_MS if self.beats else self._context.config.heartbeat_ms
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
                        utc_text(lease.lease.outage_until_ms),
                    )
                return True
        return False

    def _check_clocks(self) -> None:
        """Close the outage lane if this machine may have been stored, or copied, since the last reply."""
        if self.has_opened and not self._leases.view.clocks_agree:
            self._close_outage_lane()
            log.warning("pool %s: %s", self._pool, _CLOSED)

    def _go_back(self) -> None:
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
        clock_backs = sum(self._leases.counts.clock_backs.values()) - self._clock_backs_before
        return WorkerStats(made, max(0, rate), self._leases.view.offset_ms, namespace, clock_backs)

    def claim_in_background(self) -> None:
        """Let the heartbeat claim a worker id, if there is none; without a thread, try once here. Never raises."""
        self.start_heartbeat(0.0)
        if not self.beats and self._leases.held is None:
            self.beat()

    def start_heartbeat(self, first_s: float | None = None) -> None:
        """Start a thread that calls beat() through the generator, unless one runs or the clock is a test clock.

        Its first call comes after *first_s*.

        Called after each claim and each renewal that a call needs: where the system refuses a thread, leases are
        renewed inside next_id() only, until it allows one. A warning says so, once.
        """
        heartbeat = locked(self._generator._lock, self._new_heartbeat)
        if heartbeat is not None and self._heartbeat is heartbeat:
            EXIT.arm()
            try:
                first_s = self.pace.beat_in_s(is_first=True) if first_s is None else first_s
                heartbeat.start(first_s, f"snowredis-{self._pool}")
            except RuntimeError as error:
                if self._heartbeat is heartbeat:
                    self._heartbeat = None
                text = "no heartbeat thread (%s): leases are renewed only while ids are made"
                is_news = not self._refused and may_start_threads()
                log.log(logging.WARNING if is_news else logging.DEBUG, text, error)
                self._refused = True

    def _new_heartbeat(self) -> Heartbeat | None:
        if self._heartbeat is not None or self._leases.closed or not self._clock.background:
            return None
        self._heartbeat = heartbeat = Heartbeat(self._context.weak_generator, self._leases.abandon, self._context.guard)
        return heartbeat

    def beat(self) -> float:
        """Renew the lease, or claim another if it is lost. Never raises.

        Returns:
            the seconds until it should be called again.

        Blocks:
            one round trip to Redis; one more for each lease that is claimed or released.
        """
        settling_ms, is_first = 0, False
        try:
            if self._leases.held is not None and self._renew():
                self._after_renewal()
            elif not (self._leases.closed or self._leases.suspended):
                settling_ms = self.claim().settling_ms
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
        """Log that Redis replies again, if it did not, and release what dead processes left."""
        if self.pace.succeeded(Asked.BEAT):
            log.warning("pool %s: Redis replies again", self._pool)
        # a few at a time: other threads may want to talk to Redis
        for number in range(TIMES_AT_BEAT):
            if self._release_dead(only_next=number == 0) < MOST_AT_ONCE:
                break

    def _seal_if_lost(self) -> None:
        """Seal at once if there is no lease any more, not when the tick ends."""
        if self._leases.held is None:
            locked(self._generator._lock, self._allocator.seal)

    def _release_dead(self, *, only_next: bool = False) -> int:
        """Release leases that dead processes of this machine left; return how many were still leased.

        Blocks for one round trip to Redis each, MOST_AT_ONCE at most; LOCK_LIMIT_S for another thread.
        """
        leases = self._leases
        return leases.dead_processes.release(MOST_AT_ONCE, leases.conversation.run, only_next=only_next)

    def release(self) -> None:
        """Release the lease, if there is one, with the lanes that were never opened. Never raises.

        Blocks:
            one round trip to Redis; LOCK_LIMIT_S for another thread.
        """
        held, opened = locked(self._generator._lock, self._detach)
        if held is not None:
            self._leases.release(held, opened, self.stats())
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
                self._seal_if_lost()
            self._leases.suspended = False

    def _make_void(self) -> None:
        """Invalidate the lease and any claim under way, and seal the range.

        A lease may still be here: nothing is detached while another thread talks to the store, nor what a signal
        handler claims after that. The reply to a claim may be still to come: a clone of this machine has its token,
        and would get its lease.
        """
        self._leases.slot.make_void()
        self._seal_if_lost()

    def close(self) -> None:
        """Release the lease for good. Blocks as release(); never raises."""
        self._leases.closed = True
        heartbeat, self._heartbeat = self._heartbeat, None
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
        self._heartbeat, self._clock_backs_before = None, 0
        self.pace.reset()
