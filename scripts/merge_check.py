#!/usr/bin/env python3
"""Check 100 million ids in four files for repeated ones, and measure the time and the memory that it takes.

    scripts/merge_check.py                          100 M ids, 10,000 of them planted twice, 1 GiB; some 2 minutes
    scripts/merge_check.py --ids 1000000 --planted 100

Makes its files in a temporary directory, 2.5 GB at the default, and removes them. The peak of resident memory is that
of the operating system. Exit code 1 if an id that was planted is not found, one is found that was not, or the process
took more memory than --memory.

Needs the extra merge: pip install -e '.[merge]'.
"""

from __future__ import annotations

import argparse
import csv
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
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis.core.presets import layouts

ROOT = Path(__file__).resolve().parents[1]
# ending of a file -> how DuckDB writes it
FORMATS = {
    "parquet": "FORMAT parquet",
    "csv": "FORMAT csv",
    "csv.gz": "FORMAT csv, COMPRESSION gzip",
    "txt.gz": "FORMAT csv, HEADER false, COMPRESSION gzip",
}
LAYOUT = layouts["default"]
WORKERS = 64
MIB = 1 << 20


def make(directory: Path, ids: int, planted: int, seed: int) -> tuple[list[str], set[int]]:
    """Write the files, whose ids grow with time; return them, and the ids that are in two files, or twice in one."""
    rng = np.random.default_rng(seed)
    parts: list[Any] = []
    for shard in range(len(FORMATS)):
        count = ids // len(FORMATS)
        # bits of the tick that all shards share; each has worker ids of its own, so that nothing is repeated by chance
        ticks = rng.integers(20_000_000_000, 50_000_000_000, count)
        workers = rng.integers(0, WORKERS, count) + shard * WORKERS
        sequences = rng.integers(0, LAYOUT.sequences, count)
        parts.append(
            np.unique((ticks << LAYOUT.timestamp_shift) | (workers << LAYOUT.worker_shift) | sequences),
        )
    # id -> the other file that it is put into, or the same one
    chosen: dict[int, int] = {}
    while len(chosen) < planted:
        at = len(chosen)
        origin = at % len(parts)
        target = (origin + 1 + at // len(parts) % len(parts)) % len(parts)
        chosen.setdefault(int(parts[origin][rng.integers(len(parts[origin]))]), target)
    sources = []
    with duckdb.connect() as connection:
        for shard, (ending, options) in enumerate(FORMATS.items()):
            added = np.array([an_id for an_id, to in chosen.items() if to == shard], dtype=np.int64)
            path = directory / f"shard{shard}.{ending}"
            connection.register("part", {"id": np.sort(np.concatenate([parts[shard], added]))})
            columns = "id, 'player ' || (id % 100000) AS name" if ending.startswith("csv") else "id"
            connection.execute(f"COPY (SELECT {columns} FROM part) TO '{path}' ({options})")  # noqa: S608
            connection.unregister("part")
            sources.append(str(path) if ending.startswith("txt") else f"{path}#id")
    return sources, set(chosen)


def check(sources: list[str], duplicates: Path, memory: int, seconds: float) -> tuple[dict[str, Any], float, float]:
    """Run `snowredis merge check`; return its report, the seconds that it took, and its peak of memory in MiB."""
    command = [sys.executable, "-m", "snowredis", "merge", "check", *sources, "--json"]
    command += ["--memory", f"{memory}M", "--duplicates", str(duplicates)]
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
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=900.0, help="the most that the check may take")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="snowredis-merge-check-") as name:
        directory = Path(name)
        print(f"seed {args.seed}: make {args.ids:,} ids in {len(FORMATS)} files …", flush=True)
        # in a process of its own: on Linux, the peak of a process counts what its parent had when it started it
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            sources, planted = pool.submit(make, directory, args.ids, args.planted, args.seed).result()
        duplicates = directory / "duplicates.csv"
        report, took_s, peak_mib = check(sources, duplicates, args.memory, args.seconds)
        rate = report["ids"] / took_s / 1e6
        print(f"{took_s:.1f} s, {rate:.2f} M ids/s, peak {peak_mib:,.0f} MiB")
        print(f"    of which reading {report['read_s']:.1f} s, comparing {report['compare_s']:.1f} s")
        with duplicates.open(newline="") as file:
            found = {int(row["id"]) for row in csv.DictReader(file)}
    missed, invented = planted - found, found - planted
    print(f"{len(planted):,} planted ids: {len(missed):,} not found; {len(invented):,} found that were not planted")
    if report["repeated_ids"] != len(found):
        print(f"the report says {report['repeated_ids']:,} ids, the file has {len(found):,}")
        return 1
    return 1 if missed or invented or peak_mib > args.memory else 0


if __name__ == "__main__":
    sys.exit(main())
