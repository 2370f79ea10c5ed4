"""The lifecycle of a generator's leases: claim, renew, replace, give back; with a heartbeat in the background.

Joins lease_manager.py, which talks to Redis, and id_allocator.py, which knows what each lane was used for: no lease is
given back before its block is sealed and its marks are read.
"""

from __future__ import annotations

import logging
import random
import weakref

from snowredis.core.lanes import ClockRules
from snowredis.errors import (
    ClockMovedBack,
    LayoutMismatch,
    LeaseExpired,
    PoolExhausted,
    SnowredisError,
    StoreUnavailable,
)
from snowredis.lease.stats import WorkerStats
from snowredis.runtime.clock import Clock
from snowredis.runtime.counts import ClockBackLog
from snowredis.runtime.exit import EXIT
from snowredis.runtime.fast_path import FastPath
from snowredis.runtime.heartbeat import HasBeat, Heartbeat
from snowredis.runtime.id_allocator import IdAllocator
from snowredis.runtime.lease import Claimed, HeldLease
from snowredis.runtime.lease_manager import RETRY_S, LeaseManager

log = logging.getLogger("snowredis")

# a worker id of another server that can be used only later than this is no better than waiting for one's own
MOVE_WAIT_MS = 1_000


class LeaseLifecycle:
    """One for each generator.

    Args:
        owner: what the heartbeat thread calls as long as it exists: the generator.

    Attributes:
        closed, suspended: whether ids are refused, for good or until resume().
    """

    def __init__(
        self,
        path: FastPath,
        owner: weakref.ref[HasBeat],
        leases: LeaseManager,
        allocator: IdAllocator,
        clock: Clock,
        rules: ClockRules,
        rng: random.Random,
        clock_backs: ClockBackLog,
    ) -> None:
        self._path: FastPath = weakref.proxy(path)
        self._owner = owner
        self._leases, self._allocator, self._clock, self._rules = leases, allocator, clock, rules
        self._random, self._clock_backs = rng, clock_backs
        self.closed = self.suspended = False
        self._heartbeat: Heartbeat | None = None
        self._failing = False
        # the clock and ids_made at the last stats()
        self._last_rate = (clock.monotonic(), 0)
        self._replace_again_s = -1e9

    @property
    def _pool(self) -> str:
        return self._leases.config.name

    # --- claim, renew, replace ---------------------------------------------------------------------

    def claim(self, wait_ms: int, instead_of: int = 0) -> Claimed:
        """Claim a worker id; what it replaced is given back. See LeaseManager.claim()."""
        try:
            claimed = self._leases.claim(wait_ms=wait_ms, instead_of=instead_of)
        except LayoutMismatch:
            self._seal_if_lost()
            raise
        if claimed.replaced is not None:
            self._release_replaced(claimed.replaced)
        return claimed

    def _release_replaced(self, old: HeldLease) -> None:
        with self._path._lock:
            self._allocator.seal_through(old.serial)
            marks = self._allocator.marks(old)
        self._leases.release(old, marks, self.stats())

    def renew_in_need(self) -> None:
        """Renew from within a call that needs more time; move to another server if that fails.

        Raises:
            LeaseExpired: Redis does not reply, and no other server has a worker id.
        """
        try:
            self._leases.renew_in_need(self.stats())
        except LayoutMismatch:
            self._seal_if_lost()
            raise
        except LeaseExpired:
            if not self._move():
                raise

    def _move(self) -> bool:
        """Claim a worker id of another server if there are several and that of this lease does not reply.

        Not before half of the ttl is left: a server may come back, and ids go on meanwhile.

        Returns:
            whether there is another lease now.
        """
        held = self._leases.held
        if held is None or not self._leases.due_to_move() or self._clock.monotonic() < self._replace_again_s:
            return False
        old = None
        try:
            old = self.claim(MOVE_WAIT_MS, held.serial).replaced
        except SnowredisError as error:
            log.warning("pool %s: no other server has a worker id: %s", self._pool, error)
        if old is None:
            self._replace_again_s = self._clock.monotonic() + RETRY_S
        else:
            log.warning("pool %s: the server of worker id %d is away; moved on", self._pool, old.lease.worker)
        self._give_back_if_ended()
        return self._leases.held is not held

    def replace(self, behind_ms: int) -> None:
        """Claim a worker id whose lanes fit a clock that went back by *behind_ms*, then give the old one back.

        Raises:
            ClockMovedBack: none is available, or none was a moment ago.
        """
        held, now_s = self._leases.held, self._clock.monotonic()
        if held is None:
            return
        claimed, cause = Claimed(), None
        if now_s < self._replace_again_s:
            # refused a moment ago, and Redis is not to be asked for every id
            raise ClockMovedBack(behind_ms, self._rules.policy)
        try:
            claimed = self.claim(0, held.serial)
        except (PoolExhausted, ClockMovedBack, StoreUnavailable) as error:
            cause = error
        if claimed.settling_ms or cause is not None:
            self._clock_backs.note(behind_ms, "refusal", self._allocator.state.lanes)
            self._replace_again_s = now_s + RETRY_S
            raise ClockMovedBack(behind_ms, self._rules.policy) from cause
        if claimed.replaced is not None:
            self._clock_backs.note(behind_ms, "worker", self._allocator.state.lanes)

    def stats(self) -> WorkerStats:
        """Return the statistics of the next heartbeat; ids per second are counted since the last call."""
        made, now_s = self._allocator.ids_made, self._clock.monotonic()
        since_s, before = self._last_rate
        rate = int((made - before) / (now_s - since_s)) if now_s > since_s else 0
        self._last_rate = (now_s, made)
        return WorkerStats(
            ids_made=made,
            ids_per_s=max(0, rate),
            clock_offset_ms=self._leases.offset_ms,
            namespace=self._allocator.state.lanes.current,
            clock_backs=self._leases.counts.clock_backs,
        )

    # --- heartbeat ---------------------------------------------------------------------------------

    def start_heartbeat(self) -> None:
        """Start a thread that calls beat() through the generator, unless there is one, or the clock is a test's."""
        with self._path._lock:
            if self._heartbeat is not None or self.closed or not self._clock.background:
                return
            name = f"snowredis-{self._pool}"
            heartbeat = self._heartbeat = Heartbeat(
                self._owner, self.beat_after_s(), name, self._leases.abandon
            )
        if self._heartbeat is heartbeat:
            heartbeat.start()
            EXIT.arm()

    def beat_after_s(self) -> float:
        """Return the seconds until the next beat: a little random, so that not all workers beat together."""
        return self._leases.config.heartbeat_ms / 1000 * self._random.uniform(0.85, 1.0)

    def beat(self) -> float:
        """Renew the lease, or claim another if it is lost. Never raises.

        Returns:
            seconds until it should be called again.
        """
        try:
            if self._leases.held is not None and self._renew_or_move():
                if self._failing:
                    self._failing = False
                    log.warning("pool %s: Redis replies again", self._pool)
                return self.beat_after_s()
            if not (self.closed or self.suspended):
                settling_ms = self.claim(self._leases.longest_wait_ms).settling_ms
                self._give_back_if_ended()
                return min(settling_ms / 1000, self.beat_after_s()) or self.beat_after_s()
        except SnowredisError as error:
            # once for each outage, not twice a second
            level = logging.DEBUG if self._failing else logging.WARNING
            log.log(level, "pool %s: heartbeat failed, trying again: %s", self._pool, error)
            self._failing = True
        except Exception:
            log.exception("pool %s: heartbeat failed, trying again", self._pool)
        return min(RETRY_S, self.beat_after_s())

    def _renew_or_move(self) -> bool:
        """Renew; return whether there is a lease afterwards: the same, or one of another server."""
        try:
            return self._leases.renew(self.stats())
        except StoreUnavailable:
            if not self._move():
                raise
            return True
        finally:
            self._seal_if_lost()

    def _seal_if_lost(self) -> None:
        """Seal at once if there is no lease any more, not when the tick ends."""
        if self._leases.held is None:
            with self._path._lock:
                self._allocator.seal()

    # --- the end -----------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Release the lease, if there is one, with the marks that were really used. Never raises."""
        # R7, in this order: from here on nothing is published for this lease; its block is sealed; the marks are
        # read; they are sent
        with self._path._lock:
            held = self._leases.detach()
            self._allocator.seal()
            marks = self._allocator.marks(held) if held is not None else None
        if held is not None:
            self._leases.release(held, marks, self.stats())

    def _give_back_if_ended(self) -> None:
        # close() or suspend() came in during a claim, and found nothing to give back
        if self.closed or self.suspended:
            self.give_back()

    def suspend(self) -> None:
        """Give the lease back and claim none until resume(). Never raises."""
        self.suspended, self._leases.accepting = True, False
        self.give_back()
        self._leases.forget_claims()

    def resume(self) -> None:
        """Claim again when a lease is needed."""
        if self.suspended:
            self._leases.forget_claims()
            # in this order: whoever sees that it goes on may claim
            self._leases.accepting = not self.closed
            self.suspended = False

    def close(self) -> None:
        """Give the lease back for good. Never raises."""
        self.closed, self._leases.accepting = True, False
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()
        self.give_back()
        self._leases.close()

    def after_fork(self) -> None:
        """In a forked child: the parent's heartbeat is not in this process."""
        self._heartbeat = None
