"""Numbers without gaps, from a table of your database, in your transaction. Needs SQLAlchemy, and no Redis.

    invoices = TransactionNumbers("invoices", metadata, zone="Europe/Berlin")
    with engine.begin() as connection:
        number = invoices.next_id(connection)       # 20261122-000001, and no other, if this transaction commits
        connection.execute(insert(invoice).values(number=number, ...))

One row for each text around a number, such as INV-20261122-#, holds the last number. A transaction that takes a number
locks that row until it ends, and one that is rolled back gives its number back: so no number is missing and none comes
twice, whatever period, zone or date it is taken for. What it costs: transactions that take a number of one tag run one
after the other, from there to their end. At 5 ms from there to the commit, 200 transactions a second are the most. Take
the number first, and repeat the transaction if the database ends it, since another one took a number meanwhile, or of
two tags in another order.

One more row of each tag, without a text, keeps the place of the number in the texts. A format that has it elsewhere is
refused, since its texts could equal others.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from snowredis.errors import ConfigError
from snowredis.numbers.formats import MAX_TEXT_LENGTH, NumberFormat, Period, PeriodName
from snowredis.numbers.protocol import NumbersExhausted
from snowredis.numbers.settings import DATED_SETTINGS
from snowredis.process.clock import now_ms
from snowredis.settings import check_settings

TABLE = "snowredis_number"
_MYSQL = ("mysql", "mariadb")
# the place of a number, its lengths before and after it, as one number; texts are shorter
_AFTER = 1_000
_GAPS = (
    "so a number would be taken although the rest is rolled back. Take it in a transaction: with engine.begin() as "
    "connection; in SQLite before savepoints, or with autocommit=False (Python 3.12); in MariaDB in a table of InnoDB"
)
# ALTER TABLE may change it at any time
_ENGINE = sa.text("""SELECT ENGINE FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :name""")


class TransactionNumbers:
    """Numbers of one tag that start again each period, handed out by the caller's transaction, without gaps.

    On PostgreSQL, MariaDB, MySQL and SQLite. The period is that of the document; by default it is now by this process'
    clock: one that is set back goes on with the numbers of that period, so that none comes twice.

    Args:
        tag: name of the numbers.
        metadata: gets the table, unless it has it; create_all() or a migration creates it.
        table: name of the table, one for all tags.
        period, zone, year_begins, format, maximum: as for DatedGenerator; with period "ever", 1, 2, 3, …

    Raises ConfigError for a setting that cannot work.
    """

    def __init__(
        self,
        tag: str,
        metadata: sa.MetaData | None = None,
        *,
        table: str = TABLE,
        period: PeriodName = "day",
        zone: str = "UTC",
        year_begins: int = 1,
        format: str | None = None,  # noqa: A002 - it is one
        maximum: int | None = None,
    ) -> None:
        check_settings({name: value for name, value in locals().items() if name in DATED_SETTINGS}, DATED_SETTINGS)
        self.tag = tag
        self._format = NumberFormat(tag, period, zone, year_begins, format, maximum)
        self.table = number_table(metadata if metadata is not None else sa.MetaData(), table)
        self._wall_ms: Callable[[], int] = now_ms

    @property
    def text_length(self) -> int:
        """Length of the longest text, for the column."""
        return self._format.description.text_length

    def next_id(self, transaction: Any, date: date | None = None) -> str:
        """Return the next text, which is final if the transaction commits.

        Args:
            transaction: SQLAlchemy's Connection or Session. Under asyncio: ``await session.run_sync(numbers.next_id)``.
            date: of the document, a date or an aware datetime; None: now.

        Raises:
            ConfigError: the connection commits each statement by itself; a savepoint of SQLite, unless its driver has
                autocommit=False; a table of MariaDB or MySQL with an engine other than InnoDB; another database; a
                format whose texts could equal others of the tag.
            NumbersExhausted: the period's highest number was handed out. Nothing was changed.
            What SQLAlchemy raises.

        Blocks:
            until other transactions that took a number of this tag and period end.
        """
        connection, period = self._begin(transaction, date)
        return self._format.write(period, self._count_up(connection, period))

    def next_for(self, context: Any) -> str:
        """Return the next text for the row that SQLAlchemy inserts: ``mapped_column(default=numbers.next_for)``."""
        return self.next_id(context.root_connection)

    def go_on(self, transaction: Any, number: int, date: date | None = None) -> str:
        """Let a period go on with *number*, as numbers that were counted elsewhere do. Return the text that comes next.

        Args:
            transaction, date: as for next_id().
            number: from 1 to the maximum; a lower one than the next number changes nothing.

        Raises and blocks as next_id(); ConfigError if *number* is out of range.
        """
        if not isinstance(number, int) or not 1 <= number <= self._format.maximum:
            raise ConfigError(f"number must be from 1 to {self._format.maximum}, not {number!r}. Nothing was changed.")
        connection, period = self._begin(transaction, date)
        self._add_row(connection, period.around, number - 1)
        last, row = self.table.c.number, self._row(period.around)
        connection.execute(sa.update(self.table).where(*row, last < number - 1).values(number=number - 1))
        reached = connection.scalar(sa.select(last).where(*row).with_for_update(read=True))
        return self._format.write(period, int(reached or 0) + 1)

    def _begin(self, transaction: Any, at: date | None) -> tuple[sa.Connection, Period]:
        """Return the connection, and the period of *at*. Raises ConfigError if numbers could have gaps or repeat."""
        connection = transaction.connection() if hasattr(transaction, "get_bind") else transaction
        if not isinstance(connection, sa.Connection):
            raise ConfigError(
                f"give a Connection or a Session of SQLAlchemy, not {transaction!r}; under asyncio: "
                "await session.run_sync(numbers.next_id)"
            )
        if connection.dialect.name not in ("postgresql", "sqlite", *_MYSQL):
            raise ConfigError(
                "numbers without gaps are available on PostgreSQL, MariaDB, MySQL and SQLite, not on "
                f"{connection.dialect.name}"
            )
        if reason := commits_by_itself(connection):
            raise ConfigError(f"{reason}, {_GAPS}")
        before, after = self._format.place
        here = before * _AFTER + after
        place = sa.select(self.table.c.number).where(*self._row(""))
        if connection.dialect.name in _MYSQL:
            # a plain SELECT would begin a snapshot, in which numbers that others take meanwhile are conflicts
            place = place.with_for_update(read=True)
        stored = connection.scalar(place)
        if stored is None:
            self._add_row(connection, "", here)
            stored = connection.execute(place).scalar_one()
        if stored != here:
            raise ConfigError(
                f"texts of the tag {self.tag!r} in {self.table.name} have {stored // _AFTER} characters before the "
                f"number and {stored % _AFTER} after it, and those of the format {self._format.text!r} have {before} "
                f"and {after}. Two numbers could have one text, so none was made. Use such a format, or another tag."
            )
        return connection, self._format.at(self._wall_ms() if at is None else self._format.calendar.instant_of(at))

    def _row(self, around: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
        return self.table.c.tag == self.tag, self.table.c.text == around

    def _add_row(self, connection: sa.Connection, around: str, number: int) -> None:
        """Add a row unless it exists; wait for a transaction that is adding it."""
        values = {"tag": self.tag, "text": around, "number": number}
        if connection.dialect.name in _MYSQL:
            added = mysql.insert(self.table).values(values)
            connection.execute(added.on_duplicate_key_update(number=self.table.c.number))
        else:
            insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            connection.execute(insert(self.table).values(values).on_conflict_do_nothing())

    def _count_up(self, connection: sa.Connection, period: Period) -> int:
        """Return the next number of *period*. Raises NumbersExhausted, and ConfigError for an engine of MariaDB."""
        self._add_row(connection, period.around, 0)
        number, row = self.table.c.number, self._row(period.around)
        counted = sa.update(self.table).where(*row, number < self._format.maximum).values(number=number + 1)
        if not connection.execute(counted).rowcount:
            raise NumbersExhausted(self.tag, self._format.maximum, period.label)
        if connection.dialect.name in _MYSQL:
            schemas: Any = connection.get_execution_options().get("schema_translate_map") or {}
            schema = schemas.get(self.table.schema, self.table.schema)
            engine = connection.scalar(_ENGINE, {"schema": schema, "name": self.table.name})
            if engine != "InnoDB":
                raise ConfigError(f"{self.table.name} has the engine {engine}, which rolls nothing back, {_GAPS}")
        return int(connection.execute(sa.select(number).where(*row)).scalar_one())


def commits_by_itself(connection: sa.Connection) -> str:
    """Return why a number would be committed before the transaction ends, by a setting or by the driver; or empty."""
    reason = "this connection commits each statement by itself"
    of_engine = getattr(connection.dialect, "_on_connect_isolation_level", None)
    if connection.get_execution_options().get("isolation_level", of_engine) == "AUTOCOMMIT":
        return reason
    fairy = connection.connection
    # that of aiosqlite shows not all settings of the one that it uses in its thread
    driver: Any = getattr(fairy.driver_connection, "_conn", fairy.driver_connection)
    for each in (fairy.dbapi_connection, driver):
        # drivers of MariaDB have a function, those of PostgreSQL an attribute
        ask = getattr(each, "get_autocommit", None)
        if ask() if callable(ask) else getattr(each, "autocommit", None) is True:
            return reason
    if connection.dialect.name != "sqlite" or getattr(driver, "autocommit", None) is False:
        return ""
    if not connection.in_transaction():
        # as the first statement does, so that listeners have sent BEGIN
        connection.begin()
    # the driver sends BEGIN before an INSERT, but not after SAVEPOINT, whose end is a commit then
    if connection.in_nested_transaction():
        return "this driver may commit at the end of a savepoint"
    return reason if driver.isolation_level is None and not driver.in_transaction else ""


def number_table(metadata: sa.MetaData, name: str = TABLE) -> sa.Table:
    """Return the table of the numbers of all tags, of *metadata* if that has it."""
    key = f"{metadata.schema}.{name}" if metadata.schema else name
    if key in metadata.tables:
        return metadata.tables[key]
    return sa.Table(
        name,
        metadata,
        sa.Column("tag", _exact(64, "ascii"), primary_key=True),
        sa.Column("text", _exact(MAX_TEXT_LENGTH, "utf8mb4"), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        # an engine without transactions would keep the numbers of those that are rolled back
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def _exact(length: int, charset: str) -> sa.types.TypeEngine[str]:
    """Return a column type that tells upper case from lower case, which MariaDB and MySQL do not by default."""
    exact = mysql.VARCHAR(length, charset=charset, collation=f"{charset}_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")
