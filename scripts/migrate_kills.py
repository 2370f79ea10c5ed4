#!/usr/bin/env python3
"""Kill `migrate` with -9 at random moments, run the step again, and compare with what a run without kills leaves.

    scripts/migrate_kills.py                                    # 50 kills on each of SQLite, PostgreSQL, MariaDB
    scripts/migrate_kills.py --databases mariadb --kills 200 --seed 7

A shop's tables (tests/merge/shop.py) on private servers. A process takes all steps: by turns to the end, and to the
switch and back. After each kill a row is written as the old code does it. Every row must be there in the end, with the
value that the plan gives it, and refer to the same row as before; after the way back tables and ids must be those of
before. Exits with 1 if not. Bounded by --minutes for each database.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import sqlalchemy as sa  # noqa: E402

from snowredis.core.layout import Layout  # noqa: E402
from snowredis.merge.databases import open_database  # noqa: E402
from snowredis.merge.migrate.migration import Migration  # noqa: E402
from tests.merge import shop  # noqa: E402
from tests.support.databases import SERVERS, MissingDatabase  # noqa: E402

# a process that takes longer than this hangs
LIMIT_S = 300.0
KILLS_A_ROUND = 5
_AFTER_SWITCH = ("switching", "switched", "finishing", "finished")


@dataclass
class Totals:
    """Result on one kind of database."""

    kills: int = 0
    rounds: int = 0
    rows: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)


class Run:
    """One migration of one new database."""

    def __init__(self, server: Any, rows: int, *, back: bool) -> None:
        self.url, self.rows, self.back = server.new_database(), rows, back
        creator = sa.create_engine(self.url)
        shop.create(creator, rows)
        creator.dispose()
        # reading the catalog changes nothing, so it need not be killed
        self.plan, _ = self.migration().plan(Layout(), ids="shift", references=shop.BY_HAND)
        self.written: list[str] = []
        self.turned = False

    def migration(self) -> Migration:
        return Migration(open_database(self.url), "customers", "id")

    def take_steps(self) -> None:
        """Take all steps that are left, in this process."""
        migration = self.migration()
        if self.turned:
            if migration.entry() is not None:
                migration.rollback()
            return
        end = "switched" if self.back else "finished"
        while (entry := migration.entry()) is None or entry.state != end:
            step = migration.next_step()
            if step == "start":
                migration.start(entry.plan if entry else self.plan)
            elif step == "backfill":
                # short batches: more places to be killed at
                migration.backfill(batch_ms=2)
            elif step:
                getattr(migration, step)()

    def state(self) -> str:
        entry = self.migration().entry()
        return "no entry" if entry is None else entry.state

    def write(self, kind: str, totals: Totals) -> None:
        """Write a row, and one that refers to it, as the old code does."""
        state = self.state()
        if kind == "sqlite" and state in _AFTER_SWITCH:
            return
        if state in ("finishing", "finished"):
            return
        name = f"w{len(self.written)}"
        engine = open_database(self.url)
        try:
            with engine.begin() as connection:
                connection.execute(sa.text("INSERT INTO customers (name) VALUES (:name)"), {"name": name})
                about = "INSERT INTO notes (about) SELECT id FROM customers WHERE name = :name"
                connection.execute(sa.text(about), {"name": name})
        except sa.exc.DBAPIError as error:
            # MariaDB renames one table after the other; until the command is run again, tables may not agree
            if kind == "mariadb" and state in ("switching", "rolling back"):
                totals.refused += 1
            else:
                totals.wrong.append(f"a write failed while {state}: {str(error.orig)[:200]}")
        else:
            self.written.append(name)

    def ids(self) -> dict[str, int]:
        with open_database(self.url).connect() as connection:
            return {row.name: row.id for row in connection.execute(sa.select(shop.customers))}


def ended(pid: int, within_s: float) -> int | None:
    """Return the exit code of a process if it ends in time."""
    deadline_s = time.monotonic() + within_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline_s:
            return None
        time.sleep(0.001)


def start(run: Run) -> int:
    """Take the steps in a process of its own; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 2
    try:
        run.take_steps()
        code = 0
    except Exception as error:  # noqa: BLE001 - reported by the exit code
        print(f"      {type(error).__name__}: {str(error)[:400]}", file=sys.stderr)
    finally:
        os._exit(code)


