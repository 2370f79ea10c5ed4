"""Keep one lease: claim it, renew it along its chain, replace it when it is lost, give it back.

Makes no ids. Blocks only on the store, and one caller at a time; whoever only reads takes
``held``, an immutable value that is replaced as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from snowredis.errors import (
    ClockMovedBack,
    LayoutMismatch,
    LeaseExpired,
    PoolExhausted,
    SnowredisError,
    StoreUnavailable,
)
from snowredis.lease.model import ClaimRequest, PoolConfig, ReleaseRequest, RenewRequest, Store, owner_text
from snowredis.lease.replies import ClaimReply, Granted, LeaseGone, PoolFull, Reply, Seen, Settling
from snowredis.lease.stats import NO_STATS, WorkerStats
from snowredis.runtime.clock import Clock
from snowredis.runtime.counts import Counts
from snowredis.runtime.fork import ForkGuard
from snowredis.runtime.lease import Claimed, HeldLease, Lease
from snowredis.runtime.process import THIS, CrashRecorder

log = logging.getLogger("snowredis")
log.addHandler(logging.NullHandler())

# how soon an answer that did not come is asked for again; a renewal has 5/6 of a ttl for it
RETRY_S = 0.5
# longer than any conversation: a claim asks twice, and connects within a second and reads within another
LOCK_LIMIT_S = 5.0


class LeaseManager:
    """One per generator.

    A signal handler may fork, or suspend the generator, in the middle of every method here; the rest of the method
    then runs in the child, or after the suspension, with what it had learned before. So every lease carries the
    serial of its claim, which is taken before anything of the request is made, and counts only if that is not
    below ``_oldest``: a fork and a suspension raise it, and whatever is stored late is void.
    """

    def __init__(
        self, store: Store, clock: Clock, label: str, random_bytes: Callable[[int], bytes], guard: ForkGuard
    ) -> None:
        self._store = store
        self._clock = clock
        self._label = label
        self._guard = guard
        self._random_bytes = random_bytes
        self._config = store.config
        self._lock = threading.RLock()
        # the lock, while this process talks to the store
        self._busy: Any = None
        self._serials = itertools.count(1)
        self._oldest = 0
        self._held: HeldLease | None = None
        # whether a worker id may be claimed: not while suspended, and not after the end
        self.accepting = True
        # the serial and the token of a claim that was not answered yet
        self._asked = (0, "")
        self._owner, self._owner_pid = "", 0
        self.counts = Counts()
        # where the lease is recorded in case of a crash; None if nowhere
        self.crash_record: CrashRecorder | None = None
        self.seen = Seen()
        # of the newest answer: the floor, and the Redis clock against ours
        self.floor_ms = 0
        self.offset_ms = 0
        # the worker id that was lost and not replaced yet
        self.lost_worker: int | None = None
        self.last_error: Exception | None = None
        self._redis_at = (0, clock.monotonic())
        self._renewed_at_s = -1e9
        self._tried_at_s = -1e9

    @property
    def store(self) -> Store:
        return self._store

    @property
    def config(self) -> PoolConfig:
        return self._config

    @property
    def longest_wait_ms(self) -> int:
        """How much later than now a worker id that is claimed may begin: a floor, to the end of its tick."""
        return self._config.floor_ms + self._config.layout.tick_ms

    @property
    def held(self) -> HeldLease | None:
        """The lease that ids may be made of."""
        held = self._held
        return held if held is not None and held.serial >= self._oldest else None

    @property
    def _claim_token(self) -> str:
        """The token of a claim that was not answered yet, to be repeated with it; empty if there is none."""
        serial, token = self._asked
        return token if serial >= self._oldest else ""

    @_claim_token.setter
    def _claim_token(self, token: str) -> None:
        self._asked = (self._oldest, token)

    def _hold(self, held: HeldLease) -> bool:
        """Make *held* the lease that ids may be made of, unless it is void by now; whether it was not."""
        if held.serial < self._oldest:
            return False
        self._held = held
        return True

    def after_fork(self) -> None:
        """In the child: nothing of the parent's lease is left, and no lock is held."""
        self._oldest = next(self._serials)
        record, self.crash_record = self.crash_record, None
        if record is not None:
            record.forget()
        self._lock = threading.RLock()
        self._held = None
        self._claim_token = self._owner = ""
        self.counts.reset()
        self._store.after_fork()

    def forget_claims(self) -> None:
        """Whatever was claimed or asked for is void, also a claim whose answer is still to come; suspend() needs that.

        A clone of this machine would present the same token and be given the same lease.
        """
        self._oldest = next(self._serials)
        self._claim_token = ""

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """One conversation with the store at a time.

        A signal handler or finalizer that comes in on the same thread in the middle of one is
        refused: to wait would be for ever, and to talk in between could mix up the answers. The wait
        for another thread is bounded: a handler may come in where its thread holds the generator's
        lock, and a finalizer in the other thread may wait for that one.
        """
        lock = self._lock
        while not lock.acquire(timeout=LOCK_LIMIT_S):
            if lock is self._lock:
                raise StoreUnavailable(
                    self._store.where,
                    f"another thread has been talking to Redis for over {LOCK_LIMIT_S:.0f} s",
                )
            # forked since it was read, and the thread that held it is not in this child
            lock = self._lock
        try:
            if self._busy is lock:
                raise StoreUnavailable(
                    self._store.where,
                    "a signal handler or finalizer asked for an id while this very thread was talking to Redis",
                )
            self._busy = lock
            try:
                yield
            finally:
                # in a child that was forked in between there is another lock, which may be in use by now
                if self._busy is lock:
                    self._busy = None
        finally:
            lock.release()

    def _now_ms(self) -> int:
        return self._clock.time_ns() // 1_000_000

    def _learn(self, reply: Reply, asked_ms: int) -> None:
        self.seen = reply.seen
        self.floor_ms = reply.floor_ms
        self.offset_ms = (asked_ms + self._now_ms()) // 2 - reply.redis_ms
        self._redis_at = (reply.redis_ms, self._clock.monotonic())
        if reply.alarm:
            log.critical("pool %s: ALARM: %s (ms since 1970)", self._config.name, reply.alarm.text)

    def _who(self) -> str:
        # read first: of a fork in between, the child's next call finds another pid
        pid = os.getpid()
        if not self._owner or self._owner_pid != pid:
            text = owner_text(socket.gethostname(), pid, self._label or THIS.label)
            self._owner, self._owner_pid = text, pid
        return self._owner

    def claim(self, *, wait_ms: int, instead_of: int = 0) -> Claimed:
        """Lease a worker id, unless there is a lease by now whose serial is not *instead_of*.

        Returns:
            settling_ms: 0 when ``held`` is set, else how long the pool asks to wait before the next attempt.
            replaced: the lease that was held until now and is to be released; nothing is made with it any more.

        Raises:
            PoolExhausted, LayoutMismatch, StoreUnavailable; ClockMovedBack when every free worker id
            was used at later times than this host's clock shows.
        """
        with self._exclusively():
            # first: a fork from here on makes this claim void
            serial, generation = next(self._serials), self._guard.generation
            current = self.held
            if not self.accepting or (current is not None and current.serial != instead_of):
                return Claimed()
            # or one that a suspension made void and that could not be given back then
            replaced = self._held
            # R6: made here, so after any fork; R5: kept until it is answered
            token = self._claim_token or self._fresh_name()
            self._asked = (serial, token)
            asked_ms = self._now_ms()
            layout = self._config.layout
            request = ClaimRequest(
                token=token,
                caller_ms=asked_ms,
                fit_ms=max(0, layout.ms_at(layout.tick_at(asked_ms))),
                wait_ms=wait_ms,
                owner=self._who(),
            )
            record = self._begin_crash_record() if replaced is None else None
            if record is not None:
                # whoever is killed before the reply comes may have a worker id all the same
                record.write_claim(token, self._who())
            self._guard.check()
            if serial < self._oldest:
                return Claimed()
            try:
                reply: ClaimReply | LayoutMismatch
                reply = self._ask_twice(lambda: self._store.claim(request, self.seen), serial)
            except LayoutMismatch as error:
                reply = error
            self._guard.check()
            if self._guard.generation != generation:
                # this is a child now, and the reply was its parent's
                return Claimed()
            # the token was answered, so it is never sent again: a copy of this process may have it, too
            self._claim_token = ""
            if not isinstance(reply, Granted) and replaced is None:
                self._clear_crash_record()
            if isinstance(reply, LayoutMismatch):
                # R9, as in renew()
                if replaced is not None:
                    self._lose(replaced, str(reply))
                raise reply
            self._learn(reply, asked_ms)
            if isinstance(reply, Settling):
                return Claimed(settling_ms=max(1, reply.wait_ms))
            if isinstance(reply, PoolFull):
                raise PoolExhausted(self._config.name, self._config.capacity, reply.wait_ms)
            self.last_error = None
            if not isinstance(reply, Granted):
                raise ClockMovedBack(reply.wait_ms, "backup")
            fresh = self._granted(reply, token, serial, generation)
            self._renewed_at_s = self._clock.monotonic()
            self.lost_worker = None
            # before anybody can make an id with it
            marks = self._write_crash_record(fresh, NO_STATS, fresh=True)
            kept = self._hold(replace(fresh, marks=marks))
            self.counts.claims += 1
        if not kept:
            # suspended in the middle of it, so no id was made; in a forked child this does nothing
            self.release(fresh, (0,) * len(fresh.lanes_ms))
            return Claimed(replaced=replaced)
        log.info("pool %s: claimed worker id %d", self._config.name, fresh.lease.worker)
        return Claimed(replaced=replaced)

    def _granted(self, reply: Granted, token: str, serial: int, generation: int) -> HeldLease:
        layout = self._config.layout
        lease = Lease(
            pool=self._config.name,
            worker=reply.worker,
            token_hash=_hash(token),
            until=layout.first_tick_from(reply.until_ms),
            until_ms=reply.until_ms,
            opens=tuple(max(0, layout.first_tick_from(ms)) for ms in reply.lanes_ms),
            incarnation=reply.incarnation,
            renewals=0,
        )
        return HeldLease(serial, token, reply.renewal_id, "", reply.lanes_ms, lease, generation)

    def _write_crash_record(
        self, held: HeldLease, stats: WorkerStats, *, fresh: bool = False
    ) -> memoryview | None:
        record = self._begin_crash_record() if fresh else self.crash_record
        # if recording failed when the lease was fresh, nobody recorded what was used since
        if record is None or (held.marks is None and not fresh):
            return None
        return record.write_lease(held, stats, fresh=fresh)

    def _begin_crash_record(self) -> CrashRecorder | None:
        # only with a fresh lease: of another, nobody recorded what was used before
        if self.crash_record is None:
            self.crash_record = self._new_crash_record()
        return self.crash_record

    def _new_crash_record(self) -> CrashRecorder | None:
        return None if THIS.crash_records is None else THIS.crash_records.new_record(self._store)

    def _clear_crash_record(self) -> None:
        record = self.crash_record
        if record is not None:
            record.clear()

    def _fresh_name(self) -> str:
        """128 random bits, hex, for a claim or a renewal.

        The clocks are mixed in: two clones of a machine may share their random state.
        """
        seed = f"{self._random_bytes(16).hex()} {self._clock.time_ns()} {self._clock.monotonic()!r}"
        return hashlib.sha256(seed.encode()).hexdigest()[:32]

    def _ask_twice(self, ask: Callable[[], ClaimReply], serial: int) -> ClaimReply:
        """A connection that went stale while idle shows only when it is used: a second attempt gets a new one."""
        try:
            return ask()
        except StoreUnavailable as error:
            if type(error) is not StoreUnavailable or serial < self._oldest:
                raise
            return ask()

    def renew(self, stats: WorkerStats) -> bool:
        """Renew the lease by one ttl from now.

        Returns:
            False when the lease turned out to be lost (``held`` is None then), or there is none.

        Raises:
            StoreUnavailable and its kinds: nothing changed; call again, the same renewal is repeated.
        """
        with self._exclusively():
            held = self.held
            if held is None:
                return False
            if not held.pending_renewal_id:
                held = replace(held, pending_renewal_id=self._fresh_name())
                self._write_crash_record(held, stats)
                self._hold(held)
            asked_ms = self._now_ms()
            request = RenewRequest(
                worker=held.lease.worker,
                token=held.token,
                renewal_id=held.renewal_id,
                pending_renewal_id=held.pending_renewal_id,
                caller_ms=asked_ms,
                held_until_ms=held.lease.until_ms,
                held_lanes_ms=held.lanes_ms,
                stats=stats,
                owner=self._who(),
            )
            began_s = self._clock.monotonic()
            self._guard.check()
            if held.serial < self._oldest:
                # under a name of this child's own it would end the lease of its parent
                return False
            try:
                reply = self._store.renew(request, self.seen)
                self._guard.check()
                if held.serial < self._oldest:
                    # this is a child now, or the generator was suspended
                    return False
                self._learn(reply, asked_ms)
            except LayoutMismatch as error:
                # R9: whoever made the pool anew did not count with what this lease has reserved
                self._lose(held, str(error))
                raise
            except SnowredisError as error:
                self.counts.renewals_failed += 1
                # counted from the end: an attempt may have taken all its time
                self._tried_at_s = self._clock.monotonic()
                self.last_error = error
                raise
            self.last_error = None
            if isinstance(reply, LeaseGone):
                self._lose(held, f"{reply.reason.text}; claiming another")
                return False
            self.counts.renewals += 1
            self.counts.round_trip_s = self._clock.monotonic() - began_s
            until_ms = max(reply.until_ms, held.lease.until_ms)
            lease = replace(
                held.lease,
                until=self._config.layout.first_tick_from(until_ms),
                until_ms=until_ms,
                incarnation=reply.incarnation,
                renewals=held.lease.renewals + 1,
            )
            self._renewed_at_s = self._clock.monotonic()
            held = replace(held, renewal_id=held.pending_renewal_id, pending_renewal_id="", lease=lease)
            self._write_crash_record(held, stats)
            self._hold(held)
            if reply.adopted:
                log.warning(
                    "pool %s: Redis lost its state; worker id %d goes on", self._config.name, lease.worker
                )
            return True

    def _lose(self, held: HeldLease, why: str) -> None:
        now = self._held
        if now is not None and now.serial == held.serial:
            self._held = None
        self._clear_crash_record()
        self.counts.leases_lost += 1
        self.lost_worker = held.lease.worker
        log.warning("pool %s: lost worker id %d: %s", self._config.name, held.lease.worker, why)

    def renew_in_need(self, stats: WorkerStats) -> bool:
        """Renew from within next_id(): the reservation ran out. At most one attempt each RETRY_S.

        Raises:
            LeaseExpired: Redis does not answer, or did not a moment ago.
        """
        held = self.held
        if held is None:
            return False
        try:
            if self.last_error is not None and self._clock.monotonic() - self._tried_at_s < RETRY_S:
                raise self.last_error
            return self.renew(stats)
        except StoreUnavailable as error:
            raise LeaseExpired(self._config.name, held.lease.worker, str(error)) from error

    def due_to_move(self) -> bool:
        """Whether renewals have failed for so long that a worker id of another server is to be had, if there is."""
        held = self.held
        if held is None or not self._store.redundant:
            return False
        return held.lease.until_ms - self._now_ms() < self._config.ttl_ms // 2

    def just_renewed(self) -> bool:
        """Whether a renewal was answered so recently that another would change nothing."""
        return self._clock.monotonic() - self._renewed_at_s < min(0.2, self._config.heartbeat_ms / 2000)

    def clock_offset_ms(self) -> int:
        """How far this host's clock is ahead of Redis' now."""
        redis_ms, at_s = self._redis_at
        return self._now_ms() - redis_ms - int((self._clock.monotonic() - at_s) * 1000)

    def abandon(self) -> None:
        """Nobody uses the generator any more and nobody closed it."""
        held = self.detach()
        if held is not None:
            self.release(held, None)
        self.close()

    def close(self) -> None:
        """The lease is given back, or cannot be; nothing is claimed any more."""
        record, self.crash_record = self.crash_record, None
        if record is not None:
            record.give_up()
        self._store.close()

    def detach(self) -> HeldLease | None:
        """Take the lease away from whoever makes ids with it, so that it can be released.

        None if there is none, or if this very thread is in the middle of a conversation with the store: whoever
        had begun that has to look again when it is over.
        """
        try:
            with self._exclusively():
                held = self._held
                if self._held is held:
                    self._held = None
                return held
        except StoreUnavailable:
            return None

    def release(
        self, held: HeldLease, marks_ms: tuple[int, ...] | None, stats: WorkerStats = NO_STATS
    ) -> None:
        """Give *held*, detached or replaced before, back. Blocks for one round trip; never raises."""
        try:
            with self._exclusively():
                self._guard.check()
                if held.generation != self._guard.generation:
                    # forked since it was detached: it is the parent's, and the marks may be this child's
                    return
                if marks_ms is None:
                    # not what the record says: a deposed master's may end before what another one granted
                    marks_ms = (held.lease.until_ms,) * len(held.lanes_ms)
                asked_ms = self._now_ms()
                request = ReleaseRequest(
                    worker=held.lease.worker,
                    token=held.token,
                    renewal_id=held.renewal_id,
                    pending_renewal_id=held.pending_renewal_id,
                    caller_ms=asked_ms,
                    marks_ms=marks_ms,
                    stats=stats,
                )
                self._learn(self._store.release(request, self.seen), asked_ms)
                if self._held is None:
                    self._clear_crash_record()
            log.info("pool %s: released worker id %d", self._config.name, held.lease.worker)
        except Exception as error:  # noqa: BLE001 - whoever stops is not to be stopped by it
            log.warning(
                "pool %s: could not release worker id %d, it is free again when its lease ends: %s",
                self._config.name,
                held.lease.worker,
                error,
            )


def _hash(token: str) -> str:
    return hashlib.sha1(token.encode(), usedforsecurity=False).hexdigest()
