"""The clocks that ids are made by, and the waits. No other module of this package reads the system's time.

A test of an application may freeze the time: freezegun replaces the functions of the module time, time-machine the C
functions behind them. Neither moves this clock if ids are made in C, since it is read there then.
"""

from __future__ import annotations

import time as _time
from typing import NamedTuple, Protocol

# the longest single wait: between two, close(), a signal and a fork are noticed
MAX_SLEEP_S = 0.1
# no clock that runs shows the same time for so long
LONGEST_STOP_S = 1.0
# each wait counts as this, at least: sleeping takes longer than it should
_SHORTEST_WAIT_S = 0.001


class Clock(Protocol):
    """The clock of a generator.

    Attributes:
        background: whether time passes by itself, so that a heartbeat thread makes sense; not on a test clock.
    """

    background: bool

    def time_ns(self) -> int:
        """Return the wall clock, ns since 1970; may jump."""

    def monotonic(self) -> float:
        """Return the seconds since some moment; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait; may wake early."""


class ClockReading(NamedTuple):
    """Reading of a generator's clock.

    Attributes:
        now_ms: wall clock, ms since 1970.
        offset_ms: the clock of this host minus the Redis clock; None before the first reply.
    """

    now_ms: int
    offset_ms: int | None


class SystemClock:
    """The clocks of the operating system."""

    background = True
    # fast_path.py puts the function in C here
    time_ns = staticmethod(_time.time_ns)
    monotonic = staticmethod(_time.monotonic)

    @staticmethod
    def sleep(seconds: float) -> None:
        # looked up at each call: gevent may patch it
        _time.sleep(seconds)


def now_ms() -> int:
    """Return the wall clock of this host, ms since 1970."""
    return SYSTEM.time_ns() // 1_000_000


SYSTEM = SystemClock()


class FrozenClockCheck:
    """Detects, during the waits of one call, a wall clock that stands still: one that a test has frozen."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._seen_ns, self._waited_s = clock, clock.time_ns(), 0.0

    def still_ms(self, waited_s: float) -> int:
        """Return how long the clock has stood still, after a wait of *waited_s*; 0 if less than LONGEST_STOP_S."""
        now_ns = self._clock.time_ns()
        if now_ns != self._seen_ns:
            self._seen_ns, self._waited_s = now_ns, 0.0
        elif waited_s > 0:
            self._waited_s += max(waited_s, _SHORTEST_WAIT_S)
        return int(self._waited_s * 1000) if self._waited_s >= LONGEST_STOP_S else 0


def nap(clock: Clock, seconds: float) -> None:
    """Sleep for *seconds*, MAX_SLEEP_S at most; return at once for 0 or less."""
    if seconds > 0:
        clock.sleep(min(seconds, MAX_SLEEP_S))
