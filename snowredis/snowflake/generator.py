"""The generator, the object that users have: one level over FastPath; everything else is a member of it.

Members refer to the generator weakly (context.py). So every method that calls them and that users call begins with
_check().
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Self

from snowredis.core.lanes import ClockRules
from snowredis.core.layout import Layout, Parts
from snowredis.core.values import MAX_BATCH, as_int64, check_count
from snowredis.errors import LeaseLost, SnowredisError
from snowredis.process.clock import SYSTEM, Clock, ClockReading
from snowredis.process.exit import EXIT
from snowredis.process.fork import GUARD, ForkGuard
from snowredis.snowflake.ids.allocator import IdAllocator
from snowredis.snowflake.ids.fast_path import FastPath
from snowredis.snowflake.lease.context import CallLog, Context, Counts, WeakGenerator
from snowredis.snowflake.lease.held import OwnLease
from snowredis.snowflake.lease.requests import LeaseManager
from snowredis.snowflake.protocol.messages import Store
from snowredis.snowflake.upkeep.lifecycle import LeaseLifecycle
from snowredis.snowflake.upkeep.pace import Asked
from snowredis.snowflake.upkeep.slow_path import SlowPath

if TYPE_CHECKING:
    from snowredis.core.description import IdDescription

# ids of one step of the event loop: a list of them takes well under a millisecond
CHUNK = 10_000


class SnowflakeGenerator(FastPath):
    """Makes ids from one leased worker id; claims it at the first use, renews it in the background.

    Made by connect(). May be shared by threads, not by processes: a forked child claims its own worker id
    at its first next_id(). Cannot be pickled or copied.
    """

    # an attribute, because globals of this module may be gone when this is called
    _is_finalizing = staticmethod(sys.is_finalizing)

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock = SYSTEM,
        rules: ClockRules | None = None,
        sequence_start: str = "zero",
        claim_timeout: float = 0.0,
        label: str = "",
        random_bytes: Callable[[int], bytes] = os.urandom,
        guard: ForkGuard = GUARD,
    ) -> None:
        self._config, self._random_bytes = store.config, random_bytes
        self._lock = threading.RLock()
        self._generation = guard.generation
        counts = Counts()
        self._context = context = Context(
            weak_generator=WeakGenerator(self),
            config=store.config,
            clock=clock,
            guard=guard,
            rules=rules or ClockRules(),
            # an int as the seed: for bytes, Python 3.13 imports a module
            random=random.Random(int.from_bytes(random_bytes(8))),
            counts=counts,
            calls=CallLog(store.config.name, counts, clock.monotonic, store.config.ttl_ms / 1000),
        )
        leases = LeaseManager(store, context, label, random_bytes)
        self._allocator = IdAllocator(context, leases, sequence_start)
        # set after the settings were checked: if this is set, __del__() reads where the ids are
        self._lease_manager = leases
        self._lifecycle = LeaseLifecycle(context, leases, self._allocator, claim_timeout)
        self._slow_path = SlowPath(context, leases, self._allocator, self._lifecycle)
        guard.reset_in_child(self)
        EXIT.close_at_exit(self)

    # --- state -------------------------------------------------------------------------------------

    @property
    def pool(self) -> str:
        """The pool's name."""
        return self._config.name

    @property
    def layout(self) -> Layout:
        """Layout of its ids."""
        return self._config.layout

    @property
    def lease(self) -> OwnLease | None:
        """The current lease, or a lost one whose outage lane is left; None before the first id and after close()."""
        self._context.guard.check()
        held = self._lease_manager.held or self._lease_manager.slot.lost_lease
        return held.lease if held is not None else None

    @property
    def in_outage_lane(self) -> bool:
        """True while ids are made in an outage lane: Redis does not reply, or no other worker id is available."""
        self._check()
        return self._allocator.in_outage_lane

    @property
    def ready(self) -> bool:
        """True if this process can make ids now. For probes: it makes no call to Redis."""
        return self.lasts_until_ms > self.clock_reading.now_ms

    @property
    def lasts_until_ms(self) -> int:
        """Until when ids can be made if Redis takes no more renewals, ms since 1970 on this host's clock; 0: no lease.

        The one answer to "can this process make ids": it can if this is later than ``clock_reading.now_ms``.
        """
        self._context.guard.check()
        return min(self._lifecycle.renewals.lasts_until_ms, self.layout.end_ms)

    @property
    def renewal_failure(self) -> tuple[str, int] | None:
        """Why the last renewal failed, and when the one before succeeded, ms since 1970 on the Redis clock.

        None: it succeeded. The one answer to "does Redis take writes from here".
        """
        return self._lifecycle.renewals.renewal_failure

    @property
    def ttl_ms(self) -> int:
        """Length of its lease, in ms."""
        return self._config.ttl_ms

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._lease_manager.closed

    @property
    def counts(self) -> Counts:
        """Counters of this generator: waits, clock-backs, renewals."""
        return self._context.counts

    @property
    def ids_made(self) -> int:
        """About how many ids this generator made so far: unused ids of a sealed tick may count."""
        self._check()
        return self._allocator.ids_made

    @property
    def clock_reading(self) -> ClockReading:
        """Reading of the clock that ids are made with, and its offset to the Redis clock."""
        view = self._lease_manager.view
        offset_ms = view.offset_ms if view.seen.incarnation else None
        return ClockReading(self._context.now_ms(), offset_ms)

    @property
    def description(self) -> IdDescription:
        """Return the description of its ids, as for every kind of generator."""
        from snowredis.core.description import describe_snowflake

        return describe_snowflake(self.layout)

    def decode(self, an_id: int) -> Parts:
        """Split an id of this generator's layout into its fields. See Layout.decode()."""
        return self.layout.decode(an_id)

    # --- ids ---------------------------------------------------------------------------------------

    def next_ids(self, count: int) -> list[int]:
        """Make *count* ids at once.

        Args:
            count: how many, 0 to 1,000,000; none needs no lease.

        Returns:
            Exactly *count* ints, 0 < id < 2**63, strictly increasing.

        Raises:
            As next_id(); nothing of the batch is returned then.

        Blocks:
            as next_id(); while the layout's ceiling is reached, count / 1024 ms at the default layout.
        """
        count, guard = check_count(count), self._context.guard
        while True:
            generation = guard.generation
            batch: list[int] = []
            while len(batch) < count:
                part = self._take_now(count - len(batch)) or [self._next_slow()]
                if batch and part[0] < batch[-1]:
                    # the clock went back and another namespace is in use: its ids are not in order with those before
                    batch.clear()
                batch += part
            if not count or guard.is_still(generation):
                return batch

    def fill(self, buffer: Any) -> None:
        """Fill a writable buffer of int64 with ids, strictly increasing.

        Args:
            buffer: array('q'), numpy int64, shared memory, or any contiguous writable buffer of 8-byte
                integers or of bytes (a multiple of 8 of them).

        Raises:
            ConfigError: ids cannot be written to the buffer.
            As next_id(); some of the ids are in the buffer then.

        Blocks:
            as next_ids().
        """
        # nothing is read back from the buffer, whose memory others may write to
        view, guard = as_int64(buffer), self._context.guard
        while True:
            generation, filled, last = guard.generation, 0, 0
            while filled < len(view):
                wanted = view[filled : filled + MAX_BATCH]
                count, first, newest = self._fill_now(wanted)
                if not count:
                    count, first = 1, self._next_slow()
                    wanted[0] = newest = first
                # if not greater, the clock went back and another namespace is in use: begin again
                filled = filled + count if first > last else 0
                last = newest if filled else 0
            # after a fork in between, some of the ids are the parent's: begin again
            if not filled or guard.is_still(generation):
                return

    async def anext_id(self) -> int:
        """Make one id. Async version of next_id(): does not block the event loop."""
        if an_id := self._id_now():
            return an_id
        self._check()
        return await self._slow_path.anext_id()

    async def anext_ids(self, count: int) -> list[int]:
        """Make *count* ids at once. Async version of next_ids(): does not block the event loop.

        Other coroutines run after each tick, and after 10,000 ids at the latest.
        """
        from snowredis.process.coroutines import sleep

        count, guard = check_count(count), self._context.guard
        while True:
            generation = guard.generation
            batch: list[int] = []
            while len(batch) < count:
                part = self._take_now(min(count - len(batch), CHUNK)) or [await self.anext_id()]
                if batch and part[0] < batch[-1]:
                    # the clock went back, or another coroutine made ids in a namespace that is behind
                    batch.clear()
                batch += part
                if len(part) == CHUNK:
                    await sleep(0)
            if not count or guard.is_still(generation):
                return batch

    # --- lease -------------------------------------------------------------------------------------

    def claim(self) -> OwnLease:
        """Claim a worker id, if there is no lease yet, and wait until it may be used.

        Blocks:
            one round trip to Redis; on a Redis that has no such pool, or may have forgotten some of it, ttl +
            max_clock_lead + failover_slack (35 s at the defaults), with a log line; while the pool is full or
            Redis does not reply in time, up to claim_timeout.

        Raises:
            As next_id().
        """
        self._check()
        self._slow_path.next_id(only_claim=True)
        lease = self.lease
        if lease is None:
            raise LeaseLost(self.pool, -1, "it was lost as soon as it was claimed")
        return lease

    def claim_in_background(self) -> None:
        """Let the heartbeat claim a worker id now, and again until there is one. Does not block; never raises.

        Without a heartbeat thread, as on a test clock, this is one attempt, which blocks as a claim.
        """
        self._check()
        self._lifecycle.claim_in_background()

    @property
    def claim_failure(self) -> SnowredisError | None:
        """Why the heartbeat got no worker id when it tried last; None: it got one, or has not tried yet."""
        return self._beat_failure if self._lease_manager.held is None else None

    async def aclaim(self) -> OwnLease:
        """Claim a worker id. Async version of claim(): does not block the event loop."""
        from snowredis.process.coroutines import in_thread

        return await in_thread(self.claim)

    def suspend(self) -> None:
        """Release the worker id before the machine is snapshotted; no ids until resume(). Never raises.

        A clone of a running machine has the same lease and makes the same ids until its reservation ends; a
        clone of one whose generators are suspended has none, and claims its own worker id at its first id.

        Blocks:
            as close().
        """
        self._check()
        self._lifecycle.suspend()

    def resume(self) -> None:
        """Allow ids again after suspend(): the next one claims a worker id. Does nothing if it was not suspended."""
        self._check()
        self._lifecycle.resume()

    def close(self) -> None:
        """Stop making ids and release the worker id. Idempotent, never raises.

        Blocks:
            one round trip to Redis; if there is no reply, about 2 s, and the worker id is available again when its
            lease ends.
        """
        try:
            self._check()
            self._lifecycle.close()
        except Exception:
            # at the end of the interpreter, a finalizer may call this when modules are gone
            if not self._is_finalizing():
                raise

    async def aclose(self) -> None:
        """Release the worker id. Async version of close(): does not block the event loop."""
        from snowredis.process.coroutines import in_thread

        await in_thread(self.close)

    def __enter__(self) -> Self:
        """Claim a worker id, so that a wrong URL shows here. Blocks and raises as claim()."""
        try:
            self.claim()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        """Async version of ``with``: does not block the event loop."""
        try:
            await self.aclaim()
        except BaseException:
            # cancelled, or refused: the caller has no block to leave
            from snowredis.process.coroutines import in_background

            in_background(self.close)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        return await self.anext_id()

    # --- called by members and by the fast path ----------------------------------------------------

    def _check(self) -> None:
        """Reset this generator in a forked child; let its members, fork guard and exit hook refer to it.

        The garbage collector undoes the latter before it calls a finalizer, which may use or keep this generator.
        """
        context = self._context
        if context.weak_generator() is None:
            context.weak_generator.renew(self)
            context.guard.reset_in_child(self)
            EXIT.close_at_exit(self)
            # forked when the guard did not know of this generator
            if self._generation != context.guard.generation:
                self._after_fork()
        context.guard.check()

    def _next_with_gene(self, *, gene: int | str | bytes | None) -> int:
        # the gene comes before the id: a key that is refused costs no id
        bits = 0 if gene is None else self.layout.gene_of(gene)
        return self.next_id() | bits

    def _next_slow(self) -> int:
        self._check()
        return self._slow_path.next_id()

    def _beat(self) -> float:
        self._context.guard.check()
        return self._lifecycle.beat()

    @property
    def _beat_failure(self) -> SnowredisError | None:
        """Return why the last heartbeat got neither a worker id nor more time; the service asks."""
        return self._lifecycle.pace.failure(Asked.BEAT)

    @property
    def _talks_here(self) -> bool:
        """Return whether this very thread is talking to Redis for this generator: a signal handler asks."""
        return self._lease_manager.conversation.is_here

    def _after_fork(self) -> None:
        """In a forked child: forget the parent's lease; the first next_id() claims another worker id."""
        self._generation = self._context.guard.generation
        # in this order: a call that goes on here finds no lease, and then no block that it could replace
        self._lease_manager.after_fork()
        self._lock = threading.RLock()
        self._allocator.after_fork()
        self._context.random.seed(int.from_bytes(self._random_bytes(8)))
        self._lifecycle.after_fork()
        self._slow_path.after_fork()

    def __del__(self) -> None:
        # its lease is released by the thread of its heartbeat, which knows nothing else of it then
        if (leases := getattr(self, "_lease_manager", None)) is not None:
            leases.ids_made = self._position[2]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a snowredis generator cannot be pickled or copied: two copies would make the same ids. "
            "Call snowredis.connect() in each process, or use snowredis.next_id()."
        )

    def __repr__(self) -> str:
        held = self._lease_manager.held
        state = f"worker {held.lease.worker}" if held else "no worker id yet"
        if self.closed or self._lease_manager.suspended:
            state = "closed" if self.closed else "suspended"
        return f"<snowredis.SnowflakeGenerator pool={self.pool!r} {state}>"
