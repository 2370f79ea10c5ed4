"""Make the ids of a held lease: the step to the next tick.

Knows no store and never waits: where something has to be done first, it says what. The fast path is
in fast_path.py: it takes ids from a *block*, one tick's ids. This runs once a tick: it asks core.lanes what
comes next, and publishes a new block only if the one it started from still stands, in one step with that test.
So whatever it has computed is void if anything was published or sealed (close, fork, lost lease) meanwhile.
Whoever publishes or seals also empties the iterator of the block before, which reaches a thread, or a frame
below a signal handler, that has read that block already.
"""

from __future__ import annotations

import operator
import random
import threading
from typing import Any, NamedTuple

from snowredis.core.lanes import ClockRules, Lanes, UseTick, Wait, decide
from snowredis.core.layout import Layout
from snowredis.errors import ConfigError, LayoutError
from snowredis.lease.model import PoolConfig
from snowredis.runtime.clock import SYSTEM, Clock
from snowredis.runtime.fast_path import SEALED, Block, FastPath, Published, make_ids
from snowredis.runtime.fork import ForkGuard
from snowredis.runtime.lease_manager import HeldLease, LeaseManager

SEQUENCE_STARTS = ("zero", "random", "continue")
# a tick of 10 s must not keep next_id() from seeing a step of the clock: a block is looked at again this often
MAX_WINDOW_S = 0.25


class State(NamedTuple):
    """What the slow path knows of the current block; published together with it."""

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
    # ids that this generator made of the blocks before
    made: int


NO_STATE = State(0, Lanes((), ()), 0, -1, 0, 0, 0)


