#!/usr/bin/env python3
"""Let a fleet of processes make ids through a real Redis, and check every single one.

    scripts/fleet.py                                  8 processes x 2 threads, 50 million ids
    scripts/fleet.py --ids 1000000 --processes 4

Each thread writes its ids to a file before they count, as runs of consecutive ids. Checked, exactly: no id is
repeated, the ids of one thread only grow, and the first and last id of each batch decode to the worker id that made
it. Needs redis-py, and a redis-server or fakeredis.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
import time
from array import array
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import snowredis
from snowredis import embedded
from snowredis.core.presets import resolve_layout
from tests.chaos.runs import runs_of
from tests.support.duplicates import Duplicates, Runs, find_duplicates, int64s

POOL = "fleet"
# ids a batch; a tenth of them is made with next_id(), one by one
BATCH = 2_000
SINGLES = BATCH // 10
# runs that are kept in memory before they are written
FLUSH_RUNS = 4_096


def make_ids(ids: snowredis.SnowflakeGenerator, count: int, path: Path) -> None:
    """Make *count* ids and write them to *path* as pairs (first id, how many follow one another)."""
    runs: array[int] = array("q")
    worker = ids.claim().worker
    last = -1
    with path.open("wb", buffering=0) as file:
        while count > 0:
            batch = ids.next_ids(min(count, BATCH - SINGLES))
            batch += [ids.next_id() for _ in range(min(SINGLES, count - len(batch)))]
            count -= len(batch)
            if batch[0] <= last:
                raise SystemExit(f"{path}: {batch[0]} came after {last}")
            last = batch[-1]
            if ids.decode(batch[0]).worker != worker or ids.decode(last).worker != worker:
                raise SystemExit(f"{path}: {batch[0]} or {last} does not decode to worker {worker}")
            for run in runs_of(batch):
                runs.extend(run)
            if len(runs) >= 2 * FLUSH_RUNS or count <= 0:
                file.write(runs.tobytes())
                del runs[:]


def work(url: str, layout: str, directory: str, number: int, threads: int, count: int) -> None:
    """Run one process of the fleet."""
    with snowredis.connect(url, pool=POOL, layout=layout, label=f"fleet-{number}") as ids:
        makers = [
            threading.Thread(target=make_ids, args=(ids, count // threads, Path(directory, f"{number}-{thread}.ids")))
            for thread in range(threads)
        ]
        for thread in makers:
            thread.start()
        for thread in makers:
            thread.join()


def check(directory: Path) -> Duplicates:
    """Compare all ids of all files."""
    files = ((path.stem, int64s(path.read_bytes(), 2)) for path in sorted(directory.glob("*.ids")))
    return find_duplicates(Runs(f"thread {name}", pairs[::2], pairs[1::2]) for name, pairs in files)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=50_000_000, help="total number of ids")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layout", default="default", help="a preset or a layout such as 41/0/2/10/10")
    options = parser.parse_args()
    try:
        layout = resolve_layout(options.layout)
    except (snowredis.ConfigError, snowredis.LayoutError) as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="snowredis-") as name:
        directory = Path(name)
        server = embedded.start(directory / "redis")
        print(f"{server.kind}; {options.processes} processes x {options.threads} threads")
        snowredis.connect(f"embedded://{directory / 'redis'}", pool=POOL, layout=layout).close()
        context = multiprocessing.get_context("spawn")
        share = options.ids // options.processes
        arguments = (server.url, options.layout, str(directory))
        fleet = [
            context.Process(target=work, args=(*arguments, number, options.threads, share))
            for number in range(options.processes)
        ]
        began = time.monotonic()
        for process in fleet:
            process.start()
        for process in fleet:
            process.join()
        took_s = time.monotonic() - began
        try:
            failed = [process.exitcode for process in fleet if process.exitcode]
            found = check(directory)
        finally:
            embedded.stop(directory / "redis")
    print(f"{found.ids:,} ids in {took_s:.1f} s: {found.ids / took_s:,.0f} a second, {found.repeated:,} repeated")
    for repetition in found.examples:
        print(repetition)
    return 1 if found.repeated or failed or not found.ids else 0


if __name__ == "__main__":
    sys.exit(main())
