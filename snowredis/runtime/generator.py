"""The generator: what users hold. next_id() and its fast path, the slow path behind it, close.

The fast path takes no lock. A *block* is one tick's ids, as a range iterator, with the wall clock
window in which they are current; advancing the iterator is one step of the interpreter, so two
threads, or a thread and a signal handler, never get the same id. The slow path runs once a tick:
it asks core.lanes what comes next, and publishes a new block only if the one it started from still
stands. Sealing a generator (close, fork, lost lease) exhausts the iterator itself, which also
reaches a thread that has read the block already.
"""

from __future__ import annotations

import collections
import itertools
import logging
import operator
import os
import random
import sysconfig
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

from snowredis.core.lanes import ClockRules, Emit, Extend, Lanes, NotOpen, Refuse, Replace, Wait, decide
from snowredis.core.layout import Layout, Parts
from snowredis.errors import (
    ClockMovedBack,
    ClockSkewed,
    ConfigError,
    GeneratorClosed,
    LayoutError,
    LeaseExpired,
    LeaseLost,
    PoolExhausted,
    SnowredisError,
    StoreUnavailable,
)
from snowredis.lease.model import Store
from snowredis.runtime.clock import SYSTEM, Clock
from snowredis.runtime.exit import EXIT
from snowredis.runtime.fork import GUARD, ForkGuard
from snowredis.runtime.heartbeat import Heartbeat
from snowredis.runtime.keeper import RETRY_S, Claimed, Held, Keeper, Lease

log = logging.getLogger("snowredis")

SEQUENCE_STARTS = ("zero", "random", "continue")
# on free-threaded builds range iterators are not atomic, so the fast path takes the lock there
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# a tick of 10 s must not keep next_id() from seeing a step of the clock: a block is looked at again this often
MAX_WINDOW_S = 0.25
# in one wait; a signal or close() is noticed between two
MAX_SLEEP_S = 0.1
MAX_BATCH = 1_000_000

# start and end of the window (s since 1970), the ids that are left, and the fork guard's ``alive``
Block = tuple[float, float, Iterator[int], Any]
SEALED: Block = (1.0, 0.0, iter(()), False)


class State(NamedTuple):
    """What the slow path knows of the current block; replaced together with it."""

    # of the lease that the block belongs to; serials only grow
    serial: int
    lanes: Lanes
    # the block serves clock readings from here …
    from_tick: int
    # … to here; this is the tick in its ids
    tick: int
    first_sequence: int
    # ids of the block when it was made
    size: int


NO_STATE = State(0, Lanes((), ()), 0, -1, 0, 0)


def make_next_id(now: Callable[[], float], *, locked: bool) -> Callable[[Generator], int]:
    """The public method, with its clock bound: an attribute look-up less a call."""

    def next_id(self: Generator) -> int:
        """Make one id. Thread-safe, and safe in signal handlers and finalizers.

        Returns:
            An int, 0 < id < 2**63: greater than every id that this generator made before, unless the clock
            went back so far that another namespace had to be used.

        Raises:
            LeaseExpired: the reserved time ran out while Redis was away; LeaseLost: and the worker id too.
            PoolExhausted, StoreUnavailable, LayoutMismatch: no worker id could be claimed.
            ClockMovedBack, ClockSkewed: what the clock shows cannot be used.
            GeneratorClosed: after close().

        Blocks:
            at the first call, for the claim; at the layout's ceiling, to the next tick; on a clock that
            went back, up to clock_tolerance_ms.
        """
        start, end, ids, alive = self._block
        if start <= now() < end and alive:
            for an_id in ids:
                return an_id
        return self._next_slow()

    def next_id_locked(self: Generator) -> int:
        with self._lock:
            start, end, ids, alive = self._block
            if start <= now() < end and alive:
                for an_id in ids:
                    return an_id
        return self._next_slow()

    if not locked:
        return next_id
    next_id_locked.__doc__ = next_id.__doc__
    next_id_locked.__name__, next_id_locked.__qualname__ = next_id.__name__, next_id.__qualname__
    return next_id_locked


