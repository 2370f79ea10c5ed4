"""Bounds of closed tags, taken from the table that has the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import InstrumentedAttribute
    from sqlalchemy.sql import ColumnElement


def highest_in(
    engine: Engine, *columns: ColumnElement[int] | InstrumentedAttribute[int]
) -> Callable[[], int | None]:
    """Return a ``bound`` for SegmentGenerator: a function that returns the highest number in *columns*.

    None if there is no row. Every column that has numbers of the tag belongs here, archives included. Needs SQLAlchemy;
    each column needs an index.
    """
    from sqlalchemy import func, select

    statements = [select(func.max(column)) for column in columns]

    def highest() -> int | None:
        with engine.connect() as connection:
            found = [connection.execute(statement).scalar() for statement in statements]
        return max((number for number in found if number is not None), default=None)

    return highest
