"""Migrations of a shop's tables on real databases: there, halfway and back, and to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from snowredis.core.layout import Layout
from snowredis.core.presets import layouts
from snowredis.errors import MergeError, MigrationError
from snowredis.merge.databases import open_database
from snowredis.merge.migrate.migration import Migration
from tests.merge import shop
from tests.support.databases import SERVERS, DatabaseServer, MissingDatabase

LAYOUT = Layout()
ROWS = 60


@pytest.fixture(scope="module", params=list(SERVERS))
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    with ExitStack() as stack:
        try:
            running = stack.enter_context(SERVERS[request.param]())
        except MissingDatabase as error:
            pytest.skip(str(error))
        yield running


class Shop(NamedTuple):
    engine: sa.Engine
    migration: Migration

    def relations(self) -> dict[str, Any]:
        with self.engine.connect() as connection:
            return shop.relations(connection)

    def execute(self, *statements: Any) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement) if isinstance(statement, str) else statement)

    def scalar(self, query: str) -> Any:
        with self.engine.connect() as connection:
            return connection.scalar(sa.text(query))


NewShop = Callable[[], Shop]


@pytest.fixture
def new_shop(server: DatabaseServer) -> Iterator[NewShop]:
    engines = []

    def make() -> Shop:
        url = server.new_database()
        creator = sa.create_engine(url)
        shop.create(creator, ROWS)
        creator.dispose()
        engines.append(open_database(url))
        return Shop(engines[-1], Migration(engines[-1], "customers", "id"))

    yield make
    for engine in engines:
        engine.dispose()


def no_errors(migration: Migration) -> bool:
    checks = migration.verify()
    return bool(checks) and not any(check.wrong or check.orphans for check in checks)


def begin(place: Shop, ids: Any) -> int:
    """Run the steps before the switch, with writes in between; return what is added to old ids."""
    plan, proof = place.migration.plan(LAYOUT, ids=ids, references=shop.BY_HAND)
    assert proof.distinct
    place.migration.start(plan)
    # what is written from now on is in both columns
    place.execute(
        shop.customers.insert().values(name="during", referrer_id=7),
        sa.update(shop.customers).where(shop.customers.c.name == "c5").values(referrer_id=9),
        shop.notes.insert().values(about=3),
    )
    place.migration.backfill()
    assert no_errors(place.migration)
    return plan.offset


def switch(place: Shop, offset: int) -> int:
    """Switch, and write as the new code and the old code do; return a new id."""
    before = place.relations()
    place.migration.switch()
    assert place.relations() == before
    assert no_errors(place.migration)
    entry = place.migration.entry()
    assert entry
    new_id = LAYOUT.compose(tick=LAYOUT.tick_at(entry.plan.start_ms) + 60_000, worker=3)
    place.execute(
        f"INSERT INTO customers (id, name, referrer_id) VALUES ({new_id}, 'new', {new_id})",
        f"INSERT INTO companies (id, tax) VALUES ({new_id}, 'new')",
        f"INSERT INTO memberships (club, customer_id) VALUES (1, {new_id})",
        f"INSERT INTO visits (club, customer_id) VALUES (1, {new_id})",
        f"INSERT INTO notes (about) VALUES ({new_id})",
        f"UPDATE customers SET referrer_id = {new_id} WHERE name = 'c9'",
        f"UPDATE customers SET name = 'renamed' WHERE id = {1 + offset}",
    )
    if place.engine.dialect.name != "sqlite":
        # a process with the old code: the database counts on
        place.execute("INSERT INTO customers (name) VALUES ('late')")
        place.execute("INSERT INTO notes (about) SELECT id FROM customers WHERE name = 'late'")
        assert place.scalar("SELECT id - id_old FROM customers WHERE name = 'late'") == offset
    return new_id


def test_there_and_back_and_to_the_end_no_row_is_lost(new_shop: NewShop) -> None:
    place = new_shop()
    schema, kind = shop.schema_of(place.engine), place.engine.dialect.name
    # on SQLite, where all columns have 64 bits, ids that are kept need no second columns
    switch(place, begin(place, "shift" if kind == "sqlite" else "keep"))
    before = place.relations()
    place.migration.rollback()
    assert shop.schema_of(place.engine) == schema
    assert place.relations() == before
    place.execute(shop.customers.insert().values(name="after"))
    # "new" and "late" were counted like all others
    assert place.scalar("SELECT max(id) FROM customers") < ROWS + 10

    new_id = switch(place, begin(place, "shift"))
    before = place.relations()
    place.migration.finish()
    assert place.relations() == before
    assert place.scalar("SELECT max(id) FROM customers") == new_id
    after = shop.schema_of(place.engine)
    if kind != "sqlite":
        for parts in (*schema.values(), *after.values()):
            # INTEGER became BIGINT
            parts["columns"] = [(name, nullable) for name, _, nullable in parts["columns"]]
    assert after == schema
    with pytest.raises(MigrationError, match="is finished, so rollback was refused"):
        place.migration.rollback()


def test_columns_of_64_bits_are_not_rewritten(server: DatabaseServer) -> None:
    url = server.new_database()
    creator = sa.create_engine(url)
    metadata = sa.MetaData()
    kind = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    orders = sa.Table("orders", metadata, sa.Column("id", kind, primary_key=True), sa.Column("name", sa.Text))
    metadata.create_all(creator)
    creator.dispose()
    engine = open_database(url)
    schema = sa.inspect(engine).default_schema_name
    place = Shop(engine, Migration(engine, "orders", "id", schema))
    place.execute(*(orders.insert().values(name=str(number)) for number in range(5)))
    plan, _ = place.migration.plan(LAYOUT)
    assert (plan.tables, plan.offset, plan.counted) == ((), 0, True)
    place.migration.start(plan)
    place.migration.backfill()
    assert place.migration.verify() == []
    place.migration.switch()
    new_id = LAYOUT.compose(tick=LAYOUT.tick_at(plan.start_ms) + 1, worker=3)
    place.execute(f"INSERT INTO orders (id, name) VALUES ({new_id}, 'new')")
    if server.name != "sqlite":
        # AUTO_INCREMENT of MariaDB would go on from the new id
        place.execute("INSERT INTO orders (name) VALUES ('late')")
        assert place.scalar("SELECT id FROM orders WHERE name = 'late'") == 6
        place.migration.finish()
        with pytest.raises(sa.exc.DBAPIError):
            place.execute("INSERT INTO orders (name) VALUES ('too late')", "SELECT * FROM nothing")
    engine.dispose()


def test_ids_of_a_layout_move_below_those_of_another(server: DatabaseServer) -> None:
    twitter, now_ms = layouts["twitter"], time.time_ns() // 1_000_000
    old = [
        twitter.compose(tick=twitter.tick_at(now_ms) - 1000 * number, worker=number, sequence=number)
        for number in range(5)
    ]
    url = server.new_database()
    creator, metadata = sa.create_engine(url), sa.MetaData()
    key = sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False)
    orders = sa.Table("orders", metadata, key, sa.Column("name", sa.String(20)))
    metadata.create_all(creator)
    creator.dispose()
    place = Shop(open_database(url), Migration(open_database(url), "orders", "id"))
    place.execute(*(orders.insert().values(id=an_id, name=str(an_id)) for an_id in old))
    with pytest.raises(MigrationError, match="old ids cannot be kept"):
        place.migration.plan(LAYOUT, old_layout=twitter, ids="keep")
    plan, proof = place.migration.plan(LAYOUT, old_layout=twitter)
    assert (plan.counted, proof.distinct, proof.sorted) == (False, True, True)

    def ids() -> dict[int, str]:
        with place.engine.connect() as connection:
            return {row.id: row.name for row in connection.execute(sa.select(orders))}

    place.migration.start(plan)
    place.migration.backfill()
    place.migration.switch()
    assert ids() == {an_id + plan.offset: str(an_id) for an_id in old}
    new_id = LAYOUT.compose(tick=LAYOUT.tick_at(now_ms) + 60_000, worker=3)
    assert new_id > max(ids())
    place.execute(orders.insert().values(id=new_id, name="new"))
    place.migration.rollback()
    assert ids() == {**{an_id: str(an_id) for an_id in old}, new_id - plan.offset: "new"}
    place.engine.dispose()


def test_what_would_go_on_using_old_values_is_refused(new_shop: NewShop) -> None:
    place = new_shop()
    kind = place.engine.dialect.name
    for create, message in {
        "postgresql": [
            (
                "CREATE VIEW all_customers AS SELECT id FROM customers",
                "rule _RETURN on view all_customers uses",
            ),
            ("DROP VIEW all_customers", ""),
            ("ALTER TABLE notes ADD CHECK (about > 0)", "constraint notes_about_check on table notes uses"),
            ("ALTER TABLE notes DROP CONSTRAINT notes_about_check", ""),
            ("CREATE INDEX few ON notes (id) WHERE about > 7", "index few of notes has an expression"),
            ("DROP INDEX few", ""),
            ("GRANT SELECT (about) ON notes TO public", "has rights of its own"),
        ],
        "sqlite": [
            ("CREATE TRIGGER t AFTER UPDATE ON notes BEGIN SELECT 1; END", "notes has triggers"),
        ],
    }.get(kind, [("ALTER TABLE notes ALTER COLUMN about SET DEFAULT 1", "has a default, which")]):
        place.execute(create)
        if message:
            with pytest.raises(MigrationError, match=message):
                place.migration.plan(LAYOUT, ids="shift", references=shop.BY_HAND)
    assert place.migration.entry() is None


def test_steps_out_of_order_and_ids_that_cannot_change_are_refused(new_shop: NewShop) -> None:
    place = new_shop()
    migration, schema = place.migration, shop.schema_of(place.engine)
    with pytest.raises(MigrationError, match=r"no migration of .* was started"):
        migration.switch()
    plan, _ = migration.plan(LAYOUT, ids="shift", references=shop.BY_HAND)
    migration.start(plan)
    for step, message in (
        (
            migration.switch,
            "is started, so switch was refused, and nothing was changed; next comes: .* backfill",
        ),
        (migration.finish, "is started, so finish was refused"),
        (migration.verify, "is started, so verify was refused"),
    ):
        with pytest.raises(MigrationError, match=message):
            step()
    migration.backfill()
    # ids that nobody expected
    place.execute(f"INSERT INTO customers (id, name) VALUES ({plan.last_old + 1}, 'x')")
    with pytest.raises(MigrationError, match="Nothing was switched; roll back, and start again"):
        migration.switch()
    migration.rollback()
    assert shop.schema_of(place.engine) == schema
    for table, column, message in (
        ("nothing", "id", "there is no column nothing.id"),
        ("customers", "nothing", "there is no column customers.nothing"),
        ("customers", "name", "not the primary key of its table, alone and an integer"),
        ("companies", "id", "companies.id refers to customers.id"),
    ):
        with pytest.raises(MigrationError, match=message):
            Migration(place.engine, table, column).plan(LAYOUT)
    with pytest.raises(MergeError, match="--reference"):
        migration.plan(LAYOUT, references=["notes.about"])
    minutes = Layout(timestamp_bits=63, backup_bits=0, worker_bits=0, sequence_bits=0, tick_ms=60_000)
    with pytest.raises(MigrationError, match="in the future"):
        migration.plan(LAYOUT, old_layout=minutes)
