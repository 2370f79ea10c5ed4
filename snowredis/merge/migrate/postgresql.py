"""The steps on PostgreSQL 14 and later: indexes are built concurrently, constraints validated without a lock on writes.

Every change of a table is a transaction of a few milliseconds that gives up its wait for the lock soon and tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import sqlalchemy as sa

from snowredis.errors import MigrationError
from snowredis.merge.migrate.database import Batch, WriteState
from snowredis.merge.migrate.locks import retried
from snowredis.merge.migrate.plan import ColumnChange, IndexChange, TableChange, short_name
from snowredis.merge.migrate.postgresql_session import LOCK_WAIT_MS, PostgreSQLSession

__all__ = ["PostgreSQL"]

# what may use a column and does not follow when it is renamed: views, policies, statistics, checks, exclusions
_DEPENDENTS = sa.text(
    """SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d
    LEFT JOIN pg_constraint c ON d.classid = 'pg_constraint'::regclass AND c.oid = d.objid
    LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = to_regclass(:table) AND d.refobjsubid =
      (SELECT attnum FROM pg_attribute WHERE attrelid = to_regclass(:table) AND attname = :column)
    AND (d.classid IN ('pg_rewrite'::regclass, 'pg_policy'::regclass, 'pg_statistic_ext'::regclass,
                       'pg_publication_rel'::regclass, 'pg_proc'::regclass)
         OR c.contype IN ('c', 'x') OR t.oid IS NOT NULL AND NOT t.tgisinternal)"""
)
# granted on the column, not on its table
_RIGHTS = sa.text(
    "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(:table) AND attname = :column AND attacl IS NOT NULL"
)


class PostgreSQL(PostgreSQLSession):
    """PostgreSQL."""

    oldest = (14, 0)
    # blocks of 8 kB
    batch_size = 16
    max_batch_size = 4096

    # --- start -----------------------------------------------------------------------------------------

    def check(self) -> None:
        with self.engine.connect() as connection:
            for table in self.plan.tables:
                kind, children = connection.execute(
                    sa.text(
                        "SELECT relkind::text, relhassubclass OR relispartition FROM pg_class "
                        "WHERE oid = to_regclass(:table)"
                    ),
                    {"table": self.name(table)},
                ).one()
                if kind != "r" or children:
                    raise MigrationError(
                        f"{table} is partitioned, or has child tables: that is not supported. Nothing was changed."
                    )
                for column in table.columns:
                    self._check_column(connection, table, column)

    def _check_column(self, connection: sa.Connection, table: TableChange, column: ColumnChange) -> None:
        names = {"table": self.name(table), "column": column.name}
        if connection.scalar(_RIGHTS, names):
            raise MigrationError(
                f"{table}.{column.name} has rights of its own, which would stay with the old values. Nothing was "
                "changed; REVOKE them, and GRANT them again after the switch."
            )
        found = connection.scalars(_DEPENDENTS, names).all()
        if found:
            raise MigrationError(
                f"{', '.join(found)} uses {table}.{column.name}, and would go on using the old values after the "
                "switch. Nothing was changed; drop it, and create it again after the switch."
            )

    def start(self) -> None:
        for table in self.plan.tables:
            self._locked(f"add columns to {table}", [table], partial(self._add, table))

    def _add(self, table: TableChange, connection: sa.Connection) -> None:
        columns = ", ".join(
            f"ADD COLUMN IF NOT EXISTS {self._quote(column.new)} bigint" for column in table.columns
        )
        self.execute(connection, f"ALTER TABLE {self.name(table)} {columns}")
        body = "".join(
            f"NEW.{self._quote(column.new)} := {self.moved(f'NEW.{self._quote(column.name)}::bigint')}; "
            for column in table.columns
        )
        self._create_trigger(connection, table, body)

    # --- backfill --------------------------------------------------------------------------------------

    def end_of(self, connection: sa.Connection, table: TableChange) -> int:
        size = "SELECT pg_relation_size(to_regclass(:table)) / current_setting('block_size')::int"
        return int(connection.scalar(sa.text(size), {"table": self.name(table)}) or 0)

    def position(self, cursor: Any, rows: int) -> int:
        return int(cursor or 0)

    def fill(self, connection: sa.Connection, table: TableChange, cursor: Any, size: int) -> Batch:
        # rows that were inserted or updated since start() are filled, so it does not matter where they moved to
        first = int(cursor or 0)
        if first >= self.end_of(connection, table):
            return Batch(0, None)
        after = first + size
        done = self.execute(
            connection,
            f"UPDATE {self.name(table)} SET {self.new_values(table)} WHERE ctid = ANY(ARRAY("
            f"SELECT ctid FROM {self.name(table)} WHERE ctid >= '({first},0)'::tid AND ctid < '({after},0)'::tid "
            f"AND ({self.unfilled(table)}) FOR UPDATE SKIP LOCKED))",
        )
        return Batch(done.rowcount, after)

    def build(self, report: Callable[[str], None]) -> None:
        for table in self.plan.tables:
            for index in table.indexes:
                report(f"index {index.name} of {table}")
                self._create_index(table, index, index.new, table.as_new)
                if index.constraint == "primary":
                    # for the way back: switching drops the one that the primary key has
                    self._create_index(table, index, index.old, tuple)
            self._require_values(table, [column.new for column in table.columns if not column.nullable])
        for table in self.plan.tables:
            for reference in table.references:
                report(f"foreign key {reference.name} of {table}")
                parent = self.plan.table_called(reference.parent_schema, reference.parent_table)
                assert parent is not None  # noqa: S101 - a parent of the ids is in the plan
                self._add_reference(
                    table,
                    parent,
                    reference.new,
                    table.as_new(reference.columns),
                    parent.as_new(reference.parent_columns),
                    reference.options,
                )
        with self._autocommit() as connection:
            for table in self.plan.tables:
                self.execute(connection, f"ANALYZE {self.name(table)}")

    def _add_reference(
        self,
        table: TableChange,
        parent: TableChange,
        name: str,
        columns: tuple[str, ...],
        parent_columns: tuple[str, ...],
        options: str,
    ) -> None:
        if not self._has_constraint(table, name):
            self._locked(
                f"add a foreign key to {table}",
                [parent, table],
                lambda connection: self.execute(
                    connection,
                    f"ALTER TABLE {self.name(table)} ADD CONSTRAINT {self._quote(name)} FOREIGN KEY "
                    f"({self.names(columns)}) REFERENCES {self.name(parent)} ({self.names(parent_columns)})"
                    f"{options} NOT VALID",
                ),
            )
        self._validate(table, name)

    # --- switch ----------------------------------------------------------------------------------------

    def switch(self, write_state: WriteState) -> None:
        self._locked("switch", self.plan.tables, lambda connection: self._switch(connection, write_state))

    def _switch(self, connection: sa.Connection, write_state: WriteState) -> None:
        for table in self.plan.tables:
            self._drop_trigger(connection, table)
            for reference in table.references:
                self._alter(connection, table, f"DROP CONSTRAINT {self._quote(reference.name)}")
        for table in self.plan.tables:
            for index in table.indexes:
                self._set_aside(connection, table, index, index.old)
            for column in table.columns:
                self._rename(connection, table, column.name, column.old)
                self._rename(connection, table, column.new, column.name)
                if not column.nullable:
                    check = short_name(f"{table.name}_{column.new}", "_check")
                    self._alter(connection, table, f"ALTER COLUMN {self._quote(column.name)} SET NOT NULL")
                    self._alter(connection, table, f"DROP CONSTRAINT {self._quote(check)}")
                    if not self._is_counted(column):
                        self._alter(
                            connection, table, f"ALTER COLUMN {self._quote(column.old)} DROP NOT NULL"
                        )
            for index in table.indexes:
                self._take(connection, table, index, index.new)
            for reference in table.references:
                names = f"{self._quote(reference.new)} TO {self._quote(reference.name)}"
                self._alter(connection, table, f"RENAME CONSTRAINT {names}")
        for table in self.plan.tables:
            self._create_trigger(connection, table, self._keep_old_values(table))
        write_state(connection)

    def _set_aside(
        self, connection: sa.Connection, table: TableChange, index: IndexChange, name: str
    ) -> None:
        """Free the name of an index; that of a primary key is dropped, since a table has one only."""
        if index.constraint == "primary":
            self._alter(connection, table, f"DROP CONSTRAINT {self._quote(index.name)}")
        elif index.constraint:
            names = f"{self._quote(index.name)} TO {self._quote(name)}"
            self._alter(connection, table, f"RENAME CONSTRAINT {names}")
        else:
            self._rename_index(connection, table, index.name, name)

    def _take(self, connection: sa.Connection, table: TableChange, index: IndexChange, name: str) -> None:
        """Give the name of an index to the one called *name*."""
        if index.constraint:
            kind = "PRIMARY KEY" if index.constraint == "primary" else "UNIQUE"
            names = f"{self._quote(index.name)} {kind} USING INDEX {self._quote(name)}"
            self._alter(connection, table, f"ADD CONSTRAINT {names}")
        else:
            self._rename_index(connection, table, name, index.name)

    def _keep_old_values(self, table: TableChange) -> str:
        """Return the body of the trigger after the switch."""
        parts = []
        # the ids first: columns of the same table may refer to them
        for column in sorted(table.columns, key=lambda column: column is not self.plan.ids):
            new, old = f"NEW.{self._quote(column.name)}", f"NEW.{self._quote(column.old)}"
            if column is self.plan.ids:
                # processes that still run the old code give no id
                parts.append(f"IF {new} IS NULL THEN {new} := {self.moved(f'{old}::bigint')}; END IF; ")
                if not self.plan.counted:
                    back = f"{new} - ({self.plan.offset})"
                    fits = "TRUE" if column.wide else f"{back} <= 2147483647"
                    parts.append(f"IF {old} IS NULL AND {fits} THEN {old} := {back}; END IF; ")
                continue
            parent, parent_column = self.parent_of(column)
            ids = f"NEW.{self._quote(parent_column.name)}"
            itself = (
                f"WHEN {new} = {ids} THEN NEW.{self._quote(parent_column.old)} " if parent is table else ""
            )
            parts.append(
                f"IF TG_OP = 'INSERT' OR {new} IS DISTINCT FROM OLD.{self._quote(column.name)} THEN "
                f"{old} := CASE WHEN {new} IS NULL THEN NULL {itself}ELSE (SELECT p.{self._quote(parent_column.old)} "
                f"FROM {self.name(parent)} p WHERE p.{self._quote(parent_column.name)} = {new}) END; END IF; "
            )
        return "".join(parts)

    # --- the way back ----------------------------------------------------------------------------------

    def switch_back(self, write_state: WriteState) -> None:
        for table in self.plan.tables:
            with self.engine.begin() as connection:
                self._complete_old_values(connection, table)
                self._refuse_rows_without(connection, table)
            self._require_values(
                table,
                [
                    column.old
                    for column in table.columns
                    if not column.nullable and not self._is_counted(column)
                ],
            )
        self._locked(
            "switch back", self.plan.tables, lambda connection: self._switch_back(connection, write_state)
        )

    def _complete_old_values(self, connection: sa.Connection, table: TableChange) -> None:
        """Fill what the trigger could not see: parents that other transactions had not committed."""
        for column in table.columns:
            if column is self.plan.ids:
                continue
            parent, parent_column = self.parent_of(column)
            self.execute(
                connection,
                f"UPDATE {self.name(table)} c SET {self._quote(column.old)} = p.{self._quote(parent_column.old)} FROM "
                f"{self.name(parent)} p WHERE p.{self._quote(parent_column.name)} = c.{self._quote(column.name)} AND "
                f"c.{self._quote(column.old)} IS NULL AND c.{self._quote(column.name)} IS NOT NULL",
            )

    def _refuse_rows_without(self, connection: sa.Connection, table: TableChange) -> None:
        for column in table.columns:
            old, live = self._quote(column.old), self._quote(column.name)
            rows = self.count(connection, f"{self.name(table)} WHERE {old} IS NULL AND {live} IS NOT NULL")
            if rows:
                raise MigrationError(
                    f"{rows} rows of {table} were written since the switch and have no old value for {column.name}: "
                    f"the old column, {column.type}, cannot hold one, or they refer to no row. Nothing was switched "
                    "back; delete these rows, or finish."
                )

    def _switch_back(self, connection: sa.Connection, write_state: WriteState) -> None:
        for table in self.plan.tables:
            self._complete_old_values(connection, table)
            self._drop_trigger(connection, table)
            for reference in table.references:
                self._alter(connection, table, f"DROP CONSTRAINT {self._quote(reference.name)}")
        for table in self.plan.tables:
            for index in table.indexes:
                self._set_aside(connection, table, index, index.new)
            for column in table.columns:
                self._rename(connection, table, column.name, column.new)
                self._rename(connection, table, column.old, column.name)
                if not column.nullable:
                    self._alter(connection, table, f"ALTER COLUMN {self._quote(column.name)} SET NOT NULL")
                    self._alter(connection, table, f"ALTER COLUMN {self._quote(column.new)} DROP NOT NULL")
                    check = short_name(f"{table.name}_{column.old}", "_check")
                    self._alter(connection, table, f"DROP CONSTRAINT IF EXISTS {self._quote(check)}")
            for index in table.indexes:
                if index.constraint == "unique":
                    names = f"{self._quote(index.old)} TO {self._quote(index.name)}"
                    self._alter(connection, table, f"RENAME CONSTRAINT {names}")
                else:
                    self._take(connection, table, index, index.old)
        for table in self.plan.tables:
            for reference in table.references:
                parent = self.qualified(reference.parent_schema, reference.parent_table)
                self._alter(
                    connection,
                    table,
                    f"ADD CONSTRAINT {self._quote(reference.name)} FOREIGN KEY ({self.names(reference.columns)}) "
                    f"REFERENCES {parent} ({self.names(reference.parent_columns)}){reference.options} NOT VALID",
                )
        write_state(connection)

    def drop_new(self) -> None:
        self._locked("remove the new columns", self.plan.tables, self._drop_new)
        for table in self.plan.tables:
            for reference in table.references:
                self._validate(table, reference.name)

    def _drop_new(self, connection: sa.Connection) -> None:
        for table in self.plan.tables:
            self._drop_trigger(connection, table)
            for reference in table.references:
                self._alter(connection, table, f"DROP CONSTRAINT IF EXISTS {self._quote(reference.new)}")
        for table in self.plan.tables:
            columns = (f"DROP COLUMN IF EXISTS {self._quote(column.new)}" for column in table.columns)
            self._alter(connection, table, ", ".join(columns))
            for index in table.indexes:
                if index.constraint == "primary":
                    name = self.qualified(table.schema, index.old)
                    self.execute(connection, f"DROP INDEX IF EXISTS {name}")

    def finish(self) -> None:
        if not self.plan.tables:
            table = self.qualified(self.plan.schema, self.plan.table)
            self._finish_in_place(table, self._quote(self.plan.column))
            return
        self._locked("remove the old columns", self.plan.tables, self._drop_old)

    def _drop_old(self, connection: sa.Connection) -> None:
        for table in self.plan.tables:
            self._drop_trigger(connection, table)
            columns = (f"DROP COLUMN IF EXISTS {self._quote(column.old)}" for column in table.columns)
            self._alter(connection, table, ", ".join(columns))

    def _finish_in_place(self, table: str, column: str) -> None:
        if not self.plan.counted:
            return

        def drop_default() -> None:
            with self.engine.begin() as connection:
                self.execute(connection, f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                self.execute(connection, f"ALTER TABLE {table} ALTER COLUMN {column} DROP IDENTITY IF EXISTS")
                self.execute(connection, f"ALTER TABLE {table} ALTER COLUMN {column} DROP DEFAULT")

        retried(f"remove the default of {table}", drop_default)