class Generator:
    """Makes ids from one leased worker id; claims it at the first use, renews it in the background.

    Made by connect(). May be shared by threads, not by processes: a forked child claims its own worker id
    at its first next_id(). Cannot be pickled or copied.
    """

    __slots__ = (
        "__weakref__",
        "_block",
        "_clock",
        "_clock_backs",
        "_closed",
        "_config",
        "_continue_at",
        "_claim_timeout_s",
        "_guard",
        "_heartbeat",
        "_ids_made",
        "_keeper",
        "_last_rate",
        "_lock",
        "_noted",
        "_random",
        "_random_bytes",
        "_replace_again_s",
        "_rules",
        "_sequence_bound",
        "_sequence_start",
        "_state",
    )

    def __new__(cls, *args: Any, clock: Clock = SYSTEM, **kwargs: Any) -> Self:
        # a clock of its own means a next_id of its own: the fast path has its clock bound in
        if clock is SYSTEM or cls is not Generator:
            return super().__new__(cls)
        namespace = {"__slots__": (), "next_id": make_next_id(clock.time, locked=FREE_THREADED)}
        return super().__new__(type("Generator", (cls,), namespace))

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
        self._config = store.config
        layout = self._config.layout
        if sequence_start not in SEQUENCE_STARTS:
            raise ConfigError(
                f"sequence_start={sequence_start!r} is unknown; choose one of {', '.join(SEQUENCE_STARTS)}"
            )
        # an eighth: enough to spread ids over shards, and 7/8 of the ceiling is left in the worst tick
        bound = max(1, layout.sequences // 8) if sequence_start_bound is None else sequence_start_bound
        if not 1 <= bound <= layout.sequences:
            raise ConfigError(
                f"sequence_start_bound={bound} is out of range: 1 to {layout.sequences} (the ids of one tick)"
            )
        self._guard = guard
        self._keeper = Keeper(store, clock, label, random_bytes, guard)
        self._clock = clock
        self._rules = rules or ClockRules()
        self._sequence_start, self._sequence_bound = sequence_start, bound
        self._claim_timeout_s = claim_timeout
        self._random_bytes = random_bytes
        self._random = random.Random(random_bytes(8))
        self._lock = threading.RLock()
        self._block: Block = SEALED
        self._state = NO_STATE
        self._closed = False
        self._heartbeat: Heartbeat | None = None
        self._continue_at = 0
        self._ids_made = self._clock_backs = 0
        self._last_rate = (clock.monotonic(), 0)
        self._replace_again_s = -1e9
        self._noted: Lanes | None = None
        guard.watch(self)
        EXIT.watch(self)

    # --- ids ---------------------------------------------------------------------------------------

    next_id = make_next_id(time.time, locked=FREE_THREADED)

    def __next__(self) -> int:
        return self.next_id()

    def __iter__(self) -> Self:
        return self

    def next_ids(self, count: int) -> list[int]:
        """Make *count* ids at once.

        Args:
            count: how many, 1 to 1,000,000.

        Returns:
            Exactly *count* ints, 0 < id < 2**63, strictly increasing.

        Raises:
            As next_id(); nothing of the batch is returned then.

        Blocks:
            while the layout's ceiling is reached: count / 1024 ms at the default layout.
        """
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_BATCH:
            raise ConfigError(
                f"next_ids({count!r}): a whole number from 1 to {MAX_BATCH} can be asked for at once"
            )
        while True:
            generation = self._guard.generation
            batch: list[int] = []
            while len(batch) < count:
                part = self._take(count - len(batch))
                if batch and part[0] < batch[-1]:
                    # the clock went back and another namespace is in use: what was taken before would not be in order
                    batch.clear()
                batch += part
            if self._guard.generation == generation:
                return batch

    def _take(self, count: int) -> list[int]:
        """One to *count* ids of one block."""
        with self._lock if FREE_THREADED else _NO_LOCK:
            start, end, ids, alive = self._block
            if start <= self._clock.time() < end and alive:
                part = list(itertools.islice(ids, count))
                if part:
                    return part
        return [self._next_slow()]

    def fill(self, buffer: Any) -> None:
        """Fill a writable buffer of int64 with ids, strictly increasing.

        Args:
            buffer: array('q'), numpy int64, shared memory, or any contiguous writable buffer of 8-byte
                integers or of bytes (a multiple of 8 of them).

        Raises:
            ConfigError: the buffer is of another kind. Else as next_id(); the buffer then holds a part.

        Blocks:
            as next_ids().
        """
        view = _as_int64(buffer)
        filled = 0
        generation = self._guard.generation
        last = -1
        while filled < len(view):
            part = array("q", self._take(min(len(view) - filled, MAX_BATCH)))
            if self._guard.generation != generation:
                # forked in between: what is there so far is the parent's
                generation, filled, last = self._guard.generation, 0, -1
                continue
            if part[0] < last:
                filled = 0
            view[filled : filled + len(part)] = memoryview(part)
            filled += len(part)
            last = part[-1]

    async def anext_id(self) -> int:
        """Make one id without ever blocking the event loop: every wait happens in a worker thread."""
        start, end, ids, alive = self._block
        if start <= self._clock.time() < end and alive and not FREE_THREADED:
            for an_id in ids:
                return an_id
        import asyncio

        return await asyncio.to_thread(self.next_id)

    def decode(self, an_id: int) -> Parts:
        """Take an id of this generator's layout apart. See Layout.decode()."""
        return self.layout.decode(an_id)

    # --- state -------------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        return self._config.layout

    @property
    def pool(self) -> str:
        """The pool's name."""
        return self._config.name

    @property
    def lease(self) -> Lease | None:
        """The lease that is held now; None before the first id, after close() and in a forked child."""
        held = self._keeper.held
        self._guard.check()
        return held.lease if held is not None and held is self._keeper.held else None

    @property
    def ids_made(self) -> int:
        """How many ids this generator made so far, about: those of a sealed block may count."""
        block, state = self._block, self._state
        return self._ids_made + max(0, state.size - operator.length_hint(block[2]))

    @property
    def closed(self) -> bool:
        return self._closed

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
        held = self._keeper.held
        if held is None:
            raise LeaseLost(self.pool, -1, "it was lost as soon as it was claimed")
        return held.lease

    # --- the slow path -----------------------------------------------------------------------------

    def _next_slow(self, *, only_claim: bool = False) -> int:
        deadline = _Deadlines(self)
        while True:
            self._guard.check()
            generation = self._guard.generation
            if self._closed:
                self._give_back()
                raise GeneratorClosed(self.pool)
            an_id, decision = self._advance(only_claim)
            if decision is None:
                # checked last: in a child that a signal handler forked just now, this id is its parent's
                if self._guard.generation == generation:
                    return an_id
                continue
            if isinstance(decision, Wait):
                if decision.clock_back:
                    self._note_clock_back(decision.ms, "waiting")
                self._sleep(decision.ms / 1000)
            elif isinstance(decision, NotOpen):
                deadline.wait_for_opening(decision.ms)
            elif isinstance(decision, Extend):
                self._extend()
            elif isinstance(decision, Replace):
                self._replace(decision.behind_ms)
            elif isinstance(decision, Refuse):
                self._note_clock_back(decision.behind_ms, "refusing ids")
                raise ClockMovedBack(decision.behind_ms, self._rules.policy)
            else:
                deadline.claim()

    def _advance(self, only_claim: bool) -> tuple[int, Any]:
        """Take an id of the current block or of the next; or say what has to be done first.

        Answers (id, None), or (0, a decision), "claim" among them.
        """
        with self._lock:
            block, state = self._block, self._state
            held = self._keeper.held
            if held is None:
                self._seal()
                return 0, "claim"
            lanes = state.lanes if state.serial == held.serial else Lanes.fresh(held.lease.opens)
            layout = self._config.layout
            now_ns = self._clock.time_ns()
            # in this order: since 1970 a float would round to a quarter of a microsecond
            now_ms = (now_ns - layout.epoch_ms * 1_000_000) / 1e6
            if now_ms < 0:
                raise LayoutError(
                    f"the clock of this host shows a time {-now_ms:.0f} ms before the layout's epoch; no id was made. "
                    "Set the clock, or choose a layout with an earlier epoch."
                )
            if state.serial == held.serial and state.from_tick <= now_ms // layout.tick_ms <= state.tick:
                # another thread was here first, or a long tick goes on
                for an_id in block[2]:
                    window_end_s = self._window_end_s(state.tick, now_ns)
                    if self._block is block:
                        self._block = (block[0], window_end_s, block[2], block[3])
                    return an_id, None
            decision = decide(lanes, now_ms, held.lease.until, layout.tick_ms, self._rules)
            if isinstance(decision, Emit) and not only_claim:
                an_id = self._publish(block, state, held, lanes, decision, now_ns)
                if an_id:
                    return an_id, None
                # a signal handler was quicker: look again
                return 0, Wait(0, clock_back=False)
            if only_claim and isinstance(decision, Emit | Wait):
                return 0, None
            return 0, decision

    def _publish(self, block: Block, state: State, held: Held, lanes: Lanes, emit: Emit, now_ns: int) -> int:
        """Make the block of *emit* current and take its first id; 0 if *block* is not current any more."""
        layout, (lane, tick) = self._config.layout, emit
        if tick > layout.max_tick:
            raise LayoutError(
                f"the layout's {layout.timestamp_bits} timestamp bits are used up since {layout.end}; no id was made. "
                "Move to a layout with more timestamp bits or a later epoch."
            )
        left = operator.length_hint(block[2])
        first = self._first_sequence(state, left)
        worker = held.lease.worker
        low = layout.compose(
            tick=tick, datacenter=self._config.datacenter, backup=lane, worker=worker, sequence=first
        )
        size, step = layout.sequences - first, layout.sequence_step
        if low == 0:
            # 0 is no id: tick 0, worker 0, sequence 0 of a layout that begins now
            low, size = low + step, size - 1
        ids = iter(range(low, low + size * step, step))
        # a borrowed tick begins ahead of the clock; its block is current from the clock's tick on
        from_tick = min(tick, layout.tick_at(now_ns // 1_000_000))
        new_block = (layout.ms_at(from_tick) / 1000, self._window_end_s(tick, now_ns), ids, self._guard.alive)
        new_state = State(held.serial, lanes.using(lane, tick), from_tick, tick, first, size)
        made = max(0, state.size - left)
        if not self._swap(block, state, held, new_block, new_state, made):
            return 0
        an_id = next(ids, 0)
        if state.serial == held.serial and state.lanes.current != lane:
            behind_ms = layout.ms_at(state.tick) - now_ns // 1_000_000
            self._note_clock_back(behind_ms, f"using namespace {lane}")
        return an_id

    def _swap(
        self, block: Block, state: State, held: Held | None, new_block: Block, new_state: State, made: int
    ) -> bool:
        """Replace block and state together, unless something came in since they were read.

        From the test to the last store there is no call and no backward jump: no signal handler, and under
        the GIL no thread, can come in between. Free-threaded builds hold the lock.
        """
        if (
            self._block is not block
            or self._state is not state
            or (held is not None and self._keeper.held is not held)
        ):
            return False
        self._block = new_block
        self._state = new_state
        self._ids_made += made
        return True

    def _window_end_s(self, tick: int, now_ns: int) -> float:
        """When the slow path has to look again: at the end of the tick, and now and then in a long one."""
        layout = self._config.layout
        end_s = layout.ms_at(tick + 1) / 1000
        return min(end_s, max(now_ns / 1e9, layout.ms_at(tick) / 1000) + MAX_WINDOW_S)

    def _first_sequence(self, state: State, left: int) -> int:
        if self._sequence_start == "random":
            return self._random.randrange(self._sequence_bound)
        if self._sequence_start == "continue":
            return (state.first_sequence + max(0, state.size - left)) % self._sequence_bound
        return 0

    def _extend(self) -> None:
        """The clock is at or past the end of the reservation."""
        held = self._keeper.held
        if held is None:
            return
        if self._keeper.just_renewed():
            limit_ms = self._config.ttl_ms + self._config.max_clock_lead_ms
            raise ClockSkewed(self._keeper.clock_offset_ms(), limit_ms)
        self._keeper.renew_in_need(self._stats())

    def _replace(self, behind_ms: int) -> None:
        """The clock went back beyond every lane: claim a worker id whose lanes fit, then give this one back."""
        held, now_s = self._keeper.held, self._clock.monotonic()
        if held is None:
            return
        claimed, cause = Claimed(), None
        if now_s < self._replace_again_s:
            # refused a moment ago, and Redis is not to be asked for every id
            raise ClockMovedBack(behind_ms, self._rules.policy)
        try:
            claimed = self._keeper.claim(wait_ms=0, instead_of=held.serial)
        except (PoolExhausted, ClockMovedBack, StoreUnavailable) as error:
            cause = error
        if claimed.settling_ms or cause is not None:
            self._note_clock_back(behind_ms, "refusing ids")
            self._replace_again_s = now_s + RETRY_S
            raise ClockMovedBack(behind_ms, self._rules.policy) from cause
        old = claimed.replaced
        if old is not None:
            self._note_clock_back(behind_ms, "using another worker id")
            with self._lock:
                if self._state.serial == old.serial:
                    self._seal()
                marks = self._marks(old)
            self._keeper.release(old, marks, self._stats())

    def _note_clock_back(self, behind_ms: float, what: str) -> None:
        """Count and log it, once for each place that the clock came from."""
        if self._noted is self._state.lanes and "another" not in what and "namespace" not in what:
            return
        self._noted = self._state.lanes
        self._clock_backs += 1
        log.warning("pool %s: the clock went back by %d ms: %s", self.pool, behind_ms, what)

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._clock.sleep(min(seconds, MAX_SLEEP_S))

    # --- heartbeat ---------------------------------------------------------------------------------

    def _start_heartbeat(self) -> None:
        with self._lock:
            if self._heartbeat is not None or self._closed or not self._clock.background:
                return
            self._heartbeat = Heartbeat(
                self, self._beat_after_s(), f"snowredis-{self.pool}", self._keeper.abandon
            )
        self._heartbeat.start()

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
            if self._keeper.held is not None:
                if self._keeper.renew(self._stats()):
                    return self._beat_after_s()
                with self._lock:
                    self._seal()
            if not self._closed:
                settling_ms = self._keeper.claim(wait_ms=self._config.floor_ms).settling_ms
                return settling_ms / 1000 or self._beat_after_s()
        except SnowredisError as error:
            if not isinstance(error, StoreUnavailable) or self._keeper.last_error is error:
                log.warning("pool %s: heartbeat failed, trying again: %s", self.pool, error)
        except Exception:
            log.exception("pool %s: heartbeat failed, trying again", self.pool)
        return min(RETRY_S, self._beat_after_s())

    def _stats(self) -> str:
        """ids made, ids a second since the last call, clock offset in ms, namespace, clock-backs."""
        made, now_s = self.ids_made, self._clock.monotonic()
        since_s, before = self._last_rate
        rate = int((made - before) / (now_s - since_s)) if now_s > since_s else 0
        self._last_rate = (now_s, made)
        return (
            f"{made},{max(0, rate)},{self._keeper.offset_ms},{self._state.lanes.current},{self._clock_backs}"
        )

    # --- the end -----------------------------------------------------------------------------------

    def _seal(self) -> None:
        """No more ids from the current block, not even for a thread that has read it already."""
        while True:
            block, state = self._block, self._state
            made = max(0, state.size - operator.length_hint(block[2]))
            # what the lanes were used for must stay known
            sealed = state._replace(from_tick=0, tick=-1, size=0)
            if self._swap(block, state, None, SEALED, sealed, made):
                exhaust(block[2])
                return

    def _marks(self, held: Held) -> tuple[int, ...] | None:
        """For each lane of *held*, which must not be in use any more, the ms from which it is unused.

        None if that is unknown. Under the lock.
        """
        state, layout = self._state, self._config.layout
        if state.serial > held.serial:
            return None
        if state.serial < held.serial:
            # claimed, and not one id made
            return (0,) * layout.namespaces
        pairs = zip(state.lanes.opens, state.lanes.used, strict=True)
        return tuple(layout.ms_at(opens) if used else 0 for opens, used in pairs)

    def _give_back(self) -> None:
        # R7, in this order: from here on nothing is published for this lease; what was, is sealed; then
        # what was used is read; then it is said
        with self._lock:
            held = self._keeper.detach()
            self._seal()
            marks = self._marks(held) if held is not None else None
        if held is not None:
            self._keeper.release(held, marks, self._stats())

    def close(self) -> None:
        """Stop making ids and give the worker id back. Idempotent, never raises.

        Blocks:
            one round trip to Redis; about 2 s at the most when it does not answer. The worker id is then free
            again when its lease ends.
        """
        self._guard.check()
        self._closed = True
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()
        self._give_back()
        self._keeper.store.close()

    def after_fork(self) -> None:
        """In a forked child: forget the parent's lease; the first next_id() claims another worker id."""
        ids = self._block[2]
        self._lock = threading.RLock()
        self._block, self._state = SEALED, NO_STATE
        exhaust(ids)
        self._heartbeat = None
        self._ids_made = self._clock_backs = 0
        self._random.seed(self._random_bytes(8))
        self._keeper.after_fork()

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
        held = self._keeper.held
        what = "closed" if self._closed else f"worker {held.lease.worker}" if held else "no worker id yet"
        return f"<snowredis.Generator pool={self.pool!r} {what}>"


def exhaust(ids: Iterator[int]) -> None:
    """Take everything that is left, in one step of the interpreter."""
    jump = getattr(ids, "__setstate__", None)
    if jump is not None:
        # a range iterator stops at its end, however far it is told to go; saves walking through millions
        jump(operator.length_hint(ids))
    collections.deque(ids, maxlen=0)


class _Deadlines:
    """How long one call may wait for a worker id, and for its lanes to open."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._began_s: float | None = None
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
        try:
            settling_ms = ids._keeper.claim(wait_ms=ids._config.floor_ms).settling_ms
        except (PoolExhausted, StoreUnavailable) as error:
            if isinstance(error, PoolExhausted) and waited_s < ids._claim_timeout_s:
                ids._sleep(max(0.01, min(RETRY_S, error.next_expiry_ms / 1000)))
                return
            if ids._keeper.lost_worker is not None:
                raise LeaseLost(ids.pool, ids._keeper.lost_worker, str(error)) from error
            raise
        except ClockMovedBack as error:
            raise ClockSkewed(-error.behind_ms, ids._config.floor_ms) from error
        if not settling_ms:
            ids._start_heartbeat()
            return
        self._tell(ids._keeper.floor_ms - ids._clock.time_ns() // 1_000_000)
        if waited_s > 2 * ids._config.floor_ms / 1000 + 1:
            raise LeaseExpired(ids.pool, -1, "Redis keeps losing its state")
        ids._sleep(settling_ms / 1000)

    def wait_for_opening(self, ms: float) -> None:
        ids = self._generator
        # twice: the floor may be raised once more while this waits for it
        limit_ms = 2 * ids._config.floor_ms + ids._config.layout.tick_ms
        if ms > limit_ms:
            ids._give_back()
            raise ClockSkewed(-int(ms), limit_ms)
        self._waited_s()
        self._tell(ms)
        held = ids._keeper.held
        # without a heartbeat thread the reservation has to keep up with the wait
        if held is not None and not ids._clock.background and not ids._keeper.just_renewed():
            ids._keeper.renew_in_need(ids._stats())
        ids._sleep(ms / 1000)

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


class _NoLock:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


_NO_LOCK = _NoLock()


def _as_int64(buffer: Any) -> memoryview:
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ConfigError(f"fill() needs a buffer such as array('q'), not {type(buffer).__name__}") from None
    if view.readonly or not view.c_contiguous:
        raise ConfigError("fill() needs a buffer that is writable and contiguous")
    if not ((view.format in ("q", "l", "Q", "L") and view.itemsize == 8) or view.format in ("B", "b", "c")):
        raise ConfigError(f"fill() needs 8-byte integers (format 'q'), not format {view.format!r}")
    if view.nbytes % 8:
        raise ConfigError(f"fill() needs a multiple of 8 bytes, not {view.nbytes}")
    return view.cast("B").cast("q")
