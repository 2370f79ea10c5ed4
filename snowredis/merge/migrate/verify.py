"""Compare the second columns with the first, by counts and checksums, before and after the switch."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from snowredis.merge.migrate.database import Database
from snowredis.merge.migrate.plan import ColumnChange, TableChange

__all__ = ["ColumnCheck", "verify_after", "verify_before"]


class ColumnCheck(NamedTuple):
    """Result for one column.

    Attributes:
        rows: of the table.
        values: that are not null.
        wrong: rows in which the two columns do not belong together.
        orphans: rows that refer to no row; only counted where a column refers to another.
        checksum: sum of the values in use; text, since it may pass 2^63.
    """

    column: str
    rows: int
    values: int
    wrong: int
    orphans: int
    checksum: str


def verify_before(connection: sa.Connection, database: Database) -> list[ColumnCheck]:
    """Check that every new value is the old one, moved; call it after the backfill."""
    return [
        _check(connection, database, table, column, column.new, column.new)
        for table in database.plan.tables
        for column in table.columns
    ]


def verify_after(connection: sa.Connection, database: Database) -> list[ColumnCheck]:
    """Check, after the switch, that rows that belonged together by their old values do so by their new ones."""
    return [
        _check(connection, database, table, column, column.name, None)
        for table in database.plan.tables
        for column in table.columns
    ]


def _check(
    connection: sa.Connection,
    database: Database,
    table: TableChange,
    column: ColumnChange,
    live: str,
    moved_to: str | None,
) -> ColumnCheck:
    quote = database.engine.dialect.identifier_preparer.quote
    name, value = database.name(table), quote(live)
    wrong = "0"
    if moved_to:
        old, new = quote(column.name), quote(moved_to)
        # where the switch fills the last rows, one without a new value is not wrong
        unfilled = "" if database.late_rows else f" AND {old} IS NULL"
        wrong = f"sum(CASE WHEN {new} IS NULL{unfilled} THEN 0 WHEN {new} = {database.moved(old)} THEN 0 ELSE 1 END)"
    found: Any = database.execute(
        connection, f"SELECT count(*), count({value}), {wrong}, {_sums(database, value)} FROM {name}"
    ).one()
    rows, values, mismatches, upper, lower = (int(number or 0) for number in found)
    orphans = 0
    if column.parent_table is not None:
        parent, parent_column = database.parent_of(column)
        there = quote(parent_column.new if moved_to else parent_column.name)
        if any(column.name in reference.columns for reference in table.references):
            orphans = database.count(
                connection,
                f"{name} c WHERE c.{value} IS NOT NULL AND NOT EXISTS "
                f"(SELECT 1 FROM {database.name(parent)} p WHERE p.{there} = c.{value})",
            )
        if not moved_to:
            mismatches = database.count(
                connection,
                f"{name} c JOIN {database.name(parent)} p ON p.{there} = c.{value} "
                f"WHERE c.{quote(column.old)} <> p.{quote(parent_column.old)}",
            )
    return ColumnCheck(
        f"{table}.{column.name}", rows, values, mismatches, orphans, str((upper << 32) + lower)
    )


def _sums(database: Database, value: str) -> str:
    """Return the sums of the upper and of the lower 32 bits: one sum would pass 2^63."""
    if database.engine.dialect.name == "sqlite":
        return f"sum({value} / 4294967296), sum({value} % 4294967296)"
    return f"sum(floor({value} / 4294967296.0)), sum({value} % 4294967296)"
