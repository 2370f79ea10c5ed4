"""Writers, and readers that page through their table by id: which rows does each reader never see?

    python -m tests.readers.storm postgresql --seconds 20 --seed 1
    python -m tests.readers.storm mariadb --seconds 20 --kill      # also kill -9 of writers and the reader
    python -m tests.readers.storm postgresql --partitioned --pooled --replica --prepared
    python -m tests.readers.storm postgresql --no-fence --hold 3   # a control: rows are lost

Writers insert single rows, several at once, by COPY, and as upserts; they sleep in transactions, and roll back.
Exit code 0: the watermark missed no row and read none twice, and the naive reader missed some, so the run could find
something.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

import snowredis
from snowredis.core.sql import fence, functions
from snowredis.readers import Watermark, _Run
from tests.readers.replica import replica_of
from tests.support.databases import SERVERS, DatabaseServer, PostgreSQL
from tests.support.pages import blocks_of
from tests.support.pgbouncer import pgbouncer, pooled
from tests.support.servers import redis_server
from tests.support.waiting import eventually

LAYOUT = snowredis.layouts["default"]
LAG_S = 0.5
# the longest transaction of a writer
LONGEST_S = 2.0
# forked from a process that has imported this module and runs no thread
CONTEXT = multiprocessing.get_context("forkserver")
if __name__ != "__main__":
    CONTEXT.set_forkserver_preload(["tests.readers.storm"])


class Plan(NamedTuple):
    """Settings of one run."""

    seconds: float
    seed: int
    writers: int = 8
    fenced: bool = True
    hold_s: float = 0.2
    kill: bool = False
    prepared: bool = False
    partitioned: bool = False


class Outcome(NamedTuple):
    """Findings of one run."""

    rows: int
    missed: dict[str, int]
    twice: int
    refused: int
    kills: int
    most_behind_s: float


def make_table(
    engine: sa.Engine, *, fenced: bool, lag_ms: int = round(LAG_S * 1000), parts: Sequence[int] = ()
) -> None:
    """Create the table `orders`, with its fence. *parts*: the first ids of its partitions, but for the first one."""
    kind, bounds = kind_of(engine), [*parts, "MAXVALUE"]
    statements = ["CREATE TABLE orders (id bigint PRIMARY KEY, writer int)"]
    if parts and kind == "postgresql":
        statements[0] += " PARTITION BY RANGE (id)"
        for first, until in zip(["MINVALUE", *parts], bounds, strict=True):
            part = f"CREATE TABLE orders_{first} PARTITION OF orders FOR VALUES FROM ({first}) TO ({until})"
            statements.append(part)
    elif parts:
        listed = [f"PARTITION p{number} VALUES LESS THAN ({until})" for number, until in enumerate(bounds)]
        statements[0] += f" PARTITION BY RANGE (id) ({', '.join(listed)})"
    if fenced:
        statements.append(fence(kind, LAYOUT, "orders", lag_ms=lag_ms).replace("%", "%%"))
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def connect(url: str) -> sa.Engine:
    """Return an engine, which may connect to PgBouncer."""
    options = {"prepare_threshold": None} if url.startswith("postgresql") else {}
    return sa.create_engine(url, isolation_level="READ COMMITTED", pool_size=8, connect_args=options)


def kind_of(engine: sa.Engine | sa.Connection) -> str:
    return "postgresql" if engine.dialect.name == "postgresql" else "mariadb"


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
                time.sleep(LAG_S + plan.hold_s)
            work_s = rng.choice([0, 0.005, 0.02, 0.1, 0.4]) if rng.random() < 0.97 else LONGEST_S
            two_phase = plan.prepared and rng.random() < 0.2
            try:
                with engine.connect() as connection:
                    transaction = connection.begin_twophase() if two_phase else connection.begin()
                    insert(connection, [an_id, *ids.next_ids(rng.choice([0, 0, 0, 1, 4]))], number, rng)
                    if isinstance(transaction, sa.TwoPhaseTransaction):
                        transaction.prepare()
                    time.sleep(work_s)
                    transaction.rollback() if rng.random() < 0.1 else transaction.commit()
            # COPY raises the error of the driver
            except Exception as error:
                if "readers may have passed" not in str(error):
                    raise
                refused.value += 1


def insert(connection: sa.Connection, ids: list[int], number: int, rng: random.Random) -> None:
    """Insert rows in one of several ways."""
    postgresql, rows = kind_of(connection) == "postgresql", ", ".join(f"({an_id}, {number})" for an_id in ids)
    way = rng.choice(["insert", "copy", "upsert"])
    if way == "copy" and postgresql:
        with (
            contextlib.closing(connection.connection.cursor()) as cursor,
            cursor.copy("COPY orders FROM STDIN") as copy,
        ):
            for an_id in ids:
                copy.write_row((an_id, number))
        return
    connection.exec_driver_sql(f"INSERT INTO orders VALUES {rows}")
    if way == "upsert":
        # the row is its own, so that no writer waits for another one
        again = "ON CONFLICT (id) DO UPDATE SET" if postgresql else "ON DUPLICATE KEY UPDATE"
        connection.exec_driver_sql(f"INSERT INTO orders VALUES {rows} {again} writer = {number}")


def advance_mark(url: str, stop: Any) -> None:
    """Keep the mark of orders_mark fresh, with the statements of the page."""
    engine = connect(url)
    while not stop.is_set():
        try:
            run_each(engine, of_page(kind_of(engine), "each second"))
        except sa.exc.OperationalError as error:
            # MariaDB waited for 10 s: the next run goes on
            if "Lock wait timeout" not in str(error):
                raise
        time.sleep(0.05)


def of_page(kind: str, when: str) -> list[str]:
    """Return the statements of the page for connectors: those that are run "once", or "each second"."""
    name = {"postgresql": "PostgreSQL", "mariadb": "MariaDB"}[kind]
    blocks = [block.text for block in blocks_of("docs/how-to/page-by-id.md") if f"-- {name}, {when}" in block.text]
    text = blocks[0].replace("\\watch 1", ";").replace("61 ", f"{LAG_S + 1} ")
    # without the comment above them
    return [statement for statement in text.partition("\n")[2].split(";") if statement.strip()]


def read_view(engine: sa.Engine, seen: list[int], stop: Any) -> None:
    """Read the view of the page as connectors do, which know an incrementing column."""
    last = 0
    while not stop.is_set():
        with engine.connect() as connection:
            query = f"SELECT id FROM orders_settled WHERE id > {last} ORDER BY id LIMIT 50"
            rows = [row[0] for row in connection.exec_driver_sql(query)]
        seen += rows
        last = max([last, *rows])
        time.sleep(0.02)


def read_marked(url: str, directory: str, stop: Any) -> None:
    """Read pages below the watermark into a file, each with the cursor in one write: the next run starts there."""
    engine, seen = connect(url), Path(directory, "seen")
    cursors = re.findall(r"cursor (\d+)\n", seen.read_text()) if seen.exists() else []
    watermark = Watermark(engine, LAYOUT, lag=LAG_S, after=int(cursors[-1]) if cursors else 0)
    with seen.open("ab", buffering=0) as file:
        while True:
            last = stop.is_set()
            for page in watermark.pages("SELECT id FROM orders", size=50):
                file.write(f"{' '.join(str(row[0]) for row in page)}\ncursor {watermark.cursor}\n".encode())
            with Path(directory, "behind").open("a") as behind:
                behind.write(f"{watermark.behind_ms}\n")
            if last:
                return
            time.sleep(0.02)


def read_naively(engine: sa.Engine, overlap_ms: int, seen: set[int], stop: Any) -> None:
    """Remember the highest id, as cursors do, and look back for *overlap_ms*."""
    cursor = 0
    while True:
        last = stop.is_set()
        since = cursor - (overlap_ms << LAYOUT.timestamp_shift)
        with engine.connect() as connection:
            rows = [row[0] for row in connection.exec_driver_sql(f"SELECT id FROM orders WHERE id > {since}")]
        seen.update(rows)
        cursor = max([cursor, *rows])
        if last:
            return
        time.sleep(0.02)


def storm(
    server: DatabaseServer, redis_url: str, plan: Plan, *, pooler: Path | None = None, replica: PostgreSQL | None = None
) -> Outcome:
    """Run writers and three readers; return what each reader never saw.

    Args:
        pooler: of pgbouncer(), for the writers and the reader of the watermark.
        replica: a streaming replica of *server*, with two readers of its own.
    """
    url = server.new_database()
    engine = connect(url)
    database = str(engine.url.database)
    ticks = [LAYOUT.tick_at(time.time_ns() // 1_000_000 + round(plan.seconds * part * 1000)) for part in (0, 0.5)]
    parts = [LAYOUT.compose(tick=tick, worker=0, sequence=0) for tick in ticks] if plan.partitioned else []
    make_table(engine, fenced=plan.fenced, parts=parts)
    run_each(engine, [*functions(kind_of(engine), LAYOUT), *of_page(kind_of(engine), "once")])
    url = url if pooler is None else pooled(pooler, database)
    if not plan.fenced:
        # a reader without a check: the control has to lose rows
        Watermark._check = unchecked  # type: ignore[method-assign]
    shown = connect(engine.url.render_as_string() if replica is None else replica.url(database))
    stop, end, refused = CONTEXT.Event(), CONTEXT.Event(), CONTEXT.Value("i", 0)
    rng, kills = random.Random(plan.seed), 0
    with tempfile.TemporaryDirectory() as directory:

        def start(target: Callable[..., None], *arguments: object) -> Any:
            process = CONTEXT.Process(target=target, args=arguments, daemon=True)
            process.start()
            return process

        writers = [start(write, url, redis_url, number, plan, stop, refused) for number in range(plan.writers)]
        seen: dict[str, set[int]] = {"cursor": set(), "overlap of 1 s": set(), "cursor on the replica": set()}
        threads = [
            threading.Thread(target=read_naively, args=(database, overlap_ms, rows, end))
            for database, overlap_ms, rows in zip((engine, engine, shown), (0, 1000, 0), seen.values(), strict=True)
        ]
        of_view: list[int] = []
        threads.append(threading.Thread(target=read_view, args=(shown, of_view, end)))
        for thread in threads:
            thread.start()
        # two at the same time
        marking = [start(advance_mark, url, end) for _ in range(2)]
        reader: Any = start(read_marked, url, directory, end) if plan.fenced else None
        if reader is None:
            threads.append(threading.Thread(target=read_marked, args=(url, directory, end)))
            threads[-1].start()
        # on a busy machine, processes start slowly
        eventually(lambda: count(engine) > 0, "the first row", 120)
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until:
            time.sleep(0.5 + rng.random())
            if plan.kill:
                kills += 1
                if rng.random() < 0.2:
                    marking[0].kill()
                    marking[0].join()
                    marking[0] = start(advance_mark, url, end)
                elif rng.random() < 0.5:
                    reader.kill()
                    reader.join()
                    reader = start(read_marked, url, directory, end)
                else:
                    number = rng.randrange(plan.writers)
                    writers[number].kill()
                    writers[number].join()
                    writers[number] = start(write, url, redis_url, number, plan._replace(seed=kills), stop, refused)
        stop.set()
        for process in writers:
            process.join(30)
        if plan.prepared:
            _roll_back_prepared(engine)
        with engine.connect() as connection:
            rows = {row[0] for row in connection.exec_driver_sql("SELECT id FROM orders")}
        # until both marks are past the last id
        time.sleep(LAG_S + 0.3)
        with contextlib.suppress(AssertionError):
            eventually(lambda: plan.fenced and set(of_view) >= rows, "all rows in the view", 60)
        end.set()
        for thread in threads:
            thread.join()
        for process in [*marking, *([reader] if reader is not None else [])]:
            process.join(60)
            assert process.exitcode == 0
        lines = Path(directory, "seen").read_text().splitlines()
        marked = [int(word) for line in lines if not line.startswith("cursor") for word in line.split()]
        behind = [int(line) for line in Path(directory, "behind").read_text().split()]
    engine.dispose()
    shown.dispose()
    seen |= {"watermark": set(marked), "view": set(of_view)}
    assert not (seen["watermark"] | seen["view"]) - rows, "a row that is not there"
    twice = len(marked) - len(seen["watermark"]) + len(of_view) - len(seen["view"])
    missed = {name: len(rows - ids) for name, ids in seen.items()}
    return Outcome(len(rows), missed, twice, refused.value, kills, max(behind) / 1000)


def count(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT COUNT(*) FROM orders").scalar_one())


def run_each(engine: sa.Engine, statements: Iterable[str]) -> None:
    with engine.begin() as connection:
        for statement in statements:
            if not statement.startswith("--"):
                connection.exec_driver_sql(statement.replace("%", "%%"))


def unchecked(self: Watermark, run: _Run, kind: str) -> None:
    """Check nothing, in place of Watermark._check()."""
    self._covered = ["orders"]


def _roll_back_prepared(engine: sa.Engine) -> None:
    """End what killed writers left prepared."""
    if kind_of(engine) != "postgresql":
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for (gid,) in list(
            connection.exec_driver_sql("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
        ):
            with contextlib.suppress(sa.exc.DBAPIError):
                connection.exec_driver_sql(f"ROLLBACK PREPARED '{gid}'")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", choices=["postgresql", "mariadb"])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--hold", type=float, default=0.2, help="seconds that some ids are kept longer than the lag")
    for name in ("--kill", "--prepared", "--partitioned", "--pooled", "--replica", "--no-fence"):
        parser.add_argument(name, action="store_true")
    args = parser.parse_args()
    settings = ("max_prepared_transactions=50",) if args.database == "postgresql" else ()
    good = True
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(redis_server(directory))
        server: Any = stack.enter_context(SERVERS[args.database](*settings))
        places: dict[str, Any] = {
            "pooler": stack.enter_context(pgbouncer(server, size=20)) if args.pooled else None,
            "replica": stack.enter_context(replica_of(server)) if args.replica else None,
        }
        with snowredis.connect(redis.url, pool="storm", ttl=3.0) as ids:
            ids.claim()
        for seed in range(args.seed, args.seed + args.runs):
            plan = Plan(
                args.seconds,
                seed,
                fenced=not args.no_fence,
                hold_s=args.hold,
                kill=args.kill,
                prepared=args.prepared,
                partitioned=args.partitioned,
            )
            found = storm(server, redis.url, plan, **places)
            print(found, flush=True)
            missed = found.missed
            good &= missed["cursor"] > 0 and (missed["watermark"] + found.twice > 0) is args.no_fence
            good &= args.no_fence or missed["view"] == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
