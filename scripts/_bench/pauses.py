"""Measure single calls, each after a pause."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Pause(NamedTuple):
    """A pause before each call.

    Attributes:
        statements: what the measuring process does before the call.
        samples: how many calls are measured.
        block: how many of them in a row, before another statement has its turn.
    """

    statements: str
    samples: int
    block: int


# so many that all statements take less than three minutes: the long pause has few
PAUSES: Mapping[str, Pause] = {
    "hot": Pause("pass", 40_000, 200),
    "new ms": Pause("this = wall_ns() // 1_000_000\nwhile wall_ns() // 1_000_000 == this:\n    pass", 10_000, 200),
    "1.2 ms of sleep": Pause("sleep(0.0012)", 2_000, 50),
    "100 ms of sleep": Pause("sleep(0.1)", 40, 4),
}


def typical(figures: Sequence[float]) -> float:
    """Return the mean of the middle half: as steady as a median, and finer than the clock that measures."""
    quarter, ordered = len(figures) // 4, sorted(figures)
    return statistics.mean(ordered[quarter : len(ordered) - quarter])


def samples(statement: str, names: Mapping[str, Any], pause: str, count: int) -> list[float]:
    """Run *statement* *count* times, each after *pause*; return the ns of each, without the cost of measuring."""
    before = PAUSES[pause].statements.replace("\n", "\n        ")
    source = f"""
def run():
    found, nothing = [], []
    for _ in range({count}):
        {before}
        began = now()
        {statement}
        found.append(now() - began)
        began = now()
        nothing.append(now() - began)
    return found, nothing
"""
    scope = dict(names) | {"now": time.perf_counter_ns, "wall_ns": time.time_ns, "sleep": time.sleep}
    exec(source, scope)  # noqa: S102 - as timeit does
    found, nothing = scope["run"]()
    cost_ns = typical(nothing)
    return [max(0.0, ns - cost_ns) for ns in found]
