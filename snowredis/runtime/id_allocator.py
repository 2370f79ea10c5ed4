"""Make the ids of a held lease: advance to the next tick, publish its block, seal it.

Knows no store and never waits: where something has to be done first, advance() returns what. It runs about once a
tick, while the fast path (fast_path.py) takes ids from the block that is current: it asks core.lanes what comes
next, and publishes a new block only if the one that it started from is still current, in one step with that test.
So a block is discarded if anything was published or sealed (close, fork, lost lease) while it was computed.
Whoever publishes or seals also exhausts the ids of the block before, which reaches a thread, or a frame
below a signal handler, that has read that block already.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

from snowredis.core.lanes import Decision, Lanes, UseTick, Wait, decide
from snowredis.errors import ConfigError, LayoutError
from snowredis.runtime.context import Context
from snowredis.runtime.fast_path import SEALED, Block, Published, make_ids
from snowredis.runtime.lease import HeldLease
from snowredis.runtime.lease_manager import LeaseManager
from snowredis.settings import check

# also within a long tick, next_id() has to notice that the clock was set: the slow path looks at a block this often
MAX_WINDOW_S = 0.25


class State(NamedTuple):
    """The allocator's data of the current block; published together with it.

    Attributes:
        serial: of the lease that the block belongs to; serials only grow.
        lanes: up to which tick the lease's lanes are used, this block included.
        from_tick, tick: the first and the last tick of clock readings at which the block is current; *tick* is also
            the tick in its ids.
        first_sequence: of the block.
        size: how many ids the block had when it was made.
        made: about how many ids this generator made of the blocks before.
    """

    serial: int
    lanes: Lanes
    from_tick: int
    tick: int
    first_sequence: int
    size: int
    made: int


NO_STATE = State(0, Lanes((), ()), 0, -1, 0, 0, 0)


class NoLease(NamedTuple):
    """Decision: claim a worker id first."""


# an id and None; or 0, and what has to be done first (None: nothing, since only a lease was asked for)
Step = tuple[int, Decision | NoLease | None]


class IdAllocator:
    """Publishes blocks of ids, of the lease that *leases* holds, on a generator.

    Args:
        sequence_start: where the sequence of a tick begins: "zero", "random", or "continue".
        sequence_start_bound: it begins below this number, 1 to the ids of one tick; None: an eighth of those.
    """

    def __init__(
        self, context: Context, leases: LeaseManager, sequence_start: str, sequence_start_bound: int | None
    ) -> None:
        check("sequence_start", sequence_start)
        sequences = context.config.layout.sequences
        # an eighth: enough to spread ids over shards, and 7/8 of the ceiling is left in the worst tick
        bound = max(1, sequences // 8) if sequence_start_bound is None else sequence_start_bound
        if not 1 <= bound <= sequences:
            raise ConfigError(
                f"sequence_start_bound={bound} is out of range: 1 to {sequences} (the ids of one tick)"
            )
        self._sequence_start, self._sequence_bound = sequence_start, bound
        self._context, self._path, self._clock = context, context.path, context.clock
        self._config, self._leases = context.config, leases
        # with the generator's own clock, as every block
        self._sealed: Block = (*SEALED[:4], self._clock.time)
        self._path._supersede(None, Published(self._sealed, NO_STATE, {}))

    @property
    def state(self) -> State:
        """The data of the current block."""
        state: State = self._path._published.state
        return state

    @property
    def ids_made(self) -> int:
        """About how many ids this generator made so far: unused ids of a sealed block may count."""
        return _made(self._path._published)

    def advance(self, *, only_claim: bool) -> Step:
        """Take an id of the current block or of the next, or return what has to be done first.

        Args:
            only_claim: take no id; only make sure that there is a lease whose lanes are open.

        Blocks:
            for the generator's lock, which nobody holds while waiting, except to detach a lease.

        Raises:
            LayoutError: the clock is before the layout's epoch or after its end.
        """
        with self._path._lock:
            # read before the lease: whoever detaches that seals next, and then this is not current any more
            published = self._path._published
            block, state = published.block, published.state
            held = self._leases.held
            if held is None:
                self.seal()
                return 0, NoLease()
            lanes = state.lanes if state.serial == held.serial else Lanes.fresh(held.lease.opens)
            layout = self._config.layout
            now_ns = self._clock.time_ns()
            # subtracted as integers: a float of the time since 1970 is rounded to a quarter of a microsecond
            now_ms = (now_ns - layout.epoch_ms * 1_000_000) / 1e6
            if now_ms < 0:
                raise LayoutError(
                    f"the clock of this host shows a time {-now_ms:.0f} ms before the layout's epoch; no id was made. "
                    "Set the clock, or choose a layout with an earlier epoch."
                )
            if state.serial == held.serial and state.from_tick <= now_ms // layout.tick_ms <= state.tick:
                # another thread published it meanwhile, or a long tick has not ended
                for an_id in block[2]:
                    extended = (block[0], self._window_end_s(state.tick, now_ns), *block[2:])
                    self._path._supersede(published, Published(extended, state, {}))
                    return an_id, None
            decision = decide(lanes, now_ms, held.lease.until, layout.tick_ms, self._context.rules)
            if isinstance(decision, UseTick) and not only_claim:
                an_id = self._publish(published, held, lanes, decision, now_ns)
                if an_id:
                    return an_id, None
                # a signal handler published meanwhile: decide again
                return 0, Wait(0, clock_back=False)
            if only_claim and isinstance(decision, UseTick | Wait):
                return 0, None
            return 0, decision

    def _publish(
        self, published: Published, held: HeldLease, lanes: Lanes, use_tick: UseTick, now_ns: int
    ) -> int:
        """Publish the block of *use_tick* and take its first id; return 0 if *published* is not current any more.

        The mark is in the crash record, if there is one, before anybody can take the ids.
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
            # 0 is not a valid id: tick 0, worker 0, sequence 0 of a layout whose epoch is now
            low, size = low + step, size - 1
        ids = make_ids(low, low + size * step, step)
        # a borrowed tick begins ahead of the clock; its block is current from the clock's tick on
        from_tick = min(tick, layout.tick_at(now_ns // 1_000_000))
        block: Block = (
            layout.ms_at(from_tick) / 1000,
            self._window_end_s(tick, now_ns),
            ids,
            self._context.guard.alive,
            self._clock.time,
        )
        used = lanes.using(lane, tick)
        new = Published(block, State(held.serial, used, from_tick, tick, first, size, made), {})
        mark = () if held.marks is None else (held.marks, lane, layout.ms_at(used.opens[lane]))
        if not self._path._supersede(published, new, *mark):
            return 0
        an_id = next(ids, 0)
        if state.serial == held.serial and state.lanes.current != lane:
            behind_ms = layout.ms_at(state.tick) - now_ns // 1_000_000
            self._context.clock_backs.note(behind_ms, "namespace", used)
        return an_id

    def _window_end_s(self, tick: int, now_ns: int) -> float:
        """Return the end of a block's window, s since 1970: the end of the tick, or MAX_WINDOW_S into a long one."""
        layout = self._config.layout
        end_s = layout.ms_at(tick + 1) / 1000
        return min(end_s, max(now_ns / 1e9, layout.ms_at(tick) / 1000) + MAX_WINDOW_S)

    def _first_sequence(self, state: State, made: int) -> int:
        """Return the first sequence of a tick, after *made* ids of the block of *state*."""
        if self._sequence_start == "random":
            return self._context.random.randrange(self._sequence_bound)
        if self._sequence_start == "continue":
            return (state.first_sequence + made) % self._sequence_bound
        return 0

    def seal(self) -> None:
        """Remove all ids from the current block, also for a thread that has read it already."""
        while True:
            published = self._path._published
            # with the lanes: it must stay known how far they are used
            state = published.state._replace(from_tick=0, tick=-1, size=0, made=_made(published))
            if self._path._supersede(published, Published(self._sealed, state, {})):
                return

    def seal_through(self, serial: int) -> None:
        """Seal the current block unless its lease has a higher serial than *serial*."""
        if self.state.serial <= serial:
            # also if that lease has no block: a frame below this signal handler may be about to publish the first
            self.seal()

    def marks(self, held: HeldLease) -> tuple[int, ...] | None:
        """Return for each lane of *held*, which must be sealed, the ms from which it is unused (0: never used).

        None if that is unknown. The caller holds the generator's lock.
        """
        state, layout = self.state, self._config.layout
        if state.serial > held.serial:
            return None
        if state.serial < held.serial:
            # claimed, but no id was made
            return (0,) * layout.namespaces
        pairs = zip(state.lanes.opens, state.lanes.used, strict=True)
        return tuple(layout.ms_at(opens) if used else 0 for opens, used in pairs)

    def after_fork(self) -> None:
        """Discard the parent's block, in a forked child."""
        # published after whatever the parent was about to publish, so that a call that goes on here cannot
        while not self._path._supersede(self._path._published, Published(self._sealed, NO_STATE, {})):
            pass


def _made(published: Published) -> int:
    """Return about how many ids were made so far, those of *published* included."""
    state: State = published.state
    return state.made + max(0, state.size - operator.length_hint(published.block[2]))
