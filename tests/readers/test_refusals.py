"""Refusals of a watermark, each with the row that a reader would miss without the refusal."""

import itertools
import re
import time
from typing import NamedTuple

import psycopg
import pytest
import sqlalchemy as sa

import snowredis
from snowredis.core.sql import fence
from snowredis.errors import ConfigError
from snowredis.readers import Watermark
from tests.readers.conftest import LAG_S
from tests.readers.storm import LAYOUT, run
from tests.readers.test_readers import id_of, insert

# another epoch: the ids of this layout are lower
LATER = snowredis.Layout(epoch_ms=LAYOUT.epoch_ms + 365 * 86_400_000)


def fence_of(table: str, column: str = "id", *, lag_s: float = LAG_S, layout: snowredis.Layout = LAYOUT) -> str:
    return fence("postgresql", layout, table, column, lag_ms=round(lag_s * 1000))


class Case(NamedTuple):
    """Rows that a reader without its check would read, and miss. {early}, {young} and {now} stand for ids.

    Attributes:
        message: of the refusal.
        query: of the reader, which begins after *before*.
        then: what happens after it has read.
        truth: query of all rows; empty: the one of the reader.
        tables: of the reader.
    """

    message: str
    query: str = "SELECT id FROM orders"
    before: str = ""
    then: str = "INSERT INTO orders VALUES ({early}, 0)"
    truth: str = ""
    tables: tuple[str, ...] = ()


