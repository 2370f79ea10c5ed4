"""Measure what one id costs: hot, in a loop; and cold, after a pause in which other work filled the caches."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

# loops of about this length
_LOOP_S = 0.2
_LOOPS = 5
_PAUSE_S = 0.0012
_COLD_CALLS = 200


class Cost(NamedTuple):
    """ns a call, the call itself included."""

    hot_ns: float
    cold_ns: float


def cost_of(make: Callable[[], Any]) -> Cost:
    """Measure *make*, whose ids may come from a server. Blocks for about 2 s."""
    return Cost(_hot(make), _cold(make))


def _loop_s(make: Callable[[], Any], count: int) -> float:
    began_s = time.perf_counter()
    for _ in itertools.repeat(None, count):
        make()
    return time.perf_counter() - began_s


def _hot(make: Callable[[], Any]) -> float:
    count = 100
    while (took_s := _loop_s(make, count)) < _LOOP_S / 4:
        count *= 4
    count = max(1, round(count * _LOOP_S / took_s))
    # what other programs took is in the slower ones
    return min(_loop_s(make, count) for _ in range(_LOOPS)) / count * 1e9


def _cold(make: Callable[[], Any]) -> float:
    took_ns = []
    for _ in range(_COLD_CALLS):
        time.sleep(_PAUSE_S)
        began_ns = time.perf_counter_ns()
        make()
        took_ns.append(time.perf_counter_ns() - began_ns)
    return statistics.median(took_ns)
