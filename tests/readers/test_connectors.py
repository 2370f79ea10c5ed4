"""Readers behind PgBouncer, and connectors that read a view below a mark, from the primary or a replica."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from snowredis.core.sql import functions
from snowredis.errors import ConfigError
from snowredis.readers import Watermark
from tests.readers.replica import replica_of
from tests.readers.storm import LAG_S, LAYOUT, Plan, connect, kind_of, make_table, of_page, run_each, storm
from tests.readers.test_readers import id_of, insert, passes
from tests.support.databases import DatabaseServer, MissingDatabase, postgresql
from tests.support.pages import blocks_of
from tests.support.pgbouncer import pgbouncer, pooled
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def test_no_row_is_missed_behind_a_pooler_in_partitions_and_on_a_replica(server: RedisServer) -> None:
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(postgresql("max_prepared_transactions=20"))
        try:
            pooler, replica = stack.enter_context(pgbouncer(own, size=12)), stack.enter_context(replica_of(own))
        except MissingDatabase as error:
            pytest.skip(str(error))
        plan = Plan(4.0, 5, writers=4, kill=True, prepared=True, partitioned=True)
        found = storm(own, server.url, plan, pooler=pooler, replica=replica)
        assert (found.missed["watermark"], found.missed["view"], found.twice) == (0, 0, 0)
        on_replica = connect(replica.url())
        with pytest.raises(ConfigError, match="this is a replica"):
            Watermark(on_replica, LAYOUT).advance()
        on_replica.dispose()


def test_a_mariadb_that_is_read_only_is_refused(mariadb_server: DatabaseServer) -> None:
    engine = sa.create_engine(mariadb_server.new_database())
    make_table(engine, fenced=True)
    run_each(engine, ["SET GLOBAL read_only = ON"])
    try:
        with pytest.raises(ConfigError, match="this is a replica"):
            Watermark(engine, LAYOUT).advance()
    finally:
        run_each(engine, ["SET GLOBAL read_only = OFF"])
        engine.dispose()


def test_a_watermark_behind_a_pooler_waits_for_the_sessions_of_others(
    postgresql_server: DatabaseServer, pgbouncer_of: Path
) -> None:
    direct = sa.create_engine(postgresql_server.new_database())
    make_table(direct, fenced=True)
    behind = connect(pooled(pgbouncer_of, str(direct.url.database)))
    watermark, early = Watermark(behind, LAYOUT, lag=LAG_S), id_of(0)
    with behind.connect() as writer:
        writer.exec_driver_sql(f"INSERT INTO orders VALUES ({early}, 0)")
        time.sleep(LAG_S + 0.1)
        assert watermark.advance(wait=0.1) <= early
        writer.commit()
    passes(watermark, early)
    assert list(watermark.pages("SELECT id FROM orders")) == [[(early,)]]
    with direct.connect() as connection:
        # what the sessions of the pooler were left with
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%%'"
        assert connection.exec_driver_sql(query).scalar() == 0
    for engine in (behind, direct):
        engine.dispose()


@pytest.fixture
def engine(database: DatabaseServer) -> Iterator[sa.Engine]:
    """Database of the page, with what is run there once."""
    made = connect(database.new_database())
    make_table(made, fenced=True)
    run_each(made, [*functions(kind_of(made), LAYOUT), *of_page(kind_of(made), "once")])
    yield made
    made.dispose()


def advance(engine: sa.Engine) -> None:
    run_each(engine, of_page(kind_of(engine), "each second"))


def view(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT id FROM orders_settled ORDER BY id").scalars())


def test_the_view_has_a_row_when_no_older_one_can_come(engine: sa.Engine) -> None:
    for _ in range(2):
        advance(engine)
    early, late = id_of(0), id_of(0, 1)
    with engine.connect() as writer:
        writer.exec_driver_sql(f"INSERT INTO orders VALUES ({early}, 0)")
        insert(engine, late)
        # one second more than the lag
        time.sleep(LAG_S + 1.1)
        for _ in range(3):
            with contextlib.suppress(sa.exc.OperationalError):
                run_each(engine, [part.replace("= 10", "= 1") for part in of_page(kind_of(engine), "each second")])
        assert view(engine) == []
        writer.commit()

    def has_both() -> bool:
        advance(engine)
        return view(engine) == sorted([early, late])

    eventually(has_both, "both rows in the view", 20)


def test_without_the_fence_the_mark_of_the_page_stands_still(engine: sa.Engine) -> None:
    for _ in range(2):
        advance(engine)
    before = mark(engine)
    assert before > 0
    name = "snowredis_fence" if kind_of(engine) == "postgresql" else "snowredis_fence_orders"
    run_each(engine, [f"DROP TRIGGER {name}" + (" ON orders" if kind_of(engine) == "postgresql" else "")])
    for _ in range(3):
        time.sleep(0.01)
        advance(engine)
    assert mark(engine) == before


def test_the_clients_of_the_databases_run_the_statements(engine: sa.Engine, tmp_path: Path) -> None:
    kind, file, database = kind_of(engine), tmp_path / "advance.sql", str(engine.url.database)
    name = {"postgresql": "PostgreSQL", "mariadb": "MariaDB"}[kind]
    blocks = [block.text for block in blocks_of("docs/how-to/page-by-id.md") if f"-- {name}, each second" in block.text]
    file.write_text(blocks[0])
    client = ["mariadb", "--no-defaults", f"--socket={engine.url.query.get('unix_socket')}", "-u", "root", database]
    if kind == "postgresql":
        client = ["psql", "-X", "-h", str(engine.url.query["host"]), "-U", "postgres", database, "--file", str(file)]
    with file.open() as text, subprocess.Popen(client, stdin=text, stdout=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: mark(engine) > 0, "a mark", 30)
            # psql goes on until it is stopped
            assert kind == "postgresql" or process.wait(30) == 0
        finally:
            process.kill()


def mark(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT id FROM orders_mark").scalar_one())