BILLS = "CREATE TABLE bills (id bigint PRIMARY KEY);"
IN_BILLS = "INSERT INTO bills VALUES ({early});"
IN_ORDERS = "INSERT INTO orders VALUES ({early}, 0)"
# a row before which the reader begins
YOUNG = "INSERT INTO orders VALUES ({young}, 1);"
WIDER = "ALTER TABLE orders ALTER writer TYPE bigint"
READ_BILLS = (
    "CREATE FUNCTION f() RETURNS SETOF bigint LANGUAGE plpgsql AS 'BEGIN RETURN QUERY SELECT id FROM bills; END';"
)
IS_PAID = (
    "CREATE FUNCTION is_paid(bigint) RETURNS bool LANGUAGE plpgsql AS "
    "'BEGIN RETURN EXISTS (SELECT FROM bills WHERE id = $1); END';"
)
# a table in partitions
EVENTS = (
    "CREATE TABLE events (id bigint, state text, PRIMARY KEY (id, state)) PARTITION BY LIST (state);"
    "CREATE TABLE events_new PARTITION OF events FOR VALUES IN ('new');"
    f"CREATE TABLE events_paid PARTITION OF events FOR VALUES IN ('paid'); {fence_of('events')}"
)
NO_FENCE = "could be missed: it has no fence"
NO_FENCE_OF_BILLS = f"rows of bills {NO_FENCE}"
NOT_IN_ORDER = "the query reads .* but not by the ids of its result"
NOT_OF_WRITER = "not of the layout .* and the column writer"
DROP_FENCE = "DROP TRIGGER snowredis_fence ON orders;"
# what looks like the fence, and refuses nothing
NO_CHECK = "EACH ROW WHEN (NEW.id < 5) EXECUTE FUNCTION snowredis_fence('300', 'id', 'x', 'orders', '1');"
CASES = {
    "a table without a fence": Case(NO_FENCE_OF_BILLS, "SELECT id FROM bills", BILLS, IN_BILLS),
    "a named table without a fence": Case(
        NO_FENCE_OF_BILLS, "SELECT id FROM bills", BILLS, IN_BILLS, tables=("bills",)
    ),
    "a table of the same name in another schema": Case(
        rf"rows of eu.orders {NO_FENCE}",
        "SELECT id FROM eu.orders",
        "CREATE SCHEMA eu; CREATE TABLE eu.orders (id bigint)",
        "INSERT INTO eu.orders VALUES ({early})",
    ),
    "a union": Case(NO_FENCE_OF_BILLS, "SELECT id FROM orders UNION SELECT id FROM bills", BILLS, IN_BILLS),
    "a function in a union": Case(
        NOT_IN_ORDER,
        "SELECT id FROM orders UNION ALL SELECT f FROM f()",
        BILLS + READ_BILLS,
        IN_BILLS,
        tables=("orders",),
    ),
    "another column of a table with a fence": Case(
        NOT_OF_WRITER, "SELECT writer AS id FROM orders", WIDER, "INSERT INTO orders VALUES ({now}, {early})"
    ),
    "two columns of one table": Case(
        NOT_OF_WRITER,
        "SELECT writer AS id FROM orders UNION ALL SELECT id FROM orders",
        WIDER,
        "INSERT INTO orders VALUES ({now}, {early})",
    ),
    "a computed id": Case(
        NOT_IN_ORDER, "SELECT id - (5000::bigint << 22) AS id FROM orders", "", "INSERT INTO orders VALUES ({now}, 0)"
    ),
    "a limit": Case(
        NOT_IN_ORDER,
        "SELECT id FROM orders LIMIT 1",
        "INSERT INTO orders VALUES ({young}, 0), ({young} + 1, 0)",
        "",
        "SELECT id FROM orders",
    ),
    "a join": Case(
        r'reads "public"."bills", but not by the ids of its result. .* name the tables of the ids with tables=',
        "SELECT o.id FROM orders o JOIN bills b ON b.id = o.writer",
        BILLS + YOUNG,
        "INSERT INTO bills VALUES (1)",
    ),
    "a table in a subquery": Case(
        NOT_IN_ORDER,
        "SELECT id FROM orders o WHERE writer = (SELECT max(id) FROM bills)",
        BILLS + YOUNG,
        "INSERT INTO bills VALUES (1)",
    ),
    "a function that reads a table": Case(
        "the query reads is_paid, but not by the ids of its result",
        "SELECT id FROM orders WHERE is_paid(id)",
        BILLS + IS_PAID + YOUNG,
        "INSERT INTO bills SELECT id FROM orders",
    ),
    "a function of the selected columns that reads a table": Case(
        "the query reads f, but not by the ids of its result",
        "SELECT id, f() FROM orders",
        BILLS + READ_BILLS + YOUNG,
        "INSERT INTO bills VALUES (1)",
    ),
    "a condition that the time fulfils": Case(
        "the query reads CURRENT_TIMESTAMP.* but not by the ids of its result",
        "SELECT id FROM orders WHERE to_timestamp(writer) < CURRENT_TIMESTAMP",
        "INSERT INTO orders VALUES ({young}, extract(epoch FROM clock_timestamp()) + 1)",
        "SELECT pg_sleep(1.5)",
    ),
    "a fence of another layout": Case(
        "not of the layout .* and the column id",
        "SELECT id FROM bills",
        BILLS + fence_of("bills", layout=LATER),
        IN_BILLS,
    ),
    "a fence with a longer lag than the reader's": Case(
        "its fence has a lag of 10000 ms, the reader one of 300 ms",
        "SELECT id FROM bills",
        BILLS + fence_of("bills", lag_s=10),
        IN_BILLS,
    ),
    "a fence that is dropped": Case(NO_FENCE, then=DROP_FENCE + IN_ORDERS),
    "a fence that is switched off": Case(
        f"{NO_FENCE}, or one that is switched off",
        then=f"ALTER TABLE orders DISABLE TRIGGER snowredis_fence; {IN_ORDERS}",
    ),
    "a fence that is another trigger now": Case(
        "its fence was changed",
        then=f"CREATE OR REPLACE TRIGGER snowredis_fence AFTER INSERT ON orders FOR {NO_CHECK} {IN_ORDERS}",
    ),
    "a fence that is checked at the end of the transaction": Case(
        NO_FENCE,
        then=f"{DROP_FENCE} CREATE CONSTRAINT TRIGGER snowredis_fence AFTER INSERT ON orders DEFERRABLE FOR {NO_CHECK} "
        + IN_ORDERS,
    ),
    "a function of the fence that does nothing": Case(
        "its fence was changed",
        then="CREATE OR REPLACE FUNCTION snowredis_fence() RETURNS trigger LANGUAGE plpgsql AS "
        f"'BEGIN RETURN NULL; END'; {IN_ORDERS}",
    ),
    "a renamed column": Case(
        "its column was renamed",
        then="ALTER TABLE orders RENAME id TO key; ALTER TABLE orders ADD id bigint;"
        "INSERT INTO orders VALUES ({now}, 0, {early})",
    ),
    "a fence that was made anew": Case(
        "its fence was made after the cursor had passed", then=f"{DROP_FENCE} {IN_ORDERS}; {fence_of('orders')}"
    ),
    "a child table without a fence": Case(
        f"rows of old_orders {NO_FENCE}",
        then="CREATE TABLE old_orders () INHERITS (orders); INSERT INTO old_orders VALUES ({early}, 0)",
    ),
    "a table that takes the name": Case(
        "other tables are read than before",
        before=f"{BILLS} {fence_of('bills')} INSERT INTO bills VALUES ({{young}})",
        then="ALTER TABLE orders RENAME TO old; ALTER TABLE bills RENAME TO orders",
    ),
    "a materialized view": Case(
        "rows of m could be missed: it is no table",
        "SELECT id FROM m",
        f"{BILLS} CREATE MATERIALIZED VIEW m AS SELECT * FROM bills",
        f"{IN_BILLS} REFRESH MATERIALIZED VIEW m",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_reader_that_would_miss_a_row_is_refused(
    engine: sa.Engine, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(watermark: Watermark) -> list[int]:
        return [row[0] for page in watermark.pages(case.query) for row in page]

    ids = {"early": id_of(5)}
    run_with_ids(engine, case.before, ids)
    time.sleep(LAG_S + 0.1)
    # one reader checks, the other one does not
    watermark, careless = (Watermark(engine, LAYOUT, lag=LAG_S, tables=case.tables) for _ in range(2))
    refusals, seen = [], list[int]()
    for statements in (case.then, ""):
        try:
            read(watermark)
        except ConfigError as error:
            refusals.append(str(error))
        with monkeypatch.context() as patch:
            patch.setattr(Watermark, "_check", lambda *_: None)
            seen += read(careless)
        run_with_ids(engine, statements, ids)
    assert refusals
    assert all(re.search(case.message, refusal) for refusal in refusals)
    with engine.connect() as connection:
        assert set(connection.exec_driver_sql(case.truth or case.query).scalars()) - set(seen)


def run_with_ids(engine: sa.Engine, statements: str, ids: dict[str, int]) -> None:
    """Run statements in which {now} stands for an id of now, and {young} for the one where it stood first."""

    def id_of_name(name: str) -> int:
        return id_of(0) if name == "now" else ids.setdefault(name, id_of(0))

    run(engine, re.sub(r"\{(early|young|now)\}", lambda found: str(id_of_name(found[1])), statements))


@pytest.mark.parametrize("part", ["FOR UPDATE SKIP LOCKED", "TABLESAMPLE SYSTEM (50)", "LIMIT 5"])
def test_a_query_that_leaves_rows_out_is_refused_though_its_table_is_named(engine: sa.Engine, part: str) -> None:
    with pytest.raises(ConfigError, match=NOT_IN_ORDER):
        list(Watermark(engine, LAYOUT, lag=LAG_S, tables=["orders"]).pages(f"SELECT id FROM orders {part}"))


def test_a_named_table_is_read_with_a_function_as_it_is_when_the_page_is_read(engine: sa.Engine) -> None:
    run(engine, f"{BILLS} {IS_PAID} INSERT INTO orders VALUES ({id_of(0)}, 0); INSERT INTO bills SELECT id FROM orders")
    time.sleep(LAG_S + 0.1)
    watermark = Watermark(engine, LAYOUT, lag=LAG_S, tables=["orders"])
    assert len(list(watermark.pages("SELECT id FROM orders WHERE is_paid(id) AND abs(writer) = 0"))) == 1


def test_a_text_that_looks_like_a_function_and_a_function_of_the_row_alone_will_do(engine: sa.Engine) -> None:
    query = "SELECT id FROM orders WHERE lower(writer::varchar(9)) NOT IN ('CURRENT_DATE', 'it''s now()')"
    list(Watermark(engine, LAYOUT, lag=LAG_S).pages(query))


def test_one_cursor_for_two_queries_is_refused(engine: sa.Engine) -> None:
    insert(engine, id_of(0))
    run(engine, f"{BILLS} {fence_of('bills')} INSERT INTO bills VALUES ({id_of(0)})")
    time.sleep(LAG_S + 0.1)
    watermark = Watermark(engine, LAYOUT, lag=LAG_S)
    assert len(list(watermark.pages("SELECT id FROM orders"))) == 1
    with pytest.raises(ConfigError, match="another query"):
        list(watermark.pages("SELECT id FROM bills"))
    # without the refusal
    watermark._select, watermark._roots = "", set()
    assert list(watermark.pages("SELECT id FROM bills")) == []


def test_a_mark_below_which_the_fence_lets_ids_in_is_refused_until_it_does_not(engine: sa.Engine) -> None:
    watermark = Watermark(engine, LAYOUT, lag=LAG_S, after=id_of(0))
    with pytest.raises(ConfigError, match="it lets ids below the mark in"):
        list(watermark.pages("SELECT id FROM orders"))
    insert(engine, late := id_of(0.1))
    time.sleep(LAG_S + 0.1)
    # without the refusal it would have been passed
    assert watermark.mark > late
    assert list(watermark.pages("SELECT id FROM orders")) == []


def test_a_watermark_that_does_not_know_its_tables_is_refused(engine: sa.Engine) -> None:
    with pytest.raises(ConfigError, match="which tables are read"):
        Watermark(engine, LAYOUT, lag=LAG_S).advance()
    with pytest.raises(psycopg.errors.UndefinedTable, match="does not exist"):
        Watermark(engine, LAYOUT, lag=LAG_S, tables=["gone"]).advance()
    run(engine, "CREATE VIEW recent AS SELECT * FROM orders")
    with pytest.raises(ConfigError, match="it is no table"):
        Watermark(engine, LAYOUT, lag=LAG_S, tables=["recent"]).advance()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders",
        "SELECT id FROM recent",
        "SELECT id, writer FROM orders o WHERE writer > 0 -- and a comment",
        "SELECT id FROM orders UNION ALL SELECT id FROM bills",
        "SELECT id FROM orders UNION SELECT id FROM bills",
        "SELECT id FROM (SELECT id FROM orders WHERE writer = 1) AS x",
        "WITH x AS (SELECT id FROM orders) SELECT id FROM x",
        "SELECT id, count(*) FROM orders GROUP BY id",
        'SELECT id FROM "Odd ""Name"" of it" AS "or der"',
        "SELECT id FROM events",
        "SELECT parent AS id FROM orders_of_parents",
    ],
)
def test_a_query_that_reads_by_the_ids_of_tables_will_do(engine: sa.Engine, query: str) -> None:
    odd = '"Odd ""Name"" of it"'
    before = f"{BILLS} {fence_of('bills')} CREATE VIEW recent AS SELECT * FROM orders; {EVENTS}"
    before += f"CREATE TABLE {odd} (id bigint); CREATE TABLE orders_of_parents (id int, parent bigint);"
    run(engine, before + fence_of("orders_of_parents", "parent") + fence_of("orders").replace('"orders"', odd))
    for _ in range(2):
        watermark = Watermark(engine, LAYOUT, lag=LAG_S)
        list(watermark.pages(query))
        assert watermark.mark > 0
        # indexes instead of sequential scans
        run(engine, f"ALTER DATABASE {engine.url.database} SET enable_seqscan = off")
        engine.dispose()


def test_the_lag_of_a_fence_is_changed_and_nothing_below_a_mark_gets_in(engine: sa.Engine) -> None:
    insert(engine, id_of(0))
    time.sleep(LAG_S + 0.1)
    watermark = Watermark(engine, LAYOUT, lag=LAG_S)
    assert len(list(watermark.pages("SELECT id FROM orders"))) == 1
    passed = watermark.mark
    for lag_s in (10, LAG_S, 20):
        run(engine, fence_of("orders", lag_s=lag_s))
        assert not inserted(engine, f"INSERT INTO orders VALUES ({passed - 1}, 0)")
    insert(engine, new := id_of(0))
    with pytest.raises(ConfigError, match="its fence has a lag of 20000 ms, the reader one of 300 ms"):
        watermark.advance()
    # without what the new fence has of the old one
    careless = re.sub("EXECUTE 'SELECT ' .* INTO lowest;", "", fence_of("orders", lag_s=20))
    with engine.connect() as connection:
        connection.exec_driver_sql(careless.replace("%", "%%"))
        connection.exec_driver_sql(f"INSERT INTO orders VALUES ({passed - 1}, 0)")
    longer = Watermark(engine, LAYOUT, lag=20, after=watermark.cursor)
    assert list(longer.pages("SELECT id FROM orders")) == []
    assert longer.mark == passed
    run(engine, fence_of("orders"))
    time.sleep(LAG_S + 0.1)
    again = Watermark(engine, LAYOUT, lag=LAG_S, after=longer.cursor)
    assert list(again.pages("SELECT id FROM orders")) == [[(new,)]]


def test_a_renamed_column_lets_nothing_old_in_and_its_fence_is_made_again(engine: sa.Engine) -> None:
    run(engine, EVENTS)
    run(engine, f"INSERT INTO events VALUES ({id_of(0)}, 'new')")
    time.sleep(LAG_S + 0.1)
    watermark = Watermark(engine, LAYOUT, lag=LAG_S)
    list(watermark.pages("SELECT id FROM events"))
    run(engine, "ALTER TABLE events RENAME id TO key")
    assert not inserted(engine, "DELETE FROM events", f"INSERT INTO events VALUES ({id_of(5)}, 'new')")
    renamed = Watermark(engine, LAYOUT, lag=LAG_S, column="key", after=watermark.cursor)
    with pytest.raises(ConfigError, match="its column was renamed"):
        list(renamed.pages("SELECT key FROM events"))
    run(engine, fence_of("events", "key"))
    list(renamed.pages("SELECT key FROM events"))


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


@pytest.mark.parametrize("spoil", ["DROP TRIGGER snowredis_fence ON", "ALTER TABLE"])
def test_a_partition_whose_fence_is_switched_off_is_refused(engine: sa.Engine, spoil: str) -> None:
    run(engine, EVENTS)
    watermark = Watermark(engine, LAYOUT, lag=LAG_S, tables=["events"])
    watermark.advance()
    if spoil.startswith("DROP"):
        with pytest.raises(sa.exc.DBAPIError, match="requires it"):
            run(engine, f"{spoil} events_new")
        return
    run(engine, f"{spoil} events_new DISABLE TRIGGER snowredis_fence")
    assert inserted(engine, f"INSERT INTO events VALUES ({id_of(5)}, 'new')")
    with pytest.raises(ConfigError, match=f"rows of events_new {NO_FENCE}, or one that is switched off"):
        watermark.advance()


def test_an_update_moves_an_old_row_to_another_partition_and_an_insert_of_its_id_is_refused(engine: sa.Engine) -> None:
    run(engine, EVENTS)
    made = [id_of(0, worker) for worker in range(5)]
    rows = ", ".join(f"({an_id}, 'new')" for an_id in made)
    run(engine, f"INSERT INTO events VALUES {rows}")
    time.sleep(LAG_S + 0.1)
    pages = Watermark(engine, LAYOUT, lag=LAG_S).pages("SELECT id FROM events")
    assert list(pages) == [[(an_id,) for an_id in sorted(made)]]
    run(engine, "UPDATE events SET state = 'paid'")
    again = Watermark(engine, LAYOUT, lag=LAG_S)
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
        assert not inserted(engine, *statements), statements
    assert inserted(engine, delete.format(old), insert)
    assert inserted(engine, delete.format(old))
    assert not inserted(engine, insert)


def test_a_page_never_ends_within_an_id(engine: sa.Engine) -> None:
    run(engine, "CREATE TABLE items (order_id bigint, k int)")
    made = [id_of(0, worker) for worker in range(4)]
    run(engine, f"INSERT INTO orders VALUES {', '.join(f'({an_id}, 0)' for an_id in made)}")
    items = ", ".join(f"({an_id}, {k})" for an_id, many in zip(made, (3, 5, 1, 2), strict=True) for k in range(many))
    run(engine, f"INSERT INTO items VALUES {items}")
    time.sleep(LAG_S + 0.1)
    query = "SELECT o.id, l.k FROM orders o JOIN items l ON l.order_id = o.id"
    for size in range(1, 13):
        watermark, pages = Watermark(engine, LAYOUT, lag=LAG_S, tables=["orders"]), []
        for page in watermark.pages(query, size=size):
            pages.append(page)
            assert page.cursor.next_id == page[-1][0] + 1
        rows = [row for page in pages for row in page]
        assert len(set(rows)) == len(rows) == 11
        assert all(one[-1][0] < two[0][0] for one, two in itertools.pairwise(pages))
        assert all(len(page) >= size for page in pages[:-1])
