"""Statements in a database, each time on a connection of its own."""

import functools
from typing import Any

import sqlalchemy as sa


@functools.cache
def _engine(url: str) -> sa.Engine:
    # one for all calls: SQLAlchemy asks a server for its settings with the first connection of an engine
    return sa.create_engine(url, poolclass=sa.NullPool)


def execute(url: str, *statements: str) -> None:
    """Run statements in one transaction."""
    with _engine(url).begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def rows_of(url: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with _engine(url).connect() as connection:
        return [tuple(row) for row in connection.execute(sa.text(query))]
