#!/usr/bin/env python3
"""Kill `merge apply`, `undo`, `abandon` and `copy` at random moments, with -9 or SIGTERM; compare with a run in peace.

    scripts/merge_kills.py                                    # 40 kills on each of SQLite, PostgreSQL, MariaDB
    scripts/merge_kills.py --databases postgresql --kills 200 --seed 7
    scripts/merge_kills.py --players 2000 --crashes 10        # the database server crashes, too

Two shards of a game (tests/merge/game.py), by turns with ids of counters and of a layout, on private servers. Each
round applies a plan, takes it back, applies it again, abandons it half-way, and copies the rows; each of these is
killed up to four times. After each kill, every row must refer to what it referred to, and all rows of a copy or none
must be there. After apply, every row must be what it is without kills; after undo and abandon, what it was at first.
Exits with 1 if not. Bounded by --minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from snowredis.cli.exit_codes import interrupted_by_signals
from snowredis.merge import MergeError, SourceError
from snowredis.merge.apply import apply_plan, open_databases, revert
from snowredis.merge.copying import copy_commands, run_copy
from snowredis.merge.databases import open_database
from snowredis.merge.journal import Journal
from snowredis.merge.pair import Request
from snowredis.merge.plan_file import open_plan
from snowredis.merge.planning import make_plan
from snowredis.merge.progress import Progress
from tests.merge import game
from tests.support.databases import SERVERS, MissingDatabase

KILLS_A_STEP = 4
# a process that takes longer than this hangs
LIMIT_S = 300.0


@dataclass
class Counts:
    """Result on one kind of database."""

    kills: int = 0
    crashes: int = 0
    rounds: int = 0
    wrong: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    copy_s: float = 1.0


class Pair:
    """Both shards, and the plan that merges them."""

    def __init__(self, server: Any, directory: Path, players: int, seed: int, *, counters: bool) -> None:
        self.kept, self.changed = server.new_database(), server.new_database()
        for url, shard in ((self.kept, "a"), (self.changed, "b")):
            game.fill(url, shard, players, counters=counters, seed=seed)
        self.path = directory / f"{time.monotonic_ns()}.plan"
        request = Request(
            self.kept,
            self.changed,
            layout="default",
            references=game.BY_HAND,
            ids=[game.PART_OF_KEY],
            matched=[f"{game.SAME}=name"],
            independent=game.INDEPENDENT,
        )
        make_plan(request, self.path, Progress())
        self.before, self.story = game.contents(self.changed), game.story(self.changed)
        self.of_kept = game.contents(self.kept)

    def apply(self, batch_rows: int) -> None:
        """Change the ids, in this process."""
        with open_plan(self.path) as (plan, pairs):
            apply_plan(plan, pairs, open_databases(plan), batch_rows=batch_rows, progress=Progress())

    def undo(self, batch_rows: int) -> None:
        # it may have been killed after its last commit
        if self.state() != "undone":
            revert(self.changed, finished=True, batch_rows=batch_rows, progress=Progress())

    def abandon(self, batch_rows: int) -> None:
        if self.state() in ("rewriting", "undoing"):
            revert(self.changed, finished=False, batch_rows=batch_rows, progress=Progress())

    def copy(self, _batch_rows: int) -> None:
        with open_plan(self.path) as (plan, _):
            databases = open_databases(plan)
            run_copy(copy_commands(plan, databases), plan, databases, Progress())

    def together(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of the first database after the copy, once the second has its new ids."""
        both = game.contents(self.changed)
        return {
            name: sorted(rows + [row for row in both[name] if name != game.SAME or row not in rows], key=repr)
            for name, rows in self.of_kept.items()
        }

    def copied(self) -> str:
        """Say how many rows were copied."""
        rows = game.contents(self.kept)
        found = {"nothing": self.of_kept, "all rows": self.together()}
        return next((text for text, expected in found.items() if rows == expected), "a part")

    def state(self) -> str:
        """Say how far it is."""
        engine = open_database(self.changed)
        run = Journal(engine).read()
        engine.dispose()
        return "not begun" if run is None else run.state


def start(work: Callable[[int], None], batch_rows: int) -> int:
    """Do *work* in a process of its own; return its pid. Its exit code is 1 if the server was gone."""
    pid = os.fork()
    if pid:
        return pid
    code = 2
    try:
        with interrupted_by_signals():
            work(batch_rows)
        code = 0
    except KeyboardInterrupt:
        code = 3
    except (MergeError, SourceError) as error:
        code = 1
        print(f"      {str(error)[:150]}", file=sys.stderr)
    finally:
        os._exit(code)


def ended(pid: int, within_s: float) -> int | None:
    """Return the exit code of a process if it ends in time."""
    deadline_s = time.monotonic() + within_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline_s:
            return None
        time.sleep(0.002)


