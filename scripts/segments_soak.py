#!/usr/bin/env python3
"""Run simulated schedules of faults on segment generators, and look for repeated numbers.

    scripts/segments_soak.py --schedules 10000
    scripts/segments_soak.py --first 4711 --schedules 1 --trace     # one seed, with all that happened

8 processes on one to three servers that are wiped, restarted from old snapshots, failed over, doubled and rolled back.
One seed decides everything. Exits with 1 if a number was repeated, or a process got none after the last fault.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.numbers.simulation import SegmentSimulation, Violation


def run(first: int, schedules: int, seconds: float, *, traced: bool) -> int:
    """Run the schedules, for *seconds* at most; print what happened. Returns the exit code."""
    end_s = time.monotonic() + seconds
    fired: Counter[str] = Counter()
    numbers = done = 0
    failed: list[int] = []
    for seed in range(first, first + schedules):
        if time.monotonic() > end_s:
            break
        sim = SegmentSimulation(seed, traced=traced)
        try:
            sim.run()
        except Violation as violation:
            failed.append(seed)
            print(f"seed {seed}: {violation}\n  scripts/segments_soak.py --first {seed} --schedules 1 --trace")
        for line in sim.world.trace or ():
            print(line)
        fired += sim.fired
        numbers += sim.checker.count
        done += 1
        if done % 1000 == 0:
            print(f"{done:,} schedules, {numbers:,} numbers", flush=True)
    faults = ", ".join(f"{name} {count:,}" for name, count in sorted(fired.items()))
    print(f"{done:,} schedules, {numbers:,} numbers, {sum(fired.values()):,} faults: {faults}")
    print(f"{len(failed)} schedules failed: {failed}" if failed else "no number was repeated")
    return 1 if failed else 0


def main() -> int:
    """Parse the arguments and run."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one (default: 0)")
    parser.add_argument("--seconds", type=float, default=7200, help="stop after this time (default: 7200)")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    options = parser.parse_args()
    # alarms are part of what happens
    logging.disable(logging.CRITICAL)
    return run(options.first, options.schedules, options.seconds, traced=options.trace)


if __name__ == "__main__":
    sys.exit(main())
