#!/usr/bin/env python3
"""Let a fleet of processes make ids through a real Redis, and check every single one.

    scripts/fleet.py                                  8 processes x 2 threads, 50 million ids
    scripts/fleet.py --ids 1000000 --processes 4

Each thread writes what it made to a file before it counts as made, as runs of consecutive ids; a
thread's ids only grow, so its runs are in order and all files are merged without being held in
memory. Checked, exactly: no id is repeated, ids of one thread only grow, and each id decodes to the
worker id that made it. Run it from an environment where snowredis is installed.
"""

from __future__ import annotations

import argparse
import heapq
import multiprocessing
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import snowredis
from snowredis import embedded
from snowredis.core.presets import resolve_layout

POOL = "fleet"
# ids asked for at once; every tenth of a batch is made one by one, with next_id()
BATCH = 2_000
SINGLES = BATCH // 10
# runs kept before they are written
FLUSH_RUNS = 4_096


def make_ids(ids: snowredis.Generator, count: int, path: Path) -> None:
    """Make *count* ids and write them to *path* as pairs (first id, how many follow one another)."""
    runs = array("q")
    worker = ids.claim().worker
    last = -1
    with path.open("wb", buffering=0) as file:
        while count > 0:
            batch = ids.next_ids(min(count, BATCH - SINGLES))
            batch += [ids.next_id() for _ in range(min(SINGLES, count - len(batch)))]
            count -= len(batch)
            if batch[0] <= last:
                raise SystemExit(f"{path}: {batch[0]} came after {last}")
            if ids.decode(batch[0]).worker != worker or ids.decode(batch[-1]).worker != worker:
                raise SystemExit(f"{path}: {batch[0]} does not decode to worker {worker}")
            first = last = batch[0]
            for an_id in batch[1:]:
                if an_id != last + 1:
                    if an_id <= last:
                        raise SystemExit(f"{path}: {an_id} came after {last}")
                    runs.extend((first, last - first + 1))
                    first = an_id
                last = an_id
            runs.extend((first, last - first + 1))
            if len(runs) >= 2 * FLUSH_RUNS or count <= 0:
                file.write(runs.tobytes())
                del runs[:]


def work(url: str, layout: str, directory: str, number: int, threads: int, count: int) -> None:
    """One process of the fleet."""
    with snowredis.connect(url, pool=POOL, layout=layout, label=f"fleet-{number}") as ids:
        crew = [
            threading.Thread(
                target=make_ids, args=(ids, count // threads, Path(directory, f"{number}-{thread}.ids"))
            )
            for thread in range(threads)
        ]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()


def runs_of(path: Path) -> Iterator[tuple[int, int, str]]:
    """The runs in a file: (first id, first id after the run, file)."""
    with path.open("rb") as file:
        while block := file.read(1 << 16):
            pairs = array("q", block)
            for first, length in zip(pairs[::2], pairs[1::2], strict=True):
                yield first, first + length, path.name


def check(directory: Path) -> tuple[int, int]:
    """Answer how many ids there are and how many of them are repeated."""
    made = repeated = end = 0
    for first, after, _ in heapq.merge(*(runs_of(path) for path in directory.glob("*.ids"))):
        made += after - first
        repeated += max(0, min(end, after) - first)
        end = max(end, after)
    return made, repeated


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ids", type=int, default=50_000_000, help="how many in all")
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
            made, repeated = check(directory)
        finally:
            embedded.stop(directory / "redis")
    print(f"{made:,} ids in {took_s:.1f} s: {made / took_s:,.0f} a second, {repeated} repeated")
    return 1 if repeated or failed or made == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
