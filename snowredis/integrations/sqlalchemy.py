"""SQLAlchemy 2: a column of ids that makes them itself.

    class Order(Base):
        id: Mapped[int] = mapped_column(SnowflakeId, primary_key=True)

One statement takes its ids with one call of next_ids(), however many rows it has; under asyncio with one of
anext_ids(), which never holds up the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnDefault, ForeignKeyConstraint, Table, event
from sqlalchemy.exc import ArgumentError, InvalidRequestError
from sqlalchemy.sql import operators
from sqlalchemy.types import TypeDecorator, TypeEngine

from snowredis import process_generator
from snowredis.core.layout import check_id
from snowredis.runtime.generator import Generator

# as many as next_ids() makes at once
MAX_BATCH = 1_000_000
# name of the attribute of an execution context that keeps its ids: column default -> those not yet used
_CACHE = "_snowredis_ids"


class SnowflakeId(TypeDecorator[int]):
    """A BIGINT that holds ids: int in Python, 0 .. 2**63 - 1, never autoincrement.

    Its column makes an id for each row that has none, if it is a primary key or else NOT NULL, and has neither
    a foreign key nor a default of its own. A column that may be NULL refers to something, or to nothing.
    What is no id is refused with InvalidId, which SQLAlchemy wraps in a StatementError.

    Args:
        generator: where ids come from; default: the generator of the process, see snowredis.configure().
    """

    impl = BigInteger
    cache_ok = True

    def __init__(self, generator: Generator | None = None) -> None:
        super().__init__()
        # not part of the cache key: the same SQL is compiled whoever makes the ids
        self._generator = generator

    def process_bind_param(self, value: int | None, dialect: object) -> int | None:
        return value if value is None else check_id(value)

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        # `id == x` compares ids; in `id >> 22` and `id % 16` the other number is none
        if op is None or operators.is_comparison(op):
            return self
        return self.impl_instance.coerce_compared_value(op, value)

    def next_for(self, context: Any) -> int:
        """The default of a column: the next id for the statement that SQLAlchemy's *context* executes."""
        default, cache = context.current_column.default, vars(context).setdefault(_CACHE, {})
        ids = cache.get(default)
        if ids is None:
            if getattr(context.compiled.statement, "select", None) is not None:
                raise InvalidRequestError(
                    "INSERT … FROM SELECT would give all rows one and the same id, so nothing was inserted. Read the "
                    "rows first and insert them with insert(table), rows; or select ids, too."
                )
            # each row of VALUES (…), (…) has a column of its own here
            columns = sum(column.default is default for column in context.compiled.insert_prefetch)
            count = max(1, columns * len(context.compiled_parameters))
            ids = cache[default] = chain.from_iterable(self._batches(context, count))
        an_id: int = next(ids)
        return an_id

    def _batches(self, context: Any, count: int) -> Iterator[list[int]]:
        ids: Any = process_generator if self._generator is None else self._generator
        while count > 0:
            size = min(count, MAX_BATCH)
            count -= size
            if context.dialect.is_async:
                driver = context.root_connection.connection.dbapi_connection
                yield driver.run_async(lambda _, size=size: ids.anext_ids(size))
            else:
                yield ids.next_ids(size)


@event.listens_for(SnowflakeId, "after_parent_attach", propagate=True)
def _type_is_used(_: SnowflakeId, column: Column[int]) -> None:
    # a column's default is set after its type, and its foreign key, too
    event.listen(column, "after_parent_attach", _column_is_used)


def _column_is_used(column: Column[int], table: Table) -> None:
    _settle(column)
    # a primary key may be said after the columns
    event.listen(table, "after_parent_attach", lambda *_: _settle(column))


@event.listens_for(ForeignKeyConstraint, "after_parent_attach")
def _columns_refer(constraint: ForeignKeyConstraint, _: Table) -> None:
    for column in constraint.columns:
        if isinstance(column.type, SnowflakeId):
            _settle(column)


def _settle(column: Column[int]) -> None:
    """Give *column* the default that it should have, or take it away."""
    if column.autoincrement is True:
        raise ArgumentError(f"{column}: a SnowflakeId is never autoincrement. Leave autoincrement out.")
    if column.primary_key:
        column.autoincrement = False
    makes = not column.nullable and not column.foreign_keys and column.server_default is None
    if makes and column.default is None and isinstance(column.type, SnowflakeId):
        column.default = ColumnDefault(column.type.next_for)
    elif not makes and isinstance(getattr(_argument(column), "__self__", None), SnowflakeId):
        column.default = None


def _argument(column: Column[int]) -> object:
    return getattr(column.default, "arg", None)
