#!/usr/bin/env python3
"""Compare the kinds of ids: what each costs, what it looks like, and what an index makes of it; makes a page of it.

Loads a table for each kind into private servers of PostgreSQL and MariaDB, and into SQLite, with a private Redis
beside. The result is docs/explanation/which-id.md with --write, and JSON with --json. A table that takes longer than
--minutes has fewer rows, which the page says.

examples:
  scripts/which_id.py --rows 100000                    a look, 2 minutes
  nice -n 10 scripts/which_id.py --rows 5000000 --write    the page
  scripts/which_id.py --rows 100000 --databases sqlite --kinds snowflake uuid4
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts._which_id import loads, page
from scripts._which_id.costs import cost_of
from scripts._which_id.kinds import SAME_COLUMNS, SETTINGS, opened
from snowredis import embedded
from tests.support.databases import MissingDatabase

DATABASES = ("postgresql", "mariadb", "sqlite")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the page. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each table (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=15.0, help="limit for one table (default: %(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--databases", nargs="*", choices=DATABASES, default=list(DATABASES))
    parser.add_argument("--write", action="store_true", help="write docs/explanation/which-id.md")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--busy", action="store_true", help="say on the page that other programs ran meanwhile")
    args = parser.parse_args(argv)
    results: dict[str, Any] = {
        "when": f"{datetime.now(UTC):%Y-%m-%d}",
        "rows": args.rows,
        "batch": loads.BATCH,
        "cache_mb": loads.CACHE_MB,
        "busy": args.busy,
        "kinds": {},
        "databases": {},
    }
    with tempfile.TemporaryDirectory(prefix="which") as directory:
        server = embedded.start(directory)
        try:
            url = f"embedded://{directory}"
            for kind in args.kinds:
                results["kinds"][kind] = _costs(kind, url)
            for name in args.databases:
                _load_all(name, args, url, results)
        finally:
            embedded.stop(server.directory)
    results["machine"] = _machine(results["databases"])
    text = page.page(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    if args.write:
        page.PAGE.write_text(text)
    print(text)
    return 0


def _costs(kind: str, url: str) -> dict[str, Any]:
    with opened(kind, url) as one:
        cost, described = cost_of(one.ids.next_id), one.description
        example = str(one.ids.next_id())
    _say(f"{kind}: {cost.hot_ns:,.0f} ns hot, {cost.cold_ns:,.0f} after a pause; {example}")
    is_text = described.type is str
    return {
        "hot_ns": cost.hot_ns,
        "cold_ns": cost.cold_ns,
        "example": example,
        "bytes": described.text_length if is_text else 8 if described.is_number else (described.bits or 0) // 8,
        "text_length": described.text_length,
        "sortable": described.sortable,
        "guessable": described.guessable,
        "leaks": list(described.leaks),
        "needs": list(described.needs),
    }


def _load_all(name: str, args: argparse.Namespace, url: str, results: dict[str, Any]) -> None:
    try:
        with loads.opened_database(name) as database:
            kinds: dict[str, Any] = {}
            for kind in args.kinds:
                if kind in SAME_COLUMNS:
                    continue
                with opened(kind, url) as one:
                    load = database.load(one, args.rows, args.minutes * 60)
                kinds[kind] = load._asdict()
                _say(f"{database.name}, {kind}: {load.rows:,} rows in {load.took_s:.1f} s")
            version = database.engine.dialect.server_version_info or ()
            results["databases"][database.name] = {
                "page": database.page,
                "version": ".".join(map(str, version[:2])),
                "kinds": kinds,
            }
    except MissingDatabase as error:
        _say(f"{name} is left out: {error}")


def _machine(databases: dict[str, Any]) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "databases": ", ".join(f"{name} {one['version']}" for name, one in databases.items()) or "no database",
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
