"""Which lane and which tick come next, whatever the clock does.

Pure: the caller reads the clock, holds the lease, sleeps and claims. All that matters here is
one promise: a tick is never given out on a lane that has used it, or a later one, before.

Times are ms since the layout's epoch; ticks are counted from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from snowredis.errors import ConfigError

CLOCK_POLICIES = ("backup", "wait", "raise", "ahead")
OVERFLOWS = ("wait", "ahead")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRules:
    """What to do when the clock goes back, and when a tick's sequence is used up.

    Args:
        policy: "backup": wait within the tolerance, else another namespace, else another worker id;
            "wait": wait up to max_wait_ms; "raise": never wait, as Twitter's; "ahead": go on from the
            last tick, at most max_ahead_ms ahead of the clock.
        tolerance_ms: 0 or more; how far back is simply waited out under "backup".
        max_wait_ms: 0 or more; the same under "wait".
        max_ahead_ms: 0 or more; how far ids may run ahead of the clock under "ahead".
        overflow: "wait" for the next tick, or "ahead": borrow ticks ahead of the clock.
    """

    policy: str = "backup"
    tolerance_ms: int = 10
    max_wait_ms: int = 5_000
    max_ahead_ms: int = 1_000
    overflow: str = "wait"

    def __post_init__(self) -> None:
        if self.policy not in CLOCK_POLICIES:
            raise ConfigError(
                f"clock_policy={self.policy!r} is unknown; choose one of {', '.join(CLOCK_POLICIES)}"
            )
        if self.overflow not in OVERFLOWS:
            raise ConfigError(f"overflow={self.overflow!r} is unknown; choose one of {', '.join(OVERFLOWS)}")
        for option in ("tolerance_ms", "max_wait_ms", "max_ahead_ms"):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(
                    f"{option} must be a whole number of milliseconds, 0 or more, not {value!r}"
                )


class Lanes(NamedTuple):
    """What one lease's lanes have been used for. Immutable: a new one is made for each tick.

    opens: for each lane the first tick that may be used; every one below may have been used.
    used: for each lane whether this lease used it.
    current: the lane in use.
    """

    opens: tuple[int, ...]
    used: tuple[bool, ...]
    current: int = 0

    @classmethod
    def fresh(cls, opens: tuple[int, ...]) -> Lanes:
        return cls(opens, (False,) * len(opens))

    def using(self, lane: int, tick: int) -> Lanes:
        """These lanes after *tick* was taken on *lane*."""
        if tick < self.opens[lane]:
            raise AssertionError(
                f"tick {tick} of lane {lane} may have been used: {self.opens[lane]} is the first free"
            )
        opens = (*self.opens[:lane], tick + 1, *self.opens[lane + 1 :])
        used = (*self.used[:lane], True, *self.used[lane + 1 :])
        return Lanes(opens, used, lane)


class UseTick(NamedTuple):
    """Make ids of this tick on this lane."""

    lane: int
    tick: int


class Wait(NamedTuple):
    """Wait this long, then ask again."""

    ms: float
    clock_back: bool


class NotOpen(NamedTuple):
    """No lane of the lease is usable for this long: marks of earlier holders, or the pool's floor, are ahead."""

    ms: float


class RenewLease(NamedTuple):
    """The reservation ends at or before this tick: renew it."""

    tick: int


class ClaimAnother(NamedTuple):
    """The clock went back further than any lane allows: another worker id may have one that fits."""

    behind_ms: int


class RaiseClockBack(NamedTuple):
    """The clock went back and the policy says no."""

    behind_ms: int


Decision = UseTick | Wait | NotOpen | RenewLease | ClaimAnother | RaiseClockBack


def decide(lanes: Lanes, now_ms: float, until_tick: int, tick_ms: int, rules: ClockRules) -> Decision:
    """Say what to do when the current tick has no id left, or is not the clock's tick.

    Args:
        now_ms: the clock, ms since the layout's epoch, 0 or more.
        until_tick: the end of the reservation; ticks at or above it are not this lease's.
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
    if rules.policy == "ahead" or rules.overflow == "ahead":
        # borrowed ticks and a clock that went back look the same: both mean that ids are ahead of the clock
        if wait_ms <= rules.max_ahead_ms:
            return _within(lane, opens, until_tick)
        if used_up or behind_ms <= rules.max_ahead_ms + tick_ms:
            return Wait(max(wait_ms - rules.max_ahead_ms, 0.05), clock_back=False)
    if used_up:
        return Wait(wait_ms, clock_back=False)
    return _ladder(lanes, tick, behind_ms, until_tick, rules)


def _ladder(lanes: Lanes, tick: int, behind_ms: float, until_tick: int, rules: ClockRules) -> Decision:
    """The clock shows an earlier tick than the last one that was used, which began *behind_ms* from now."""
    if rules.policy in {"raise", "ahead"}:
        return RaiseClockBack(math.ceil(behind_ms))
    if rules.policy == "wait":
        return (
            Wait(behind_ms, clock_back=True)
            if behind_ms <= rules.max_wait_ms
            else RaiseClockBack(math.ceil(behind_ms))
        )
    if behind_ms <= rules.tolerance_ms:
        return Wait(behind_ms, clock_back=True)
    lane = closest_fit(lanes, tick)
    return ClaimAnother(math.ceil(behind_ms)) if lane is None else _within(lane, tick, until_tick)


def _first(lanes: Lanes, tick: int, now_ms: float, until_tick: int, tick_ms: int) -> Decision:
    """The lease was not used yet, and its first lane is not open."""
    lane = closest_fit(lanes, tick)
    if lane is not None:
        return _within(lane, tick, until_tick)
    return NotOpen(min(lanes.opens) * tick_ms - now_ms)


def _within(lane: int, tick: int, until_tick: int) -> Decision:
    return UseTick(lane, tick) if tick < until_tick else RenewLease(tick)


def closest_fit(lanes: Lanes, tick: int) -> int | None:
    """The lane that is open at *tick* and lies closest below it, so that those further back are kept."""
    fitting = [lane for lane, opens in enumerate(lanes.opens) if opens <= tick]
    return max(fitting, key=lambda lane: (lanes.opens[lane], -lane)) if fitting else None
