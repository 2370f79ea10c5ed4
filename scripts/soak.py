#!/usr/bin/env python3
"""Play schedules of faults against the scripts and the generator, in simulated time.

    scripts/soak.py --schedules 20000 --jobs 2        # seeds 0 to 19999
    scripts/soak.py --faults pause,wipe --seconds 60  # only these faults, for a minute
    scripts/soak.py --replay 4711                     # one schedule, with everything that happens in it
    scripts/soak.py --schedules 1000 --trace runs.log # log them, for scripts/model --trace runs.log

Needs the group dev: pip install -e . --group dev. Exit code 1 if an id was repeated or a process starved.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.lab.simulation.faults import FAULTS
from tests.lab.simulation.schedule import Result, run_schedule
from tests.lab.simulation.tracing import Tracer, attach_to_schedule

# schedules that a process plays before it reports
CHUNK = 20
MOST_FAILURES_SHOWN = 10


@dataclass
class Totals:
    """Counts by class of faults; the class "" counts everything."""

    schedules: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    ids: int = 0
    alarms: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)

    def count(self, result: Result) -> None:
        for name in ("", *result.classes):
            self.schedules[name] += 1
            self.fired[name] += result.fired[name] if name else sum(result.fired.values())
            self.duplicates[name] += result.duplicates
            self.excused[name] += result.excused
        self.ids += result.ids
        self.alarms += result.alarms
        if result.failures:
            self.failures.append((result.seed, f"{', '.join(result.classes)}: {result.failures[0]}"))

    def add(self, other: Totals) -> None:
        for name in ("schedules", "fired", "duplicates", "excused"):
            getattr(self, name).update(getattr(other, name))
        self.ids += other.ids
        self.alarms += other.alarms
        self.failures += other.failures


def play(seeds: list[int], classes: tuple[str, ...] | None, trace: Path | None) -> Totals:
    totals = Totals()
    for seed in seeds:
        try:
            result = play_traced(seed, classes, trace) if trace is not None else run_schedule(seed, classes)
            totals.count(result)
        except Exception as error:  # noqa: BLE001 - whatever it is, its seed is what is needed
            totals.schedules[""] += 1
            totals.failures.append((seed, repr(error)))
    return totals


def play_traced(seed: int, classes: tuple[str, ...] | None, trace: Path) -> Result:
    """Play a schedule and append its log to *trace*, as one piece."""
    log = io.StringIO()
    tracers: list[Tracer] = []
    result = run_schedule(seed, classes, prepare=lambda sim: tracers.append(attach_to_schedule(sim, log)))
    tracers[0].end()
    with trace.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(log.getvalue())
    return result


def chunks(first: int, count: int) -> Iterator[list[int]]:
    seeds = iter(range(first, first + count))
    while chunk := list(islice(seeds, CHUNK)):
        yield chunk


def soak(options: argparse.Namespace) -> Totals:
    totals = Totals()
    began_s = time.monotonic()
    waiting = chunks(options.seed, options.schedules)
    # spawned: no process inherits a Lua interpreter
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        running: list[Future[Totals]] = []

        def submit(count: int) -> None:
            for chunk in islice(waiting, count):
                what = (options.faults, options.trace)
                running.append(pool.submit(play, chunk, *what))

        submit(2 * options.jobs)
        while running:
            try:
                part = running.pop(0).result()
            except KeyboardInterrupt:
                # show the table of what is done so far
                pool.shutdown(wait=False, cancel_futures=True)
                break
            totals.add(part)
            for seed, failure in part.failures:
                print(f"\n{replay_command(seed, options)}\n    {failure}", file=sys.stderr)
            passed_s = time.monotonic() - began_s
            if options.seconds is None or passed_s < options.seconds:
                submit(1)
            progress(totals, options.schedules, passed_s)
    print(file=sys.stderr)
    return totals


def replay_command(seed: int, options: argparse.Namespace) -> str:
    faults = f" --faults {','.join(options.faults)}" if options.faults else ""
    return f"scripts/soak.py --replay {seed}{faults}"


def progress(totals: Totals, of: int, passed_s: float) -> None:
    done = totals.schedules[""]
    text = (
        f"{done:,} of {of:,} schedules, {totals.ids:,} ids, {totals.duplicates['']:,} repeated, "
        f"{len(totals.failures):,} failures, {passed_s:.0f} s, {passed_s / max(1, done) * 1000:.0f} ms each"
    )
    print(f"\r{text}", end="", file=sys.stderr, flush=True)


def table(totals: Totals) -> str:
    lines = [f"{'faults':<14}{'schedules':>10}{'times':>10}{'repeated ids':>14}{'excused':>9}"]
    lines += (
        f"{name or 'all':<14}{totals.schedules[name]:>10,}{totals.fired[name]:>10,}"
        f"{totals.duplicates[name]:>14,}{totals.excused[name]:>9,}"
        for name in (*FAULTS, "")
        if totals.schedules[name]
    )
    lines += (
        "excused: ids repeated where the design says so: by clones until their reservation ends, and by a",
        f"Redis that went back in time until a client notices ({totals.alarms:,} alarms).",
    )
    return "\n".join(lines)


def replay(options: argparse.Namespace) -> int:
    seed = options.replay
    result = run_schedule(seed, options.faults, traced=True)
    print("\n".join(result.trace))
    print(f"\nseed {seed}: {', '.join(result.classes)}; {result.ids} ids, {result.duplicates} repeated")
    for failure in result.failures:
        print(failure)
    return bool(result.failures)


def fault_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in FAULTS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(FAULTS)}")
    return names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--schedules", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first one")
    parser.add_argument("--faults", type=fault_names, metavar="CLASS,…", help="default: drawn by each seed")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), metavar="J")
    parser.add_argument("--seconds", type=float, metavar="BOUND", help="start no schedule after this many seconds")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="log the runs there; scripts/model --trace FILE checks them"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="play one schedule and show it")
    options = parser.parse_args()
    if options.replay is not None:
        return replay(options)
    if options.trace is not None:
        options.trace.write_text("")
    totals = soak(options)
    print(table(totals))
    for seed, failure in sorted(totals.failures)[:MOST_FAILURES_SHOWN]:
        print(f"{replay_command(seed, options)}\n    {failure}")
    if len(totals.failures) > MOST_FAILURES_SHOWN:
        print(f"… and {len(totals.failures) - MOST_FAILURES_SHOWN:,} more")
    return bool(totals.failures)


if __name__ == "__main__":
    sys.exit(main())
