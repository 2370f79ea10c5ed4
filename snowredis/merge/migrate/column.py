"""Facts about one column of ids: its smallest and greatest value, what its type can hold, and who counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from snowredis.core.layout import MAX_ID
from snowredis.errors import MigrationError
from snowredis.merge.id_domains import ColumnName

__all__ = ["IdColumn", "end_of_type", "read_column"]

# the greatest number of each integer type that has fewer than 64 bits
_ENDS = {"TINYINT": 127, "SMALLINT": 32767, "MEDIUMINT": 8388607, "INTEGER": 2147483647, "INT": 2147483647}


class IdColumn(NamedTuple):
    """A column of ids.

    Attributes:
        first, last: its smallest and greatest value; 0 without rows.
        end: the greatest number that its type can hold, 2**63 - 1 at most.
        counted: whether the database counts: a sequence, identity or AUTO_INCREMENT.
    """

    first: int
    last: int
    end: int
    counted: bool


def read_column(engine: sa.Engine, name: ColumnName) -> IdColumn:
    """Read the facts of a column.

    Raises:
        MigrationError: there is no such column, it holds no integers, or ids below 0.
    """
    inspector = sa.inspect(engine)
    if not inspector.has_table(name.table, schema=name.schema):
        raise MigrationError(
            f"there is no table {name.of} in the database. Nothing was changed; check its name."
        )
    columns = {column["name"]: column for column in inspector.get_columns(name.table, schema=name.schema)}
    found = columns.get(name.column)
    if found is None or not isinstance(found["type"], sa.Integer):
        what = "does not exist" if found is None else f"is {found['type']}, not an integer"
        raise MigrationError(
            f"column {name} {what}. Nothing was changed; name one of {', '.join(columns)} that holds ids."
        )
    column: sa.ColumnClause[Any] = sa.column(name.column)
    table = sa.table(name.table, column, schema=name.schema)
    with engine.connect() as connection:
        first, last = connection.execute(
            sa.select(sa.func.min(column), sa.func.max(column)).select_from(table)
        ).one()
    if first is not None and first < 0:
        raise MigrationError(
            f"the smallest id of {name} is {first}: ids below 0 cannot be compared with new ones. Nothing was changed; "
            "give these rows other ids first."
        )
    # INTEGER of SQLite has 64 bits
    end = MAX_ID if engine.dialect.name == "sqlite" else end_of_type(found["type"])
    return IdColumn(int(first or 0), int(last or 0), end, _is_counted(inspector.dialect.name, found))


def end_of_type(kind: Any) -> int:
    """Return the greatest number of an integer type, 2**63 - 1 at most."""
    end = _ENDS.get(type(kind).__name__, MAX_ID)
    return min(MAX_ID, 2 * end + 1 if getattr(kind, "unsigned", False) else end)


def _is_counted(dialect: str, found: Any) -> bool:
    default = str(found.get("default") or "").lower()
    if dialect == "sqlite":
        # INTEGER PRIMARY KEY is the number of the row, which SQLite counts
        return type(found["type"]).__name__ == "INTEGER" and bool(found.get("primary_key"))
    return bool(found.get("identity") or "nextval(" in default or found.get("autoincrement") is True)
