"""Search all configurations of the model and print what was found. Run by scripts/model, which installs Spin.

Exit code 1 if a tick can be stamped twice where that must not be, or if a rule that is switched off, or a
documented limit, shows no counterexample, or if a search was not completed; 2 if a program is missing; 3 if no
configuration has the name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.model.checker import Result, check, missing_programs
from tests.model.configurations import HOLDS, LIMITS, NEEDED, Configuration

HEADER = f"{'configuration':<54}{'states':>12}{'transitions':>13}{'depth':>7}{'MB':>7}{'s':>7}  result"


def row(name: str, result: Result) -> str:
    outcome = result.problem or ("a tick stamped twice" if result.trail else "no tick stamped twice")
    return (
        f"{name:<54}{result.states:>12,}{result.transitions:>13,}{result.depth:>7,}"
        f"{result.memory_mb:>7.0f}{result.seconds:>7.1f}  {outcome}"
    )


def bounds(configuration: Configuration) -> str:
    return " ".join(f"{name}={value}" for name, value in configuration.constants.items())


def search(title: str, table: Sequence[Configuration], options: argparse.Namespace, *, repeats: bool) -> bool:
    """Search each configuration of *table*; return whether all came out as they must."""
    print(f"\n{title}\n{HEADER}")
    as_expected = True
    for configuration in table:
        if options.only not in configuration.name or (options.quick and not configuration.quick):
            continue
        with tempfile.TemporaryDirectory() as directory:
            # breadth first where a counterexample is expected, so that it is a short one
            result = check(
                configuration.constants,
                Path(directory) / "search",
                shortest=repeats,
                limit_s=options.seconds,
                limit_mb=options.megabytes,
            )
        print(row(configuration.name, result))
        print(f"    {bounds(configuration)}")
        for at, step in result.trail:
            print(f"    time {at}: {step}")
        sys.stdout.flush()
        as_expected = as_expected and bool(result.trail) == repeats and (repeats or result.complete)
    return as_expected


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/model", description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="only what is searched in a few seconds")
    parser.add_argument("--only", default="", metavar="TEXT", help="only configurations with this in their name")
    parser.add_argument("--seconds", type=float, default=600, metavar="S", help="limit for each search (default 600)")
    parser.add_argument(
        "--megabytes", type=int, default=4000, metavar="MB", help="limit for each search (default 4000)"
    )
    options = parser.parse_args()
    if missing := missing_programs():
        print(f"not on PATH: {', '.join(missing)}. On Debian: apt-get install spin gcc", file=sys.stderr)
        return 2
    if not any(options.only in configuration.name for configuration in (*HOLDS, *NEEDED, *LIMITS)):
        print(f"no configuration of the model has {options.only!r} in its name")
        return 3
    found = [
        search("With all rules", HOLDS, options, repeats=False),
        search("With one rule switched off", NEEDED, options, repeats=True),
        search("What no rule covers", LIMITS, options, repeats=True),
    ]
    print("\nas expected" if all(found) else "\nNOT AS EXPECTED")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
