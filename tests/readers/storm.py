"""Writers, and readers that page through their table by id: which rows does each reader never see?

    python -m tests.readers.storm postgresql --seconds 20 --seed 1
    python -m tests.readers.storm mariadb --seconds 20 --kill     # also kill -9 of writers and the reader
    python -m tests.readers.storm postgresql --no-fence --hold 3  # a control: rows are lost

Exit code 0: the watermark missed no row, and the naive reader missed some, so the run could find something.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

import snowredis
from snowredis.core.sql import fence
from snowredis.readers import Watermark, _Run
from tests.support.databases import SERVERS, DatabaseServer
from tests.support.servers import redis_server

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


class Outcome(NamedTuple):
    """Findings of one run."""

    rows: int
    missed: dict[str, int]
    refused: int
    kills: int
    most_behind_s: float


def make_table(engine: sa.Engine, *, fenced: bool, lag_ms: int = round(LAG_S * 1000)) -> None:
    """Create the table `orders`, with its fence."""
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id bigint PRIMARY KEY, writer int)")
        if fenced:
            connection.exec_driver_sql(fence(kind_of(engine), LAYOUT, "orders", lag_ms=lag_ms).replace("%", "%%"))


def kind_of(engine: sa.Engine) -> str:
    return "postgresql" if engine.dialect.name == "postgresql" else "mariadb"


def write(url: str, redis_url: str, number: int, plan: Plan, stop: Any, refused: Any) -> None:
    """Write rows until *stop*: ids are kept for a while, transactions are long, some are rolled back."""
    rng = random.Random(plan.seed * 1000 + number)
    engine = sa.create_engine(url, isolation_level="READ COMMITTED")
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
                    connection.exec_driver_sql(f"INSERT INTO orders VALUES ({an_id}, {number})")
                    if isinstance(transaction, sa.TwoPhaseTransaction):
                        transaction.prepare()
                    time.sleep(work_s)
                    transaction.rollback() if rng.random() < 0.1 else transaction.commit()
            except sa.exc.DBAPIError as error:
                if "readers may have passed" not in str(error):
                    raise
                refused.value += 1


def read_marked(url: str, directory: str, stop: Any) -> None:
    """Read pages below the watermark into a file, and store the cursor in another one, where the next run starts."""
    engine, cursor, seen = sa.create_engine(url), Path(directory, "cursor"), Path(directory, "seen")
    watermark = Watermark(engine, LAYOUT, lag=LAG_S, after=int(cursor.read_text()) if cursor.exists() else 0)
    with seen.open("a") as file:
        while True:
            last = stop.is_set()
            for page in watermark.pages("SELECT id FROM orders", size=50):
                file.write("".join(f"{row[0]}\n" for row in page))
                file.flush()
                replacement = cursor.with_suffix(".new")
                replacement.write_text(str(watermark.cursor))
                replacement.replace(cursor)
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


def storm(server: DatabaseServer, redis_url: str, plan: Plan) -> Outcome:
    """Run writers and three readers; return what each reader never saw."""
    url = server.new_database()
    engine = sa.create_engine(url, isolation_level="READ COMMITTED", pool_size=8)
    make_table(engine, fenced=plan.fenced)
    if not plan.fenced:
        # a reader without a check: the control has to lose rows
        Watermark._check = unchecked  # type: ignore[method-assign]
    stop, end, refused = CONTEXT.Event(), CONTEXT.Event(), CONTEXT.Value("i", 0)
    rng, kills = random.Random(plan.seed), 0
    with tempfile.TemporaryDirectory() as directory:

        def start(target: Callable[..., None], *arguments: object) -> Any:
            process = CONTEXT.Process(target=target, args=arguments, daemon=True)
            process.start()
            return process

        writers = [start(write, url, redis_url, number, plan, stop, refused) for number in range(plan.writers)]
        seen: dict[str, set[int]] = {"cursor": set(), "overlap of 1 s": set()}
        threads = [
            threading.Thread(target=read_naively, args=(engine, overlap_ms, rows, end))
            for overlap_ms, rows in zip((0, 1000), seen.values(), strict=True)
        ]
        for thread in threads:
            thread.start()
        reader: Any = start(read_marked, url, directory, end) if plan.fenced else None
        if reader is None:
            threads.append(threading.Thread(target=read_marked, args=(url, directory, end)))
            threads[-1].start()
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until:
            time.sleep(0.5 + rng.random())
            if plan.kill:
                kills += 1
                if rng.random() < 0.5:
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
        # until the mark is past the last id
        time.sleep(LAG_S + 0.3)
        end.set()
        for thread in threads:
            thread.join()
        if reader is not None:
            reader.join(60)
            assert reader.exitcode == 0
        with engine.connect() as connection:
            rows = {row[0] for row in connection.exec_driver_sql("SELECT id FROM orders")}
        seen["watermark"] = set(map(int, Path(directory, "seen").read_text().split()))
        behind = [int(line) for line in Path(directory, "behind").read_text().split()]
    engine.dispose()
    assert not seen["watermark"] - rows, "a row that is not there"
    missed = {name: len(rows - ids) for name, ids in seen.items()}
    return Outcome(len(rows), missed, refused.value, kills, max(behind) / 1000)


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
    for name in ("--kill", "--prepared", "--no-fence"):
        parser.add_argument(name, action="store_true")
    args = parser.parse_args()
    settings = ("max_prepared_transactions=50",) if args.database == "postgresql" else ()
    good = True
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(redis_server(directory))
        server = stack.enter_context(SERVERS[args.database](*settings))
        with snowredis.connect(redis.url, pool="storm", ttl=3.0) as ids:
            ids.claim()
        for seed in range(args.seed, args.seed + args.runs):
            plan = Plan(
                args.seconds, seed, fenced=not args.no_fence, hold_s=args.hold, kill=args.kill, prepared=args.prepared
            )
            found = storm(server, redis.url, plan)
            print(found, flush=True)
            good &= found.missed["cursor"] > 0 and (found.missed["watermark"] > 0) is args.no_fence
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
