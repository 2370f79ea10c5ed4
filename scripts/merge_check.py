#!/usr/bin/env python3
"""Check 100 million ids in four files for repeated ones, beside DuckDB's own count(DISTINCT) of the same files.

    scripts/merge_check.py                          100 M ids, 10,000 of them planted twice, 1 GiB; some 3 minutes
    scripts/merge_check.py --ids 1000000 --planted 100
    scripts/merge_check.py --formats parquet        four files of one format
    scripts/merge_check.py --shuffled               ids in no order, as of a table without an index on them

Makes its files in a temporary directory, 2.5 GB at the default, and removes them. Each measurement is a process of its
own, whose peak of resident memory is that of the operating system. Exit code 1 if an id that was planted is not found,
one is found that was not, or a process took more memory than --memory.

Needs the extra merge: pip install -e '.[merge]'.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis.core.presets import layouts

ROOT = Path(__file__).resolve().parents[1]
FORMATS = ("parquet", "csv", "csv.gz", "txt.gz")
LAYOUT = layouts["default"]
WORKERS = 64
MIB = 1 << 20
# bytes on disk for an id in all files and in the check's own database, generously
DISK_PER_ID = 60


@dataclass(frozen=True)
class Files:
    """The files of a run, and the ids that were planted: each is in two of them, or twice in one."""

    sources: list[str]
    scans: list[str]
    planted: set[int]


@dataclass(frozen=True)
class Measured:
    """Resources that one process took."""

    seconds: float
    peak_mib: float
    out: str
    code: int


def make(directory: Path, ids: int, planted: int, formats: list[str], seed: int, shuffled: bool) -> Files:
    """Write the files. The ids of each grow with time, as those of a table do, unless *shuffled*."""
    rng = np.random.default_rng(seed)
    parts: list[Any] = []
    for shard in range(len(formats)):
        count = ids // len(formats)
        # bits of the tick that all shards share; each has worker ids of its own, so that nothing is repeated by chance
        ticks = np.sort(rng.integers(20_000_000_000, 50_000_000_000, count))
        workers = rng.integers(0, WORKERS, count) + shard * WORKERS
        sequences = rng.integers(0, LAYOUT.sequences, count)
        made = (ticks << LAYOUT.timestamp_shift) | (workers << LAYOUT.worker_shift) | sequences
        made.sort()
        parts.append(made[np.append(made[1:] != made[:-1], True)])
    # id -> the other file that it is put into, or the same one
    chosen: dict[int, int] = {}
    while len(chosen) < planted:
        at = len(chosen)
        origin = at % len(parts)
        target = (origin + 1 + at // len(parts) % len(parts)) % len(parts)
        chosen.setdefault(int(parts[origin][rng.integers(len(parts[origin]))]), target)
    for target, part in enumerate(parts):
        added = np.array([an_id for an_id, to in chosen.items() if to == target], dtype=np.int64)
        parts[target] = (
            rng.permutation(np.concatenate([part, added])) if shuffled else np.sort(np.concatenate([part, added]))
        )
    sources, scans = [], []
    connection = duckdb.connect(config={"preserve_insertion_order": not shuffled})
    for shard, (part, ending) in enumerate(zip(parts, formats, strict=True)):
        path = directory / f"shard{shard}.{ending}"
        connection.register("part", {"id": part})
        columns = "id, 'player ' || (id % 100000) AS name" if ending.startswith("csv") else "id"
        connection.execute(f"COPY (SELECT {columns} FROM part) TO '{path}' ({options_of(ending)})")  # noqa: S608
        connection.unregister("part")
        sources.append(str(path) if ending.startswith("txt") else f"{path}#id")
        if ending == "parquet":
            scans.append(f"SELECT id FROM read_parquet('{path}')")  # noqa: S608
        elif ending.startswith("csv"):
            scans.append(f"SELECT id FROM read_csv('{path}', header = true)")  # noqa: S608
        else:
            scans.append(f"SELECT column0 AS id FROM read_csv('{path}', header = false)")  # noqa: S608
    connection.close()
    return Files(sources, scans, set(chosen))


def options_of(ending: str) -> str:
    compression = {"gz": "gzip"}.get(ending.rpartition(".")[2])
    if ending == "parquet":
        return "FORMAT parquet"
    header = "false" if ending.startswith("txt") else "true"
    return f"FORMAT csv, HEADER {header}" + (f", COMPRESSION {compression}" if compression else "")


def measured(command: list[str], directory: Path, seconds: float) -> Measured:
    """Run *command* in a process of its own."""
    with (directory / "out").open("w+") as out, (directory / "err").open("w+") as err:
        started_s = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT)
        try:
            status, usage = wait(process, started_s + seconds)
        except BaseException:
            process.kill()
            process.wait()
            raise
        took_s = time.monotonic() - started_s
        out.seek(0)
        err.seek(0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 10):
            sys.exit(f"{' '.join(command[:6])} … ended with {code}:\n{err.read()}")
        # Linux counts in KiB, macOS in bytes
        unit = 1 if sys.platform == "darwin" else 1024
        return Measured(took_s, usage.ru_maxrss * unit / MIB, out.read(), code)


def wait(process: subprocess.Popen[bytes], until_s: float) -> tuple[int, resource.struct_rusage]:
    """Wait for *process*, and return its status and what it used."""
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return status, usage
        if time.monotonic() > until_s:
            sys.exit("the time is over: see --seconds")
        time.sleep(0.02)


def count_distinct(scans: list[str], memory: int | None, spill: Path) -> None:
    """Print how many different ids DuckDB counts; run in a process of its own."""
    settings: dict[str, Any] = {"temp_directory": str(spill), "preserve_insertion_order": False}
    if memory:
        settings["memory_limit"] = f"{memory}MiB"
    union = " UNION ALL ".join(scans)
    connection = duckdb.connect(config=settings)
    print(connection.execute(f"SELECT count(DISTINCT id), count(*) FROM ({union})").fetchall()[0])  # noqa: S608


def verdict(files: Files, report: dict[str, Any], duplicates: Path) -> list[str]:
    """Return what is wrong with what the check found."""
    with duplicates.open(newline="") as file:
        found = {int(row["id"]) for row in csv.DictReader(file)}
    wrong = []
    if missed := files.planted - found:
        wrong.append(f"{len(missed):,} planted ids were not found, such as {min(missed)}")
    if invented := found - files.planted:
        wrong.append(f"{len(invented):,} ids were found that were not planted, such as {min(invented)}")
    if report["repeated_ids"] != len(found):
        wrong.append(f"the report says {report['repeated_ids']:,} ids, the file has {len(found):,}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=100_000_000)
    parser.add_argument("--planted", type=int, default=10_000)
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), metavar="FORMAT")
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--seconds", type=float, default=900.0, help="the most that one process may take")
    parser.add_argument("--count", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--spill", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.count:
        count_distinct(args.count, args.memory, args.spill)
        return 0
    needed = args.ids * DISK_PER_ID
    if shutil.disk_usage(tempfile.gettempdir()).free < needed + (1 << 30):
        sys.exit(f"{needed >> 20} MiB of disk are needed in {tempfile.gettempdir()}, and 1 GiB more.")
    formats = (args.formats * 4)[:4]
    with tempfile.TemporaryDirectory(prefix="snowredis-merge-check-") as name:
        directory = Path(name)
        print(f"seed {args.seed}: make {args.ids:,} ids in four files ({', '.join(formats)}) …", flush=True)
        # in a process of its own: on Linux, the peak of a process counts what its parent had when it started it
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            files = pool.submit(make, directory, args.ids, args.planted, formats, args.seed, args.shuffled).result()
        duplicates = directory / "duplicates.csv"
        check = measured(
            [sys.executable, "-m", "snowredis", "merge", "check", *files.sources, "--json", "--quiet"]
            + ["--memory", f"{args.memory}M", "--duplicates", str(duplicates)],
            directory,
            args.seconds,
        )
        report = json.loads(check.out)
        rows = report["ids"]
        show("snowredis merge check", rows, check)
        print(f"    of which reading {report['read_s']:.1f} s, comparing {report['compare_s']:.1f} s")
        count = [sys.executable, __file__, "--spill", str(directory / "spill"), "--count", *files.scans]
        # the limit of memory that the check gives DuckDB keeps the process near the same peak
        limits = [
            ("count(DISTINCT) in the same memory", args.memory * 6 // 10),
            ("count(DISTINCT) without a limit", 0),
        ]
        for what, limit in limits:
            show(what, rows, measured([*count, "--memory", str(limit)], directory, args.seconds))
        wrong = verdict(files, report, duplicates)
        print(f"{len(files.planted):,} planted ids: {'; '.join(wrong) or 'all found, no other'}")
        if check.peak_mib > args.memory:
            wrong.append(f"the check took {check.peak_mib:,.0f} MiB")
            print(wrong[-1])
    return 1 if wrong else 0


def show(what: str, rows: int, result: Measured) -> None:
    print(
        f"{what:<36} {result.seconds:6.1f} s  {rows / result.seconds / 1e6:5.2f} M ids/s  peak "
        f"{result.peak_mib:,.0f} MiB",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