def step(
    server: Any,
    pair: Pair,
    name: str,
    chance: random.Random,
    counts: Counts,
    options: argparse.Namespace,
    took_s: float,
    *,
    finishes: bool = True,
) -> None:
    """Kill a step up to four times, then let it finish; or leave it killed."""
    kills, work, copies = 0, getattr(pair, name), name == "copy"
    while not counts.wrong:
        at_s = chance.uniform(0, took_s) if kills < KILLS_A_STEP else LIMIT_S
        if kills == KILLS_A_STEP and not finishes:
            return
        pid = start(work, options.batch_rows)
        code = ended(pid, at_s)
        if code is not None:
            if code:
                counts.wrong.append(f"{name} ended with {code}")
            return
        if kills == KILLS_A_STEP:
            counts.wrong.append(f"{name} did not end in {LIMIT_S:g} s")
            os.kill(pid, signal.SIGKILL)
            ended(pid, 10)
            return
        if counts.crashes < options.crashes and hasattr(server, "crash") and chance.random() < 0.5:
            server.crash()
            ended(pid, LIMIT_S)
            server.start()
            counts.crashes += 1
        else:
            number = chance.choice([signal.SIGKILL, signal.SIGTERM])
            os.kill(pid, number)
            ended(pid, LIMIT_S)
            counts.kills += 1
            counts.states[number.name] += 1
        kills += 1
        state = pair.copied() if copies else pair.state()
        counts.states[f"{name}: {state}"] += 1
        if state == "a part" or (not copies and game.story(pair.changed) != pair.story):
            counts.wrong.append(f"a killed {name} left a part of its work")
        if state == "all rows":
            return
        # the rest takes less time than the whole
        took_s = max(0.05, took_s * 0.8)


def one_round(server: Any, pair: Pair, chance: random.Random, counts: Counts, options: argparse.Namespace) -> None:
    began_s = time.monotonic()
    pair.apply(options.batch_rows)
    took_s = time.monotonic() - began_s
    applied = game.contents(pair.changed)
    if game.story(pair.changed) != pair.story:
        counts.wrong.append("rows refer to others without any kill")
    expected = [("undo", pair.before), ("apply", applied), ("undo", pair.before)]
    for name, contents in expected:
        step(server, pair, name, chance, counts, options, took_s)
        if not counts.wrong and game.contents(pair.changed) != contents:
            counts.wrong.append(f"after {name} other rows than without kills")
    step(server, pair, "apply", chance, counts, options, took_s, finishes=False)
    if pair.state() != "done":
        step(server, pair, "abandon", chance, counts, options, took_s / 2)
        if not counts.wrong and game.contents(pair.changed) != pair.before:
            counts.wrong.append("after abandon other rows than at first")
    if counts.wrong:
        return
    pair.apply(options.batch_rows)
    began_s = time.monotonic()
    step(server, pair, "copy", chance, counts, options, counts.copy_s)
    counts.copy_s = min(counts.copy_s, time.monotonic() - began_s)
    if not counts.wrong and pair.copied() != "all rows":
        counts.wrong.append("the copy ended without all rows")


def try_kind(name: str, options: argparse.Namespace, directory: Path, deadline_s: float) -> Counts:
    """Run rounds on one kind of database until there were enough kills."""
    chance, counts = random.Random(f"{options.seed}{name}"), Counts()
    with SERVERS[name]() as server:
        crashes = options.crashes if hasattr(server, "crash") else 0
        while (counts.kills < options.kills or counts.crashes < crashes) and not counts.wrong:
            if time.monotonic() > deadline_s:
                counts.wrong.append(f"only {counts.kills} kills in {options.minutes:g} minutes")
                break
            counters = counts.rounds % 2 == 0
            one_round(
                server,
                Pair(server, directory, options.players, options.seed, counters=counters),
                chance,
                counts,
                options,
            )
            counts.rounds += 1
            print(f"   {name}: round {counts.rounds}, {counts.kills} kills, {counts.crashes} crashes", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--kills", type=int, default=40, help="on each kind of database (default: 40)")
    parser.add_argument("--crashes", type=int, default=0, help="of the server, on each kind that has one (default: 0)")
    parser.add_argument("--players", type=int, default=300, help="in each shard (default: 300)")
    parser.add_argument("--batch-rows", type=int, default=100, help="values a transaction (default: 100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20, help="bound (default: 20)")
    options = parser.parse_args()
    deadline_s = time.monotonic() + options.minutes * 60
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for name in options.databases:
            try:
                counts = try_kind(name, options, Path(directory), deadline_s)
            except MissingDatabase as error:
                print(f"{name}: skipped, {error}")
                continue
            failed = failed or bool(counts.wrong)
            states = ", ".join(f"{count} in {state}" for state, count in sorted(counts.states.items()))
            print(f"{name}: {counts.kills} kills and {counts.crashes} crashes in {counts.rounds} rounds: {states}")
            print(f"   {'; '.join(counts.wrong) or 'nothing was lost, nothing is there twice'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
