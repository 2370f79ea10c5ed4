#!/usr/bin/env python3
"""Check 100 million ids in four files for repeated ones, and measure the time and the memory that it takes.

    scripts/merge_check.py                          100 M ids, 10,000 of them planted twice, 1 GiB; some 2 minutes
    scripts/merge_check.py --ids 1000000 --planted 100

Makes its files in a temporary directory, 2.5 GB at the default, and removes them. The peak of resident memory is that
of the operating system. Exit code 1 if another number of ids is found than was planted, or if the process took more
memory than --memory.

Needs the extra merge: pip install -e '.[merge]'.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb

ROOT = Path(__file__).resolve().parents[1]
# ending of a file -> how DuckDB writes it, and what beside the ids
FORMATS = {
    "parquet": ("FORMAT parquet", ""),
    "csv": ("FORMAT csv", ", 'player ' || (i % 100000) AS name"),
    "csv.gz": ("FORMAT csv, COMPRESSION gzip", ", 'player ' || (i % 100000) AS name"),
    "txt.gz": ("FORMAT csv, HEADER false, COMPRESSION gzip", ""),
}
MIB = 1 << 20


def make(directory: Path, ids: int, planted: int) -> tuple[list[str], int]:
    """Write the files, whose ids grow with time; return them, and how many ids are in two of them."""
    count, every, sources = ids // len(FORMATS), ids // planted, []
    for shard, (ending, (options, others)) in enumerate(FORMATS.items()):
        path = directory / f"shard{shard}.{ending}"
        # three ids a tick, in a year; each file has worker ids of its own, and now and then an id of the next file
        of = f"SELECT i, i % {every} = 1 AS planted, i - planted::INT AS n FROM range({count}) numbers(i)"  # noqa: S608
        worker = f"IF(planted, {(shard + 1) % len(FORMATS)}, {shard}) * 64 + n % 64"
        an_id = f"((20000000000 + n // 3 * {90_000_000_000 // count}) << 22) + (({worker}) << 10) + n % 1000"
        rows = f"SELECT {an_id} AS id{others} FROM ({of})"  # noqa: S608
        duckdb.execute(f"COPY ({rows}) TO '{path}' ({options})")
        sources.append(str(path) if ending.startswith("txt") else f"{path}#id")
    return sources, len(FORMATS) * len(range(1, count, every))


def check(sources: list[str], seconds: float) -> tuple[dict[str, Any], float, float]:
    """Run `snowredis merge check`; return its report, the seconds that it took, and its peak of memory in MiB."""
    command = [sys.executable, "-m", "snowredis", "merge", "check", *sources, "--json"]
    started_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        limit = threading.Timer(seconds, process.kill)
        limit.start()
        assert process.stdout is not None
        report = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        limit.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 10):
        sys.exit(f"the check ended with {process.returncode}")
    # Linux counts in KiB, macOS in bytes
    peak_mib = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / MIB
    return json.loads(report), time.monotonic() - started_s, peak_mib


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=100_000_000)
    parser.add_argument("--planted", type=int, default=10_000)
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB")
    parser.add_argument("--seconds", type=float, default=900.0, help="the most that the check may take")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="snowredis-merge-check-") as directory:
        print(f"make {args.ids:,} ids in {len(FORMATS)} files …", flush=True)
        # in a process of its own: on Linux, the peak of a process counts what its parent had when it started it
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            sources, planted = pool.submit(make, Path(directory), args.ids, args.planted).result()
        report, took_s, peak_mib = check(sources, args.seconds)
    print(f"{took_s:.1f} s, {report['ids'] / took_s / 1e6:.2f} M ids/s, peak {peak_mib:,.0f} MiB")
    print(f"{planted:,} planted ids: {report['repeated_ids']:,} found")
    return int(report["repeated_ids"] != planted or peak_mib > args.memory)


if __name__ == "__main__":
    sys.exit(main())
