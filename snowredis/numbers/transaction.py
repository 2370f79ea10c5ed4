"""Numbers without gaps, from a table of your database, in your transaction. Needs SQLAlchemy, and no Redis.

    invoices = TransactionNumbers("invoices", metadata, zone="Europe/Berlin")
    with engine.begin() as connection:
        number = invoices.next_id(connection)       # 20261122-000001, and no other, if this transaction commits
        connection.execute(insert(invoice).values(number=number, ...))

One row a tag and period holds the last number. A transaction that takes a number locks that row until it ends, and one
that is rolled back gives its number back: so no number is missing and none comes twice. What it costs: transactions
that take a number of one tag run one after the other, from there to their end. At 5 ms from there to the commit, 200
transactions a second are the most. Take the number first, and repeat the transaction if the database ends it, since
another one took a number meanwhile, or of two tags in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from snowredis.errors import ConfigError
from snowredis.numbers.formats import Calendar, NumberFormat, PeriodName
from snowredis.numbers.settings import DATED_SETTINGS
from snowredis.numbers.tag_store import NumbersExhausted
from snowredis.process.clock import now_ms
from snowredis.settings import check_settings

TABLE = "snowredis_number"
_GAPS = (
    "so a number would be taken although the rest is rolled back. Take it in a transaction: with engine.begin() as "
    "connection; in SQLite before savepoints, or with autocommit=False (Python 3.12); in MariaDB in a table of InnoDB"
)
# with the engine of the table, which ALTER TABLE may change at any time
_LAST_NUMBER = sa.text("""SELECT LAST_INSERT_ID(), (SELECT ENGINE FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :name)""")


class TransactionNumbers:
    """Numbers of one tag that start again each period, handed out by the caller's transaction, without gaps.

    On PostgreSQL, MariaDB, MySQL and SQLite. The date is that of this process' clock when the number is taken: a clock
    that is set back goes on with the numbers of that period, so that none comes twice.

    Args:
        tag: name of the numbers.
        metadata: gets the table, unless it has it; create_all() or a migration creates it.
        table: name of the table, one for all tags.
        period, zone, format, maximum: as for DatedGenerator.

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
        format: str | None = None,  # noqa: A002 - it is one
        maximum: int | None = None,
    ) -> None:
        given = {"tag": tag, "period": period, "zone": zone, "format": format, "maximum": maximum}
        check_settings(given, DATED_SETTINGS)
        self.tag = tag
        self._calendar = Calendar(period, zone)
        self._format = NumberFormat(format, period, tag, maximum)
        self.table = number_table(metadata if metadata is not None else sa.MetaData(), table)
        self._wall_ms: Callable[[], int] = now_ms

    @property
    def text_length(self) -> int:
        """Length of the longest text, for the column."""
        return self._format.text_length

    def next_id(self, transaction: Any) -> str:
        """Return the next text, which is final if the transaction commits.

        Args:
            transaction: SQLAlchemy's Connection or Session. Under asyncio: ``await session.run_sync(numbers.next_id)``.

        Raises:
            ConfigError: the connection commits each statement by itself; a savepoint of SQLite, unless its driver has
                autocommit=False; a table of MariaDB or MySQL with an engine other than InnoDB; another database.
            NumbersExhausted: the period's highest number was handed out.
            What SQLAlchemy raises.

        Blocks:
            until other transactions that took a number of this tag and period end.
        """
        connection = transaction.connection() if hasattr(transaction, "get_bind") else transaction
        if reason := _commits_by_itself(connection):
            raise ConfigError(f"{reason}, {_GAPS}")
        period = self._calendar.at(self._wall_ms())
        number = self._count_up(connection, period.label)
        if number > self._format.maximum:
            raise NumbersExhausted(self.tag, self._format.maximum, period.label)
        return self._format.write(period.date, number)

    def next_for(self, context: Any) -> str:
        """Return the next text for the row that SQLAlchemy inserts: ``mapped_column(default=numbers.next_for)``."""
        return self.next_id(context.root_connection)

    def _count_up(self, connection: sa.Connection, label: str) -> int:
        columns, values = self.table.c, {"tag": self.tag, "period": label, "number": 1}
        match connection.dialect.name:
            case "postgresql" | "sqlite" as name:
                insert: Any = postgresql.insert if name == "postgresql" else sqlite.insert
                statement = insert(self.table).values(values)
                statement = statement.on_conflict_do_update(
                    index_elements=[columns.tag, columns.period], set_={"number": columns.number + 1}
                )
                return int(connection.execute(statement.returning(columns.number)).scalar_one())
            case "mysql" | "mariadb":
                # MySQL has no RETURNING. No other connection changes the LAST_INSERT_ID() of this one.
                first = mysql.insert(self.table).values({**values, "number": sa.func.last_insert_id(1)})
                following = sa.func.last_insert_id(columns.number + 1)
                connection.execute(first.on_duplicate_key_update(number=following))
                number, storage = connection.execute(
                    _LAST_NUMBER, {"schema": self.table.schema, "name": self.table.name}
                ).one()
                if storage != "InnoDB":
                    raise ConfigError(f"{self.table.name} has the engine {storage}, which rolls nothing back, {_GAPS}")
                return int(number)
            case other:
                raise ConfigError(
                    f"numbers without gaps are available on PostgreSQL, MariaDB, MySQL and SQLite, not on {other}"
                )


def _commits_by_itself(connection: sa.Connection) -> str:
    """Return why a number would be committed before the transaction ends, by a setting or by the driver; or empty."""
    reason = "this connection commits each statement by itself"
    of_engine = getattr(connection.dialect, "_on_connect_isolation_level", None)
    if connection.get_execution_options().get("isolation_level", of_engine) == "AUTOCOMMIT":
        return reason
    fairy = connection.connection
    driver: Any = fairy.driver_connection
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
    if name in metadata.tables:
        return metadata.tables[name]
    return sa.Table(
        name,
        metadata,
        sa.Column("tag", _exact(64), primary_key=True),
        sa.Column("period", _exact(20), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        # an engine without transactions would keep the numbers of those that are rolled back
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def _exact(length: int) -> sa.types.TypeEngine[str]:
    """Return a column type that tells upper case from lower case, which MariaDB and MySQL do not by default."""
    exact = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")
