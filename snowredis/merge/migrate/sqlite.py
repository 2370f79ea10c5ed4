"""The steps on SQLite 3.35 and later, within its limits: one writer at a time, and a column keeps its name.

The switch exchanges the values of the two columns, in one transaction that takes as long as rewriting the rows does.
Processes with the old code must be stopped before it: a trigger of SQLite cannot give a row its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from snowredis.errors import MigrationError
from snowredis.merge.migrate.database import Batch, Database, WriteState
from snowredis.merge.migrate.plan import TableChange, short_name

__all__ = ["SQLite"]


class SQLite(Database):
    """SQLite."""

    oldest = (3, 35)

    def check(self) -> None:
        plan = self.plan
        overlaps = plan.offset and plan.first_old + plan.offset <= plan.last_old
        if overlaps and plan.first_old <= plan.last_old + plan.offset:
            raise MigrationError(
                "old and new values of the column overlap, which SQLite cannot exchange in place. Nothing was changed; "
                "copy the rows to a new table."
            )
        for table in plan.tables:
            with self.engine.connect() as connection:
                rows = connection.execute(
                    sa.text("SELECT type, sql FROM sqlite_master WHERE tbl_name = :name"),
                    {"name": table.name},
                ).all()
            sql = {kind: (text or "").upper() for kind, text in rows}
            if "WITHOUT ROWID" in sql.get("table", ""):
                raise MigrationError(
                    f"{table} is a WITHOUT ROWID table; these are not supported. Nothing was changed."
                )
            if "trigger" in sql:
                raise MigrationError(
                    f"{table} has triggers, which would run for every row. Nothing was changed; drop them, and create "
                    "them again after the migration."
                )
            if any("ON UPDATE CASCADE" in reference.options for reference in table.references):
                raise MigrationError(
                    f"{table} has a foreign key with ON UPDATE CASCADE, which would change values twice. Nothing was "
                    "changed; it is not supported on SQLite."
                )

    def start(self) -> None:
        with self._writing() as connection:
            for table in self.plan.tables:
                existing = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
                for column in table.columns:
                    if column.new not in existing:
                        new = self._quote(column.new)
                        self.execute(connection, f"ALTER TABLE {self.name(table)} ADD COLUMN {new} BIGINT")
                self._create_triggers(connection, table, self.new_values)

    def _create_triggers(
        self, connection: sa.Connection, table: TableChange, values: Callable[[TableChange], str]
    ) -> None:
        self._drop_triggers(connection, table)
        names = self.names(column.name for column in table.columns)
        for event, of in (("INSERT", ""), ("UPDATE", f" OF {names}")):
            self.execute(
                connection,
                f"CREATE TRIGGER {self._trigger(table, event)} AFTER {event}{of} ON {self.name(table)} BEGIN "
                f"UPDATE {self.name(table)} SET {values(table)} WHERE rowid = NEW.rowid; END",
            )

    def end_of(self, connection: sa.Connection, table: TableChange) -> int:
        return int(self.execute(connection, f"SELECT count(*) FROM {self.name(table)}").scalar() or 0)

    def position(self, cursor: Any, rows: int) -> int:
        return rows

    def fill(self, connection: sa.Connection, table: TableChange, cursor: Any, size: int) -> Batch:
        after = -(2**63) if cursor is None else int(cursor)
        last = self.execute(
            connection,
            f"SELECT max(r) FROM (SELECT rowid AS r FROM {self.name(table)} WHERE rowid > {after} ORDER BY rowid "
            f"LIMIT {size})",
        ).scalar()
        if last is None:
            return Batch(0, None)
        done = self.execute(
            connection,
            f"UPDATE {self.name(table)} SET {self.new_values(table)} WHERE rowid > {after} AND rowid <= {last} "
            f"AND ({self.unfilled(table)})",
        )
        return Batch(done.rowcount, last)

    def build(self, report: Callable[[str], None]) -> None:
        if self.plan.tables:
            root = self.plan.root
            report(f"index of {root}")
            with self._writing() as connection:
                self.execute(
                    connection,
                    f"CREATE UNIQUE INDEX IF NOT EXISTS {self._quote(short_name(root.name, '_ids_new'))} ON "
                    f"{self.name(root)} ({self._quote(self.plan.ids.new)})",
                )

    def switch(self, write_state: WriteState) -> None:
        with self._writing() as connection:
            self._exchange(connection)
            for table in self.plan.tables:
                self._create_triggers(connection, table, self._old_values)
            write_state(connection)

    def _exchange(self, connection: sa.Connection) -> None:
        """Exchange the values of both columns in all rows; foreign keys are checked at the end."""
        self.execute(connection, "PRAGMA defer_foreign_keys = ON")
        for table in self.plan.tables:
            self._drop_triggers(connection, table)
        # the ids last: RESTRICT looks for rows that refer to a value at once
        for table in reversed(self.plan.tables):
            values = ", ".join(
                f"{self._quote(column.name)} = {self._quote(column.new)}, "
                f"{self._quote(column.new)} = {self._quote(column.name)}"
                for column in table.columns
            )
            self.execute(connection, f"UPDATE {self.name(table)} SET {values}")

    def _old_values(self, table: TableChange) -> str:
        """Return the assignments that keep old values in the second columns after the switch."""
        values = []
        for column in table.columns:
            second, live = self._quote(column.new), self._quote(column.name)
            if column is not self.plan.ids:
                parent, parent_column = self.parent_of(column)
                old = (
                    f"(SELECT p.{self._quote(parent_column.new)} FROM {self.name(parent)} p "
                    f"WHERE p.{self._quote(parent_column.name)} = NEW.{live})"
                )
                if parent is table:
                    own = self._old_id(table)
                    old = f"CASE WHEN {live} = {self._quote(parent_column.name)} THEN {own} ELSE {old} END"
            else:
                old = self._old_id(table)
            values.append(f"{second} = {old}")
        return ", ".join(values)

    def _old_id(self, table: TableChange) -> str:
        second = self._quote(self.plan.ids.new)
        if self.plan.counted:
            following = f"(SELECT coalesce(max(x.{second}), 0) + 1 FROM {self.name(table)} x)"
        else:
            following = f"{self._quote(self.plan.column)} - ({self.plan.offset})"
        return f"coalesce({second}, {following})"

    def switch_back(self, write_state: WriteState) -> None:
        with self._writing() as connection:
            for table in self.plan.tables:
                for column in table.columns:
                    rows = self.count(
                        connection,
                        f"{self.name(table)} WHERE {self._quote(column.new)} IS NULL AND "
                        f"{self._quote(column.name)} IS NOT NULL",
                    )
                    if rows:
                        raise MigrationError(
                            f"{rows} rows of {table} have no old value for {column.name}: they refer to no row. "
                            "Nothing was switched back; delete these rows, or finish."
                        )
            self._exchange(connection)
            if self.plan.tables and sa.inspect(connection).has_table("sqlite_sequence"):
                # AUTOINCREMENT counts on from the greatest old id
                connection.execute(
                    sa.text(
                        f"UPDATE sqlite_sequence SET seq = (SELECT max({self._quote(self.plan.column)}) "
                        f"FROM {self.name(self.plan.root)}) WHERE name = :name"
                    ),
                    {"name": self.plan.table},
                )
            write_state(connection)

    def drop_new(self) -> None:
        with self._writing() as connection:
            for table in self.plan.tables:
                self._drop_triggers(connection, table)
            if self.plan.tables:
                name = short_name(self.plan.root.name, "_ids_new")
                self.execute(connection, f"DROP INDEX IF EXISTS {self._quote(name)}")
            for table in self.plan.tables:
                existing = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
                for column in table.columns:
                    if column.new in existing:
                        self.execute(
                            connection,
                            f"ALTER TABLE {self.name(table)} DROP COLUMN {self._quote(column.new)}",
                        )

    def finish(self) -> None:
        self.drop_new()

    def _drop_triggers(self, connection: sa.Connection, table: TableChange) -> None:
        for event in ("INSERT", "UPDATE"):
            self.execute(connection, f"DROP TRIGGER IF EXISTS {self._trigger(table, event)}")

    def _trigger(self, table: TableChange, event: str) -> str:
        return self._quote(short_name(f"zz_snowredis_{table.name}", f"_{event.lower()}"))

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Transaction that is the writer from its beginning."""
        with (
            self.engine.connect().execution_options(snowredis_writes=True) as connection,
            connection.begin(),
        ):
            yield connection
