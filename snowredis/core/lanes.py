"""Decide which lane and tick come next, whatever the clock does; and what the fast path is told of them.

Pure: the caller reads the clock, holds the lease, sleeps and claims. The one invariant: a lane never returns to a
tick that it has used, nor to an earlier one.

Times are ms since the layout's epoch; ticks are counted from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

ClockPolicy: TypeAlias = Literal["backup", "wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRules:
    """Rules for a clock that goes back, and for an exhausted sequence: settings of connect(), which checks them.

    Args:
        policy: beyond both limits, "backup": use another namespace, else another worker id; "wait": refuse.
        max_wait_ms: 0 or more; the largest step back that is waited for.
        max_ahead_ms: 0 or more; how far ids may run ahead of the clock.
    """

    policy: ClockPolicy = "backup"
    max_wait_ms: int = 10
    max_ahead_ms: int = 0


# the longest step back that is waited for where nothing else can be done
LONG_WAIT_MS = 5_000


class Lanes(NamedTuple):
    """The state of one lease's lanes. Immutable: replaced at each tick.

    opens: for each lane, the first tick that may be used; all earlier ones may have been used.
    used: for each lane, whether this lease used it.
    current: the lane in use.
    """

    opens: tuple[int, ...]
    used: tuple[bool, ...]
    current: int = 0

    @classmethod
    def fresh(cls, opens: tuple[int, ...]) -> Lanes:
        return cls(opens, (False,) * len(opens))

    def after(self, tick: int) -> Lanes:
        """Return these lanes so that the current one goes on after *tick*, which another lease's lane may have used."""
        lane = self.current
        return self.using(lane, tick) if tick >= self.opens[lane] else self

    def using(self, lane: int, tick: int) -> Lanes:
        """Return these lanes after *tick* was used on *lane*."""
        if tick < self.opens[lane]:
            raise AssertionError(
                f"tick {tick} of lane {lane} may have been used: the first unused one is {self.opens[lane]}"
            )
        opens = (*self.opens[:lane], tick + 1, *self.opens[lane + 1 :])
        used = (*self.used[:lane], True, *self.used[lane + 1 :])
        return Lanes(opens, used, lane)


class UseTick(NamedTuple):
    """Decision: make ids of this tick on this lane."""

    lane: int
    tick: int


class Wait(NamedTuple):
    """Decision: wait this long, then decide again."""

    ms: float
    clock_back: bool

    @property
    def seconds(self) -> float:
        """Return the wait in s, rounded up to whole microseconds: floats must not end it before the tick."""
        return math.ceil(self.ms * 1000) / 1e6


class NotOpen(NamedTuple):
    """Decision: no lane can be used for this long, because of earlier holders' marks or the pool's floor."""

    ms: float


class RenewLease(NamedTuple):
    """Decision: renew the lease; its reservation ends at or before this tick."""

    tick: int


class ClaimAnother(NamedTuple):
    """Decision: claim another worker id; the clock went back further than any lane of this one allows."""

    behind_ms: int


class RaiseClockBack(NamedTuple):
    """Decision: raise ClockMovedBack; the policy allows nothing else."""

    behind_ms: int


Decision = UseTick | Wait | NotOpen | RenewLease | ClaimAnother | RaiseClockBack


