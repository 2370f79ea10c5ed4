#!/usr/bin/env python3
"""Put each of a table of faults into the code, play schedules that provoke it, and ask the judges: who sees it?

    scripts/judges.py                                   # for each fault one that provokes it; some minutes
    scripts/judges.py --schedules 10                    # the nine that follow it, too
    scripts/judges.py --schedules 30 --seed 500         # others
    scripts/judges.py --only mark,take-over             # faults with one of these in their name

The judges are the checker of the simulation, and TLC on the log of the same schedule, for which Java and TLC are needed
(scripts/model installs them). The seed is that of the first schedule that all judges refuse. Needs the group dev. Exit
code 1 if a judge does not see what it has to see, or refuses a schedule without a fault.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.lab.simulation.code_faults import CODE_FAULTS, Played, accepted, play
from tests.lab.spec.tlc import missing

# without a fault in the code, the classes of all of them
NONE = "(none)"


def play_one(job: tuple[str, int, tuple[str, ...]]) -> Played:
    name, seed, classes = job
    return play("" if name == NONE else name, seed, classes)


def jobs_of(names: list[str], first: int | None, count: int) -> list[tuple[str, int, tuple[str, ...]]]:
    jobs = [(NONE, first or 0, classes) for classes in dict.fromkeys(CODE_FAULTS[name].classes for name in names)]
    for name in names:
        fault = CODE_FAULTS[name]
        jobs += ((name, (fault.seed if first is None else first) + number, fault.classes) for number in range(count))
    return jobs


def _both(one: Played, allowed: list[bool], place: int) -> bool:
    """Return whether all judges that were asked refuse this schedule."""
    return bool(one.result.failures) and not (allowed and allowed[place])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--schedules", type=int, default=1, metavar="N", help="for each fault (default 1)")
    parser.add_argument("--seed", type=int, metavar="S", help="the first one (default: one that provokes the fault)")
    parser.add_argument("--only", default="", metavar="TEXT,…", help="faults with one of these in their name")
    options = parser.parse_args()
    parts = options.only.split(",")
    names = [name for name in CODE_FAULTS if any(part in name for part in parts)]
    return bool(names) and bool(judge_schedules(names, options))


def judge_schedules(names: list[str], options: argparse.Namespace) -> int:
    """Return how many faults a judge did not see as expected, and how many schedules without one it refused."""
    jobs = jobs_of(names, options.seed, options.schedules)
    # spawned: no process inherits a Lua interpreter
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(multiprocessing.cpu_count(), mp_context=context) as pool:
        played = list(pool.map(play_one, jobs, chunksize=4))
    allowed: list[bool] = []
    if lacking := missing():
        print(f"missing: {', '.join(lacking)}, so TLC is not asked", file=sys.stderr)
    else:
        with tempfile.TemporaryDirectory() as directory:
            allowed = accepted([one.log for one in played], Path(directory))
    wrong = 0
    print(f"{'fault in the code':<44}{'schedules':>10}{'soak':>6}{'TLC':>6}{'seed':>8}  not expected")
    for name in (NONE, *names):
        places = [place for place, job in enumerate(jobs) if job[0] == name]
        seen = {"soak": sum(bool(played[place].result.failures) for place in places)}
        if allowed:
            seen["TLC"] = sum(not allowed[place] for place in places)
        blind = ("soak", "TLC") if name == NONE else (CODE_FAULTS[name].blind,)
        first = next((jobs[place][1] for place in places if _both(played[place], allowed, place)), "-")
        bad = [judge for judge, count in seen.items() if (count > 0) == (judge in blind)]
        wrong += bool(bad)
        tlc = seen.get("TLC", "-")
        print(f"{name:<44}{len(places):>10}{seen['soak']:>6}{tlc:>6}{first:>8}  {', '.join(bad)}".rstrip())
    return wrong


if __name__ == "__main__":
    sys.exit(main())
