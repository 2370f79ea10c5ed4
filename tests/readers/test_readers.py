"""The fence in a real database, and the watermark of readers."""

import asyncio
import contextlib
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from snowredis.cli import main
from snowredis.core.sql import fence
from snowredis.errors import ConfigError
from snowredis.readers import Watermark
from tests.readers.conftest import LAG_S
from tests.readers.storm import LAYOUT, PAGE, connect, make_table, run
from tests.support.databases import DatabaseServer
from tests.support.pages import PAGES, blocks_of
from tests.support.pgbouncer import pooled
from tests.support.programs import finished
from tests.support.waiting import eventually


def id_of(seconds_ago: float, worker: int = 0) -> int:
    tick = LAYOUT.tick_at(time.time_ns() // 1_000_000 - round(seconds_ago * 1000))
    return LAYOUT.compose(tick=tick, worker=worker, sequence=0)


def insert(engine: sa.Engine, an_id: int) -> None:
    run(engine, f"INSERT INTO orders VALUES ({an_id}, 0)")


def passes(watermark: Watermark, an_id: int) -> None:
    """Advance until the mark is above *an_id*."""
    eventually(lambda: watermark.advance() > an_id, "a mark above an id")


def test_a_row_with_an_old_id_is_refused_and_a_new_one_is_not(engine: sa.Engine) -> None:
    insert(engine, id_of(0))
    insert(engine, id_of(-3600))
    with pytest.raises(sa.exc.DBAPIError, match="older than 300 ms, which readers may have passed"):
        insert(engine, id_of(LAG_S + 0.1))


def test_a_fence_does_not_depend_on_the_time_zone_of_the_session(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("SET TIME ZONE 'Asia/Kathmandu'")
        connection.exec_driver_sql(f"INSERT INTO orders VALUES ({id_of(0)}, 0)")
        with pytest.raises(sa.exc.DBAPIError, match="readers may have passed"):
            connection.exec_driver_sql(f"INSERT INTO orders VALUES ({id_of(60)}, 0)")


@pytest.mark.parametrize("way", ["direct", "prepared", "behind a pooler"])
def test_the_mark_waits_for_an_open_transaction_and_says_for_which(
    engine: sa.Engine, request: pytest.FixtureRequest, way: str
) -> None:
    used = engine
    if way == "behind a pooler":
        used = connect(pooled(request.getfixturevalue("pgbouncer_of"), str(engine.url.database)))
    watermark = Watermark(used, LAYOUT, lag=LAG_S, tables=["orders"])
    with used.connect() as writer:
        transaction: Any = writer.begin_twophase() if way == "prepared" else writer.begin()
        writer.exec_driver_sql("SELECT 1")
        writer.exec_driver_sql(f"INSERT INTO orders VALUES ({(early := id_of(0))}, 0)")
        if way == "prepared":
            transaction.prepare()
        time.sleep(LAG_S + 0.1)
        before = watermark.advance(wait=0.1)
        assert before <= early
        assert watermark.advance(wait=0.1) == before
        assert re.search("prepared" if way == "prepared" else r"pid \d+", watermark.waits_for[0])
        assert watermark.behind_ms > LAG_S * 1000 or not before
        transaction.commit()
    passes(watermark, early)
    assert watermark.waits_for == []
    assert list(watermark.pages("SELECT id FROM orders")) == [[(early,)]]
    # what the sessions of a pooler are left with
    idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%%'"
    with engine.connect() as connection:
        assert connection.exec_driver_sql(idle).scalar() == 0
    used.dispose()


def test_a_user_who_may_not_see_the_transactions_of_others_is_told_their_pid(engine: sa.Engine) -> None:
    run(engine, f"CREATE ROLE reader_of_{engine.url.database} LOGIN")
    reader = sa.create_engine(engine.url.set(username=f"reader_of_{engine.url.database}"))
    watermark = Watermark(reader, LAYOUT, lag=LAG_S, tables=["orders"])
    with engine.connect() as writer:
        writer.exec_driver_sql(f"INSERT INTO orders VALUES ({id_of(0)}, 0)")
        watermark.advance(wait=0.1)
        assert re.fullmatch(r"pid \d+", watermark.waits_for[0])
    reader.dispose()


def test_pages_have_all_rows_in_order_and_the_cursor_is_where_the_next_run_starts(engine: sa.Engine) -> None:
    made = [id_of(0, worker) for worker in range(25)]
    run(engine, f"INSERT INTO orders VALUES {', '.join(f'({an_id}, 0)' for an_id in reversed(made))}")
    time.sleep(LAG_S + 0.1)
    watermark = Watermark(engine, LAYOUT, lag=LAG_S)
    pages = watermark.pages("SELECT writer, id FROM orders -- all", size=10)
    first = next(pages)
    assert [row[1] for row in first] == sorted(made)[:10]
    assert first.cursor == (sorted(made)[9] + 1, watermark.passed_us)
    following = Watermark(engine, LAYOUT, lag=LAG_S, after=first.cursor)
    rest = [[row[0] for row in page] for page in following.pages("SELECT id FROM orders", size=10)]
    assert rest == [sorted(made)[10:20], sorted(made)[20:]]
    assert following.cursor == (following.mark, following.passed_us)


def test_a_page_counts_when_the_next_one_is_asked_for(engine: sa.Engine) -> None:
    made = sorted(id_of(0, worker) for worker in range(12))
    run(engine, f"INSERT INTO orders VALUES {', '.join(f'({an_id}, 0)' for an_id in made)}")
    time.sleep(LAG_S + 0.1)
    watermark, handled = Watermark(engine, LAYOUT, lag=LAG_S), list[int]()

    def handle(fails_at: int) -> None:
        for page in watermark.pages("SELECT id FROM orders", size=5):
            if len(handled) == fails_at:
                raise ConnectionError("the queue is away")
            handled.extend(row[0] for row in page)

    for fails_at in (0, 5, 10):
        with pytest.raises(ConnectionError):
            handle(fails_at)
        assert watermark.cursor.next_id == (made[fails_at - 1] + 1 if fails_at else 0)
    handle(99)
    assert handled == made


def test_a_follower_gets_rows_that_come_later(engine: sa.Engine) -> None:
    insert(engine, early := id_of(0))
    pages = Watermark(engine, LAYOUT, lag=LAG_S).pages("SELECT id FROM orders", follow=0.05)
    assert next(pages) == [(early,)]
    insert(engine, later := id_of(0))
    assert next(pages) == [(later,)]


def test_coroutines_advance_and_the_event_loop_runs_while_a_transaction_is_open(engine: sa.Engine) -> None:
    insert(engine, early := id_of(0))
    time.sleep(LAG_S + 0.1)

    async def read() -> tuple[int, int]:
        asynchronous = create_async_engine(engine.url)
        watermark, turns = Watermark(asynchronous, LAYOUT, lag=LAG_S, tables=["orders"]), 0
        mark = await watermark.aadvance()
        with engine.connect() as writer:
            writer.exec_driver_sql(f"INSERT INTO orders VALUES ({id_of(0)}, 0)")
            advancing = asyncio.create_task(watermark.aadvance(wait=0.5))
            while not advancing.done():
                await asyncio.sleep(0.01)
                turns += 1
        await asynchronous.dispose()
        return mark, turns

    mark, turns = asyncio.run(read())
    assert mark > early
    assert turns > 1


def test_a_connection_in_a_transaction_is_refused_and_keeps_its_rows(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql(f"INSERT INTO orders VALUES ({id_of(0)}, 7)")
        with pytest.raises(ConfigError, match="in a transaction"):
            Watermark(connection, LAYOUT, lag=LAG_S, tables=["orders"]).advance()
        connection.commit()
        assert connection.exec_driver_sql("SELECT writer FROM orders").scalars().all() == [7]


def test_a_connection_of_a_driver_will_do_and_keeps_its_rows_if_it_is_in_a_transaction(engine: sa.Engine) -> None:
    insert(engine, an_id := id_of(0))
    with contextlib.closing(engine.raw_connection()) as pooled:
        watermark = Watermark(pooled.driver_connection, LAYOUT, lag=LAG_S, tables=["orders"])
        passes(watermark, an_id)
        assert list(watermark.pages("SELECT id FROM orders")) == [[(an_id,)]]
        cursor = pooled.driver_connection.cursor()
        cursor.execute(f"INSERT INTO orders VALUES ({id_of(0)}, 7)")
        with pytest.raises(ConfigError, match="in a transaction"):
            watermark.advance()
        assert cursor.execute("SELECT count(*) FROM orders WHERE writer = 7").fetchone() == (1,)


def test_a_driver_that_commits_each_statement_with_another_isolation_level_will_do(engine: sa.Engine) -> None:
    insert(engine, an_id := id_of(0))
    options = {"autocommit": True, "options": "-c default_transaction_isolation=serializable"}
    fresh = sa.create_engine(engine.url, connect_args=options)
    watermark = Watermark(fresh, LAYOUT, lag=LAG_S, tables=["orders"])
    passes(watermark, an_id)
    assert list(watermark.pages("SELECT id FROM orders")) == [[(an_id,)]]
    fresh.dispose()


@pytest.mark.parametrize("lag", [0, 100_000, float("nan")])
def test_an_impossible_lag_is_refused(lag: float) -> None:
    with pytest.raises((ConfigError, ValueError), match=r"lag|NaN"):
        Watermark(None, "default", lag=lag)


@pytest.mark.parametrize("table", ["orders; DROP TABLE x", "a.b.c", "x" * 60])
def test_a_fence_of_a_bad_name_is_refused(table: str) -> None:
    with pytest.raises(ConfigError, match="not a name"):
        fence("postgresql", LAYOUT, table, lag_ms=300)


def test_the_command_prints_what_psql_runs(
    postgresql_server: DatabaseServer, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = sa.create_engine(postgresql_server.new_database())
    run(engine, "CREATE TABLE orders (id bigint PRIMARY KEY, writer int)")
    assert main(["sql", "postgresql", "--fence", "orders", "--lag", "2"]) == 0
    text, host = capsys.readouterr().out, str(getattr(postgresql_server, "directory", ""))
    client = ["psql", "-X", "-h", host, "-U", "postgres", "-v", "ON_ERROR_STOP=1", str(engine.url.database)]
    subprocess.run(client, input=text, text=True, check=True, capture_output=True)
    insert(engine, id_of(1))
    with pytest.raises(sa.exc.DBAPIError, match="older than 2000 ms"):
        insert(engine, id_of(3))
    engine.dispose()


def test_there_is_no_fence_for_another_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "mariadb", "--fence", "orders"]) == 3
    assert "Readers are for postgresql alone" in " ".join(capsys.readouterr().err.split())


def test_the_first_program_of_the_page_runs(postgresql_server: DatabaseServer, tmp_path: Path) -> None:
    url = postgresql_server.new_database("shop")
    engine = sa.create_engine(url)
    make_table(engine, lag_ms=60_000)
    insert(engine, id_of(0))
    # as if a minute had passed
    run(engine, f"ALTER TABLE orders DISABLE TRIGGER ALL; INSERT INTO orders VALUES ({id_of(90)}, 0)")
    run(engine, "ALTER TABLE orders ENABLE TRIGGER ALL")
    assert PAGE in PAGES
    script = tmp_path / "snippet.py"
    text = next(block.text for block in blocks_of(PAGE) if block.language == "python")
    script.write_text(text.replace("postgresql+psycopg:///shop", url))
    done = finished(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 rows" in done.stdout, done.stdout
    engine.dispose()
