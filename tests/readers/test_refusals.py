"""Refusals of a watermark, each with the row that a reader would miss without the refusal."""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from snowredis import readers
from snowredis.cli import main
from snowredis.core.sql import fence
from snowredis.errors import ConfigError
from snowredis.readers import Watermark
from tests.readers.storm import LAYOUT, kind_of, make_table, unchecked
from tests.readers.test_readers import LAG_S, id_of, run
from tests.support.databases import DatabaseServer
from tests.support.servers import RedisServer


@pytest.fixture
def engine(database: DatabaseServer) -> Iterator[sa.Engine]:
    yield from disposed(sa.create_engine(database.new_database()))


@pytest.fixture
def on_postgresql(postgresql_server: DatabaseServer) -> Iterator[sa.Engine]:
    yield from disposed(sa.create_engine(postgresql_server.new_database()))


@pytest.fixture
def on_mariadb(mariadb_server: DatabaseServer) -> Iterator[sa.Engine]:
    yield from disposed(sa.create_engine(mariadb_server.new_database()))


def disposed(engine: sa.Engine) -> Iterator[sa.Engine]:
    yield engine
    engine.dispose()


def fence_of(engine: sa.Engine, table: str, column: str = "id") -> None:
    run(engine, fence(kind_of(engine), LAYOUT, table, column, lag_ms=round(LAG_S * 1000)))


def ids_below_the_mark(watermark: Watermark, table: str) -> list[int]:
    return [row[0] for page in watermark.pages(f"SELECT id FROM {table}") for row in page]


