"""The clocks: what the time is, and how to wait. The only module that reads them for ids."""

from __future__ import annotations

import time as _time
from typing import Protocol

# the longest single wait: close(), a signal or a fork is noticed between two
MAX_SLEEP_S = 0.1


class Clock(Protocol):
    """What the generator needs of a clock.

    background: whether time passes by itself, so that a heartbeat thread makes sense.
    """

    background: bool

    def time(self) -> float:
        """Wall clock, s since 1970; may jump."""

    def time_ns(self) -> int:
        """Wall clock, ns since 1970; may jump."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait; may wake early."""


class SystemClock:
    """The clocks of the operating system."""

    background = True
    time = staticmethod(_time.time)
    time_ns = staticmethod(_time.time_ns)
    monotonic = staticmethod(_time.monotonic)

    @staticmethod
    def sleep(seconds: float) -> None:
        # looked up each time: gevent may come and patch it
        _time.sleep(seconds)


class StepClock(SystemClock):
    """The clocks of the operating system, with a wall clock that can be set."""

    def __init__(self) -> None:
        self._offset_ns = 0

    def step(self, ms: int) -> None:
        """Set the wall clock *ms* ahead, or back if negative."""
        self._offset_ns += ms * 1_000_000

    def time(self) -> float:
        return _time.time() + self._offset_ns / 1e9

    def time_ns(self) -> int:
        return _time.time_ns() + self._offset_ns


SYSTEM = SystemClock()


def nap(clock: Clock, seconds: float) -> None:
    """Sleep for *seconds*, but no longer than MAX_SLEEP_S; not at all for 0 or less."""
    if seconds > 0:
        clock.sleep(min(seconds, MAX_SLEEP_S))
