"""Make the times of steps small enough for TLC, which counts to 2^31, without a change to any comparison."""

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from tests.lab.spec.log import Entry

Step = dict[str, Any]
# fields of steps that are times
TIMES = {
    *("R", "c", "T", "floor", "until", "out", "held_until", "held_out", "from", "lanes", "low", "lo", "hi", "t"),
    *("begin", "end", "ends", "ends_out", "lost", "start", "end_ms"),
}


def set_times(header: Entry, steps: Sequence[Step]) -> None:
    """Map all times: the distance between two is kept, unless no sum of the specification can bridge it.

    The specification compares times after it has added constants of the pool to them, all of them together at
    most. So a distance that is longer may be any other that is longer, too: every comparison comes out the same.
    """
    slack, lead = header["failover_slack_ms"], header["max_clock_lead_ms"]
    reach = max(header["ttl_ms"], header["outage_ms"]) + lead + slack
    points = sorted({time for step in steps for time in _times(step)} | {0})
    mapped = [0]
    for before, after in itertools.pairwise(points):
        mapped.append(mapped[-1] + min(after - before, reach + 1))
    for step in steps:
        for name in TIMES & step.keys():
            value = step[name]
            step[name] = (
                [mapped[bisect_left(points, item)] for item in value]
                if isinstance(value, list)
                else mapped[bisect_left(points, value)]
            )


def _times(step: Step) -> list[int]:
    times: list[int] = []
    for name in TIMES & step.keys():
        value = step[name]
        times += value if isinstance(value, list) else [value]
    return times