def misses_a_row(watermark: Watermark, table: str, *, into: str = "", row: str = "{}") -> bool:
    """Return whether a reader that checks nothing misses a row with an old id, which the fence should refuse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watermark, "_check", unchecked)
        patch.setattr(watermark, "_tables", (table,))
        first = ids_below_the_mark(watermark, table)
        if not inserted(watermark._database, f"INSERT INTO {into or table} VALUES ({row.format(early := id_of(5))})"):
            return False
        return early not in first + ids_below_the_mark(watermark, table)


def inserted(engine: sa.Engine, *statements: str) -> bool:
    """Run statements in a transaction; return False if the fence refuses a row."""
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    except sa.exc.DBAPIError as error:
        if "readers may have passed" not in str(error):
            raise
        return False
    return True


def refused(watermark: Watermark, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        watermark.advance()


def test_a_table_without_a_fence_is_refused_where_it_is_named_and_where_it_is_read(engine: sa.Engine) -> None:
    make_table(engine, fenced=True, lag_ms=300)
    run(engine, "CREATE TABLE bills (id bigint PRIMARY KEY)")
    watermark = Watermark(engine, LAYOUT, lag=LAG_S, tables=["orders", "bills"])
    refused(watermark, rf"rows of bills could be missed: it has no fence, .*sql {kind_of(engine)} --fence bills")
    refused(Watermark(engine, LAYOUT, tables=["gone"]), "no table with a fence can be seen: gone")
    with pytest.raises(ConfigError, match="the query names no table with a fence"):
        list(Watermark(engine, LAYOUT, lag=LAG_S).pages("SELECT id FROM bills"))
    assert misses_a_row(watermark, "bills")
    fence_of(engine, "bills")
    watermark.advance()
    assert not misses_a_row(watermark, "bills")


def test_a_fence_of_another_column_is_refused(engine: sa.Engine) -> None:
    run(engine, "CREATE TABLE orders (id bigint PRIMARY KEY, parent bigint)")
    fence_of(engine, "orders", "parent")
    watermark = Watermark(engine, LAYOUT, lag=LAG_S)
    refused(watermark, "not of the layout .* and the column id")
    assert misses_a_row(watermark, "orders", row=f"{{}}, {id_of(-60)}")


def test_a_fence_that_the_user_may_not_see_is_refused_unless_it_is_trusted(on_mariadb: sa.Engine) -> None:
    make_table(on_mariadb, fenced=True, lag_ms=300)
    run(on_mariadb, "CREATE TABLE bills (id bigint PRIMARY KEY)")
    run(on_mariadb, f"GRANT SELECT ON {on_mariadb.url.database}.* TO reader@localhost IDENTIFIED BY ''")
    reading = sa.create_engine(on_mariadb.url.set(username="reader"))
    refused(Watermark(reading, LAYOUT), "no table with a fence can be seen: any table")
    refused(Watermark(reading, LAYOUT, tables=["orders"]), "grant this user the right TRIGGER, or say fence='trusted'")
    # the table that has none looks the same
    refused(Watermark(reading, LAYOUT, tables=["bills"]), "grant this user the right TRIGGER, or say fence='trusted'")
    assert misses_a_row(Watermark(on_mariadb, LAYOUT, lag=LAG_S), "bills")
    assert Watermark(reading, LAYOUT, tables=["orders"], fence="trusted").advance() > 0
    run(on_mariadb, "ALTER TABLE orders ENGINE = Aria")
    refused(Watermark(reading, LAYOUT, tables=["orders"], fence="trusted"), "Aria")
    reading.dispose()


def test_trust_needs_names_and_does_not_stand_in_for_what_can_be_seen(on_postgresql: sa.Engine) -> None:
    for bad in ({"fence": "trusted"}, {"fence": "none", "tables": ["orders"]}):
        with pytest.raises(ConfigError, match="fence must be"):
            Watermark(on_postgresql, LAYOUT, **bad)
    make_table(on_postgresql, fenced=False)
    refused(Watermark(on_postgresql, LAYOUT, tables=["orders"], fence="trusted"), "it has no fence")


@pytest.mark.parametrize("storage", ["Aria", "MyISAM"])
def test_an_engine_without_row_locks_is_refused(on_mariadb: sa.Engine, storage: str) -> None:
    make_table(on_mariadb, fenced=True, lag_ms=300)
    run(on_mariadb, f"ALTER TABLE orders ENGINE = {storage}")
    # a table that is empty would be locked
    run(on_mariadb, f"INSERT INTO orders VALUES ({id_of(0)}, 0)")
    watermark = Watermark(on_mariadb, LAYOUT, lag=LAG_S)
    refused(watermark, f"it is BASE TABLE {storage}, not BASE TABLE InnoDB")
    base, seen = id_of(0, 1), set[int]()
    step = f"{base} + ((seq * 200 DIV {LAYOUT.tick_ms}) << {LAYOUT.timestamp_shift})"
    slow = f"INSERT INTO orders SELECT {step}, SLEEP(0.2) FROM seq_1_to_8"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watermark, "_check", unchecked)
        thread = threading.Thread(target=run, args=(on_mariadb, slow))
        thread.start()
        while thread.is_alive():
            seen |= set(ids_below_the_mark(watermark, "orders"))
            time.sleep(0.05)
        thread.join()
        time.sleep(LAG_S)
        seen |= set(ids_below_the_mark(watermark, "orders"))
    assert len(seen) < 1 + 8


def test_a_child_table_without_a_fence_is_refused(on_postgresql: sa.Engine) -> None:
    make_table(on_postgresql, fenced=True, lag_ms=300)
    run(on_postgresql, "CREATE TABLE old_orders () INHERITS (orders)")
    watermark = Watermark(on_postgresql, LAYOUT, lag=LAG_S)
    refused(watermark, "rows of old_orders could be missed: it has no fence")
    assert misses_a_row(watermark, "orders", into="old_orders", row="{}, 1")
    fence_of(on_postgresql, "old_orders")
    watermark.advance()
    assert not misses_a_row(watermark, "orders", into="old_orders", row="{}, 1")


PARTITIONED = "CREATE TABLE events (id bigint, state text, PRIMARY KEY (id, state)) PARTITION BY LIST (state)"
NEW = "CREATE TABLE events_new PARTITION OF events FOR VALUES IN ('new')"
PAID = "CREATE TABLE events_paid PARTITION OF events FOR VALUES IN ('paid')"


@pytest.mark.parametrize(
    "spoil", ["DROP TRIGGER snowredis_fence ON {}", "ALTER TABLE {} DISABLE TRIGGER snowredis_fence"]
)
def test_a_table_and_a_partition_whose_fence_is_gone_or_switched_off_are_refused(
    on_postgresql: sa.Engine, spoil: str
) -> None:
    for table in (PARTITIONED, NEW, PAID):
        run(on_postgresql, table)
    run(on_postgresql, "CREATE TABLE orders (id bigint PRIMARY KEY)")
    for table, part, row in (("orders", "orders", "{}"), ("events", "events_new", "{}, 'new'")):
        fence_of(on_postgresql, table)
        watermark = Watermark(on_postgresql, LAYOUT, lag=LAG_S, tables=[table])
        watermark.advance()
        # a partition's own trigger cannot be dropped
        with contextlib.suppress(sa.exc.DBAPIError):
            run(on_postgresql, spoil.format(part))
            refused(watermark, f"rows of {part} could be missed: it has no fence, or one that is switched off")
            assert misses_a_row(watermark, table, row=row)


def test_what_is_not_known_to_work_is_refused(engine: sa.Engine) -> None:
    make_table(engine, fenced=True, lag_ms=300)
    run(engine, "CREATE VIEW recent AS SELECT * FROM orders")
    refused(Watermark(engine, LAYOUT, tables=["recent"]), "it is (no table|VIEW )")
    # a view over a table with a fence: the table is named
    assert list(Watermark(engine, LAYOUT, tables=["orders"], lag=LAG_S).pages("SELECT id FROM recent")) == []


def test_an_update_moves_an_old_row_to_another_partition_and_an_insert_of_its_id_is_refused(
    on_postgresql: sa.Engine,
) -> None:
    for table in (PARTITIONED, NEW, PAID):
        run(on_postgresql, table)
    fence_of(on_postgresql, "events")
    made = [id_of(0, worker) for worker in range(5)]
    rows = ", ".join(f"({an_id}, 'new')" for an_id in made)
    run(on_postgresql, f"INSERT INTO events VALUES {rows}")
    time.sleep(LAG_S + 0.1)
    watermark = Watermark(on_postgresql, LAYOUT, lag=LAG_S)
    assert ids_below_the_mark(watermark, "events") == sorted(made)
    run(on_postgresql, "UPDATE events SET state = 'paid'")
    again = Watermark(on_postgresql, LAYOUT, lag=LAG_S, tables=["events"])
    assert list(again.pages("SELECT id FROM events_paid")) == [[(an_id,) for an_id in sorted(made)]]
    old, other = made[0], made[1]
    insert, delete = (f"INSERT INTO events VALUES ({old}, 'new')", "DELETE FROM events WHERE id = {}")
    for statements in (
        [insert],
        [delete.format(other), insert],
        # the second row of this id would be a new one
        [delete.format(old), insert, insert.replace("new", "paid")],
        ["SAVEPOINT a", delete.format(old), "ROLLBACK TO a", insert],
    ):
        assert not inserted(on_postgresql, *statements), statements
    assert inserted(on_postgresql, delete.format(old), insert)
    assert inserted(on_postgresql, delete.format(old))
    assert not inserted(on_postgresql, insert)


def test_a_page_never_ends_within_an_id(engine: sa.Engine) -> None:
    make_table(engine, fenced=True, lag_ms=300)
    run(engine, "CREATE TABLE items (order_id bigint, k int)")
    made = [id_of(0, worker) for worker in range(4)]
    run(engine, f"INSERT INTO orders VALUES {', '.join(f'({an_id}, 0)' for an_id in made)}")
    items = ", ".join(f"({an_id}, {k})" for an_id, many in zip(made, (3, 5, 1, 2), strict=True) for k in range(many))
    run(engine, f"INSERT INTO items VALUES {items}")
    time.sleep(LAG_S + 0.1)
    query = "SELECT o.id, l.k FROM orders o JOIN items l ON l.order_id = o.id"
    for size in range(1, 13):
        watermark, pages = Watermark(engine, LAYOUT, lag=LAG_S), []
        for page in watermark.pages(query, size=size):
            pages.append(page)
            assert watermark.cursor == page[-1][0] + 1
        rows = [row for page in pages for row in page]
        assert len(set(rows)) == len(rows) == 11
        assert all(one[-1][0] < two[0][0] for one, two in itertools.pairwise(pages))
        assert all(len(page) >= size for page in pages[:-1])


def test_a_reader_of_mariadb_locks_a_bounded_number_of_rows_at_once(
    on_mariadb: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(on_mariadb, fenced=True, lag_ms=300)
    made = sorted(id_of(0, worker) for worker in range(35))
    run(on_mariadb, f"INSERT INTO orders VALUES {', '.join(f'({an_id}, 0)' for an_id in made)}")
    time.sleep(LAG_S + 0.1)
    monkeypatch.setattr(readers, "_STEP_ROWS", 10)
    watermark = Watermark(on_mariadb, LAYOUT, lag=LAG_S, tables=["orders"])
    # no time: one step
    assert watermark.advance(wait=0) == made[10]
    assert watermark.advance(wait=0) == made[21]
    assert watermark.advance() > made[-1]
    fresh = Watermark(on_mariadb, LAYOUT, lag=LAG_S)
    assert ids_below_the_mark(fresh, "orders") == made


def test_doctor_says_the_same_of_a_database(
    engine: sa.Engine, server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def says(database: sa.URL) -> str:
        main(["doctor", "--url", server.url, "--database", database.render_as_string(hide_password=False)])
        return capsys.readouterr().out

    make_table(engine, fenced=False)
    assert "no table with a fence can be seen" in says(engine.url)
    fence_of(engine, "orders")
    good = says(engine.url)
    assert "the fence of orders refuses ids older than 0.3 s" in good
    assert "could be missed" not in good
    spoil = "ALTER TABLE orders ENGINE = Aria"
    if kind_of(engine) == "postgresql":
        spoil = "CREATE TABLE old_orders () INHERITS (orders)"
    run(engine, spoil)
    refusal = r"rows of (old_)?orders\s+could\s+be\s+missed:"
    assert re.search(refusal, says(engine.url))
    with pytest.raises(ConfigError, match=refusal):
        Watermark(engine, LAYOUT, lag=LAG_S).advance()
    assert re.search(r"error +database", says(engine.url.set(database="gone")))


def test_a_node_of_galera_is_refused() -> None:
    # with two real nodes, a reader missed the row of a transaction that was open on the other one
    def run_on_galera(statement: str) -> list[Any]:
        return [("wsrep_on", "ON")] if statement.startswith("SHOW GLOBAL VARIABLES") else [(None,)]

    assert "node of Galera" in readers.unfit(run_on_galera, "mariadb")
    assert readers.unfit(run_on_galera, "postgresql") == ""
