"""Check the specification of the lease protocol with TLC, or whether it allows what a log of a real run shows.

Exit code 1 if a result is not as expected, or if a run was not allowed; 2 if Java or TLC is missing; 3 if no
configuration has the name.
"""

import argparse
import sys
from pathlib import Path

from tests.lab.spec.tlc import Run, missing, read_runs
from tests.lab.spec.validate import validate

HEADER = f"{'configuration':<58}{'states':>12}{'steps':>7}{'s':>7}  result"
TITLES = {
    "Ledger": "The lease",
    "Floor": "The floor, while clocks step, another pool is at the address, and a person creates pools",
    "End": "The end of a pool",
}


def is_as_expected(run: Run, limit_s: float) -> bool:
    """Check one run and print its result."""
    outcome = run.check(limit_s=limit_s, long=True)
    right = outcome.result == run.expected
    print(
        f"{run.name:<58}{outcome.states:>12,}{len(outcome.trail):>7}{outcome.seconds:>7.0f}  "
        f"{outcome.result}{'' if right else f'; EXPECTED: {run.expected}'}",
        flush=True,
    )
    if outcome.result == "error":
        print(outcome.output[-2000:])
    return right


def check_all(options: argparse.Namespace) -> int:
    runs = [run for run in read_runs() if options.only in run.name]
    if options.quick:
        runs = [run for run in runs if run.config in ("plain", "fork")]
    if not runs:
        print(f"no configuration of the specification has {options.only!r} in its name")
        return 3
    wrong = 0
    for module, title in TITLES.items():
        of_module = [run for run in runs if run.module == module]
        if of_module:
            print(f"\n{title}: {module}.tla, by TLC\n{HEADER}")
        wrong += sum(not is_as_expected(run, options.seconds) for run in of_module)
    print("\nas expected" if not wrong else "\nNOT AS EXPECTED")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/model", description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="only what takes a few seconds")
    parser.add_argument("--only", default="", metavar="TEXT", help="only configurations with this in their name")
    parser.add_argument("--seconds", type=float, default=900, metavar="S", help="limit for each search (default 900)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="validate the runs of a log of scripts/soak.py")
    options = parser.parse_args()
    if lacking := missing():
        print(f"missing: {', '.join(lacking)}. scripts/model installs them where it can", file=sys.stderr)
        return 2
    if options.trace is not None:
        return validate(options.trace)
    return check_all(options)


if __name__ == "__main__":
    sys.exit(main())