class IdAllocator(FastPath):
    """What a generator needs to make ids of the lease that its lease_manager holds."""

    __slots__ = (
        "_clock",
        "_config",
        "_guard",
        "_lease_manager",
        "_lock",
        "_random",
        "_rules",
        "_sequence_bound",
        "_sequence_start",
    )

    def __init__(
        self,
        config: PoolConfig,
        lease_manager: LeaseManager,
        clock: Clock,
        guard: ForkGuard,
        rules: ClockRules,
        sequence_start: str,
        sequence_start_bound: int | None,
        seed: bytes,
    ) -> None:
        if sequence_start not in SEQUENCE_STARTS:
            raise ConfigError(
                f"sequence_start={sequence_start!r} is unknown; choose one of {', '.join(SEQUENCE_STARTS)}"
            )
        sequences = config.layout.sequences
        # an eighth: enough to spread ids over shards, and 7/8 of the ceiling is left in the worst tick
        bound = max(1, sequences // 8) if sequence_start_bound is None else sequence_start_bound
        if not 1 <= bound <= sequences:
            raise ConfigError(
                f"sequence_start_bound={bound} is out of range: 1 to {sequences} (the ids of one tick)"
            )
        self._sequence_start, self._sequence_bound = sequence_start, bound
        self._config, self._lease_manager, self._clock, self._guard = config, lease_manager, clock, guard
        self._rules = rules
        self._random = random.Random(seed)
        self._lock = threading.RLock()
        self._use_clock(None if clock is SYSTEM else clock.time)
        self._supersede(None, Published(SEALED, NO_STATE, {}))

    @property
    def layout(self) -> Layout:
        return self._config.layout

    @property
    def _state(self) -> State:
        state: State = self._published.state
        return state

    @property
    def ids_made(self) -> int:
        """How many ids this generator made so far, about: those of a sealed block may count."""
        return _made(self._published)

    def _note_clock_back(self, behind_ms: float, step: str) -> None:
        """Called when another namespace is in use because of it."""
        raise NotImplementedError

    def _advance(self, only_claim: bool) -> tuple[int, Any]:
        """Take an id of the current block or of the next; or say what has to be done first.

        Answers (id, None), or (0, a decision), "claim" among them.
        """
        with self._lock:
            # before the lease is looked at: whoever takes that away seals next, and this is not current any more
            published = self._published
            block, state = published.block, published.state
            held = self._lease_manager.held
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
                    going_on = (block[0], self._window_end_s(state.tick, now_ns), block[2], block[3])
                    self._supersede(published, Published(going_on, state, {}))
                    return an_id, None
            decision = decide(lanes, now_ms, held.lease.until, layout.tick_ms, self._rules)
            if isinstance(decision, UseTick) and not only_claim:
                an_id = self._publish(published, held, lanes, decision, now_ns)
                if an_id:
                    return an_id, None
                # a signal handler was quicker: look again
                return 0, Wait(0, clock_back=False)
            if only_claim and isinstance(decision, UseTick | Wait):
                return 0, None
            return 0, decision

    def _publish(
        self, published: Published, held: HeldLease, lanes: Lanes, use_tick: UseTick, now_ns: int
    ) -> int:
        """Make the block of *use_tick* current and take its first id; 0 if *published* is not current any more.

        The crash record, if there is one, has the mark before anybody can have the ids.
        """
        layout, (lane, tick) = self._config.layout, use_tick
        state: State = published.state
        if tick > layout.max_tick:
            raise LayoutError(
                f"the layout's {layout.timestamp_bits} timestamp bits are used up since {layout.end}; no id was made. "
                "Move to a layout with more timestamp bits or a later epoch."
            )
        made = _made(published)
        first = self._first_sequence(state, made - state.made)
        worker = held.lease.worker
        low = layout.compose(
            tick=tick, datacenter=self._config.datacenter, backup=lane, worker=worker, sequence=first
        )
        size, step = layout.sequences - first, layout.sequence_step
        if low == 0:
            # 0 is no id: tick 0, worker 0, sequence 0 of a layout that begins now
            low, size = low + step, size - 1
        ids = make_ids(low, low + size * step, step)
        # a borrowed tick begins ahead of the clock; its block is current from the clock's tick on
        from_tick = min(tick, layout.tick_at(now_ns // 1_000_000))
        block: Block = (
            layout.ms_at(from_tick) / 1000,
            self._window_end_s(tick, now_ns),
            ids,
            self._guard.alive,
        )
        used = lanes.using(lane, tick)
        new = Published(block, State(held.serial, used, from_tick, tick, first, size, made), {})
        mark = () if held.marks is None else (held.marks, lane, layout.ms_at(used.opens[lane]))
        if not self._supersede(published, new, *mark):
            return 0
        an_id = next(ids, 0)
        if state.serial == held.serial and state.lanes.current != lane:
            behind_ms = layout.ms_at(state.tick) - now_ns // 1_000_000
            self._note_clock_back(behind_ms, "namespace")
        return an_id

    def _window_end_s(self, tick: int, now_ns: int) -> float:
        """When the slow path has to look again: at the end of the tick, and now and then in a long one."""
        layout = self._config.layout
        end_s = layout.ms_at(tick + 1) / 1000
        return min(end_s, max(now_ns / 1e9, layout.ms_at(tick) / 1000) + MAX_WINDOW_S)

    def _first_sequence(self, state: State, made: int) -> int:
        if self._sequence_start == "random":
            return self._random.randrange(self._sequence_bound)
        if self._sequence_start == "continue":
            return (state.first_sequence + made) % self._sequence_bound
        return 0

    def _seal(self) -> None:
        """No more ids from the current block, not even for a thread that has read it already."""
        while True:
            published = self._published
            # what the lanes were used for must stay known
            state = published.state._replace(from_tick=0, tick=-1, size=0, made=_made(published))
            if self._supersede(published, Published(SEALED, state, {})):
                return

    def _marks(self, held: HeldLease) -> tuple[int, ...] | None:
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

    def _forget(self, seed: bytes) -> None:
        """In a forked child: nothing of the parent's block is left, and no lock is held."""
        self._lock = threading.RLock()
        # published after whatever the parent was about to publish, so that a call that goes on here cannot
        while not self._supersede(self._published, Published(SEALED, NO_STATE, {})):
            pass
        self._random.seed(seed)


def _made(published: Published) -> int:
    """How many ids were made by the time, those of *published* included."""
    state: State = published.state
    return state.made + max(0, state.size - operator.length_hint(published.block[2]))
