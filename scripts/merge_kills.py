#!/usr/bin/env python3
"""Kill `merge apply` with -9 at random moments, let it continue, and compare the result with that of a run in peace.

    scripts/merge_kills.py                                    # 50 kills on each of SQLite, PostgreSQL, MariaDB
    scripts/merge_kills.py --databases postgresql --kills 200 --seed 7
    scripts/merge_kills.py --players 2000 --crashes 10        # the database server crashes, too

Two shards of a game (tests/merge/game.py), by turns with ids of counters and of a layout, on private servers. A process
changes the ids of one and copies its rows into the other. After each kill the journal says how far it was; after up to
six kills it may finish. Then both databases must be, row by row, what they are without kills, checksums included, and
as many rows as before. Exits with 1 if not. Bounded by --minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from snowredis.merge.apply.copy_rows import copy_rows  # noqa: E402

from snowredis.errors import MergeError  # noqa: E402
from snowredis.merge.apply import Outcome, apply_plan, open_databases  # noqa: E402
from snowredis.merge.databases import open_database  # noqa: E402
from snowredis.merge.journal import Copies, Journal  # noqa: E402
from snowredis.merge.plan_file import Plan, PlanFile  # noqa: E402
from snowredis.merge.planning import Request, make_plan  # noqa: E402
from tests.merge import game  # noqa: E402
from tests.support.databases import SERVERS, MissingDatabase  # noqa: E402

KILLS_A_ROUND = 6
# a process that takes longer than this hangs
LIMIT_S = 300.0


@dataclass
class Tally:
    """Result on one kind of database."""

    kills: int = 0
    crashes: int = 0
    rounds: int = 0
    rows: int = 0
    wrong: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)


class Pair:
    """Both shards, and the plan that merges them."""

    def __init__(self, server: Any, directory: Path, players: int, seed: int, *, counters: bool) -> None:
        self.kept, self.changed = server.new_database(), server.new_database()
        for url, shard in ((self.kept, "a"), (self.changed, "b")):
            game.fill(url, shard, players, counters=counters, seed=seed)
        self.path = directory / f"{time.monotonic_ns()}.plan"

    def plan(self, like: Pair | None = None) -> None:
        """Make the plan; or take that of an equal pair, so that the new ids are the same, too."""
        request = Request(
            self.kept,
            self.changed,
            layout="default",
            references=[game.BY_HAND],
            ids=[game.PART_OF_KEY],
            shared=[game.SAME],
        )
        if like is None:
            make_plan(request, self.path)
        else:
            shutil.copy(like.path, self.path)

    @contextlib.contextmanager
    def opened(self) -> Iterator[tuple[Plan, PlanFile]]:
        plan, file = PlanFile.open(self.path)
        with file:
            yield plan, file

    def apply(self, batch_rows: int) -> Outcome:
        """Change the ids and copy the rows, in this process."""
        with self.opened() as (plan, file):
            databases = open_databases(plan, self.kept, self.changed)
            outcome = apply_plan(plan, file, databases, batch_rows=batch_rows)
            copy_rows(plan, databases, batch_rows=batch_rows)
        return outcome

    def state(self) -> str:
        """Say how far it is."""
        with self.opened() as (plan, _):
            run = Journal(open_database(self.changed), plan).read()
            copies = Copies(open_database(self.kept), plan).read()
        if run is None:
            return "checking"
        if not copies:
            return run.state
        return "verifying the copy" if all(copy.finished for copy in copies.values()) else "copying"

    def contents(self) -> list[dict[str, list[tuple[Any, ...]]]]:
        return [game.contents(self.kept), game.contents(self.changed)]


def start(pair: Pair, batch_rows: int) -> int:
    """Apply the plan in a process of its own; return its pid. Its exit code is 1 if the server was gone."""
    pid = os.fork()
    if pid:
        return pid
    code = 2
    try:
        pair.apply(batch_rows)
        code = 0
    except MergeError as error:
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


def one_round(
    server: Any, pair: Pair, chance: random.Random, tally: Tally, options: argparse.Namespace, took_s: float
) -> None:
    """Kill the process up to six times, then let it finish."""
    kills = 0
    while True:
        at_s = chance.uniform(0, took_s) if kills < KILLS_A_ROUND else LIMIT_S
        pid = start(pair, options.batch_rows)
        code = ended(pid, at_s)
        if code is not None:
            if code:
                tally.wrong.append(f"ended with {code}")
            break
        if kills == KILLS_A_ROUND:
            tally.wrong.append(f"did not end in {LIMIT_S:g} s")
            os.kill(pid, signal.SIGKILL)
            ended(pid, 10)
            break
        crash = tally.crashes < options.crashes and hasattr(server, "crash") and chance.random() < 0.5
        if crash:
            server.crash()
            ended(pid, LIMIT_S)
            server.start()
            tally.crashes += 1
        else:
            os.kill(pid, signal.SIGKILL)
            ended(pid, 10)
            tally.kills += 1
        kills += 1
        tally.states[pair.state()] += 1
        # the rest takes less time than the whole
        took_s = max(0.05, took_s * 0.8)


def try_kind(name: str, options: argparse.Namespace, directory: Path, deadline_s: float) -> Tally:
    """Run rounds on one kind of database until there were enough kills."""
    chance, tally = random.Random(f"{options.seed}{name}"), Tally()
    with SERVERS[name]() as server:
        peaceful: dict[bool, tuple[Pair, float, Any, Outcome]] = {}
        while (tally.kills < options.kills or tally.crashes < options.crashes) and not tally.wrong:
            if time.monotonic() > deadline_s:
                tally.wrong.append(f"only {tally.kills} kills in {options.minutes:g} minutes")
                break
            counters = tally.rounds % 2 == 0
            make = Pair(server, directory, options.players, options.seed, counters=counters)
            if counters not in peaceful:
                make.plan()
                before = game.story(make.kept), game.story(make.changed)
                began_s = time.monotonic()
                outcome = make.apply(options.batch_rows)
                took_s = time.monotonic() - began_s
                tally.wrong += compare_stories(*before, make)
                peaceful[counters] = make, took_s, make.contents(), outcome
                make = Pair(server, directory, options.players, options.seed, counters=counters)
            example, took_s, contents, outcome = peaceful[counters]
            make.plan(example)
            one_round(server, make, chance, tally, options, took_s)
            tally.rounds += 1
            if make.contents() != contents:
                tally.wrong.append(f"round {tally.rounds}: the rows are not those of a run without kills")
            again = make.apply(options.batch_rows)
            if (again.rows, again.values) != (outcome.rows, outcome.values):
                tally.wrong.append(f"round {tally.rounds}: other checksums: {again} {outcome}")
            tally.rows += sum(len(rows) for rows in make.contents()[0].values())
    return tally


def compare_stories(kept: Any, changed: Any, pair: Pair) -> list[str]:
    """Return what is wrong in a merge: every row of both has to be there, and to refer to the same row as before."""
    merged = game.story(pair.kept)
    wrong = (
        [] if game.story(pair.changed) == changed else ["rows of the database that changed refer to others"]
    )
    for table, rows in merged.items():
        expected = kept[table] if table == game.SAME else sorted(kept[table] + changed[table], key=repr)
        if rows != expected:
            wrong.append(f"{table} is not what it was in both databases together")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--databases", default=",".join(SERVERS), help="separated by commas")
    parser.add_argument("--kills", type=int, default=50, help="on each database")
    parser.add_argument("--crashes", type=int, default=0, help="of the server, on each database that has one")
    parser.add_argument("--players", type=int, default=150)
    parser.add_argument("--batch-rows", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30, help="bound for each database")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="merge-kills-") as directory:
        for name in options.databases.split(","):
            began_s = time.monotonic()
            crashes = options.crashes
            options.crashes = 0 if name == "sqlite" else crashes
            try:
                tally = try_kind(name, options, Path(directory), began_s + 60 * options.minutes)
            except MissingDatabase as error:
                print(f"{name}: {error}")
                failed = True
                continue
            options.crashes = crashes
            states = ", ".join(f"{count} {state}" for state, count in tally.states.most_common())
            print(
                f"{name}: {tally.kills} kills, {tally.crashes} crashes of the server, in {tally.rounds} merges "
                f"({tally.rows:,} rows), {time.monotonic() - began_s:.0f} s; killed while {states}: "
                f"{'; '.join(tally.wrong) or 'every merge ended in the same state as without kills'}",
                flush=True,
            )
            failed = failed or bool(tally.wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
