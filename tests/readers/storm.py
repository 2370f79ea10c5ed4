"""Writers, and readers that page through their tables by id: which rows does each reader never see?

    python -m tests.readers.storm --seconds 20 --seed 1
    python -m tests.readers.storm --seconds 600 --hard

Writers insert single rows, several at once, by COPY, and as upserts, into two tables of one name; they sleep in
transactions, and roll back. Consumers of the readers' pages fail.

--hard: with all of Plan.hard, behind a pooler, and with readers on a replica

Exit code 0: the watermarks missed no row and read none twice, and the naive reader missed some, so the run could find
something.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import sqlalchemy as sa

import snowredis
from snowredis.core.sql import fence
from snowredis.errors import ConfigError
from snowredis.readers import Cursor, Watermark
from tests.readers.replica import replica_of
from tests.support.databases import DatabaseServer, PostgreSQL, postgresql
from tests.support.pages import blocks_of
from tests.support.pgbouncer import pgbouncer, pooled
from tests.support.servers import redis_server
from tests.support.waiting import eventually

LAYOUT = snowredis.layouts["default"]
LAG_S = 0.5
# the longest lag of a fence that changes
LONG_LAG_S = 1.0
# the longest transaction of a writer
LONGEST_S = 2.0
# both have a fence
TABLES = ("orders", "eu.orders")
PAGE = "docs/how-to/page-by-id.md"
# forked from a process that has imported this module, and runs no thread
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.readers.storm"])


class Plan(NamedTuple):
    """Settings of one run.

    Attributes:
        hard: with kill -9 of writers, readers, and of what keeps the mark of the view; prepared transactions,
            partitions, and fences that get longer and shorter lags, while a column is renamed at times.
    """

    seconds: float
    seed: int
    writers: int = 8
    hard: bool = False


class Outcome(NamedTuple):
    """Findings of one run."""

    rows: int
    missed: dict[str, int]
    twice: int
    refused: int
    kills: int
    changes: int
    most_behind_s: float

    def missed_below_marks(self) -> int:
        """Return how many rows the readers of watermarks and of the view never saw."""
        return sum(rows for name, rows in self.missed.items() if "watermark" in name or name == "view")


def make_table(engine: sa.Engine, *, lag_ms: int = round(LAG_S * 1000), parts: Sequence[int] = ()) -> None:
    """Create the table `orders`, with its fence. *parts*: the first ids of its partitions, but for the first one."""
    statements = ["CREATE TABLE orders (id bigint PRIMARY KEY, writer int)"]
    if parts:
        statements[0] += " PARTITION BY RANGE (id)"
        for first, until in zip(["MINVALUE", *parts], [*parts, "MAXVALUE"], strict=True):
            part = f"CREATE TABLE orders_{first} PARTITION OF orders FOR VALUES FROM ({first}) TO ({until})"
            statements.append(part)
    run(engine, *statements, fence("postgresql", LAYOUT, "orders", lag_ms=lag_ms))


def connect(url: str) -> sa.Engine:
    """Return an engine, which may connect to PgBouncer."""
    return sa.create_engine(
        url, isolation_level="READ COMMITTED", pool_size=8, connect_args={"prepare_threshold": None}
    )


def write(url: str, redis_url: str, number: int, plan: Plan, stop: Any, refused: Any) -> None:
    """Write rows until *stop*: ids are kept for a while, transactions are long, some are rolled back."""
    rng = random.Random(plan.seed * 1000 + number)
    engine = connect(url)
    with snowredis.connect(redis_url, pool="storm", ttl=3.0) as ids:
        while not stop.is_set():
            an_id = ids.next_id()
            if rng.random() < 0.2:
                time.sleep(rng.random() * 0.3)
            if rng.random() < 0.02:
                # longer than the lag
                time.sleep(LAG_S + 0.2)
            work_s = rng.choice([0, 0.005, 0.02, 0.1, 0.4]) if rng.random() < 0.97 else LONGEST_S
            two_phase = plan.hard and rng.random() < 0.2
            try:
                with engine.connect() as connection:
                    transaction = connection.begin_twophase() if two_phase else connection.begin()
                    table = rng.choice(TABLES)
                    insert(connection, table, [an_id, *ids.next_ids(rng.choice([0, 0, 0, 1, 4]))], number, rng)
                    if isinstance(transaction, sa.TwoPhaseTransaction):
                        transaction.prepare()
                    time.sleep(work_s)
                    transaction.rollback() if rng.random() < 0.1 else transaction.commit()
            # COPY raises the error of the driver
            except Exception as error:
                if "readers may have passed" not in str(error):
                    raise
                refused.value += 1


def insert(connection: sa.Connection, table: str, ids: list[int], number: int, rng: random.Random) -> None:
    """Insert rows in one of several ways, which do not name columns that are renamed."""
    rows = ", ".join(f"({an_id}, {number})" for an_id in ids)
    way = rng.choice(["insert", "copy", "upsert"])
    if way == "copy":
        with (
            contextlib.closing(connection.connection.cursor()) as cursor,
            cursor.copy(f"COPY {table} FROM STDIN") as copy,
        ):
            for an_id in ids:
                copy.write_row((an_id, number))
        return
    connection.exec_driver_sql(f"INSERT INTO {table} VALUES {rows}")
    if way == "upsert" and table == TABLES[0]:
        # the row is its own, so that no writer waits for another one
        again = "ON CONFLICT (id) DO UPDATE SET"
        connection.exec_driver_sql(f"INSERT INTO {table} VALUES {rows} {again} writer = {number}")


def keep_mark(url: str, stop: Any) -> None:
    """Keep the mark of orders_mark fresh with the program of the page, which takes the longer lag of the fence."""
    program = next(
        block.text for block in blocks_of(PAGE) if "orders_mark" in block.text and block.language == "python"
    )
    program = program.replace('sa.create_engine("postgresql+psycopg:///shop")', "engine").replace(
        "sleep(1)", "sleep(0.05)"
    )
    program = program.replace("lag=61", f"lag={LONG_LAG_S}").replace("while True:", "while not stop.is_set():")
    exec(program, {"engine": connect(url), "stop": stop})


def statements_of_page() -> list[str]:
    """Return what the page for connectors runs once."""
    text = next(block.text for block in blocks_of(PAGE) if block.language == "sql" and "orders_settled" in block.text)
    return [statement for statement in text.split(";") if statement.strip()]


def read_by_cursor(engine: sa.Engine, table: str, seen: list[int], stop: Any) -> None:
    """Remember the highest id, as programs and connectors do that know an incrementing column."""
    last = 0
    while True:
        is_last = stop.is_set()
        with engine.connect() as connection:
            seen += connection.exec_driver_sql(f"SELECT id FROM {table} WHERE id > {last} ORDER BY id").scalars()
        last = max([last, *seen[-1:]])
        if is_last:
            return
        time.sleep(0.02)


def read_marked(url: str, directory: str, table: str, stop: Any) -> None:
    """Read pages below the watermark into a file, each with the cursor in one write: the next run starts there."""
    engine, seen, rng = connect(url), Path(directory, table), random.Random()
    cursors = re.findall(r"cursor (\d+) (\d+)\n", seen.read_text()) if seen.exists() else []
    after = Cursor(*map(int, cursors[-1])) if cursors else Cursor(0)
    watermark = Watermark(engine, LAYOUT, lag=LAG_S, after=after)
    with seen.open("ab", buffering=0) as file:
        while True:
            last = stop.is_set()
            try:
                for page in watermark.pages(f"SELECT id FROM {table}", size=50):
                    ids, cursor = " ".join(str(row[0]) for row in page), " ".join(map(str, page.cursor))
                    fail_at_times(rng)
                    file.write(f"{ids}\ncursor {cursor}\n".encode())
            except (ConnectionError, psycopg.errors.UndefinedColumn):
                continue
            except ConfigError as error:
                if not re.search("its fence has a lag|its column was renamed", str(error)):
                    raise
                watermark = Watermark(engine, LAYOUT, lag=LONG_LAG_S, after=watermark.cursor)
                continue
            with Path(directory, "behind").open("a") as behind:
                behind.write(f"{watermark.behind_ms}\n")
            if last:
                return
            time.sleep(0.02)


def fail_at_times(rng: random.Random) -> None:
    """Be what fails while a page is handled."""
    if rng.random() < 0.05:
        raise ConnectionError("the queue is away")


def shows_view(engine: sa.Engine) -> bool:
    with engine.connect() as connection:
        return sa.inspect(connection).has_table("orders_settled")


def storm(
    server: DatabaseServer, redis_url: str, plan: Plan, *, pooler: Path | None = None, replica: PostgreSQL | None = None
) -> Outcome:
    """Run writers and readers; return what each reader never saw.

    Args:
        pooler: of pgbouncer(), for the writers and the readers of watermarks.
        replica: a streaming replica of *server*, with two readers of its own.
    """
    url = server.new_database()
    engine = connect(url)
    database = str(engine.url.database)
    ticks = [LAYOUT.tick_at(time.time_ns() // 1_000_000 + round(plan.seconds * part * 1000)) for part in (0, 0.5)]
    parts = [LAYOUT.compose(tick=tick, worker=0, sequence=0) for tick in ticks] if plan.hard else []
    make_table(engine, parts=parts)
    statements = ["CREATE SCHEMA eu", f"CREATE TABLE {TABLES[1]} (id bigint PRIMARY KEY, writer int)"]
    statements.append(fence("postgresql", LAYOUT, TABLES[1], lag_ms=round(LAG_S * 1000)))
    run(engine, *statements, *statements_of_page())
    engine.dispose()
    url = url if pooler is None else pooled(pooler, database)
    shown = connect(engine.url.render_as_string() if replica is None else replica.url(database))
    # a replica may get the database a moment later
    eventually(lambda: shows_view(shown), "the view on the replica", 60, ignored=(sa.exc.OperationalError,))
    stop, end, refused = CONTEXT.Event(), CONTEXT.Event(), CONTEXT.Value("i", 0)
    rng, kills, changes = random.Random(plan.seed), 0, 0
    with tempfile.TemporaryDirectory() as directory:

        def start(target: Callable[..., None], *arguments: object) -> Any:
            process = CONTEXT.Process(target=target, args=arguments, daemon=True)
            process.start()
            return process

        writing = [(write, url, redis_url, number, plan, stop, refused) for number in range(plan.writers)]
        # two keep the mark at the same time
        reading: list[Any] = [(keep_mark, url, end)] * 2 + [
            (read_marked, url, directory, table, end) for table in TABLES
        ]
        of_cursor, of_view = list[int](), list[int]()
        threads = [
            threading.Thread(target=read_by_cursor, args=(engine, TABLES[0], of_cursor, end)),
            threading.Thread(target=read_by_cursor, args=(shown, "orders_settled", of_view, end)),
        ]
        for thread in threads:
            thread.start()
        started = [*writing, *reading]
        processes = [start(*each) for each in started]
        # on a busy machine, processes start slowly
        eventually(lambda: min(count(engine, table) for table in TABLES) > 0, "the first row", 120)
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until:
            time.sleep(0.5 + rng.random())
            if not plan.hard:
                continue
            _roll_back_prepared(engine, older_than_s=10)
            changes += change(engine, rng)
            kills += 1
            number = rng.randrange(len(processes))
            processes[number].kill()
            processes[number].join()
            processes[number] = start(*started[number])
        stop.set()
        for process in processes[: len(writing)]:
            process.join(30)
        _roll_back_prepared(engine)
        with engine.connect() as connection:
            rows = {table: set(connection.exec_driver_sql(f"SELECT id FROM {table}").scalars()) for table in TABLES}
        # until all marks are past the last id
        time.sleep(LONG_LAG_S + 0.3)
        with contextlib.suppress(AssertionError):
            eventually(lambda: set(of_view) >= rows["orders"], "all rows in the view", 60)
        end.set()
        for thread in threads:
            thread.join()
        for process in processes[len(writing) :]:
            process.join(60)
            assert process.exitcode == 0
        marked = {table: list(ids_in(Path(directory, table))) for table in TABLES}
        behind = [int(line) for line in Path(directory, "behind").read_text().split()]
    engine.dispose()
    shown.dispose()
    every = {"cursor": (TABLES[0], of_cursor), "view": (TABLES[0], of_view)}
    every |= {f"watermark of {table}": (table, ids) for table, ids in marked.items()}
    assert not any(set(ids) - rows[table] for table, ids in every.values()), "a row that is not there"
    twice = sum(len(ids) - len(set(ids)) for _, ids in every.values())
    missed = {name: len(rows[table] - set(ids)) for name, (table, ids) in every.items()}
    return Outcome(sum(map(len, rows.values())), missed, twice, refused.value, kills, changes, max(behind) / 1000)


def change(engine: sa.Engine, rng: random.Random) -> bool:
    """Give a fence another lag, or rename a column and name it as before; return False if a lock was in the way."""
    table, lag_s = rng.choice(TABLES), rng.choice([LAG_S / 2, LAG_S, LONG_LAG_S])
    statements = [fence("postgresql", LAYOUT, table, lag_ms=round(lag_s * 1000))]
    if rng.random() < 0.3:
        statements = [f"ALTER TABLE {TABLES[1]} RENAME {old} TO {new}" for old, new in (("id", "key"), ("key", "id"))]
    try:
        run(engine, "SET LOCAL lock_timeout = '1s'", statements[0])
    except sa.exc.OperationalError:
        return False
    time.sleep(0.2)
    run(engine, *statements[1:])
    return True


def ids_in(file: Path) -> Iterator[int]:
    """Return the ids that read_marked() wrote."""
    for line in file.read_text().splitlines():
        if not line.startswith("cursor"):
            yield from map(int, line.split())


def count(engine: sa.Engine, table: str) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(f"SELECT COUNT(*) FROM {table}").scalar_one())


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", "%%"))


def _roll_back_prepared(engine: sa.Engine, older_than_s: float = 0) -> None:
    """End what killed writers left prepared."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        old = f"prepared < now() - interval '{older_than_s} s'"
        query = f"SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND {old}"
        for (gid,) in list(connection.exec_driver_sql(query)):
            connection.exec_driver_sql(f"ROLLBACK PREPARED '{gid}'")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--hard", action="store_true")
    args = parser.parse_args()
    good = True
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(redis_server(directory))
        server = stack.enter_context(postgresql())
        places: dict[str, Any] = {}
        if args.hard:
            places["pooler"] = stack.enter_context(pgbouncer(server, size=20))
            places["replica"] = stack.enter_context(replica_of(server))
        with snowredis.connect(redis.url, pool="storm", ttl=3.0) as ids:
            ids.claim()
        for seed in range(args.seed, args.seed + args.runs):
            plan = Plan(**{name: getattr(args, name) for name in Plan._fields})._replace(seed=seed)
            found = storm(server, redis.url, plan, **places)
            print(found, flush=True)
            good &= found.missed["cursor"] > 0 == found.missed_below_marks() + found.twice
    return 0 if good else 1


if __name__ == "__main__":
    # as an imported module: else each process imports it again
    program = "import sys; from tests.readers.storm import main; sys.exit(main())"
    os.execv(sys.executable, [sys.executable, "-c", program, *sys.argv[1:]])
