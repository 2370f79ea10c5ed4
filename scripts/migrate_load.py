#!/usr/bin/env python3
"""Migrate a table of 10 million rows on PostgreSQL while others write to it, and say how long their writes waited.

    scripts/migrate_load.py                                     # 10 million rows, 4 writers, 200 writes/s
    scripts/migrate_load.py --rows 300000 --per-second 500      # fewer rows, more writes

A private PostgreSQL; a table with a 32-bit identity, and one that refers to it. Writers insert, update and refer to
rows all the time, at first as the old code does; after the switch, half of them make snowredis ids. Prints one line for
each step: how long it took, how many writes there were in it, how many failed, and the longest. Exits with 1 if a write
failed, one took longer than --limit, or a row is lost. Bounded by --minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import sqlalchemy as sa  # noqa: E402

import snowredis  # noqa: E402
from snowredis.core.layout import Layout  # noqa: E402
from snowredis.merge.databases import open_database  # noqa: E402
from snowredis.merge.migrate.backfill import Progress  # noqa: E402
from snowredis.merge.migrate.migration import Migration  # noqa: E402
from snowredis.testing import memory_pool  # noqa: E402
from tests.support.databases import postgresql  # noqa: E402

STEPS = ("before", "start", "backfill", "build", "verify", "switch", "switched", "finish", "finished")
LAYOUT = Layout(datacenter_bits=3, worker_bits=7)
# before, between and after the steps
QUIET_S = 5.0


@dataclass
class Writes:
    """Latencies of one writer, by step."""

    latencies_s: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    orders: int = 0
    lines: int = 0


class Shared:
    """State that the writers share: the step under way, whether to go on, and who still runs the old code."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self.step = context.Value("i", 0)
        self.stop = context.Event()
        self.new_code = context.Event()
        self.no_old_code = context.Event()
        self.results = context.Queue()

    def set(self, step: str) -> None:
        self.step.value = STEPS.index(step)


def write(number: int, url: str, rows: int, per_s: float, seed: int, shared: Shared) -> None:
    """Write at a steady rate until told to stop."""
    chance, writes = random.Random(seed * 100 + number), Writes()
    # as a program does that lives through a change of column types: see docs/how-to/migrate.md
    engine = sa.create_engine(url, pool_size=1, connect_args={"prepare_threshold": None})
    # a pool in memory is one process': the datacenter keeps the ids of the processes apart
    ids = snowredis.connect(memory_pool(), layout=LAYOUT, datacenter=number)
    modern = number % 2 == 1
    known = [chance.randint(1, rows) for _ in range(1000)]
    due_s = time.monotonic()
    while not shared.stop.is_set():
        due_s += 1 / per_s
        time.sleep(max(0.0, due_s - time.monotonic()))
        new_code = shared.no_old_code.is_set() or (modern and shared.new_code.is_set())
        step, began_s = STEPS[shared.step.value], time.monotonic()
        try:
            with engine.begin() as connection:
                one_write(connection, chance, known, writes, ids.next_id() if new_code else None)
        except sa.exc.DBAPIError as error:
            writes.errors.append(f"{step}: {str(error.orig).splitlines()[0]}")
        writes.latencies_s.setdefault(step, []).append(time.monotonic() - began_s)
    ids.close()
    shared.results.put(writes)


def one_write(
    connection: sa.Connection, chance: random.Random, known: list[int], writes: Writes, new_id: int | None
) -> None:
    kind = chance.random()
    if kind < 0.4:
        if new_id is None:
            insert = sa.text("INSERT INTO orders (name, amount) VALUES ('w', 1) RETURNING id")
            new_id = int(connection.scalar(insert) or 0)
        else:
            insert = sa.text("INSERT INTO orders (id, name, amount) VALUES (:id, 'w', 1)")
            connection.execute(insert, {"id": new_id})
        known[chance.randrange(len(known))] = new_id
        writes.orders += 1
    elif kind < 0.7:
        insert = sa.text("INSERT INTO order_lines (order_id, text) VALUES (:id, 'w')")
        connection.execute(insert, {"id": chance.choice(known)})
        writes.lines += 1
    else:
        # two rows, in any order: what locks rows in another order must not cause a deadlock
        for an_id in sorted({chance.choice(known), chance.choice(known)}):
            update = sa.text("UPDATE orders SET amount = amount + 1 WHERE id = :id")
            connection.execute(update, {"id": an_id})


def fill(engine: sa.Engine, rows: int) -> None:
    """Create the tables."""
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE orders (id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text, amount int)",
            "CREATE TABLE order_lines (id bigserial PRIMARY KEY, order_id int NOT NULL REFERENCES orders, text text)",
            "CREATE INDEX order_lines_order ON order_lines (order_id)",
            "INSERT INTO orders (name, amount) SELECT 'order ' || n, 0 FROM generate_series(1, :rows) n",
            "INSERT INTO order_lines (order_id, text) SELECT n * 10, 'line' FROM generate_series(1, :rows / 10) n",
        ):
            connection.execute(sa.text(statement), {"rows": rows} if ":rows" in statement else {})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("VACUUM ANALYZE"))


