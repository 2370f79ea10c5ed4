"""Numbers without gaps, on real databases: rolled back, concurrent, and in a column's default."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from snowredis.errors import ConfigError
from snowredis.numbers import NumbersExhausted, TransactionNumbers, transaction
from tests.support.databases import DatabaseServer
from tests.support.pgbouncer import pooled

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


def in_many_transactions(engine: sa.Engine, numbers: TransactionNumbers, *, reads_first: bool = False) -> list[str]:
    """Take numbers in 60 concurrent transactions, of which 20 are rolled back; return what the table has then.

    A transaction that the database ends is repeated, as the page says.
    """
    table = sa.Table("invoice", sa.MetaData(), sa.Column("number", sa.String(30), primary_key=True))
    table.create(engine)

    def transact(rolls_back: bool) -> None:
        with engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                # two that have read wait for each other's write
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            if reads_first:
                connection.execute(sa.select(sa.func.count()).select_from(table))
            connection.execute(sa.insert(table), {"number": numbers.next_id(connection)})
            if rolls_back:
                connection.rollback()
            else:
                connection.commit()

    def use(user: int) -> None:
        for turn in range(20):
            for _ in range(100):
                try:
                    transact((turn + user) % 3 == 0)
                except sa.exc.OperationalError as error:
                    repeats.append(str(error.orig))
                else:
                    break

    repeats: list[str] = []
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(use, range(3)))
    # the database asked for that, each time
    assert all(any(sign in text for sign in ("1213", "1020", "could not serialize", "deadlock")) for text in repeats)
    with engine.connect() as connection:
        return sorted(connection.scalars(sa.select(table.c.number)))


FORTY = [f"INV-20261122-{number:04}" for number in range(1, 41)]


def test_concurrent_transactions_of_which_many_are_rolled_back_leave_no_gap(
    engine: sa.Engine, numbers: TransactionNumbers
) -> None:
    assert in_many_transactions(engine, numbers) == FORTY
    with engine.connect() as connection:
        # numbers of one transaction, and of the next day
        assert numbers.next_id(connection) == "INV-20261122-0041"
        assert numbers.next_id(connection) == "INV-20261122-0042"
        numbers._wall_ms = lambda: NOON_MS + 86_400_000
        assert numbers.next_id(connection) == "INV-20261123-0001"
        # a clock that is set back
        numbers._wall_ms = lambda: NOON_MS
        assert numbers.next_id(connection) == "INV-20261122-0043"


def test_numbers_behind_a_pooler_leave_no_gap(
    postgresql_server: DatabaseServer, pgbouncer_of: Path, numbers: TransactionNumbers
) -> None:
    database = sa.make_url(postgresql_server.new_database()).database
    url = pooled(pgbouncer_of, str(database))
    engine = sa.create_engine(url, connect_args={"prepare_threshold": None})
    numbers.table.create(engine)
    assert in_many_transactions(engine, numbers) == FORTY
    engine.dispose()


def test_a_connection_that_commits_by_itself_is_refused(engine: sa.Engine, numbers: TransactionNumbers) -> None:
    commit: list[sa.Engine] = [engine.execution_options(isolation_level="AUTOCOMMIT")]
    commit.append(sa.create_engine(engine.url, isolation_level="AUTOCOMMIT"))
    if engine.dialect.name != "sqlite" or sys.version_info >= (3, 12):
        # the driver's own setting, which SQLAlchemy does not know of
        commit.append(sa.create_engine(engine.url, connect_args={"autocommit": True}))
    for commits in commit:
        with (
            commits.connect() as connection,
            pytest.raises(ConfigError, match=r"commits each statement by itself.*with engine\.begin\(\)"),
        ):
            numbers.next_id(connection)
        commits.dispose()
    with engine.begin() as connection:
        assert numbers.next_id(connection) == FORTY[0]


@pytest.mark.parametrize("reads_first", [False, True])
def test_a_transaction_that_the_database_ends_is_repeated_and_leaves_no_gap(
    engine: sa.Engine, numbers: TransactionNumbers, reads_first: bool
) -> None:
    options: dict[str, Any] = {"isolation_level": "REPEATABLE READ"}
    if engine.dialect.name == "mariadb":
        options["connect_args"] = {"init_command": "SET innodb_snapshot_isolation = ON"}
    if engine.dialect.name == "sqlite":
        pytest.skip("one transaction writes at a time")
    strict = sa.create_engine(engine.url, **options)
    assert in_many_transactions(strict, numbers, reads_first=reads_first) == FORTY
    strict.dispose()


@pytest.mark.parametrize("nested", [False, True])
def test_sqlite_that_would_keep_the_number_of_a_transaction_that_is_rolled_back_is_refused(
    numbers: TransactionNumbers, tmp_path: Path, nested: bool
) -> None:
    options: dict[str, Any] = {} if nested else {"isolation_level": None}
    engine = sa.create_engine(f"sqlite:///{tmp_path}/gaps.db", connect_args=options)
    numbers.table.create(engine)

    def take_and_roll_back() -> None:
        with engine.connect() as connection:
            savepoint = connection.begin_nested() if nested else None
            numbers.next_id(connection)
            if savepoint is not None:
                savepoint.commit()
            connection.rollback()

    with pytest.raises(ConfigError, match=r"at the end of a savepoint|commits each statement by itself"):
        take_and_roll_back()
    # what it would lose
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "commits_by_itself", lambda _: "")
        take_and_roll_back()
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        assert numbers.next_id(connection) == "INV-20261122-0002"
    engine.dispose()


def test_sqlite_whose_transactions_are_begun_by_events_or_by_autocommit_false_leaves_no_gap(
    numbers: TransactionNumbers, tmp_path: Path
) -> None:
    # as SQLAlchemy's page on SQLite says
    begun = sa.create_engine(f"sqlite:///{tmp_path}/begun.db", connect_args={"isolation_level": None})
    sa.event.listen(begun, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    engines = [(begun, False)]
    if sys.version_info >= (3, 12):
        engines.append((sa.create_engine(f"sqlite:///{tmp_path}/own.db", connect_args={"autocommit": False}), True))
    for engine, nested in engines:
        numbers.table.create(engine)
        for _ in range(2):
            with engine.connect() as connection, connection.begin_nested() if nested else contextlib.nullcontext():
                assert numbers.next_id(connection) == FORTY[0]
        engine.dispose()


def test_numbers_of_a_mariadb_without_transactions_by_default_leave_no_gap(
    mariadb_server: DatabaseServer, numbers: TransactionNumbers
) -> None:
    default = "Aria"
    engine = sa.create_engine(
        mariadb_server.new_database(), connect_args={"init_command": f"SET default_storage_engine = {default}"}
    )
    numbers.table.create(engine)
    engine_of = "SELECT engine FROM information_schema.tables WHERE table_name = 'snowredis_number'"
    with engine.connect() as connection:
        assert connection.exec_driver_sql(f"{engine_of} AND table_schema = DATABASE()").scalar() == "InnoDB"
        assert numbers.next_id(connection) == FORTY[0]
        connection.rollback()
        assert numbers.next_id(connection) == FORTY[0]
        # the table of a tenant, in a schema of its own
        tenant = f"{engine.url.database}_tenant"
        connection.exec_driver_sql(f"CREATE DATABASE {tenant}")
        connection.exec_driver_sql(f"CREATE TABLE {tenant}.snowredis_number LIKE snowredis_number")
        connection.exec_driver_sql(f"ALTER TABLE {tenant}.snowredis_number ENGINE = {default}")
        with (
            engine.connect().execution_options(schema_translate_map={None: tenant}) as other,
            pytest.raises(ConfigError, match=f"the engine {default}"),
        ):
            numbers.next_id(other)
        # as a migration makes it that says nothing about the engine
        connection.exec_driver_sql(f"ALTER TABLE snowredis_number ENGINE = {default}")
        for _ in range(2):
            with pytest.raises(ConfigError, match=f"the engine {default}.*a table of InnoDB"):
                numbers.next_id(connection)
            connection.rollback()
        # it kept them
        assert connection.scalar(sa.select(numbers.table.c.number).where(numbers.table.c.text != "")) == 3
    engine.dispose()


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


def test_a_number_beyond_the_maximum_leaves_no_gap_if_the_caller_commits(engine: sa.Engine) -> None:
    short, long = (TransactionNumbers("x", period="ever", format=f"N{{number:0{digits}}}") for digits in (1, 2))
    with engine.begin() as connection:
        assert [short.next_id(connection) for _ in range(9)][-1] == "N9"
    for _ in range(3):
        with engine.begin() as connection, pytest.raises(NumbersExhausted, match="up to its maximum 9"):
            short.next_id(connection)
    with engine.begin() as connection:
        assert long.next_id(connection) == "N10"


def test_no_text_comes_twice_whatever_period_zone_or_format_a_tag_is_used_with(engine: sa.Engine) -> None:
    forms: list[dict[str, Any]] = [
        {"period": "day"},
        {"period": "month", "format": "{date:%Y%m%d}-{number:04}"},
        {"period": "day", "zone": "Asia/Tokyo", "format": "{date:%Y%d%m}-{number}"},
        {"period": "year", "year_begins": 11, "format": "{date:%Y%m%d}-{number:06}"},
    ]
    kinds = [TransactionNumbers("x", **form) for form in forms]
    made: list[str] = []
    with engine.begin() as connection:
        for turn in range(24):
            day = date(2026, 11 + turn % 2, 1 + turn % 12)
            made += [each.next_id(connection, day) for each in kinds]
    assert len(set(made)) == len(made)
    assert "20261101-000001" in made
    for other in ("{date:%Y%m%d}{number:06}", "{number:06}-{date:%Y%m%d}", "{date:%y%m%d}-{number:06}"):
        with engine.begin() as connection, pytest.raises(ConfigError, match="Two numbers could have one text"):
            TransactionNumbers("x", format=other).next_id(connection)


def test_numbers_go_on_where_they_were_counted_before(engine: sa.Engine) -> None:
    ids = TransactionNumbers("paper", period="ever")
    with engine.begin() as connection:
        assert ids.go_on(connection, 302) == "302"
    with engine.begin() as connection:
        assert [ids.next_id(connection), ids.next_id(connection)] == ["302", "303"]
        assert ids.go_on(connection, 5) == "304"
        assert ids.next_id(connection) == "304"
        connection.rollback()
    with engine.begin() as connection:
        assert ids.next_id(connection) == "302"
        for number in (0, 2.5, "7"):
            with pytest.raises(ConfigError, match=f"number must be from 1 to 9999999999, not {number!r}"):
                ids.go_on(connection, number)  # type: ignore[arg-type]


def test_a_document_has_a_number_of_its_own_date(engine: sa.Engine) -> None:
    ids = TransactionNumbers("x", period="year", year_begins=4, format="{date:%Y}-{end:%y}/{number:03}")
    hours = TransactionNumbers("y", period="hour", zone="Europe/Berlin")
    ids._wall_ms = lambda: NOON_MS
    with engine.begin() as connection:
        made = [ids.next_id(connection, day) for day in (date(2026, 3, 31), date(2026, 4, 1), None)]
        made.append(ids.next_id(connection, datetime(2027, 3, 31, 23, 59, tzinfo=UTC)))
        assert made == ["2025-26/001", "2026-27/001", "2026-27/002", "2026-27/003"]
        assert hours.next_id(connection, datetime(2026, 11, 22, 23, 30, tzinfo=UTC)) == "2026112300-000001"
        with pytest.raises(ConfigError, match="need the time of the document"):
            hours.next_id(connection, date(2026, 11, 22))
        with pytest.raises(ConfigError, match="has no time zone"):
            ids.next_id(connection, datetime(2026, 11, 22))
        # "999" and "9990" would be two beginnings of one text
        for day in (date(999, 1, 1), date.max, "2026-11-22"):
            with pytest.raises(ConfigError, match="is not a date of the years 1001 to 9998"):
                ids.next_id(connection, day)  # type: ignore[arg-type]
        for other in (engine, None):
            with pytest.raises(ConfigError, match="give a Connection or a Session of SQLAlchemy"):
                ids.next_id(other)


def test_two_tags_share_the_table_of_a_metadata_with_a_schema() -> None:
    metadata = sa.MetaData(schema="main")
    tags = [TransactionNumbers(tag, metadata, period="ever") for tag in "ab"]
    engine = sa.create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.begin() as connection:
        assert [ids.next_id(connection) for ids in tags] == ["1", "1"]
    engine.dispose()


@pytest.mark.parametrize("session", [False, True])
def test_an_async_connection_that_commits_by_itself_is_refused(tmp_path: Path, session: bool) -> None:
    """The driver's own setting, which SQLAlchemy does not know of."""
    commits: list[dict[str, Any]] = [{"isolation_level": None}]
    commits += [{"autocommit": True}] if sys.version_info >= (3, 12) else []
    ids = TransactionNumbers("x", period="ever")

    async def take(number: int, options: dict[str, Any]) -> str:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{number}.db", connect_args=options)
        try:
            async with engine.begin() as connection:
                await connection.run_sync(ids.table.create)
            async with AsyncSession(engine) if session else engine.connect() as used:
                return str(await used.run_sync(ids.next_id))
        finally:
            await engine.dispose()

    assert asyncio.run(take(0, {})) == "1"
    for number, options in enumerate(commits, 1):
        with pytest.raises(ConfigError, match="commits each statement by itself"):
            asyncio.run(take(number, options))


def test_tags_that_differ_only_in_case_have_numbers_of_their_own(
    engine: sa.Engine, numbers: TransactionNumbers
) -> None:
    upper, lower = (TransactionNumbers(tag, format="{date:%Y%m%d}-{number:04}") for tag in ("INV", "inv"))
    upper._wall_ms = lower._wall_ms = lambda: NOON_MS
    with engine.begin() as connection:
        made = [each.next_id(connection)[-4:] for each in (upper, upper, lower, upper, lower)]
    assert made == ["0001", "0002", "0001", "0003", "0002"]
    with engine.connect() as connection:
        columns = numbers.table.c
        rows = connection.execute(sa.select(columns.tag, columns.number).where(columns.text != "")).all()
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
