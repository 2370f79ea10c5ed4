"""Statements in a database, each time on a connection of its own."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa


def execute(url: str, *statements: str) -> None:
    """Run statements in one transaction."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def rows_of(url: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(sa.text(query))]
    engine.dispose()
    return rows
