#!/usr/bin/env python3
"""Interrupt a generator before any one bytecode: handlers, forks, other threads, clocks; look for repeated ids.

    scripts/interrupts.py --list                                   # operations and actions
    scripts/interrupts.py --operation claim,renew --action fork    # every bytecode of these operations
    scripts/interrupts.py --seconds 600 --jobs 2                   # every operation with every action, for ten minutes
    scripts/interrupts.py --random 20000 --seed 7                  # one to three interruptions at random points
    scripts/interrupts.py --replay 'claim/fork@120'                # one case, and the line at which it was interrupted

A private redis-server is started for each job; forks and, with --redis, all cases play against it. The other cases play
against a pool in memory. SNOWREDIS_PURE=1, or --pure, is for the fast path in Python. Needs the group
dev: pip install -e . --group dev. CPython 3.11 executes some pairs of bytecodes as one when a function has run often
enough, so a case found late in a run may have to be looked for a few bytecodes further on.

Exit code 1 if an id was repeated, or a process hung, lost its lease or could make no more ids.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.lab.interrupts.actions import ACTIONS, PAUSED
from tests.lab.interrupts.cases import Case, Outcome
from tests.lab.interrupts.explore import Explorer, random_case
from tests.lab.interrupts.operations import OPERATIONS
from tests.support.servers import redis_server

# random cases of one task
CHUNK = 200


@dataclass
class Summary:
    """Results of many cases: how many there were, and the function and line of each kind of failure."""

    cases: int = 0
    doubled: int = 0
    leaked: int = 0
    kinds: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.cases} cases, {self.failures} failures, {self.doubled} doubled, {self.leaked} leaked"

    @property
    def failures(self) -> int:
        return sum(len(cases) for places in self.kinds.values() for cases in places.values())

    def count(self, outcome: Outcome) -> None:
        self.cases += 1
        self.doubled += outcome.doubled
        self.leaked += bool(outcome.leaked)
        place = outcome.fired[-1] if outcome.fired else ""
        for failure in outcome.failures:
            kind = re.sub(r"unix://\S+", "URL", failure.partition("\n")[0])
            kind = re.sub(r"\d+", "N", kind)[:100]
            self.kinds.setdefault(kind, {}).setdefault(place, []).append(outcome.case)

    def lines(self) -> Iterator[str]:
        """Return a line for each kind, and below it one for each function, with its lines and one case to repeat."""
        for kind, places in self.kinds.items():
            functions: dict[str, list[tuple[int, str]]] = {}
            signals = 0
            for place, cases in places.items():
                where, function, *_ = [*place.split(" "), ""]
                file, _, line = where.rpartition(":")
                functions.setdefault(f"{file} {function}", []).extend((int(line or 0), case) for case in cases)
                signals += len(cases) if "[signal]" in place else 0
            total = sum(map(len, functions.values()))
            yield f"  {total} x {kind} ({signals} where CPython runs signal handlers)"
            for function, found in functions.items():
                numbers = [number for number, _ in found if number]
                lines = f"{min(numbers, default=0)}-{max(numbers, default=0)}"
                yield f"      {len(found)} x {function} lines {lines}, such as {found[0][1]}"


def sweeps(operations: Iterable[str], actions: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return every operation with every action that it can have."""
    for operation in operations:
        for action in actions:
            if OPERATIONS[operation].forks or not ACTIONS[action].forks:
                yield operation, action


