"""Claims: of a worker id, or of another one; and what dead processes of this host left, which a claim may take over.

No lease is released before its range is sealed and its marks are read.
"""

from __future__ import annotations

from snowredis import errors
from snowredis.process.log import log
from snowredis.process.threads import locked
from snowredis.snowflake.crash.record import Credentials
from snowredis.snowflake.ids.allocator import IdAllocator
from snowredis.snowflake.lease.context import Context
from snowredis.snowflake.lease.held import Claimed, HeldLease
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.protocol.messages import NO_STATS, pool_id
from snowredis.snowflake.upkeep.pace import Asked, Pace
from snowredis.snowflake.upkeep.renewing import OUTAGE_MS, Renewals

# leases of dead processes that are released by a claim, for which an id has to wait
MOST_AT_ONCE = 8

_NO_LEASE = (
    "This process has no lease, and no process with the same parent ended with one: it makes ids as soon as Redis "
    "replies. Processes that have a lease go on meanwhile, so do not restart them"
)


class Claims:
    """Claims worker ids for one generator."""

    def __init__(
        self, context: Context, leases: LeaseManager, allocator: IdAllocator, pace: Pace, renewals: Renewals
    ) -> None:
        self._context, self._generator, self._clock = context, allocator.generator, context.clock
        self._leases, self._allocator, self._pace, self._renewals = leases, allocator, pace, renewals
        self._pool = context.config.name

    def claim(self, *, instead_of: int = 0, now: bool = False, gives_up: bool = True) -> Claimed:
        """Claim a worker id, and release the lease that it replaces. See LeaseManager.send_claim()."""
        conversation = self._leases.conversation
        if refusal := self._pace.refusal(Asked.SETTINGS, self._clock.monotonic()):
            raise refusal
        try:
            # this comes first: ids contain the number of the pool. A process that does not know it takes nothing over
            conversation.run(self._leases.prepare)
            try:
                try:
                    claimed = conversation.run(self._leases.send_claim, now, instead_of, gives_up)
                except errors.PoolExhausted:
                    if not self.release_dead():
                        raise
                    claimed = conversation.run(self._leases.send_claim, now, instead_of, gives_up)
            except errors.StoreUnavailable as error:
                if not error.retry or not conversation.run(self._take_over):
                    self._explain(error)
                    raise
                self._pace.failed(Asked.RENEWAL, error, self._clock.monotonic())
                return Claimed()
            self._pace.succeeded(Asked.RENEWAL)
            self._pace.succeeded(Asked.SETTINGS)
        except errors.SnowredisError as error:
            if isinstance(error, errors.LayoutMismatch):
                self._pace.failed(Asked.SETTINGS, error, self._clock.monotonic())
                self._renewals.seal_if_lost()
            self._renewals.check_clocks()
            raise
        fresh, old = claimed.granted, claimed.replaced
        if fresh is not None:
            if claimed.void:
                # suspended meanwhile, so no id was made; in a forked child this does nothing
                self._leases.release(fresh, "0" * len(fresh.terms.lanes_ms))
            self._renewals.go_back()
        if old is not None:
            opened = locked(self._generator._lock, self._allocator.seal_through, old)
            self._leases.release(old, opened, self._renewals.stats())
        if fresh is not None:
            # a clock-back under another lease is no event of this one
            self._renewals.clock_backs_before = sum(self._leases.counts.clock_backs.values())
            if not claimed.void:
                log.info("pool %s: claimed worker id %d", self._pool, fresh.lease.worker)
        if self._leases.held is not None:
            # Redis replies; the next claims find the worker ids
            self.release_dead()
        if claimed.settling_ms:
            self.log_floor(self._leases.view.floor_ms - self._context.now_ms())
        return claimed

    def log_floor(self, left_ms: float) -> None:
        """Log that ids are *left_ms* away, once for each wait for a floor."""
        if self._pace.says_floor(left_ms / 1000, self._clock.monotonic()):
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

    def replace(self, behind_ms: int) -> None:
        """Claim a worker id whose lanes fit a clock that went back by *behind_ms*, then release the old one.

        Raises:
            ClockMovedBack: none is available, or none was a moment ago.
        """
        held, now_s = self._leases.held, self._clock.monotonic()
        if held is None:
            return
        if self._pace.refusal(Asked.REPLACEMENT, now_s):
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
            self._pace.failed(Asked.REPLACEMENT, refused, now_s)
            raise refused from cause
        if claimed.replaced is not None:
            self._context.clock_backs.note(behind_ms, "worker", self._allocator.ids_made)

    def release_dead(self, *, only_next: bool = False) -> int:
        """Release leases that dead processes of this machine left; return how many were still leased.

        Blocks for one round trip to Redis each, MOST_AT_ONCE at most; LOCK_LIMIT_S for another thread.
        """
        leases = self._leases
        return leases.dead_processes.release(MOST_AT_ONCE, leases.conversation.run, only_next=only_next)