def decide(lanes: Lanes, now_ms: float, until_tick: int, tick_ms: int, rules: ClockRules) -> Decision:
    """Decide what to do when the current tick is exhausted, or is not the clock's tick.

    Args:
        now_ms: the wall clock, ms since the layout's epoch, 0 or more.
        until_tick: the end of the reservation, exclusive.
    """
    tick = int(now_ms // tick_ms)
    lane = lanes.current
    opens = lanes.opens[lane]
    if tick >= opens:
        return _within(lane, tick, until_tick)
    if not lanes.used[lane]:
        return _first(lanes, tick, now_ms, until_tick, tick_ms)
    wait_ms = opens * tick_ms - now_ms
    behind_ms = (opens - 1) * tick_ms - now_ms
    used_up = tick == opens - 1
    # borrowed ticks and a clock that went back look the same: both mean that ids are ahead of the clock
    left_ms = wait_ms - rules.max_ahead_ms
    if left_ms <= 0:
        return _within(lane, opens, until_tick)
    if rules.max_ahead_ms:
        left_ms = max(left_ms, 0.05)
        used_up = used_up or behind_ms <= rules.max_ahead_ms + tick_ms
    if used_up:
        return Wait(left_ms, clock_back=False)
    if behind_ms <= rules.max_wait_ms:
        return Wait(min(behind_ms, left_ms), clock_back=True)
    if rules.policy == "wait":
        return RaiseClockBack(math.ceil(behind_ms))
    other = closest_fit(lanes, tick)
    return ClaimAnother(math.ceil(behind_ms)) if other is None else _within(other, tick, until_tick)


def _first(lanes: Lanes, tick: int, now_ms: float, until_tick: int, tick_ms: int) -> Decision:
    """Decide for a lease that made no id yet and whose first lane is not open."""
    lane = closest_fit(lanes, tick)
    if lane is not None:
        return _within(lane, tick, until_tick)
    return NotOpen(min(lanes.opens) * tick_ms - now_ms)


def _within(lane: int, tick: int, until_tick: int) -> Decision:
    return UseTick(lane, tick) if tick < until_tick else RenewLease(tick)


def closest_fit(lanes: Lanes, tick: int) -> int | None:
    """Return the lane that is open at *tick* and whose first unused tick is the latest; None if none is open.

    Lanes that lie further back are kept for clocks that go back further.
    """
    fitting = [lane for lane, opens in enumerate(lanes.opens) if opens <= tick]
    return max(fitting, key=lambda lane: (lanes.opens[lane], -lane)) if fitting else None


# the last id, and the tick, where no ids are left to take
SEALED = -1


class TickRange(NamedTuple):
    """Ticks of one lane whose ids may be made, one tick after the other, without another decision.

    Attributes:
        first_id: its first id, which belongs to whoever publishes the range; SEALED if it has no ids.
        early_ns: how much earlier than the tick of *first_id* the clock may be; not 0 if that tick is borrowed.
        limit_ns: clock reading, ns since 1970, from which on no more ticks of it are opened.
        epoch_ms, tick_ms: of the layout.
        low: the bits of an id that are the same in all ticks: datacenter, lane, worker; sequence 0.
        sequence_mask: the bits of an id that are the sequence.
        timestamp_shift, sequence_shift: where in an id the tick and the sequence begin.
        spread: highest first sequence of the ticks that the fast path opens, 2**n - 1; with 0 all begin at 0.
        salt: what first sequences depend on besides the tick; 0 .. 2**31 - 1.
        is_reset: of the fork guard, bytes-like: false in a forked child that was not reset yet.
        clock: of the generator.
        state: of allocator.py, the only module that uses it.
    """

    first_id: int
    early_ns: int
    limit_ns: int
    epoch_ms: int
    tick_ms: int
    low: int
    sequence_mask: int
    timestamp_shift: int
    sequence_shift: int
    spread: int
    salt: int
    is_reset: Any
    clock: Any
    state: Any


# the current TickRange, the last id (SEALED if it is sealed), and about how many ids were made so far
Position = tuple[TickRange, int, int]


def first_sequence(tick: int, spread: int, salt: int) -> int:
    """Return the first sequence of a tick: the ids of a quiet service are spread evenly by ``id % n``, for any n."""
    # a product alone follows a pattern at regular times, and the hash of a tuple one of its own: of its low bits, that
    # of ``id % 360``
    mixed = tick * 0x9E3779B97F4A7C15 + salt & 0xFFFFFFFFFFFFFFFF
    return (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 >> 33 & spread
