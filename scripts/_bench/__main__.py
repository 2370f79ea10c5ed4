"""Measure what snowredis costs, against reading the clock, against other id libraries, and in Redis.

Everything is measured in turns within one run, many short rounds of each: trust the ratios, not the
nanoseconds. Redis is a private redis-server. The parts:

  first    one id after a pause: hot, the first of a ms, after 1.2 and 100 ms of sleep             4 min
  ids      an id, singly and in batches, 1 and 4 threads, in C and in Python                       2 min
  workers  claims, heartbeats and memory at 10, 1,000 and 100,000 living workers                   2 min
  start    import time, a program's first id, and a generator's memory                             1 min

examples:
  scripts/bench                              all of it
  scripts/bench --quick ids start            two parts, coarsely, in seconds
  scripts/bench --write                      and put tables into docs/reference/figures.md; with
                                             some of the parts, what the page has of the others stays
  scripts/bench first                        what an id costs a program that makes one now and then
  scripts/bench --save FILE; scripts/bench --load FILE --write
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts._bench.tables import PARTS

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    about, _, examples = (__doc__ or "").partition("examples:")
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=about,
        epilog=f"examples:{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a few coarse rounds, small pools")
    parser.add_argument("--write", action="store_true", help="write docs/reference/figures.md")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the figures, as JSON")
    parser.add_argument("--load", type=Path, metavar="FILE", help="take what this has, measure the PARTs named")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no part; these are: {', '.join(PARTS)}")
    results: dict[str, Any] = json.loads(options.load.read_text("utf-8")) if options.load else {}
    parts = options.parts or ([] if options.load else list(PARTS))
    if parts or "about" not in results:
        results["about"] = _about()

    from scripts._bench import page

    for part in parts:
        print(f"== {part}", file=sys.stderr)
        results[part] = _measure(part, quick=options.quick)
        if options.save:
            options.save.write_text(json.dumps(results, indent=1), "utf-8")
    for name, (part, make, _) in page.TABLES.items():
        table = make(results) if part in (parts or results) else ""
        if table:
            print(f"\n{name}\n{table}")
    print(f"\n{results['about']}")
    if options.write:
        for path in page.write(results):
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


def _measure(part: str, *, quick: bool) -> dict[str, Any]:
    from snowredis.errors import SnowredisError

    try:
        module: Any = importlib.import_module(f"scripts._bench.{part}")
        measured: dict[str, Any] = module.measure(quick=quick)
        return measured
    except SnowredisError as error:
        raise SystemExit(str(error)) from error


def _about() -> str:
    """Machine, versions and date, in a few sentences."""
    import redis

    from scripts._bench.measuring import this_machine
    from snowredis.embedded import find_server

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    server = " ".join(find_server())
    return (
        f"Measured on {dt.datetime.now(dt.UTC):%Y-%m-%d}: {model}; {this_machine()} {platform.release()}; "
        f"{server}; redis-py {redis.__version__}. Load average at the beginning: {os.getloadavg()[0]:.1f}."
    )


if __name__ == "__main__":
    sys.exit(main())
