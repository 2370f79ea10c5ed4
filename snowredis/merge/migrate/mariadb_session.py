"""Parts of the steps on MariaDB: changes of tables, triggers, a sequence, and locks on all tables at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import sqlalchemy as sa

from snowredis.merge.migrate.database import Database
from snowredis.merge.migrate.journal import JOURNAL_TABLE
from snowredis.merge.migrate.locks import retried
from snowredis.merge.migrate.plan import ColumnChange, ReferenceChange, TableChange, short_name

__all__ = ["ONLINE", "MariaDBSession"]

# without a lock on writes; InnoDB refuses what it cannot do so
ONLINE = "ALGORITHM=INPLACE, LOCK=NONE"


class MariaDBSession(Database):
    """Statements on MariaDB."""

    def _sequence(self) -> str:
        return self.qualified(self.plan.schema, short_name(f"snowredis_{self.plan.table}", "_counter"))

    def _create_sequence(self) -> None:
        if self.plan.counted:
            self._run(f"CREATE SEQUENCE IF NOT EXISTS {self._sequence()} CACHE 50")

    def _drop_sequence(self) -> None:
        self._run(f"DROP SEQUENCE IF EXISTS {self._sequence()}")

    def _count_on(self, connection: sa.Connection) -> None:
        """Let the sequence begin after every number that AUTO_INCREMENT gave."""
        if not self.plan.counted:
            return
        column = self.plan.ids.old if self.plan.tables else self.plan.column
        table = self.qualified(self.plan.schema, self.plan.table)
        last = self.execute(
            connection,
            f"SELECT coalesce(max({self._quote(column)}), 0) FROM {table} "
            f"WHERE {self._quote(column)} <= {self.plan.last_old}",
        ).scalar()
        following = connection.scalar(
            sa.text(
                "SELECT auto_increment FROM information_schema.tables WHERE table_schema = "
                "coalesce(:schema, database()) AND table_name = :name"
            ),
            {"schema": self.plan.schema, "name": self.plan.table},
        )
        next_id = int(last or 0) + 1
        if following is not None and int(following) <= self.plan.last_old:
            next_id = max(next_id, int(following))
        self.execute(connection, f"SELECT SETVAL({self._sequence()}, {next_id}, 0)")

    def _has(self, table: TableChange, column: str, connection: sa.Connection | None = None) -> bool:
        query = (
            "SELECT column_name FROM information_schema.columns WHERE table_schema = coalesce(:schema, database()) "
            "AND table_name = :name"
        )
        return column in self._names(query, table, connection)

    def _names(self, query: str, table: TableChange, connection: sa.Connection | None = None) -> set[str]:
        if connection is None:
            with self.engine.connect() as own:
                return self._names(query, table, own)
        values = {"schema": table.schema, "name": table.name}
        return set(connection.scalars(sa.text(query), values))

    def _rename(
        self,
        connection: sa.Connection,
        table: TableChange,
        names: Sequence[tuple[str, str]],
        *,
        back: bool = False,
    ) -> None:
        """Move the columns in use aside, and put the second ones in their place, in one change."""
        parts = [f"RENAME COLUMN {self._quote(name)} TO {self._quote(aside)}" for name, aside in names]
        for column in table.columns:
            second = column.old if back else column.new
            parts.append(f"RENAME COLUMN {self._quote(second)} TO {self._quote(column.name)}")
        self.execute(connection, f"ALTER TABLE {self.name(table)} {', '.join(parts)}, ALGORITHM=INSTANT")

    def _create_trigger(
        self, table: TableChange, event: str, body: str, connection: sa.Connection | None = None
    ) -> None:
        statement = (
            f"CREATE OR REPLACE TRIGGER {self._trigger(table, event)} BEFORE {event} ON {self.name(table)} "
            f"FOR EACH ROW {body}"
        )
        if connection is None:
            self._run(statement)
        else:
            self.execute(connection, statement)

    def _drop_triggers(self, connection: sa.Connection | None, table: TableChange) -> None:
        for event in ("INSERT", "UPDATE"):
            statement = f"DROP TRIGGER IF EXISTS {self._trigger(table, event)}"
            if connection is None:
                self._run(statement)
            else:
                self.execute(connection, statement)

    def _trigger(self, table: TableChange, event: str) -> str:
        return self.qualified(table.schema, short_name(f"zz_snowredis_{table.name}", f"_{event.lower()}"))

    def _alter(self, table: TableChange, change: str) -> None:
        self._run(f"ALTER TABLE {self.name(table)} {change}", checks=False)

    def _run(self, statement: str, *, checks: bool = True) -> None:
        """Run one change of a table, again while others hold it."""

        def attempt() -> None:
            with self._session() as connection:
                if not checks:
                    self.execute(connection, "SET foreign_key_checks = 0")
                try:
                    self.execute(connection, statement)
                finally:
                    self.execute(connection, "SET foreign_key_checks = 1")

        retried(f"change {self.plan.name}", attempt)

    @contextmanager
    def _session(self) -> Iterator[sa.Connection]:
        """Connection that commits each statement and waits for locks for a second at most."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            self.execute(connection, "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
            yield connection

    @contextmanager
    def _all_locked(self) -> Iterator[sa.Connection]:
        """Connection that has locked all tables of the migration for writing."""
        names = [self.name(table) for table in self.plan.tables] or [
            self.qualified(self.plan.schema, self.plan.table)
        ]
        # the rows are read under a second name, too
        locks = [f"{name} WRITE" for name in [*names, JOURNAL_TABLE]]
        locks += [f"{self.name(table)} {self._alias(table)} WRITE" for table in self.plan.tables]
        if self.plan.counted:
            locks.append(f"{self._sequence()} WRITE")
        with self._session() as connection:
            retried(
                "lock the tables",
                lambda: _nothing(self.execute(connection, f"LOCK TABLES {', '.join(locks)}")),
            )
            began_s = time.monotonic()
            try:
                yield connection
            finally:
                self.execute(connection, "UNLOCK TABLES")
                self.locked_s = max(self.locked_s, time.monotonic() - began_s)

    def _alias(self, table: TableChange) -> str:
        """Return a second name of a table: LOCK TABLES needs one for each use in a statement."""
        return f"p{self.plan.tables.index(table)}"

    def _references_of(self, connection: sa.Connection, table: TableChange) -> set[str | None]:
        return {
            key["name"] for key in sa.inspect(connection).get_foreign_keys(table.name, schema=table.schema)
        }

    def _adding(self, reference: ReferenceChange, name: str) -> str:
        parent = self.qualified(reference.parent_schema, reference.parent_table)
        return (
            f"ADD CONSTRAINT {self._quote(name)} FOREIGN KEY ({self.names(reference.columns)}) REFERENCES {parent} "
            f"({self.names(reference.parent_columns)}){reference.options}"
        )

    def _is_counted(self, column: ColumnChange) -> bool:
        return self.plan.counted and bool(self.plan.tables) and column is self.plan.ids


def _nothing(_: object) -> None:
    """Return nothing."""
