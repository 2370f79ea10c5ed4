"""Interface of what differs between the kinds of databases, with the answers that most of them share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from snowredis.merge.id_domains import ColumnName, Schema, TableName, is_integer

__all__ = ["Support"]

_BITS: tuple[tuple[type[sa.Integer], int], ...] = ((sa.SmallInteger, 16), (sa.BigInteger, 64))


class Support:
    """Statements of one kind of database.

    Attributes:
        locks: who waits for whom while keys change, for people.
    """

    locks = ""

    def __init__(self, dialect: sa.Dialect) -> None:
        self._preparer = dialect.identifier_preparer
        self._doubles_percent = dialect.paramstyle in ("format", "pyformat")

    def quote(self, name: str) -> str:
        """Return the quoted name of a table, column or trigger, for run()."""
        text = self._preparer.quote(name)
        return text.replace("%%", "%") if self._doubles_percent else text

    def run(self, connection: sa.Connection, statement: str) -> None:
        """Execute a statement without parameters; names in it may have any characters."""
        connection.execute(sa.text(statement.replace(":", "\\:"))).close()

    def name(self, table: TableName) -> str:
        """Return the quoted name of a table."""
        return ".".join(self.quote(part) for part in table if part is not None)

    def check(self, engine: sa.Engine, schema: Schema) -> None:
        """Refuse a database that cannot be changed safely.

        Raises:
            MergeError: what is in the way.
        """

    def warnings(self, engine: sa.Engine, schema: Schema) -> list[str]:
        """Return what a person should know before the plan is applied."""
        return [*_unnamed_references(schema), *_without_index(engine, schema)]

    def copy_obstacles(self, engine: sa.Engine, schema: Schema) -> list[tuple[TableName, str]]:
        """Return tables whose rows cannot be copied, and why."""
        return []

    def fixed_triggers(self, connection: sa.Connection, schema: Schema) -> list[str]:
        """Return the triggers that would run at each change and cannot be switched off."""
        return []

    def limit(self, column: sa.Column[Any]) -> int:
        """Return the greatest number that fits *column*."""
        of = getattr(column.type, "data_type", column.type)
        bits = next((bits for kind, bits in _BITS if isinstance(of, kind)), 32)
        return (1 << (bits - 1)) - 1

    @contextlib.contextmanager
    def relaxed(
        self, connection: sa.Connection, tables: Sequence[TableName], *, keys: bool = True
    ) -> Iterator[None]:
        """Let rows of *tables* change one after the other inside a transaction, without triggers.

        Foreign keys hold again when it is left, or else it fails; nothing of it outlasts the transaction.

        Args:
            keys: whether foreign keys may be violated until then.
        """
        yield

    def raw(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return *column* in a form that loses nothing when it is written back as it is."""
        return sa.type_coerce(column, sa.types.NULLTYPE)

    def kept_columns(self, connection: sa.Connection, table: TableName) -> list[str]:
        """Return the columns that the database would change by itself at each update."""
        return []

    def after_loading(self, connection: sa.Connection, table: str) -> None:
        """Update the statistics of a table that was filled."""
        self.run(connection, f"ANALYZE {self.quote(table)}")

    def move_counter(
        self, connection: sa.Connection, column: sa.Column[Any], name: ColumnName, above: int
    ) -> None:
        """Let the database's own counter of a column, if it has one, go on above a number."""


def _unnamed_references(schema: Schema) -> list[str]:
    """Return integer columns that are called as if they referred to a table, and have no foreign key."""
    known = {name for domain in schema.domains for name in domain.columns}
    keys = {domain.keys[0].table.lower(): domain.name for domain in schema.domains}
    # tables are often in the plural
    keys |= {name.removesuffix("s"): key for name, key in keys.items()}
    found = []
    for table_name, table in schema.tables.items():
        for column in table.c:
            name = ColumnName(*table_name, column.name)
            stem = column.name.lower().removesuffix("id").removesuffix("_")
            if name not in known and is_integer(column) and stem in keys:
                found.append(
                    f"{name} has no foreign key, and may refer to {keys[stem]}: if so, plan again with "
                    f"--reference {name}={keys[stem]}"
                )
    return found


def _without_index(engine: sa.Engine, schema: Schema) -> list[str]:
    inspector = sa.inspect(engine)
    found = []
    for name, table in schema.tables.items():
        keys = [tuple(column.name for column in table.primary_key.columns)[:1]]
        keys += [
            tuple(map(str, index["column_names"][:1]))
            for index in inspector.get_indexes(name.table, name.schema)
        ]
        keys += [
            tuple(key["column_names"][:1])
            for key in inspector.get_unique_constraints(name.table, name.schema)
        ]
        found += [
            f"{column} has no index: each batch reads the whole table. For a large table, make one first"
            for domain in schema.domains
            for column in domain.references
            if column.of == name and (column.column,) not in keys
        ]
    return found
