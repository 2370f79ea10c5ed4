"""Operations that a migration needs of a database: a contract, with one module for each kind of database.

Every method can be run again after a kill: it looks at the catalog for what is done already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from snowredis.errors import MigrationError
from snowredis.merge.migrate.plan import ColumnChange, MigrationPlan, TableChange

__all__ = ["Batch", "Database"]

# writes the new state of the migration within the same transaction
WriteState = Callable[[sa.Connection], None]


class Batch(NamedTuple):
    """Result of one batch: how many rows were filled, and where the next begins; None: nothing is left to look at."""

    rows: int
    cursor: Any


class Database(ABC):
    """The statements of one migration on one kind of database.

    Attributes:
        batch_size: rows, or blocks of a table, that the first batch has, and the least.
        max_batch_size: the most.
        oldest: the oldest version of the server that has what the steps need.
        late_rows: how many rows may be unfilled when the backfill ends, since switch() fills the last ones.
    """

    batch_size = 200
    max_batch_size = 20_000
    oldest: tuple[int, int] = (0, 0)
    late_rows = 0

    def __init__(self, engine: sa.Engine, plan: MigrationPlan) -> None:
        self.engine, self.plan = engine, plan
        self._quote = engine.dialect.identifier_preparer.quote
        # the longest that a step held a lock that writes wait for; measured on PostgreSQL and MariaDB
        self.locked_s = 0.0

    def check_version(self) -> None:
        """Refuse a server that is too old; raises MigrationError."""
        with self.engine.connect():
            found = tuple(self.engine.dialect.server_version_info or ())
        if found < self.oldest:
            raise MigrationError(
                f"the server has version {'.'.join(map(str, found))}, and the steps need "
                f"{'.'.join(map(str, self.oldest))} or later. Nothing was changed; upgrade the server."
            )

    # --- the steps -----------------------------------------------------------------------------------

    @abstractmethod
    def check(self) -> None:
        """Refuse what the steps cannot follow. Changes nothing; raises MigrationError."""

    @abstractmethod
    def start(self) -> None:
        """Add the new columns, and the triggers that fill them for each row written from now on."""

    @abstractmethod
    def end_of(self, connection: sa.Connection, table: TableChange) -> int:
        """Return how many rows, or blocks, fill() has to look at; an estimate."""

    @abstractmethod
    def position(self, cursor: Any, rows: int) -> int:
        """Return how many of end_of() are behind *cursor*, where *rows* were filled before it."""

    @abstractmethod
    def fill(self, connection: sa.Connection, table: TableChange, cursor: Any, size: int) -> Batch:
        """Fill the new columns of the rows after *cursor*, None at first; skip rows that others have locked."""

    @abstractmethod
    def build(self, report: Callable[[str], None]) -> None:
        """Build indexes and constraints of the new columns, without blocking writes for long."""

    @abstractmethod
    def switch(self, write_state: WriteState) -> None:
        """Exchange new and old columns; from then on triggers keep the old values."""

    @abstractmethod
    def switch_back(self, write_state: WriteState) -> None:
        """Exchange them again: applications have the old values, also of rows written since the switch."""

    @abstractmethod
    def drop_new(self) -> None:
        """Remove whatever start() and build() added: the tables are as they were."""

    @abstractmethod
    def finish(self) -> None:
        """Remove triggers and old columns; there is no way back from here."""

    def use_one_cpu(self, connection: sa.Connection) -> None:  # noqa: B027 - only PostgreSQL uses several
        """Keep a transaction that reads whole tables from using several CPUs, which the applications need."""

    # --- shared ----------------------------------------------------------------------------------------

    def execute(self, connection: sa.Connection, statement: str) -> sa.CursorResult[Any]:
        """Run a statement as it is; a % in it is a %."""
        return connection.execution_options(no_parameters=True).exec_driver_sql(statement)

    def count(self, connection: sa.Connection, rows: str) -> int:
        """Return how many rows there are; *rows* is what follows FROM."""
        return int(self.execute(connection, f"SELECT count(*) FROM {rows}").scalar() or 0)

    def name(self, table: TableChange) -> str:
        """Return the quoted name of a table."""
        return self.qualified(table.schema, table.name)

    def qualified(self, schema: str | None, name: str) -> str:
        return self._quote(name) if schema is None else f"{self._quote(schema)}.{self._quote(name)}"

    def names(self, names: Iterable[str]) -> str:
        """Return quoted names, separated by commas."""
        return ", ".join(map(self._quote, names))

    def moved(self, value: str) -> str:
        """Return the new value of an old one, as SQL."""
        return f"({value} + ({self.plan.offset}))" if self.plan.offset else value

    def unfilled(self, table: TableChange) -> str:
        """Return the condition for rows that have no new values yet."""
        return " OR ".join(
            f"({self._quote(column.name)} IS NOT NULL AND {self._quote(column.new)} IS NULL)"
            for column in table.columns
        )

    def new_values(self, table: TableChange) -> str:
        """Return the assignments that fill the new columns of a row."""
        return ", ".join(
            f"{self._quote(column.new)} = {self.moved(self._quote(column.name))}" for column in table.columns
        )

    def parent_of(self, column: ColumnChange) -> tuple[TableChange, ColumnChange]:
        """Return the table and the column that a column refers to."""
        parent = self.plan.table_called(column.parent_schema, str(column.parent_table))
        assert parent is not None, column  # noqa: S101 - all columns of the ids are in the plan
        return parent, next(other for other in parent.columns if other.name == column.parent_column)