def migrate(url: str, shared: Shared) -> dict[str, float]:
    """Take all steps; return how long each took."""
    migration = Migration(open_database(url), "orders", "id")
    took_s: dict[str, float] = {}

    def step(name: str, action: Callable[[], object]) -> None:
        shared.set(name)
        began_s = time.monotonic()
        action()
        took_s[name] = took_s.get(name, 0) + time.monotonic() - began_s

    last_s = 0.0

    def progress(now: Progress) -> None:
        nonlocal last_s
        if time.monotonic() - last_s > 10:
            last_s = time.monotonic()
            left = "" if now.left_s is None else f", {now.left_s:.0f} s left"
            print(f"  {now.part:.0%} of {now.table}: {now.rows_per_s:,.0f} rows/s{left}", flush=True)

    build_began_s: list[float] = []

    def build(what: str) -> None:
        shared.set("build")
        build_began_s.append(time.monotonic())
        print(f"  building {what}", flush=True)

    plan, _ = migration.plan(LAYOUT, ids="keep")
    step("before", lambda: time.sleep(QUIET_S))
    step("start", lambda: migration.start(plan))
    step("backfill", lambda: migration.backfill(on_progress=progress, on_build=build))
    took_s["build"] = time.monotonic() - build_began_s[0]
    took_s["backfill"] -= took_s["build"]
    step("verify", migration.verify)
    step("switch", lambda: print(f"  tables were locked for {migration.switch() * 1000:.0f} ms", flush=True))
    shared.new_code.set()
    step("switched", lambda: time.sleep(QUIET_S))
    shared.no_old_code.set()
    step("switched", lambda: time.sleep(1))
    step("finish", migration.finish)
    step("finished", lambda: time.sleep(QUIET_S))
    return took_s


def check(engine: sa.Engine, rows: int, writes: list[Writes]) -> list[str]:
    """Return what is wrong in the end."""
    wrong = []
    with engine.connect() as connection:

        def number(query: str) -> int:
            return int(connection.scalar(sa.text(query)) or 0)

        orders, lines = (sum(getattr(one, name) for one in writes) for name in ("orders", "lines"))
        if number("SELECT count(*) FROM orders") != rows + orders:
            wrong.append("rows of orders are lost")
        if number("SELECT count(*) FROM order_lines JOIN orders o ON o.id = order_id") != rows // 10 + lines:
            wrong.append("rows of order_lines are lost, or refer to no row")
        matching = "SELECT count(*) FROM order_lines l JOIN orders o ON o.id = order_id WHERE l.text = 'line'"
        if number(f"{matching} AND o.name = 'order ' || l.id * 10") != rows // 10:
            wrong.append("rows of order_lines refer to others")
        total = "SELECT sum(id - substr(name, 7)::bigint) FROM orders WHERE name LIKE 'order %'"
        if number(total):
            wrong.append("ids that should be kept are others")
    return wrong


def report(took_s: dict[str, float], writes: list[Writes], limit_s: float) -> bool:
    """Print one line for each step; return whether no write failed or waited for too long."""
    print(f"{'step':10} {'s':>8} {'writes':>8} {'p99 ms':>8} {'longest ms':>11}")
    longest_s = 0.0
    for step in STEPS:
        latencies_s = sorted(value for one in writes for value in one.latencies_s.get(step, []))
        if not latencies_s:
            continue
        p99_s = latencies_s[int(len(latencies_s) * 0.99)]
        longest_s = max(longest_s, latencies_s[-1])
        print(
            f"{step:10} {took_s.get(step, 0):8.1f} {len(latencies_s):8,} {p99_s * 1000:8.1f} "
            f"{latencies_s[-1] * 1000:11.1f}"
        )
    errors = [error for one in writes for error in one.errors]
    print(f"writes that failed: {len(errors)}; the longest took {longest_s * 1000:.0f} ms")
    for error in errors[:10]:
        print(f"  {error}")
    return not errors and longest_s <= limit_s


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--per-second", type=float, default=200, help="writes of all writers together")
    parser.add_argument("--limit", type=float, default=1.0, help="the longest that a write may take, in s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args()
    settings = ("shared_buffers=512MB", "max_wal_size=4GB", "maintenance_work_mem=512MB", "log_lock_waits=on")
    with postgresql(*settings) as server:
        url, shared = server.new_database(), Shared()
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        began_s = time.monotonic()
        fill(engine, options.rows)
        print(f"{options.rows:,} rows made in {time.monotonic() - began_s:.0f} s", flush=True)
        context = multiprocessing.get_context("fork")
        writers = [
            context.Process(
                target=write,
                args=(number, url, options.rows, options.per_second / options.writers, options.seed, shared),
                daemon=True,
            )
            for number in range(options.writers)
        ]
        for writer in writers:
            writer.start()
        took_s: dict[str, float] = {}
        runner = threading.Thread(target=lambda: took_s.update(migrate(url, shared)), daemon=True)
        runner.start()
        runner.join(60 * options.minutes)
        shared.stop.set()
        if "finished" not in took_s:
            print(f"not finished within {options.minutes:g} minutes, or failed", file=sys.stderr)
            return 1
        writes = [shared.results.get(timeout=60) for _ in writers]
        fine = report(took_s, writes, options.limit)
        wrong = check(engine, options.rows, writes)
        print("; ".join(wrong) or "every row is there, and refers to the same row as before")
        return int(bool(wrong) or not fine)


if __name__ == "__main__":
    sys.exit(main())
