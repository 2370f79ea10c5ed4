"""A column that makes its ids: which columns do, how many calls that takes, and what it refuses."""

import asyncio
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.schema import CreateTable

import snowredis
from snowredis.integrations.sqlalchemy import GeneratedId, SnowflakeId
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.testing import memory_pool, use
from tests.support.databases import DatabaseServer


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(SnowflakeId, primary_key=True)
    name: Mapped[str] = mapped_column(default="")
    kind: Mapped[str] = mapped_column(default="customer")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "customer"}  # noqa: RUF012


class Company(Customer):
    __tablename__ = "company"
    id: Mapped[int] = mapped_column(SnowflakeId, sa.ForeignKey("customer.id"), primary_key=True)
    __mapper_args__ = {"polymorphic_identity": "company"}  # noqa: RUF012


class Order(Base):
    __tablename__ = "order"
    id: Mapped[int] = mapped_column(SnowflakeId, primary_key=True)
    number: Mapped[int] = mapped_column(SnowflakeId, unique=True)
    customer_id: Mapped[int] = mapped_column(sa.ForeignKey("customer.id"))
    replaces: Mapped[int | None] = mapped_column(SnowflakeId)
    customer: Mapped[Customer] = relationship()


customers = Base.metadata.tables["customer"]


def makes_ids(column: sa.Column[Any]) -> bool:
    return getattr(getattr(column.default, "arg", None), "__func__", None) is SnowflakeId.next_for


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process has a generator in memory; the list says how many ids each batch has, awaited ones below 0."""
    made: list[int] = []

    def counted(sign: int, make: Callable[[SnowflakeGenerator, int], Any]) -> Callable[[SnowflakeGenerator, int], Any]:
        def call(ids: SnowflakeGenerator, count: int) -> Any:
            made.append(sign * count)
            return make(ids, count)

        return call

    monkeypatch.setattr(SnowflakeGenerator, "next_ids", counted(1, SnowflakeGenerator.next_ids))
    monkeypatch.setattr(SnowflakeGenerator, "anext_ids", counted(-1, SnowflakeGenerator.anext_ids))
    with snowredis.connect(memory_pool()) as ids, use(ids):
        yield made


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    made = sa.create_engine("sqlite://")
    Base.metadata.create_all(made)
    yield made
    made.dispose()


# --- which columns make ids ----------------------------------------------------------------------


def test_keys_and_columns_that_are_not_null_make_ids_and_references_do_not() -> None:
    tables = [Base.metadata.tables[name] for name in ("customer", "company", "order")]
    made = [[column.name for column in table.c if makes_ids(column)] for table in tables]
    assert made == [["id"], [], ["id", "number"]]


def test_keys_that_are_said_after_the_columns_count() -> None:
    table = sa.Table(
        "t",
        sa.MetaData(),
        sa.Column("id", SnowflakeId),
        sa.Column("other", SnowflakeId, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.ForeignKeyConstraint(["other"], ["t.id"]),
    )
    assert [makes_ids(column) for column in table.c] == [True, False]
    assert [makes_ids(column) for column in table.to_metadata(sa.MetaData()).c] == [True, False]
    late = sa.Column("late", SnowflakeId, nullable=False)
    table.append_column(late)
    assert makes_ids(late)
    table.append_constraint(sa.ForeignKeyConstraint(["late"], ["t.id"]))
    assert not makes_ids(late)


def test_a_default_of_the_columns_own_is_kept() -> None:
    table = sa.Table(
        "t",
        sa.MetaData(),
        sa.Column("id", SnowflakeId, primary_key=True, default=7),
        sa.Column("other", SnowflakeId, nullable=False, server_default="1"),
    )
    assert getattr(table.c.id.default, "arg", None) == 7
    assert not makes_ids(table.c.other)


def test_a_key_is_a_bigint_that_no_database_counts_up() -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("id", SnowflakeId, primary_key=True))
    for dialect in (sqlite.dialect(), postgresql.dialect(), mysql.dialect()):
        ddl = str(sa.schema.CreateTable(table).compile(dialect=dialect))
        assert " ".join(ddl.split()) == "CREATE TABLE t ( id BIGINT NOT NULL, PRIMARY KEY (id) )"
    assert customers.autoincrement_column is None
    with pytest.raises(sa.exc.ArgumentError, match="never autoincrement"):
        sa.Table("t", sa.MetaData(), sa.Column("id", SnowflakeId, primary_key=True, autoincrement=True))


def test_sqlite_refuses_a_row_without_an_id_instead_of_making_one_up(engine: sa.Engine) -> None:
    with engine.begin() as connection, pytest.raises(sa.exc.IntegrityError, match="NOT NULL"):
        connection.exec_driver_sql("INSERT INTO customer (name, kind) VALUES ('x', 'y')")


# --- one call a statement ------------------------------------------------------------------------

ROWS = [{"name": str(i)} for i in range(300)]
MANY: dict[str, Callable[[Session], Any]] = {
    "add_all": lambda s: s.add_all([Customer(**row) for row in ROWS]),
    "insert(), rows": lambda s: s.execute(sa.insert(Customer), ROWS),
    "insert().values(rows)": lambda s: s.execute(sa.insert(Customer).values(ROWS)),
    "insert().returning(), rows": lambda s: s.execute(sa.insert(Customer).returning(Customer.id), ROWS),
    "insert(table), rows": lambda s: s.connection().execute(sa.insert(customers), ROWS),
    "bulk_insert_mappings": lambda s: s.bulk_insert_mappings(sa.inspect(Customer), ROWS),
    "bulk_save_objects": lambda s: s.bulk_save_objects([Customer(**row) for row in ROWS]),
}


@pytest.mark.parametrize("way", MANY)
def test_many_rows_take_their_ids_with_one_call(engine: sa.Engine, calls: list[int], way: str) -> None:
    with Session(engine) as session:
        MANY[way](session)
        session.flush()
        ids = session.scalars(sa.select(Customer.id).order_by(sa.cast(Customer.name, sa.Integer))).all()
    assert calls == [300]
    assert len(set(ids)) == 300
    assert ids == sorted(ids)
    assert {type(an_id) for an_id in ids} == {int}


def test_one_row_takes_one_id_and_the_object_knows_it(engine: sa.Engine, calls: list[int]) -> None:
    with Session(engine) as session:
        order = Order(customer=Company(name="c"))
        session.add(order)
        session.flush()
        assert order.id > 0
        assert order.customer_id == order.customer.id
        assert order.number not in (order.id, order.customer_id)
        assert order.replaces is None
        # snowredis.next_id() made each
        assert calls == []
        result = session.connection().execute(sa.insert(customers).values(name="d"))
        assert result.inserted_primary_key is not None
        assert result.inserted_primary_key[0] > order.id


def test_ids_that_the_caller_gives_are_kept(engine: sa.Engine, calls: list[int]) -> None:
    with Session(engine) as session:
        session.add_all([Customer(id=1), Customer(id=2)])
        session.execute(sa.insert(Customer), [{"id": 3}, {"id": 4}])
        session.execute(sa.insert(Customer).values([{"id": 5}, {"id": 6}]))
        session.flush()
        assert calls == []
        session.add_all([Customer(id=7), Customer(), Customer(id=8), Customer()])
        session.flush()
        session.execute(sa.insert(Customer).values([{"name": "a"}, {"name": "b", "id": 9}]))
        ids = session.scalars(sa.select(Customer.id).order_by(Customer.id)).all()
    assert ids[:9] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert len(ids) == 12
    assert calls == []


def test_more_rows_than_one_call_makes_take_several(
    engine: sa.Engine, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snowredis.integrations.sqlalchemy.MAX_BATCH", 128)
    with engine.begin() as connection:
        connection.execute(sa.insert(customers), ROWS)
        assert connection.scalar(sa.select(sa.func.count(customers.c.id.distinct()))) == 300
    assert calls == [128, 128, 44]


def test_a_statement_that_is_run_again_takes_new_ids(engine: sa.Engine, calls: list[int]) -> None:
    statement = sa.insert(customers).values([{"name": "a"}, {"name": "b"}])
    with engine.begin() as connection:
        connection.execute(statement)
        connection.execute(statement)
    assert calls == [2, 2]


def test_insert_from_select_is_refused_because_all_rows_would_get_one_id(engine: sa.Engine) -> None:
    names = sa.select(customers.c.name)
    with engine.begin() as connection:
        connection.execute(sa.insert(customers), ROWS[:2])
        with pytest.raises(sa.exc.StatementError, match="the same id, so nothing was inserted"):
            connection.execute(sa.insert(customers).from_select(["name"], names))
        copies = sa.select(customers.c.id + 1, customers.c.name, customers.c.kind)
        connection.execute(sa.insert(customers).from_select(["id", "name", "kind"], copies.limit(1).offset(1)))
        assert connection.scalar(sa.select(sa.func.count()).select_from(customers)) == 3


# --- another generator ---------------------------------------------------------------------------


def test_a_column_may_have_a_generator_of_its_own(engine: sa.Engine) -> None:
    own: sa.Column[Any] = sa.Column("id", GeneratedId(snowredis.generator("uuid4")), primary_key=True)
    table = sa.Table("t", sa.MetaData(), own).to_metadata(sa.MetaData())
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(sa.insert(table), [{}, {}])
        assert [an_id.version for an_id in connection.scalars(sa.select(table.c.id))] == [4, 4]


# --- what is refused, compared, shown ------------------------------------------------------------


def test_the_exact_digits_of_an_id_are_taken_for_it(engine: sa.Engine) -> None:
    text = "249734652741287937"
    with Session(engine) as session:
        session.add(Customer(id=text))
        session.commit()
        session.expunge_all()
        found = session.get(Customer, text)
        assert found is not None
        assert found.id == int(text)
        assert session.get(Customer, int(text)) is found
        session.add(Order(customer_id=text))
        session.flush()
        for condition in (
            Customer.id == text,
            Customer.id.in_([text, 1]),
            Customer.id.between(text, text),
            sa.literal(text, SnowflakeId) == Customer.id,
        ):
            assert session.scalar(sa.select(Customer.id).where(condition)) == int(text)
        assert session.query(Customer).filter_by(id=text).update({"name": "x"}) == 1
        assert session.scalar(sa.select(Order.customer_id).where(Order.customer_id == text)) == int(text)


@pytest.mark.parametrize("bad", ["01", " 1", "+1", "1.0", "1e3", "١", "", str(2**63), True, -1, 2**63, 1.0, b"1"])
def test_what_is_no_id_is_refused_before_it_reaches_the_database(engine: sa.Engine, bad: Any) -> None:
    with engine.connect() as connection:
        for statement in (
            sa.insert(customers).values(id=bad),
            sa.update(customers).values(id=bad),
            sa.select(customers).where(customers.c.id == bad),
            sa.select(customers).where(customers.c.id.in_([1, bad])),
            # a foreign key, which says no type
            sa.select(Order).where(Order.customer_id == bad),
        ):
            with pytest.raises(sa.exc.StatementError) as caught:
                connection.execute(statement)
            assert isinstance(caught.value.orig, snowredis.InvalidId)
    with Session(engine) as session:
        session.add(Customer(id=bad))
        with pytest.raises(sa.exc.StatementError, match="InvalidId"):
            session.flush()


def test_ids_can_be_reckoned_with_in_sql(engine: sa.Engine) -> None:
    with Session(engine) as session:
        session.add(Customer(id=1000))
        session.flush()
        row = session.execute(
            sa.select(
                Customer.id.bitwise_rshift(2), Customer.id % 7 - 10, Customer.id * 0.5, sa.func.max(Customer.id)
            ).where(Customer.id.between(1, 2000), Customer.id > 0)
        ).one()
        assert tuple(row) == (250, -4, 500.0, 1000)


def test_types_with_different_generators_share_compiled_statements_and_survive_pickling() -> None:
    ids = snowredis.connect(memory_pool())
    others = snowredis.connect(memory_pool())
    assert GeneratedId(others)._static_cache_key == GeneratedId(ids)._static_cache_key
    others.close()
    with pytest.raises(TypeError, match="cannot be pickled or copied: two copies would make the same ids"):
        pickle.dumps(GeneratedId(ids))
    ids.close()
    assert makes_ids(pickle.loads(pickle.dumps(Base.metadata)).tables["customer"].c.id)


def test_alembic_renders_the_type_and_finds_no_difference(engine: sa.Engine) -> None:
    alembic: Any = pytest.importorskip("alembic.autogenerate")
    context: Any = pytest.importorskip("alembic.migration").MigrationContext
    metadata = sa.MetaData()
    for name in ("customer", "company", "order"):
        Base.metadata.tables[name].to_metadata(metadata)
    with sa.create_engine("sqlite://").connect() as empty, engine.connect() as full:
        ops = alembic.produce_migrations(context.configure(empty), metadata).upgrade_ops
        for table in set(Base.metadata.tables) - set(metadata.tables):
            full.exec_driver_sql(f'DROP TABLE "{table}"')
        assert alembic.compare_metadata(context.configure(full), metadata) == []
    column = "sa.Column('id', snowredis.integrations.sqlalchemy.SnowflakeId(), autoincrement=False, nullable=False)"
    assert column in alembic.render_python_code(ops)


def test_a_foreign_key_may_lead_to_a_name_with_a_dot() -> None:
    metadata = sa.MetaData()
    tags = sa.Table("a.tag", metadata, sa.Column("id", SnowflakeId, primary_key=True))
    posts = sa.Table("post", metadata, sa.Column("tag_id", sa.Integer, sa.ForeignKey(tags.c.id)))
    assert isinstance(posts.c.tag_id.type, SnowflakeId)


@pytest.mark.parametrize("customers_first", [True, False])
def test_a_foreign_key_that_was_declared_as_integer_gets_64_bits(customers_first: bool) -> None:
    metadata = sa.MetaData(schema="shop")

    def make_orders() -> sa.Table:
        return sa.Table(
            "orders",
            metadata,
            sa.Column("customer_id", sa.Integer, sa.ForeignKey("customers.id"), primary_key=True),
            sa.Column("small", sa.SmallInteger, sa.ForeignKey("customers.id")),
            sa.Column("number", sa.Integer),
        )

    orders = None if customers_first else make_orders()
    above = sa.Column("above", sa.Integer, sa.ForeignKey("customers.id"))
    sa.Table("customers", metadata, above, sa.Column("id", SnowflakeId, primary_key=True))
    orders = make_orders() if orders is None else orders
    key, small, number = orders.c
    assert isinstance(key.type, SnowflakeId)
    assert isinstance(above.type, SnowflakeId)
    assert not makes_ids(key)
    assert not makes_ids(above)
    assert (type(small.type), type(number.type)) == (sa.SmallInteger, sa.Integer)
    assert "customer_id BIGINT NOT NULL" in str(CreateTable(orders))


# --- a real server, and asyncio ---------------------------------------------------------------------


def test_postgresql_takes_ids_batch_by_batch_sync_and_async(
    postgresql_server: DatabaseServer, calls: list[int]
) -> None:
    url = postgresql_server.new_database()
    engine = sa.create_engine(url)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Order(customer=Company(name=row["name"])) for row in ROWS])
        session.commit()
        found = session.execute(sa.select(Order.id, Order.number, Order.customer_id)).all()
    assert len({number for row in found for number in row}) == 900
    assert calls == [300, 300, 300]

    async def insert() -> int | None:
        engine = create_async_engine(url)
        async with AsyncSession(engine) as session:
            session.add_all([Customer(**row) for row in ROWS])
            await session.flush()
            session.add(Customer())
            await session.commit()
            count = await session.scalar(sa.select(sa.func.count(Customer.id.distinct())))
        await engine.dispose()
        return count

    assert asyncio.run(insert()) == 601
    assert calls == [300, 300, 300, -300, -1]
    columns = {column["name"]: column for column in sa.inspect(engine).get_columns("customer")}
    assert isinstance(columns["id"]["type"], sa.BigInteger)
    assert columns["id"]["default"] is None
    engine.dispose()
