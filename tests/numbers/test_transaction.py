"""Numbers without gaps, on real databases: rolled back, concurrent, and in a column's default."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from snowredis.errors import ConfigError
from snowredis.numbers import NumbersExhausted, TransactionNumbers
from tests.support.databases import DatabaseServer

NOON_MS = round(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def numbers() -> TransactionNumbers:
    made = TransactionNumbers("invoices", format="INV-{date:%Y%m%d}-{number:04}")
    made._wall_ms = lambda: NOON_MS
    return made


@pytest.fixture
def engine(database_kind: DatabaseServer, numbers: TransactionNumbers) -> Iterator[sa.Engine]:
    engine = sa.create_engine(database_kind.new_database())
    numbers.table.create(engine)
    yield engine
    engine.dispose()


def test_concurrent_transactions_of_which_many_are_rolled_back_leave_no_gap(
    engine: sa.Engine, numbers: TransactionNumbers
) -> None:
    table = sa.Table("invoice", sa.MetaData(), sa.Column("number", sa.String(30), primary_key=True))
    table.create(engine)

    def use(user: int) -> None:
        for turn in range(20):
            with engine.connect() as connection:
                if connection.dialect.name == "sqlite":
                    # two that have read wait for each other's write
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                connection.execute(sa.insert(table), {"number": numbers.next_id(connection)})
                if (turn + user) % 3 == 0:
                    connection.rollback()
                else:
                    connection.commit()

    threads = [threading.Thread(target=use, args=(user,)) for user in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engine.connect() as connection:
        found = sorted(connection.scalars(sa.select(table.c.number)))
        assert found == [f"INV-20261122-{number:04}" for number in range(1, 41)]
        # of one transaction, and of the next day
        assert numbers.next_id(connection) == "INV-20261122-0041"
        assert numbers.next_id(connection) == "INV-20261122-0042"
        numbers._wall_ms = lambda: NOON_MS + 86_400_000
        assert numbers.next_id(connection) == "INV-20261123-0001"
        # a clock that is set back
        numbers._wall_ms = lambda: NOON_MS
        assert numbers.next_id(connection) == "INV-20261122-0043"


def test_a_connection_that_commits_by_itself_is_refused(engine: sa.Engine, numbers: TransactionNumbers) -> None:
    for commits in (
        engine.execution_options(isolation_level="AUTOCOMMIT"),
        sa.create_engine(engine.url, isolation_level="AUTOCOMMIT"),
    ):
        with (
            commits.connect() as connection,
            pytest.raises(ConfigError, match=r"commits each statement by itself.*with engine\.begin\(\)"),
        ):
            numbers.next_id(connection)
        commits.dispose()


def test_rows_get_numbers_from_the_default_of_their_column(engine: sa.Engine) -> None:
    class Base(DeclarativeBase):
        pass

    numbers = TransactionNumbers("orders", Base.metadata, table="order_number", format="{date:%Y%m%d}/{number}")
    numbers._wall_ms = lambda: NOON_MS

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)
        number: Mapped[str] = mapped_column(sa.String(numbers.text_length), default=numbers.next_for, unique=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Order(), Order()])
        session.flush()
        session.rollback()
        session.add_all([Order(), Order(), Order()])
        session.commit()
        assert numbers.next_id(session) == "20261122/4"
        assert sorted(session.scalars(sa.select(Order.number))) == [f"20261122/{number}" for number in (1, 2, 3)]


def test_the_highest_number_of_a_period_is_the_last() -> None:
    numbers = TransactionNumbers("few", format="{date:%Y%m%d}-{number:01}", maximum=2)
    engine = sa.create_engine("sqlite://")
    numbers.table.create(engine)
    with engine.connect() as connection:
        assert numbers.next_id(connection)[-2:] == "-1"
        assert numbers.next_id(connection)[-2:] == "-2"
        with pytest.raises(NumbersExhausted, match="up to its maximum 2"):
            numbers.next_id(connection)
    engine.dispose()


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="numbers start again each day"):
        TransactionNumbers("x", format="{number}")
    with pytest.raises(ConfigError, match="tag must be"):
        TransactionNumbers("a b")


def test_tags_that_differ_only_in_case_have_numbers_of_their_own(
    engine: sa.Engine, numbers: TransactionNumbers
) -> None:
    upper, lower = (TransactionNumbers(tag, format="{date:%Y%m%d}-{number:04}") for tag in ("INV", "inv"))
    upper._wall_ms = lower._wall_ms = lambda: NOON_MS
    with engine.begin() as connection:
        made = [each.next_id(connection)[-4:] for each in (upper, upper, lower, upper, lower)]
    assert made == ["0001", "0002", "0001", "0003", "0002"]
    with engine.connect() as connection:
        rows = connection.execute(sa.select(numbers.table.c.tag, numbers.table.c.number)).all()
    assert sorted(map(tuple, rows)) == [("INV", 3), ("inv", 2)]


def test_under_serializable_the_first_number_of_a_period_comes_and_a_rollback_gives_it_back(
    engine: sa.Engine, numbers: TransactionNumbers
) -> None:
    # a wait for a lock of the transaction itself would last for 50 s
    wait = {"init_command": "SET innodb_lock_wait_timeout = 5"} if engine.dialect.name == "mariadb" else {}
    serializable = sa.create_engine(engine.url, isolation_level="SERIALIZABLE", connect_args=wait)
    with serializable.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        assert numbers.next_id(connection) == "INV-20261122-0001"
        connection.rollback()
        assert numbers.next_id(connection) == "INV-20261122-0001"
        assert numbers.next_id(connection) == "INV-20261122-0002"
        connection.commit()
        assert numbers.next_id(connection) == "INV-20261122-0003"
    serializable.dispose()
