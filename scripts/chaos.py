#!/usr/bin/env python3
"""Inject faults into a fleet of processes that make ids through a real Redis, and check every id.

    scripts/chaos.py                                              1,000 faults in 5 minutes, 8 processes
    scripts/chaos.py --ids 1_000_000_000 --seed 7                 the same for a billion ids at least
    scripts/chaos.py --faults 60 --seconds 15 --processes 4       a short one
    scripts/chaos.py --faults 0 --ids 50_000_000                  without faults
    scripts/chaos.py --also node                                  half of the processes are of the client in JavaScript
    scripts/chaos.py --also "./my-client --quiet"                 of any client: URL and POOL are added; it prints an id
                                                                  a line until SIGTERM, and waits while Redis is away
    scripts/chaos.py --plain-ttl --faults 120 --seconds 40 --ttl 1.5 --layout 41/0/2/3/16
                                                               leases that trust their ttl: what is caught then

Workers are killed, frozen beyond their ttl, forked in every way, cloned while suspended, have their clocks stepped;
Redis is killed, frozen, wiped, restored from old snapshots, has its clock stepped, and its address moves to replicas
and backups; the network is cut, stalled, delayed and loses replies. Every id is recorded before it counts. Checked,
exactly: no id is repeated; every process makes ids again once the faults are over; none ends by itself. If a check
fails, the exit code is 1 and the files are kept.

Needs a redis-server and the group dev (pip install -e . --group dev); a C compiler for the faults of clocks.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.lab.chaos.checker import Verdict, check
from tests.lab.chaos.driver import Fleet, Plan, Report


def show(plan: Plan, report: Report, verdict: Verdict, took_s: float) -> None:
    for name, count in report.fired.most_common():
        print(f"{count:>8,}  {name}")
    if report.skipped:
        print(f"       -  no faults of clocks: {report.skipped}")
    print(f"{report.fired.total():>8,}  faults of {len(report.fired)} kinds")
    print("processes:", ", ".join(f"{count:,} {kind}" for kind, count in report.children.most_common()))
    if report.hung:
        print("children that hung:", ", ".join(f"{count} {kind}" for kind, count in report.hung.items()))
    print(
        "errors while Redis or the clock was away:",
        ", ".join(f"{count:,} {name}" for name, count in report.errors.most_common()) or "none",
    )
    print(
        f"every process makes ids again at most {report.recovery_s:.1f} s after a truce "
        f"(limit {report.recovery_limit_s:.1f} s); the longest pause that no fault explains: {report.gap_s:.1f} s"
    )
    print(
        f"{verdict.ids:,} ids in {report.seconds:.0f} s: {verdict.ids / report.seconds:,.0f} a second, in "
        f"{verdict.runs:,} runs; checked in {took_s:.1f} s; seed {plan.seed}; {verdict.repeated:,} repeated"
    )
    for problem in (*verdict.problems, *report.problems):
        print(problem)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--ids", type=int, default=0, metavar="N", help="continue after the faults until there are this many"
    )
    parser.add_argument("--processes", type=int, default=8, metavar="P")
    parser.add_argument(
        "--also", default="", metavar="CLIENT", help='half of the processes are of this client: "node", or a command'
    )
    parser.add_argument("--faults", type=int, default=1000, metavar="N")
    parser.add_argument("--seconds", type=float, default=300, metavar="S", help="over which they are spread")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of the faults; default: random")
    parser.add_argument("--ttl", dest="ttl_s", type=float, default=3.0, metavar="S")
    reserve_s = Plan.outage_reserve_s
    parser.add_argument("--outage-reserve", dest="outage_reserve_s", type=float, default=reserve_s, metavar="S")
    parser.add_argument("--layout", default=Plan.layout)
    parser.add_argument(
        "--durability",
        choices=("detect", "none"),
        default=Plan.durability,
        help='"none": on a server without the command INFO, with losses that a pool shows by itself',
    )
    parser.add_argument(
        "--plain-ttl",
        action="store_true",
        help="workers trust their lease until a heartbeat, slow as over a network, is refused",
    )
    parser.add_argument("--directory", type=Path, help="for the files; default: a temporary one")
    options = parser.parse_args()
    plan = Plan(**{name: value for name, value in vars(options).items() if name != "directory"})
    # short, since the path of a socket may have 107 characters
    directory = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.directory))
    print(f"seed {plan.seed}; files in {directory}", flush=True)
    report = Fleet(plan, directory, lambda text: print(text, flush=True)).run()
    began_s = time.monotonic()
    verdict = check(directory, plan.layout)
    show(plan, report, verdict, time.monotonic() - began_s)
    if not verdict.good or report.problems:
        print(f"a check failed; the files are kept in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
