"""Parts of the steps on PostgreSQL: short transactions with locked tables, triggers, indexes, constraints."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import sqlalchemy as sa

from snowredis.merge.migrate.database import Database
from snowredis.merge.migrate.locks import retried
from snowredis.merge.migrate.plan import ColumnChange, IndexChange, TableChange, short_name

__all__ = ["LOCK_WAIT_MS", "PostgreSQLSession"]

# writes wait for at most this long behind a lock that is not granted, over all tables of one transaction
LOCK_WAIT_MS = 300


class PostgreSQLSession(Database):
    """Statements on PostgreSQL."""

    def _create_trigger(self, connection: sa.Connection, table: TableChange, body: str) -> None:
        """Replace the trigger of a table. Its name sorts last, so that it sees what other triggers changed."""
        self._drop_trigger(connection, table)
        self.execute(
            connection,
            f"CREATE FUNCTION {self._function(table)}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$snowredis$ BEGIN {body}RETURN NEW; END $snowredis$",
        )
        self.execute(
            connection,
            f"CREATE TRIGGER {self._trigger(table)} BEFORE INSERT OR UPDATE ON {self.name(table)} "
            f"FOR EACH ROW EXECUTE FUNCTION {self._function(table)}()",
        )

    def _drop_trigger(self, connection: sa.Connection, table: TableChange) -> None:
        self.execute(connection, f"DROP TRIGGER IF EXISTS {self._trigger(table)} ON {self.name(table)}")
        self.execute(connection, f"DROP FUNCTION IF EXISTS {self._function(table)}()")

    def _trigger(self, table: TableChange) -> str:
        return self._quote(short_name(f"zz_snowredis_{table.name}", ""))

    def _function(self, table: TableChange) -> str:
        return self.qualified(table.schema, short_name(f"snowredis_{table.name}", "_ids"))

    def _validate(self, table: TableChange, name: str) -> None:
        with self._autocommit() as connection:
            self.execute(
                connection, f"ALTER TABLE {self.name(table)} VALIDATE CONSTRAINT {self._quote(name)}"
            )

    def _has_constraint(self, table: TableChange, name: str) -> bool:
        query = "SELECT 1 FROM pg_constraint WHERE conrelid = to_regclass(:table) AND conname = :name"
        with self.engine.connect() as connection:
            return bool(connection.scalar(sa.text(query), {"table": self.name(table), "name": name}))

    def _locked(self, what: str, tables: Any, change: Callable[[sa.Connection], object]) -> None:
        """Run *change* in one transaction that has locked *tables*, in the order of the plan."""
        wait_ms = max(20, LOCK_WAIT_MS // max(1, len(tables)))

        def attempt() -> None:
            with self.engine.begin() as connection:
                self.execute(connection, f"SET LOCAL lock_timeout = {wait_ms}")
                names = ", ".join(self.name(table) for table in self.plan.tables if table in tables)
                if names:
                    self.execute(connection, f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
                began_s = time.monotonic()
                change(connection)
            self.locked_s = max(self.locked_s, time.monotonic() - began_s)

        retried(what, attempt)

    def _autocommit(self) -> sa.Connection:
        return self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _alter(self, connection: sa.Connection, table: TableChange, change: str) -> None:
        self.execute(connection, f"ALTER TABLE {self.name(table)} {change}")

    def _rename(self, connection: sa.Connection, table: TableChange, old: str, new: str) -> None:
        self._alter(connection, table, f"RENAME COLUMN {self._quote(old)} TO {self._quote(new)}")

    def _rename_index(self, connection: sa.Connection, table: TableChange, old: str, new: str) -> None:
        name = self.qualified(table.schema, old)
        self.execute(connection, f"ALTER INDEX {name} RENAME TO {self._quote(new)}")

    def _require_values(self, table: TableChange, columns: list[str]) -> None:
        """Add checks that columns are not null, and validate them: SET NOT NULL then needs no scan."""
        for column in columns:
            check = short_name(f"{table.name}_{column}", "_check")
            if not self._has_constraint(table, check):
                change = (
                    f"ADD CONSTRAINT {self._quote(check)} CHECK ({self._quote(column)} IS NOT NULL) NOT VALID"
                )
                add = partial(self._alter, table=table, change=change)
                self._locked(f"add a check to {table}", [table], add)
            self._validate(table, check)

    def _create_index(
        self, table: TableChange, index: IndexChange, name: str, columns_as: Callable[[Any], tuple[str, ...]]
    ) -> None:
        columns, orders = columns_as(index.columns), index.orders or ("",) * len(index.columns)
        parts = ", ".join(self._quote(column) + order for column, order in zip(columns, orders, strict=True))
        including = f" INCLUDE ({self.names(columns_as(index.including))})" if index.including else ""
        condition = f" WHERE {index.condition}" if index.condition else ""
        with self._autocommit() as connection:
            qualified = self.qualified(table.schema, name)
            valid = connection.scalar(
                sa.text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"),
                {"name": qualified},
            )
            if valid:
                return
            if valid is False:
                # of a build that was killed
                self.execute(connection, f"DROP INDEX CONCURRENTLY {qualified}")
            self.execute(connection, "SET max_parallel_maintenance_workers = 0")
            self.execute(
                connection,
                f"CREATE {'UNIQUE ' if index.unique else ''}INDEX CONCURRENTLY {self._quote(name)} ON "
                f"{self.name(table)} USING {index.method or 'btree'} ({parts}){including}{condition}",
            )

    def _is_counted(self, column: ColumnChange) -> bool:
        return self.plan.counted and column is self.plan.ids

    def use_one_cpu(self, connection: sa.Connection) -> None:
        self.execute(connection, "SET LOCAL max_parallel_workers_per_gather = 0")
