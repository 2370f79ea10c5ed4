"""Which faults may come when, and in which order. Pure: the driver has the clock."""

import random
from collections.abc import Iterator, Sequence

from tests.lab.chaos.faults import Fault

# the last of the faults: Redis forgets nothing more, and its clock is stepped by hours
HOURS_PART, FORWARD_PART = 0.1, 0.02


def phases(faults: int, kinds: Sequence[Fault]) -> list[tuple[int, list[Fault]]]:
    """Return the phases of a run: number of faults, and their kinds. The fleet recovers between phases.

    A floor counts on the Redis clock, so that clock may be stepped further than failover_slack only while no state
    is lost, and workers' clocks not along with it. A lease that is granted at a late Redis time lasts as long, so
    steps forward come last: nobody is killed after them.
    """
    stepped = any(fault.clock == "hours" for fault in kinds)
    hours = max(3, int(faults * HOURS_PART)) if stepped else 0
    forward = max(1, int(faults * FORWARD_PART)) if stepped else 0
    everything = [fault for fault in kinds if fault.clock != "hours"]
    kept = [fault for fault in kinds if not fault.forgets and fault.clock in ("", "hours")]
    steps = [fault for fault in kinds if fault.clock == "hours"]
    return [(faults - hours, everything), (hours - forward, kept), (forward, steps)]


def decks(rng: random.Random, kinds: Sequence[Fault]) -> Iterator[Fault]:
    """Every kind before any comes again, then decks in which kinds are as frequent as they weigh."""
    deck = list(kinds)
    while deck:
        rng.shuffle(deck)
        yield from deck
        deck = [fault for fault in kinds for _ in range(fault.weight)]
