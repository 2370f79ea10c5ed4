"""Statements in a database, each time on a connection of its own."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

# the values of the rows of a table in one of two databases, "A" or "B"
Rows = Callable[[str], Iterable[str]]
# each table with its columns
Tables = Mapping[str, Rows]


@functools.cache
def _engine(url: str) -> sa.Engine:
    # one for all calls: SQLAlchemy asks a server for its settings with the first connection of an engine
    return sa.create_engine(url, poolclass=sa.NullPool)


def execute(url: str, *statements: str) -> None:
    """Run statements in one transaction."""
    with _engine(url).begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def create_tables(url: str, tables: Tables, side: str) -> None:
    """Create tables with the rows of a side."""
    statements = [f"CREATE TABLE {table}" for table in tables]
    for table, rows in tables.items():
        if values := "), (".join(rows(side)):
            statements.append(f"INSERT INTO {table.partition(' (')[0]} VALUES ({values})")
    execute(url, *statements)


def rows_of(url: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with _engine(url).connect() as connection:
        return [tuple(row) for row in connection.execute(sa.text(query))]