def with_kills(run: Run, kind: str, chance: random.Random, totals: Totals, took_s: float) -> bool:
    """Let a process take the steps, and kill it up to five times; return whether it ended well."""
    for attempt in range(KILLS_A_ROUND + 1):
        last = attempt == KILLS_A_ROUND
        pid = start(run)
        code = ended(pid, LIMIT_S if last else chance.uniform(0, took_s))
        if code is None:
            os.kill(pid, signal.SIGKILL)
            ended(pid, 10)
            if last:
                totals.wrong.append(f"did not end in {LIMIT_S:g} s")
                return False
            totals.kills += 1
            totals.states[run.state()] += 1
            run.write(kind, totals)
            # less is left to do
            took_s = max(0.1, took_s * 0.85)
            continue
        if code:
            totals.wrong.append(f"ended with {code} while {run.state()}")
        return not code
    return False


def check(run: Run, before: dict[str, Any], schema: dict[str, Any], offset: int) -> list[str]:
    """Return what is wrong at the end of a run."""
    engine, wrong = open_database(run.url), []
    with engine.connect() as connection:
        after = shop.relations(connection)
    for name, rows in before.items():
        kept = [row for row in after[name] if not any(str(value).startswith("w") for value in row)]
        if kept != rows:
            wrong.append(f"{name}: {len(rows)} rows before, {len(kept)} after, or they refer to others")
    ids = run.ids()
    if [name for name in run.written if name not in ids]:
        wrong.append("a row that was written after a kill is lost")
    if len([row for row in after["notes"] if str(row[1]).startswith("w")]) != len(run.written):
        wrong.append("a row that was written after a kill refers to another")
    expected = {f"c{number}": number + offset for number in range(1, run.rows + 1)}
    if {name: an_id for name, an_id in ids.items() if name in expected} != expected:
        wrong.append("ids are not those of the plan")
    if run.back and shop.schema_of(engine) != schema:
        wrong.append("the schema is not that of before")
    return wrong


def try_kind(kind: str, options: argparse.Namespace, deadline_s: float) -> Totals:
    """Run migrations on one kind of database until there were enough kills."""
    chance, totals = random.Random(f"{options.seed}{kind}"), Totals()
    took_s = {False: 5.0, True: 5.0}
    with SERVERS[kind]() as server:
        while totals.kills < options.kills and not totals.wrong:
            if time.monotonic() > deadline_s:
                totals.wrong.append(f"only {totals.kills} kills in {options.minutes:g} minutes")
                break
            run = Run(server, options.rows, back=totals.rounds % 2 == 1)
            engine = open_database(run.url)
            schema = shop.schema_of(engine)
            with engine.connect() as connection:
                before = shop.relations(connection)
            engine.dispose()
            if totals.rounds < 2:
                # without kills, to learn how long it takes
                began_s = time.monotonic()
                run.take_steps()
                took_s[False] = time.monotonic() - began_s
            elif not with_kills(run, kind, chance, totals, took_s[False]):
                break
            entry = run.migration().entry()
            offset = 0 if entry is None else entry.plan.offset
            if run.back:
                run.turned, offset = True, 0
                if totals.rounds < 2:
                    began_s = time.monotonic()
                    run.take_steps()
                    took_s[True] = time.monotonic() - began_s
                elif not with_kills(run, kind, chance, totals, took_s[True]):
                    break
            totals.wrong += check(run, before, schema, offset)
            totals.rows += options.rows + len(run.written)
            totals.rounds += 1
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--databases", default=",".join(SERVERS), help="separated by commas")
    parser.add_argument("--kills", type=int, default=50, help="on each database")
    parser.add_argument("--rows", type=int, default=400, help="of the largest table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30, help="bound for each database")
    options = parser.parse_args()
    failed = False
    for kind in options.databases.split(","):
        began_s = time.monotonic()
        try:
            totals = try_kind(kind, options, began_s + 60 * options.minutes)
        except MissingDatabase as error:
            print(f"{kind}: {error}")
            failed = True
            continue
        states = ", ".join(f"{count} {state}" for state, count in totals.states.most_common())
        refused = f", {totals.refused} writes refused in between" if totals.refused else ""
        print(
            f"{kind}: {totals.kills} kills in {totals.rounds} migrations ({totals.rows:,} rows), "
            f"{time.monotonic() - began_s:.0f} s; killed while: {states}{refused}: "
            f"{'; '.join(totals.wrong) or 'no row was lost, and every migration ended as without kills'}",
            flush=True,
        )
        failed = failed or bool(totals.wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
