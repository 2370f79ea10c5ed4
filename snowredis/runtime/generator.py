"""The generator: what users hold. Ids singly and in batches, what to wait for, the heartbeat, the end.

How ids are made of a held lease is in id_allocator.py; who holds it is in lease_manager.py. Here both meet the
clock: claim, renew, replace, wait, refuse. A little over 400 lines: the public methods' docstrings are the
manual.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Self

from snowredis.core.lanes import ClaimAnother, ClockRules, Lanes, NotOpen, RaiseClockBack, RenewLease, Wait
from snowredis.core.layout import Parts
from snowredis.errors import (
    ClockMovedBack,
    ClockSkewed,
    GeneratorClosed,
    GeneratorSuspended,
    LayoutMismatch,
    LeaseExpired,
    LeaseLost,
    PoolExhausted,
    SnowredisError,
    StoreUnavailable,
)
from snowredis.lease.model import Store
from snowredis.lease.stats import WorkerStats
from snowredis.runtime.aio import AsyncIds
from snowredis.runtime.claim_wait import ClaimWait
from snowredis.runtime.clock import SYSTEM, Clock
from snowredis.runtime.counts import CLOCK_BACK_STEPS, Counts
from snowredis.runtime.exit import EXIT
from snowredis.runtime.fork import GUARD, ForkGuard
from snowredis.runtime.heartbeat import Heartbeat
from snowredis.runtime.lease_manager import RETRY_S, Claimed, HeldLease, Lease, LeaseManager

log = logging.getLogger("snowredis")

# in one wait; a signal or close() is noticed between two
MAX_SLEEP_S = 0.1
# a worker id of another server that can be used only later than this is no better than waiting for one's own
MOVE_WAIT_MS = 1_000


class Generator(AsyncIds):
    """Makes ids from one leased worker id; claims it at the first use, renews it in the background.

    Made by connect(). May be shared by threads, not by processes: a forked child claims its own worker id
    at its first next_id(). Cannot be pickled or copied.
    """

    __slots__ = (
        "__weakref__",
        "_claim_again_s",
        "_claim_timeout_s",
        "_closed",
        "_suspended",
        "_failing",
        "_heartbeat",
        "_last_rate",
        "_noted",
        "_random_bytes",
        "_replace_again_s",
        "_skewed",
    )

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock = SYSTEM,
        rules: ClockRules | None = None,
        sequence_start: str = "zero",
        sequence_start_bound: int | None = None,
        claim_timeout: float = 0.0,
        label: str = "",
        random_bytes: Callable[[int], bytes] = os.urandom,
        guard: ForkGuard = GUARD,
    ) -> None:
        super().__init__(
            store.config,
            LeaseManager(store, clock, label, random_bytes, guard),
            clock,
            guard,
            rules or ClockRules(),
            sequence_start,
            sequence_start_bound,
            random_bytes(8),
        )
        self._claim_timeout_s = claim_timeout
        self._random_bytes = random_bytes
        self._closed = self._suspended = self._failing = False
        self._heartbeat: Heartbeat | None = None
        self._last_rate = (clock.monotonic(), 0)
        self._replace_again_s = self._claim_again_s = -1e9
        # what ClockSkewed said last, until _claim_again_s
        self._skewed: tuple[int, int] | None = None
        self._noted: Lanes | None = None
        self._readying = None
        guard.watch(self)
        EXIT.watch(self)

    def decode(self, an_id: int) -> Parts:
        """Take an id of this generator's layout apart. See Layout.decode()."""
        return self.layout.decode(an_id)

    # --- state -------------------------------------------------------------------------------------

    @property
    def pool(self) -> str:
        """The pool's name."""
        return self._config.name

    @property
    def lease(self) -> Lease | None:
        """The lease that is held now; None before the first id, after close() and in a forked child."""
        held = self._lease_manager.held
        self._guard.check()
        return held.lease if held is not None and held is self._lease_manager.held else None

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def counts(self) -> Counts:
        """What happened to it so far: waits, clock-backs, renewals."""
        return self._lease_manager.counts

    def claim(self) -> Lease:
        """Claim a worker id now, if there is none yet, and wait until it may be used.

        Blocks:
            one round trip to Redis; on a Redis that has no such pool, or may have forgotten some of it, ttl +
            max_clock_lead + redis_skew (35 s at the defaults), with a log line; while the pool is full, up to
            claim_timeout.

        Raises:
            As next_id().
        """
        self._guard.check()
        self._next_slow(only_claim=True)
        held = self._lease_manager.held
        if held is None:
            raise LeaseLost(self.pool, -1, "it was lost as soon as it was claimed")
        return held.lease

    # --- the slow path -----------------------------------------------------------------------------

    @property
    def _ended(self) -> bool:
        return self._closed or self._suspended

    @property
    def _longest_wait_ms(self) -> int:
        """How much later than now a worker id that is claimed may begin: a floor, to the end of its tick."""
        return self._config.floor_ms + self._config.layout.tick_ms

    def make_ready(self) -> None:
        self._next_slow(only_claim=True)

    def _next_slow(self, *, only_claim: bool = False) -> int:
        deadline = ClaimWait(self)
        while True:
            self._guard.check()
            generation = self._guard.generation
            if self._closed:
                self._give_back()
                raise GeneratorClosed(self.pool)
            if self._suspended:
                self._give_back()
                raise GeneratorSuspended(self.pool)
            an_id, decision = self._advance(only_claim)
            if decision is None:
                # checked last: in a child that a signal handler forked just now, this id is its parent's
                if self._guard.generation == generation and self._guard.alive:
                    return an_id
                continue
            if isinstance(decision, Wait):
                self._note_wait(decision)
                self._sleep(decision.ms / 1000)
            elif isinstance(decision, NotOpen):
                deadline.wait_for_opening(decision.ms)
            elif isinstance(decision, RenewLease):
                self._extend()
            elif isinstance(decision, ClaimAnother):
                self._replace(decision.behind_ms)
            elif isinstance(decision, RaiseClockBack):
                self._note_clock_back(decision.behind_ms, "refusal")
                raise ClockMovedBack(decision.behind_ms, self._rules.policy)
            else:
                deadline.claim()

    def _extend(self) -> None:
        """The tick that comes next is at or past the end of the reservation."""
        held = self._lease_manager.held
        if held is None:
            return
        if self._lease_manager.just_renewed():
            now_ms = self._clock.time_ns() // 1_000_000
            if self.layout.tick_at(now_ms) < held.lease.until:
                # borrowed ahead of the clock, which is right: each renewal lets it go a little further
                wait = Wait(min(self._config.heartbeat_ms / 10, self.layout.tick_ms), clock_back=False)
                self._note_wait(wait)
                self._sleep(wait.ms / 1000)
                return
            limit_ms = self._config.ttl_ms + self._config.max_clock_lead_ms
            raise ClockSkewed(self._lease_manager.clock_offset_ms(), limit_ms)
        self._renew_in_need()

    def _renew_in_need(self) -> None:
        try:
            self._lease_manager.renew_in_need(self._stats())
        except LeaseExpired:
            if not self._move():
                raise
        except LayoutMismatch:
            self._seal_if_lost()
            raise

    def _move(self) -> bool:
        """The server of this lease does not answer: claim a worker id of another, if there are several servers.

        Not before half of the ttl is left: a server may come back, and ids go on meanwhile.

        Returns:
            whether there is another lease now.
        """
        held = self._lease_manager.held
        if (
            held is None
            or not self._lease_manager.due_to_move()
            or self._clock.monotonic() < self._replace_again_s
        ):
            return False
        old = None
        try:
            old = self._claim(wait_ms=MOVE_WAIT_MS, instead_of=held.serial).replaced
        except SnowredisError as error:
            log.warning("pool %s: no other server has a worker id: %s", self.pool, error)
        if old is None:
            self._replace_again_s = self._clock.monotonic() + RETRY_S
        else:
            log.warning("pool %s: the server of worker id %d is away; moved on", self.pool, old.lease.worker)
        if self._closed or self._suspended:
            # close() or suspend() came in between
            self._give_back()
        return self._lease_manager.held is not held

    def _claim(self, *, wait_ms: int, instead_of: int = 0) -> Claimed:
        """As LeaseManager.claim(); what was replaced is given back with what its lanes were used for."""
        try:
            claimed = self._lease_manager.claim(wait_ms=wait_ms, instead_of=instead_of)
        except LayoutMismatch:
            self._seal_if_lost()
            raise
        if claimed.replaced is not None:
            self._hand_over(claimed.replaced)
        return claimed

    def _hand_over(self, old: HeldLease) -> None:
        with self._lock:
            if self._state.serial <= old.serial:
                # also without a block of it: a frame below this signal handler may be about to publish the first
                self._seal()
            marks = self._marks(old)
        self._lease_manager.release(old, marks, self._stats())

    def _replace(self, behind_ms: int) -> None:
        """The clock went back beyond every lane: claim a worker id whose lanes fit, then give this one back."""
        held, now_s = self._lease_manager.held, self._clock.monotonic()
        if held is None:
            return
        claimed, cause = Claimed(), None
        if now_s < self._replace_again_s:
            # refused a moment ago, and Redis is not to be asked for every id
            raise ClockMovedBack(behind_ms, self._rules.policy)
        try:
            claimed = self._claim(wait_ms=0, instead_of=held.serial)
        except (PoolExhausted, ClockMovedBack, StoreUnavailable) as error:
            cause = error
        if claimed.settling_ms or cause is not None:
            self._note_clock_back(behind_ms, "refusal")
            self._replace_again_s = now_s + RETRY_S
            raise ClockMovedBack(behind_ms, self._rules.policy) from cause
        if claimed.replaced is not None:
            self._note_clock_back(behind_ms, "worker")

    def _note_clock_back(self, behind_ms: float, step: str) -> None:
        """Count and log it, once for each place that the clock came from."""
        if step in ("wait", "refusal"):
            if self._noted is self._state.lanes:
                return
            self._noted = self._state.lanes
        self.counts.clock_back(step)
        log.warning("pool %s: the clock went back by %d ms: %s", self.pool, behind_ms, CLOCK_BACK_STEPS[step])

    def _note_wait(self, wait: Wait) -> None:
        if wait.clock_back:
            self._note_clock_back(wait.ms, "wait")
        elif wait.ms:
            self.counts.ceiling_waits += 1
            self.counts.ceiling_wait_s += wait.ms / 1000

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._clock.sleep(min(seconds, MAX_SLEEP_S))

    # --- heartbeat ---------------------------------------------------------------------------------

    def _start_heartbeat(self) -> None:
        with self._lock:
            if self._heartbeat is not None or self._closed or not self._clock.background:
                return
            heartbeat = Heartbeat(
                self, self._beat_after_s(), f"snowredis-{self.pool}", self._lease_manager.abandon
            )
            self._heartbeat = heartbeat
        if self._heartbeat is heartbeat:
            heartbeat.start()
            EXIT.arm()

    def _beat_after_s(self) -> float:
        # a little apart, so that workers that started together do not beat together
        return self._config.heartbeat_ms / 1000 * self._random.uniform(0.85, 1.0)

    def beat(self) -> float:
        """Renew the lease, or claim another if it is lost. For the heartbeat thread; never raises.

        Returns:
            seconds until it should be called again.
        """
        self._guard.check()
        try:
            if self._lease_manager.held is not None and self._renew_or_move():
                if self._failing:
                    self._failing = False
                    log.warning("pool %s: Redis answers again", self.pool)
                return self._beat_after_s()
            if not (self._closed or self._suspended):
                settling_ms = self._claim(wait_ms=self._longest_wait_ms).settling_ms
                if self.closed or self._suspended:
                    # close() or suspend() came in between and found nothing to give back
                    self._give_back()
                return min(settling_ms / 1000, self._beat_after_s()) or self._beat_after_s()
        except SnowredisError as error:
            # once for each outage, not twice a second
            log.log(
                logging.DEBUG if self._failing else logging.WARNING,
                "pool %s: heartbeat failed, trying again: %s",
                self.pool,
                error,
            )
            self._failing = True
        except Exception:
            log.exception("pool %s: heartbeat failed, trying again", self.pool)
        return min(RETRY_S, self._beat_after_s())

    def _renew_or_move(self) -> bool:
        """As LeaseManager.renew(); true also if the lease's server is away and there is a lease from another now."""
        try:
            return self._lease_manager.renew(self._stats())
        except StoreUnavailable:
            if not self._move():
                raise
            return True
        finally:
            self._seal_if_lost()

    def _seal_if_lost(self) -> None:
        """At once, not when the tick ends."""
        if self._lease_manager.held is None:
            with self._lock:
                self._seal()

    def _stats(self) -> WorkerStats:
        """Return the statistics of the next heartbeat; ids per second are counted since the last call."""
        made, now_s = self.ids_made, self._clock.monotonic()
        since_s, before = self._last_rate
        rate = int((made - before) / (now_s - since_s)) if now_s > since_s else 0
        self._last_rate = (now_s, made)
        return WorkerStats(
            ids_made=made,
            ids_per_s=max(0, rate),
            clock_offset_ms=self._lease_manager.offset_ms,
            namespace=self._state.lanes.current,
            clock_backs=self.counts.clock_backs,
        )

    # --- the end -----------------------------------------------------------------------------------

    def _give_back(self) -> None:
        # R7, in this order: from here on nothing is published for this lease; what was, is sealed; then
        # what was used is read; then it is said
        with self._lock:
            held = self._lease_manager.detach()
            self._seal()
            marks = self._marks(held) if held is not None else None
        if held is not None:
            self._lease_manager.release(held, marks, self._stats())

    def suspend(self) -> None:
        """Give the worker id back before the machine is snapshotted; no ids until resume(). Never raises.

        A clone of a running machine has the same lease and makes the same ids until its reservation ends; a
        clone of one whose generators are suspended has none, and claims its own worker id at its first id.

        Blocks:
            as close().
        """
        self._guard.check()
        self._suspended, self._lease_manager.accepting = True, False
        self._give_back()
        self._lease_manager.forget_claims()

    def resume(self) -> None:
        """Go on after suspend(): the next id claims a worker id. Does nothing if it was not suspended."""
        if self._suspended:
            self._lease_manager.forget_claims()
            # in this order: whoever sees that it goes on may claim
            self._lease_manager.accepting = not self._closed
            self._suspended = False

    def close(self) -> None:
        """Stop making ids and give the worker id back. Idempotent, never raises.

        Blocks:
            one round trip to Redis; about 2 s at the most when it does not answer. The worker id is then free
            again when its lease ends.
        """
        self._guard.check()
        self._closed, self._lease_manager.accepting = True, False
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()
        self._give_back()
        self._lease_manager.close()

    def after_fork(self) -> None:
        """In a forked child: forget the parent's lease; the first next_id() claims another worker id."""
        # in this order: a call that goes on here finds neither a lease nor what it was about to replace
        self._lease_manager.after_fork()
        self._forget(self._random_bytes(8))
        self._heartbeat = None
        self._readying = None
        self._skewed = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a snowredis generator cannot be pickled or copied: two copies would make the same ids. "
            "Call snowredis.connect() in each process, or use snowredis.next_id()."
        )

    def __repr__(self) -> str:
        held = self._lease_manager.held
        what = (
            "closed"
            if self._closed
            else "suspended"
            if self._suspended
            else f"worker {held.lease.worker}"
            if held
            else "no worker id yet"
        )
        return f"<snowredis.Generator pool={self.pool!r} {what}>"
