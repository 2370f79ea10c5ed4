"""SQLite: foreign keys are checked at the commit, and triggers are dropped and made again in the same transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from snowredis.errors import MergeError
from snowredis.merge.id_domains import ColumnName, Schema, TableName
from snowredis.merge.support.base import Support

__all__ = ["SQLite"]

_TRIGGERS = sa.text("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name")


class SQLite(Support):
    """SQLite 3.8 or later."""

    locks = "each batch locks the whole file; readers go on if it is in WAL mode"

    def check(self, engine: sa.Engine, schema: Schema) -> None:
        with engine.connect() as connection:
            problems = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if problems != "ok":
            raise MergeError(
                f"{engine.url.database} is damaged: {problems}. Nothing was changed; repair it, with "
                ".recover of sqlite3."
            )

    def limit(self, column: sa.Column[Any]) -> int:
        # a column's type says nothing of its size
        return (1 << 63) - 1

    @contextlib.contextmanager
    def relaxed(
        self, connection: sa.Connection, tables: Sequence[TableName], *, keys: bool = True
    ) -> Iterator[None]:
        if keys:
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        names = {table.table.lower() for table in tables}
        triggers = [row for row in connection.execute(_TRIGGERS) if row.tbl_name.lower() in names]
        for trigger in triggers:
            connection.exec_driver_sql(f"DROP TRIGGER {self.quote(trigger.name)}")
        yield
        for trigger in triggers:
            connection.exec_driver_sql(trigger.sql)

    def move_counter(
        self, connection: sa.Connection, column: sa.Column[Any], name: ColumnName, above: int
    ) -> None:
        exists = sa.text("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'")
        if connection.scalar(exists):
            # only tables with AUTOINCREMENT are in it; the others number from their greatest row
            move = sa.text("UPDATE sqlite_sequence SET seq = max(seq, :above) WHERE name = :name")
            connection.execute(move, {"above": above, "name": name.table})
