"""SQLAlchemy 2 integration: a column type that fills its column with ids.

    class Order(Base):
        id: Mapped[int] = mapped_column(SnowflakeId, primary_key=True)

One statement makes its ids with one call of next_ids(), or of next_id() for one row; under asyncio with one call of
anext_ids(), which does not block the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnDefault,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    Table,
    event,
)
from sqlalchemy.exc import ArgumentError, InvalidRequestError
from sqlalchemy.sql import operators
from sqlalchemy.types import TypeDecorator, TypeEngine

from snowredis import process_generator
from snowredis.core.layout import check_id
from snowredis.runtime.generator import Generator

# the most ids that one call of next_ids() makes
MAX_BATCH = 1_000_000
# attribute of SQLAlchemy's execution context: column default -> iterator over the unused ids of its statement
_CACHE = "_snowredis_ids"


class SnowflakeId(TypeDecorator[int]):
    """Column type for ids: BIGINT, int in Python, 0 .. 2**63 - 1, never autoincrement.

    A column of this type makes an id for each row without one if it is a primary key or NOT NULL, and has neither a
    foreign key nor a default of its own. Nullable columns make none. A value that is not a valid id is refused with
    InvalidId, which SQLAlchemy wraps in a StatementError.

    A foreign key to such a column becomes a SnowflakeId, too, also one that was declared as Integer, as SQLModel does
    for int.

    Args:
        generator: makes the ids; default: the generator of the process, see snowredis.configure(). With one, the type,
            and a MetaData with it, cannot be pickled: a copy of a generator would make the same ids.
    """

    impl = BigInteger
    cache_ok = True

    def __init__(self, generator: Generator | None = None) -> None:
        super().__init__()
        # private, so not part of SQLAlchemy's cache key: the compiled SQL does not depend on the generator
        self._generator = generator
        self._next_id = process_generator.next_id if generator is None else generator.next_id

    def process_bind_param(self, value: int | None, dialect: object) -> int | None:
        return value if value is None else check_id(value)

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        # `id == x` compares ids; in `id >> 22` and `id % 16` the other number is not an id
        if op is None or operators.is_comparison(op):
            return self
        return self.impl_instance.coerce_compared_value(op, value)

    def next_for(self, context: Any) -> int:
        """Return the next id for the statement that *context* executes; SQLAlchemy calls it as a column's default."""
        default = context.current_column.default
        cache: dict[Any, Iterator[int]] = getattr(context, _CACHE, {})
        ids = cache.get(default)
        if ids is not None:
            return next(ids)
        if getattr(context.compiled.statement, "select", None) is not None:
            raise InvalidRequestError(
                "INSERT … FROM SELECT would give all rows the same id, so nothing was inserted. Read the rows "
                "first and insert them with insert(table), rows; or select ids, too."
            )
        # each row of VALUES (…), (…) has a column of its own here
        columns = sum(column.default is default for column in context.compiled.insert_prefetch)
        count = max(1, columns * len(context.compiled_parameters))
        if count == 1 and not context.dialect.is_async:
            return self._next_id()
        cache[default] = ids = chain.from_iterable(self._batches(context, count))
        setattr(context, _CACHE, cache)
        return next(ids)

    def _batches(self, context: Any, count: int) -> Iterator[list[int]]:
        """Yield *count* ids, MAX_BATCH at most at a time. Blocks as next_ids(), or awaits under asyncio."""
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
def _on_column_of_type(_: SnowflakeId, column: Column[int]) -> None:
    # SQLAlchemy sets a column's default and foreign key after its type
    event.listen(column, "after_parent_attach", _on_table_of_column)


def _on_table_of_column(column: Column[int], table: Table) -> None:
    _set_default(column)
    # a table's primary key may be declared after its columns
    event.listen(table, "after_parent_attach", lambda *_: _set_default(column))
    # tables that were declared before the one that they refer to
    for other in table.metadata.tables.values():
        for key in other.foreign_keys:
            if _target_of(key, table.metadata) == (table.key, column.key):
                _widen(key.parent, column)


@event.listens_for(ForeignKeyConstraint, "after_parent_attach")
def _on_foreign_key(constraint: ForeignKeyConstraint, table: Table) -> None:
    for key in constraint.elements:
        target, name = _target_of(key, table.metadata)
        if target in table.metadata.tables:
            _widen(key.parent, table.metadata.tables[target].columns.get(name))
    for column in constraint.columns:
        if isinstance(column.type, SnowflakeId):
            _set_default(column)


def _target_of(key: ForeignKey, metadata: MetaData) -> tuple[str, str]:
    """Return the key in *metadata* of the table to which *key* refers, and the column."""
    table, _, column = key.target_fullname.rpartition(".")
    return (f"{metadata.schema}.{table}" if metadata.schema and "." not in table else table), column


def _widen(column: Column[Any], target: Column[Any] | None) -> None:
    """Give *column*, a foreign key to *target*, the type of that if it is a SnowflakeId: 32 bits are too few."""
    # NullType: SQLAlchemy sets it itself; a subclass is somebody's decision
    if target is not None and isinstance(target.type, SnowflakeId) and type(column.type) is Integer:
        column.type = target.type


def render_item(kind: str, item: Any, _autogen_context: Any) -> Any:
    """Render a SnowflakeId in migrations of Alembic as what it is in the database, so that they import nothing.

    In env.py: ``context.configure(..., render_item=render_item)``.
    """
    return "sa.BigInteger()" if kind == "type" and isinstance(item, SnowflakeId) else False


def _set_default(column: Column[int]) -> None:
    """Add the default that makes ids to *column*, or remove it. Raises ArgumentError for autoincrement=True."""
    if column.autoincrement is True:
        raise ArgumentError(f"{column}: a SnowflakeId is never autoincrement. Leave autoincrement out.")
    if column.primary_key:
        column.autoincrement = False
    makes_ids = not column.nullable and not column.foreign_keys and column.server_default is None
    default_function = getattr(column.default, "arg", None)
    if makes_ids and column.default is None and isinstance(column.type, SnowflakeId):
        column.default = ColumnDefault(column.type.next_for)
    elif not makes_ids and isinstance(getattr(default_function, "__self__", None), SnowflakeId):
        column.default = None
