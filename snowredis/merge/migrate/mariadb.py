"""The steps on MariaDB 10.6 and later.

A trigger cannot see the number that AUTO_INCREMENT will give, so rows get their new id from the backfill, and the last
of them under the lock of the switch. After it, a sequence counts the old ids. MariaDB commits each change of a table by
itself: switching happens under LOCK TABLES, and if it is killed there, the same command completes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from snowredis.errors import MigrationError
from snowredis.merge.migrate.database import Batch, WriteState
from snowredis.merge.migrate.mariadb_session import ONLINE, MariaDBSession
from snowredis.merge.migrate.plan import ColumnChange, IndexChange, ReferenceChange, TableChange

__all__ = ["MariaDB"]


class MariaDB(MariaDBSession):
    """MariaDB with InnoDB tables."""

    oldest = (10, 6)
    late_rows = 1000

    def check(self) -> None:
        with self.engine.connect() as connection:
            for table in self.plan.tables:
                engine = connection.scalar(
                    sa.text(
                        "SELECT engine FROM information_schema.tables WHERE table_schema = "
                        "coalesce(:schema, database()) AND table_name = :name"
                    ),
                    {"schema": table.schema, "name": table.name},
                )
                if engine != "InnoDB" or not table.key:
                    what = f"is stored by {engine}" if engine != "InnoDB" else "has no primary key"
                    raise MigrationError(
                        f"{table} {what}; only InnoDB tables with a primary key can be migrated. Nothing was changed."
                    )

    def start(self) -> None:
        for table in self.plan.tables:
            columns = ", ".join(
                f"ADD COLUMN IF NOT EXISTS {self._quote(column.new)} BIGINT NULL" for column in table.columns
            )
            self._alter(table, f"{columns}, ALGORITHM=INSTANT")
            # the ids themselves are not known yet when the trigger runs
            values = self._assignments(table, lambda column: not self._is_counted(column))
            for event in ("INSERT", "UPDATE"):
                if event == "UPDATE":
                    values = self._assignments(table, lambda _: True)
                if values:
                    self._create_trigger(table, event, f"SET {values}")

    def _assignments(self, table: TableChange, wanted: Callable[[ColumnChange], bool]) -> str:
        return ", ".join(
            f"NEW.{self._quote(column.new)} = {self.moved(f'NEW.{self._quote(column.name)}')}"
            for column in table.columns
            if wanted(column)
        )

    # --- backfill --------------------------------------------------------------------------------------

    def end_of(self, connection: sa.Connection, table: TableChange) -> int:
        rows = sa.text(
            "SELECT table_rows FROM information_schema.tables WHERE table_schema = coalesce(:schema, database()) "
            "AND table_name = :name"
        )
        return int(connection.scalar(rows, {"schema": table.schema, "name": table.name}) or 0)

    def position(self, cursor: Any, rows: int) -> int:
        return rows

    def fill(self, connection: sa.Connection, table: TableChange, cursor: Any, size: int) -> Batch:
        # gaps are not locked, so nobody's insert waits
        rows = sa.table(table.name, *map(sa.column, self._columns_of(table)), schema=table.schema)
        key = [rows.c[name] for name in table.key]
        unfilled = sa.or_(
            *(
                sa.and_(rows.c[column.name].is_not(None), rows.c[column.new].is_(None))
                for column in table.columns
            )
        )
        query = sa.select(*key).where(unfilled).order_by(*key).limit(size).with_for_update(skip_locked=True)
        if cursor is not None:
            query = query.where(self._above(key, cursor))
        found = connection.execute(query).all()
        if not found:
            return Batch(0, None)
        chosen = (
            key[0].in_([row[0] for row in found])
            if len(key) == 1
            else sa.tuple_(*key).in_([tuple(row) for row in found])
        )
        connection.execute(
            sa.update(rows)
            .where(chosen)
            .values({column.new: rows.c[column.name] + self.plan.offset for column in table.columns})
        )
        return Batch(len(found), [_plain(value) for value in found[-1]])

    @staticmethod
    def _above(key: Sequence[Any], cursor: Sequence[Any]) -> sa.ColumnElement[bool]:
        """Return ``key > cursor`` as comparisons that use the index, which those of rows do not."""
        return sa.or_(
            *(
                sa.and_(*(key[at] == cursor[at] for at in range(last)), key[last] > cursor[last])
                for last in range(len(key))
            )
        )

    def build(self, report: Callable[[str], None]) -> None:
        for table in self.plan.tables:
            for index in table.indexes:
                report(f"index {index.name} of {table}")
                unique = "UNIQUE " if index.unique else ""
                self._alter(
                    table,
                    f"ADD {unique}INDEX IF NOT EXISTS {self._quote(index.new)} "
                    f"({self._parts(index, table.as_new)}), {ONLINE}",
                )
            for reference in table.references:
                if _is_indexed(table, reference):
                    continue
                report(f"index for {reference.name} of {table}")
                columns = self.names(table.as_new(reference.columns))
                name = self._quote(reference.new)
                self._alter(table, f"ADD INDEX IF NOT EXISTS {name} ({columns}), {ONLINE}")
        self._create_sequence()

    def _parts(self, index: IndexChange, columns_as: Callable[[Any], tuple[str, ...]]) -> str:
        orders = index.orders or ("",) * len(index.columns)
        return ", ".join(
            self._quote(column) + order
            for column, order in zip(columns_as(index.columns), orders, strict=True)
        )

    # --- switch ----------------------------------------------------------------------------------------

    def switch(self, write_state: WriteState) -> None:
        self._create_sequence()
        with self._all_locked() as connection:
            if not self.plan.tables:
                self._switch_in_place(connection)
            for table in self.plan.tables:
                if self._has(table, table.columns[0].new, connection):
                    self._drop_triggers(connection, table)
                    values = (
                        f"UPDATE {self.name(table)} SET {self.new_values(table)} WHERE {self.unfilled(table)}"
                    )
                    self.execute(connection, values)
                    self._rename(connection, table, [(column.name, column.old) for column in table.columns])
            self._complete_new_values(connection)
            self._count_on(connection)
            for table in self.plan.tables:
                for reference in table.references:
                    self._add_reference(connection, table, reference)
            for table in self.plan.tables:
                self._set_defaults(connection, table, "SET DEFAULT 0")
                for event in ("INSERT", "UPDATE"):
                    self._create_trigger(table, event, self._keep_old_values(table, event), connection)
            write_state(connection)

    def _set_defaults(self, connection: sa.Connection, table: TableChange, change: str) -> None:
        """Change the defaults of old columns: INSERT … SELECT asks for one before it runs the trigger."""
        for column in table.columns:
            if column is not self.plan.ids and not column.nullable:
                name = f"{self._quote(column.old)} {change}"
                self.execute(
                    connection, f"ALTER TABLE {self.name(table)} ALTER COLUMN {name}, ALGORITHM=INSTANT"
                )

    def _complete_new_values(self, connection: sa.Connection) -> None:
        """Fill ids of rows that the old code wrote after a switch that was killed."""
        for table in self.plan.tables:
            for column in table.columns:
                live, old = self._quote(column.name), self._quote(column.old)
                if self._is_counted(column):
                    self.execute(
                        connection,
                        f"UPDATE {self.name(table)} SET {live} = {self.moved(old)} WHERE {live} IS NULL",
                    )

    def _add_reference(
        self, connection: sa.Connection, table: TableChange, reference: ReferenceChange
    ) -> None:
        if reference.new in self._references_of(connection, table):
            return
        # not checked here, which would copy the table: verify() counts rows that refer to no row
        self.execute(connection, "SET foreign_key_checks = 0")
        self.execute(
            connection,
            f"ALTER TABLE {self.name(table)} {self._adding(reference, reference.new)}, {ONLINE}",
        )
        self.execute(connection, "SET foreign_key_checks = 1")

    def _keep_old_values(self, table: TableChange, event: str) -> str:
        parts = []
        for column in sorted(table.columns, key=lambda column: column is not self.plan.ids):
            new, old = f"NEW.{self._quote(column.name)}", f"NEW.{self._quote(column.old)}"
            if column is self.plan.ids:
                if event == "INSERT" and self.plan.counted:
                    parts.append(f"SET {old} = NEXTVAL({self._sequence()}); ")
                elif event == "INSERT":
                    parts.append(f"SET {old} = {new} - ({self.plan.offset}); ")
                if event == "INSERT":
                    # processes that still run the old code give no id
                    parts.append(f"IF {new} IS NULL THEN SET {new} = {self.moved(old)}; END IF; ")
                continue
            parent, parent_column = self.parent_of(column)
            ids = f"NEW.{self._quote(parent_column.name)}"
            itself = (
                f"WHEN {new} = {ids} THEN NEW.{self._quote(parent_column.old)} " if parent is table else ""
            )
            # a reference without a constraint may lead nowhere
            missing = "NULL" if column.nullable else "0"
            value = (
                f"CASE WHEN {new} IS NULL THEN NULL {itself}ELSE coalesce((SELECT p.{self._quote(parent_column.old)} "
                f"FROM {self.name(parent)} p WHERE p.{self._quote(parent_column.name)} = {new}), {missing}) END"
            )
            changed = "TRUE" if event == "INSERT" else f"NOT {new} <=> OLD.{self._quote(column.name)}"
            parts.append(f"IF {changed} THEN SET {old} = {value}; END IF; ")
        return f"BEGIN {''.join(parts)}END"

    def switch_back(self, write_state: WriteState) -> None:
        with self._all_locked() as connection:
            self._complete_old_values(connection)
            for table in self.plan.tables:
                self._drop_triggers(connection, table)
                for reference in table.references:
                    name = self._quote(reference.new)
                    self.execute(
                        connection, f"ALTER TABLE {self.name(table)} DROP FOREIGN KEY IF EXISTS {name}"
                    )
            for table in self.plan.tables:
                if self._has(table, table.columns[0].old, connection):
                    self._set_defaults(connection, table, "DROP DEFAULT")
                    self._rename(
                        connection,
                        table,
                        [(column.name, column.new) for column in table.columns],
                        back=True,
                    )
            write_state(connection)

    def _complete_old_values(self, connection: sa.Connection) -> None:
        """Fill old values that the triggers did not see, where a switch was killed."""
        for table in self.plan.tables:
            for column in table.columns:
                if column is self.plan.ids or not self._has(table, column.old, connection):
                    continue
                parent, parent_column = self.parent_of(column)
                if not self._has(parent, parent_column.old, connection):
                    continue
                alias, old = self._alias(parent), self._quote(column.old)
                live = f"{self.name(table)}.{self._quote(column.name)}"
                self.execute(
                    connection,
                    f"UPDATE {self.name(table)} SET {old} = (SELECT {alias}.{self._quote(parent_column.old)} FROM "
                    f"{self.name(parent)} {alias} WHERE {alias}.{self._quote(parent_column.name)} = {live}) "
                    f"WHERE {old} IS NULL AND {live} IS NOT NULL",
                )

    def drop_new(self) -> None:
        if not self.plan.tables:
            self._drop_in_place()
            return
        for table in self.plan.tables:
            self._drop_triggers(None, table)
        for table in self.plan.tables:
            for reference in table.references:
                self._alter(table, f"DROP FOREIGN KEY IF EXISTS {self._quote(reference.new)}")
        for table in self.plan.tables:
            names = [index.new for index in table.indexes] + [reference.new for reference in table.references]
            parts = [f"DROP INDEX IF EXISTS {self._quote(name)}" for name in names]
            parts += [f"DROP COLUMN IF EXISTS {self._quote(column.new)}" for column in table.columns]
            self._alter(table, ", ".join(parts))
        self._drop_sequence()

    def finish(self) -> None:
        if not self.plan.tables:
            self._finish_in_place()
            return
        for table in self.plan.tables:
            for reference in table.references:
                self._alter(table, f"DROP FOREIGN KEY IF EXISTS {self._quote(reference.name)}")
        # columns that refer to others first
        for table in reversed(self.plan.tables):
            self._drop_triggers(None, table)
            if self._has(table, table.columns[0].old):
                self._drop_old(table)
        for table in self.plan.tables:
            self._rename_indexes(table)
            self._rename_references(table)
        self._drop_sequence()

    def _drop_old(self, table: TableChange) -> None:
        """Remove the old columns in one change that copies the table while others write to it."""
        parts, places = [], self._places(table)
        for index in table.indexes:
            if index.constraint == "primary":
                parts += ["DROP PRIMARY KEY", f"ADD PRIMARY KEY ({self._parts(index, tuple)})"]
            else:
                parts.append(f"DROP INDEX {self._quote(index.name)}")
        for column in table.columns:
            null = "NULL" if column.nullable else "NOT NULL"
            before = places[column.name]
            place = f"AFTER {self._quote(before)}" if before else "FIRST"
            parts.append(f"MODIFY {self._quote(column.name)} BIGINT {null} {place}")
            parts.append(f"DROP COLUMN {self._quote(column.old)}")
        self._alter(table, f"{', '.join(parts)}, {ONLINE}")

    def _places(self, table: TableChange) -> dict[str, str | None]:
        """Return the column that comes before each column that changes, when it takes the place of its old one."""
        with self.engine.connect() as connection:
            order = [found["name"] for found in sa.inspect(connection).get_columns(table.name, table.schema)]
        live = {column.old: column.name for column in table.columns}
        names = [live.get(name, name) for name in order if name not in live.values()]
        return dict(zip(names, [None, *names], strict=False))

    def _rename_indexes(self, table: TableChange) -> None:
        existing = self._names(
            "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = "
            "coalesce(:schema, database()) AND table_name = :name",
            table,
        )
        for index in table.indexes:
            if index.new in existing and index.constraint == "primary":
                # the primary key does the same
                self._alter(table, f"DROP INDEX {self._quote(index.new)}")
            elif index.new in existing and index.name not in existing:
                self._alter(table, f"RENAME INDEX {self._quote(index.new)} TO {self._quote(index.name)}")

    def _rename_references(self, table: TableChange) -> None:
        with self.engine.connect() as connection:
            existing = self._references_of(connection, table)
        for reference in table.references:
            if reference.new in existing:
                drop = f"DROP FOREIGN KEY {self._quote(reference.new)}"
                self._alter(table, f"{drop}, {self._adding(reference, reference.name)}, {ONLINE}")

    # --- all columns have 64 bits, and ids are kept ------------------------------------------------------

    def _switch_in_place(self, connection: sa.Connection) -> None:
        """Count on from a sequence: AUTO_INCREMENT would follow the first new id."""
        self._count_on(connection)
        if self.plan.counted:
            column = self._quote(self.plan.column)
            self._create_trigger(
                self._bare(),
                "INSERT",
                f"BEGIN IF NEW.{column} = 0 THEN SET NEW.{column} = NEXTVAL({self._sequence()}); END IF; END",
                connection,
            )

    def _drop_in_place(self) -> None:
        """Let AUTO_INCREMENT count again, if it did not follow a new id; else the sequence has to go on."""
        table, column = self.qualified(self.plan.schema, self.plan.table), self._quote(self.plan.column)
        with self.engine.connect() as connection:
            last = self.execute(connection, f"SELECT max({column}) FROM {table}").scalar() or 0
        if int(last) <= self.plan.last_old:
            self._drop_triggers(None, self._bare())
            self._drop_sequence()

    def _finish_in_place(self) -> None:
        bare = self._bare()
        if self.plan.counted:
            self._alter(bare, f"MODIFY {self._quote(self.plan.column)} BIGINT NOT NULL, {ONLINE}")
        self._drop_triggers(None, bare)
        self._drop_sequence()

    def _bare(self) -> TableChange:
        return TableChange(self.plan.schema, self.plan.table, (self.plan.column,), ())

    def _columns_of(self, table: TableChange) -> list[str]:
        own = [name for column in table.columns for name in (column.name, column.new)]
        return [*own, *(name for name in table.key if name not in own)]


def _is_indexed(table: TableChange, reference: ReferenceChange) -> bool:
    """Return whether an index of the table serves a foreign key, which else needs one of its own."""
    width = len(reference.columns)
    return any(index.columns[:width] == reference.columns for index in table.indexes)


def _plain(value: Any) -> Any:
    """Return a value of a key for JSON."""
    return value if isinstance(value, int | str) else str(value)
