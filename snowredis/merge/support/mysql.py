"""MariaDB and MySQL: foreign keys are switched off in the session, and checked by queries afterwards.

Triggers cannot be switched off, and DDL ends a transaction, so nothing of the tables is altered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from snowredis.errors import MergeError
from snowredis.merge.id_domains import ColumnName, Schema, TableName
from snowredis.merge.support.base import Support

__all__ = ["MySQL"]

_ENGINES = sa.text(
    "SELECT table_name AS name, engine AS engine FROM information_schema.tables "
    "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_type = 'BASE TABLE' AND engine <> 'InnoDB'"
)
_FOREIGN = sa.text(
    "SELECT table_schema AS other, table_name AS name, constraint_name AS constraint_name "
    "FROM information_schema.key_column_usage WHERE referenced_table_schema = COALESCE(:schema, DATABASE()) "
    "AND table_schema <> referenced_table_schema"
)
_TRIGGERS = sa.text(
    "SELECT trigger_name AS name, event_object_table AS tab FROM information_schema.triggers "
    "WHERE event_object_schema = COALESCE(:schema, DATABASE()) AND event_manipulation IN ('UPDATE', 'INSERT') "
    "ORDER BY 1"
)
_ON_UPDATE = sa.text(
    "SELECT column_name FROM information_schema.columns WHERE table_schema = COALESCE(:schema, DATABASE()) "
    "AND table_name = :table AND lower(extra) LIKE '%on update current_timestamp%'"
)
_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INTEGER": 32, "BIGINT": 64}


class MySQL(Support):
    """MariaDB 10.5 or later, MySQL 8."""

    locks = "each batch locks the rows that it changes; foreign_key_checks is off in its session only"

    def check(self, engine: sa.Engine, schema: Schema) -> None:
        with engine.connect() as connection:
            for name in {table.schema for table in schema.tables}:
                self._check(connection, name, schema)

    def _check(self, connection: sa.Connection, name: str | None, schema: Schema) -> None:
        for row in connection.execute(_ENGINES, {"schema": name}):
            if TableName(name, row.name) in schema.tables:
                raise MergeError(
                    f"table {row.name} is of the engine {row.engine}, which has no transactions. Nothing was changed; "
                    f"first: ALTER TABLE {row.name} ENGINE=InnoDB"
                )
        for row in connection.execute(_FOREIGN, {"schema": name}):
            if TableName(row.other, row.name) not in schema.tables:
                raise MergeError(
                    f"a foreign key of the database {row.other}, {row.constraint_name} of {row.name}, leads here. "
                    f"Nothing was changed; name all databases that belong together with --schema."
                )

    def fixed_triggers(self, connection: sa.Connection, schema: Schema) -> list[str]:
        found = []
        for name in {table.schema for table in schema.tables}:
            rows = connection.execute(_TRIGGERS, {"schema": name})
            found += [f"{row.name} on {row.tab}" for row in rows if TableName(name, row.tab) in schema.tables]
        return found

    def limit(self, column: sa.Column[Any]) -> int:
        kind = type(column.type).__name__.upper()
        bits = _BITS.get(kind, 32)
        # SQLAlchemy reads as int64: of BIGINT UNSIGNED only the lower half is used
        unsigned = bool(getattr(column.type, "unsigned", False)) and bits < 64
        return (1 << (bits if unsigned else bits - 1)) - 1

    @contextlib.contextmanager
    def relaxed(
        self, connection: sa.Connection, tables: Sequence[TableName], *, keys: bool = True
    ) -> Iterator[None]:
        if keys:
            self.run(connection, "SET SESSION foreign_key_checks = 0")
        yield
        if keys:
            self.run(connection, "SET SESSION foreign_key_checks = 1")

    def kept_columns(self, connection: sa.Connection, table: TableName) -> list[str]:
        return list(connection.scalars(_ON_UPDATE, {"schema": table.schema, "table": table.table}))

    def after_loading(self, connection: sa.Connection, table: str) -> None:
        self.run(connection, f"ANALYZE TABLE {self.quote(table)}")

    def move_counter(
        self, connection: sa.Connection, column: sa.Column[Any], name: ColumnName, above: int
    ) -> None:
        if column.autoincrement is True:
            # InnoDB does not go below the greatest number that is there
            self.run(connection, f"ALTER TABLE {self.name(name.of)} AUTO_INCREMENT = {above + 1:d}")