def work(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Yield the tasks of a run: an operation and an action each; or ("", "", seed) for random cases."""
    if options.random:
        for number in range(-(-options.random // CHUNK)):
            yield "", "", options.seed * 1_000_000 + number
        return
    for operation, action in sweeps(options.operation, options.action):
        yield operation, action, options.seed


def play(explorer: Explorer, task: tuple[str, str, int], options: argparse.Namespace) -> Summary:
    operation, action, seed = task
    summary = Summary()
    if operation:
        outcomes = explorer.sweep(
            operation, action, elsewhere=options.elsewhere, first=seed % options.step, step=options.step
        )
    else:
        rng = random.Random(seed)
        cases = itertools.islice(iter(lambda: random_case(rng), None), CHUNK)
        outcomes = map(explorer.play, cases)
    for outcome in outcomes:
        summary.count(outcome)
        if options.seconds is not None and time.monotonic() > options.until_s:
            break
    return summary


@contextlib.contextmanager
def private_explorer(options: argparse.Namespace) -> Iterator[Explorer]:
    with (
        tempfile.TemporaryDirectory(prefix="int") as directory,
        redis_server(Path(directory)) as server,
        Explorer(server.url, pure=options.pure, always_redis=options.redis) as explorer,
    ):
        yield explorer


def job(tasks: Iterator[tuple[str, str, int]], options: argparse.Namespace) -> tuple[int, int]:
    cases = failures = 0
    with private_explorer(options) as explorer:
        for task in tasks:
            if options.seconds is not None and time.monotonic() > options.until_s:
                break
            summary = play(explorer, task, options)
            cases, failures = cases + summary.cases, failures + summary.failures
            name = "/".join(task[:2]) if task[0] else f"random, seed {task[2]}"
            lines = [f"{name}: {summary}", *summary.lines()]
            print("\n".join(lines), flush=True)
    return cases, failures


def replay(options: argparse.Namespace) -> int:
    with private_explorer(options) as explorer:
        outcome = explorer.play(Case.parse(options.replay))
    for place in outcome.fired:
        print(place)
    print(f"{outcome.points} bytecodes, {outcome.ids} ids, refused: {outcome.refusals or 'nothing'}")
    if outcome.doubled:
        print("the id that was returned at that moment is the caller's in both processes")
    if outcome.leaked:
        print(outcome.leaked)
    for failure in outcome.failures:
        print(f"FAILED: {failure}")
    return bool(outcome.failures)


def names(known: dict[str, object]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            kind, _, rest = name.partition(":")
            if name not in known and not (kind == "paused" and rest.partition(":")[0] in PAUSED):
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return chosen

    return parse


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--list", action="store_true", help="name the operations and the actions")
    parser.add_argument("--operation", type=names(dict(OPERATIONS)), default=list(OPERATIONS), metavar="NAME,…")
    parser.add_argument(
        "--action",
        type=names(dict(ACTIONS)),
        default=list(ACTIONS),
        metavar="NAME,…",
        help="paused:CALL:K is another thread that stands before bytecode K of CALL, and goes on",
    )
    parser.add_argument("--step", type=int, default=1, metavar="N", help="every N-th bytecode only")
    parser.add_argument("--elsewhere", action="store_true", help="the operation runs in another thread")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="play this many random cases instead")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of random cases; of --step, where to begin")
    parser.add_argument("--seconds", type=float, metavar="BOUND", help="start no case after this many seconds")
    parser.add_argument("--jobs", type=int, default=1, metavar="J")
    parser.add_argument("--pure", action="store_true", default=bool(os.environ.get("SNOWREDIS_PURE")))
    parser.add_argument("--redis", action="store_true", help="a redis-server for every case")
    parser.add_argument("--replay", metavar="CASE", help="play one case and show it")
    options = parser.parse_args()
    if options.list:
        print("operations:", *OPERATIONS, "", "actions:", *ACTIONS, sep="\n  ")
        return 0
    if options.replay:
        return replay(options)
    options.until_s = time.monotonic() + (options.seconds or 0)
    tasks = list(work(options))
    # each job takes the next task that is left
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = iter(tasks)
        totals = [done.result() for done in [pool.submit(job, waiting, options) for _ in range(options.jobs)]]
    cases, failures = (sum(column) for column in zip(*totals, strict=True))
    print(f"{cases:,} cases, {failures:,} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
