"""Measure statements in turns: many short rounds of each, so that a busy machine slows all of them alike.

The ratios can be compared between machines, the nanoseconds cannot.
"""

from __future__ import annotations

import os
import platform
import statistics
import sysconfig
import threading
import time
import timeit
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# 4,194,304 ids a ms, so that the generator is measured and not the ceiling of a layout
UNCAPPED = "40/0/0/1/22"
BASE = "time.time_ns()"


@dataclass(frozen=True, slots=True)
class Subject:
    """A statement to measure.

    Attributes:
        statement: one Python statement.
        names: its globals.
        threads: how many threads run it at once.
        per_call: how many ids it makes.
    """

    statement: str
    names: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    per_call: int = 1

    def ns(self, calls: int) -> float:
        """Let each thread run the statement *calls* times; return the wall time of one id, ns."""
        timers = [timeit.Timer(self.statement, globals=dict(self.names)) for _ in range(self.threads)]
        if self.threads == 1:
            took_s = timers[0].timeit(calls)
        else:
            took_s = _side_by_side_s([lambda timer=timer: timer.timeit(calls) for timer in timers])
        return took_s * 1e9 / (calls * self.per_call * self.threads)


def calls_in(subject: Subject, seconds: float) -> int:
    """Return how many calls of *subject* take about *seconds*. Blocks for up to about that long."""
    calls = 1
    while (took_s := subject.ns(calls) * calls * subject.per_call * subject.threads / 1e9) < seconds / 4:
        calls *= 4 if took_s < seconds / 16 else 2
    return max(1, round(calls * seconds / took_s))


def _side_by_side_s(works: Sequence[Any]) -> float:
    """Run the functions *works* at once, each in a thread; return the seconds until the last one ends."""
    gate = threading.Barrier(len(works) + 1)

    def run(work: Any) -> None:
        gate.wait()
        work()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    gate.wait()
    began_s = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began_s


def in_turns(names: Sequence[str], rounds: int) -> Iterable[str]:
    """Yield *names* *rounds* times, each round rotated by one, so that each name is first equally often."""
    for turn in range(rounds):
        at = turn % len(names)
        yield from [*names[at:], *names[:at]]


def quartiles(figures: Sequence[float]) -> tuple[float, float, float]:
    """Return lower quartile, median, upper quartile."""
    low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
    return low, median, high


def ratios(figures: Sequence[float], base: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of the ratios *figures* / *base*, round by round."""
    return quartiles([figure / of for figure, of in zip(figures, base, strict=True)])


def this_machine() -> str:
    """Return one line that describes the Python and the machine."""
    gil = "no GIL" if sysconfig.get_config_var("Py_GIL_DISABLED") else "GIL"
    python = f"{platform.python_implementation()} {platform.python_version()} ({gil})"
    return f"{python}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}"
