"""SQLAlchemy 2 integration: column types that fill their column with ids.

    class Order(Base):
        id: Mapped[int] = mapped_column(SnowflakeId, primary_key=True)
        public_id: Mapped[UUID] = mapped_column(GeneratedId("uuid7"))

One statement makes its ids with one call of next_ids(), or of next_id() for one row; under asyncio with one call of
anext_ids(), which does not block the event loop.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import ArgumentError, InvalidRequestError
from sqlalchemy.sql import operators
from sqlalchemy.types import TypeDecorator, TypeEngine

from snowredis import process_generator
from snowredis.core.description import IdDescription
from snowredis.core.text import DECIMAL_ID
from snowredis.core.values import check_id
from snowredis.errors import InvalidId, SnowredisError, shown
from snowredis.kinds.base import IdGenerator
from snowredis.process_generator import IdSource

# the most ids that one call of next_ids() makes
MAX_BATCH = 1_000_000
# attribute of SQLAlchemy's execution context: column default -> iterator over the unused ids of its statement
_CACHE = "_snowredis_ids"
_is_decimal = re.compile(f"{DECIMAL_ID}|0").fullmatch


class GeneratedId(TypeDecorator[Any]):
    """Column type for ids of any kind: BIGINT, UUID, VARCHAR or BINARY, as the ids are; never autoincrement.

    A column of this type makes an id for each row without one if it is a primary key or NOT NULL, and has neither a
    foreign key nor a default of its own. Nullable columns make none. An id that is a number may come as its decimal
    digits, as text. Any other value is refused with InvalidId, which SQLAlchemy wraps in a StatementError.

    A foreign key to such a column gets its type, also one that was declared as Integer, as SQLModel does for int.

    Args:
        kind: kind of ids, as snowredis.generator() takes it, such as "uuid7" or "ulid:?form=bytes"; or a generator.
            With a generator, the type, and a MetaData with it, may not be picklable.
        settings: of the kind. Those that are not given are those of the process: of snowredis.configure() and
            SNOWREDIS_* variables, which are read at the first id.

    Raises:
        ConfigError: an unknown kind or setting.
    """

    impl: Any = sa.BigInteger
    cache_ok = True

    def __init__(self, kind: str | IdGenerator[Any], **settings: Any) -> None:
        super().__init__()
        source = IdSource(kind, settings) if isinstance(kind, str) else kind
        # named as the argument, so part of SQLAlchemy's cache key: the compiled SQL depends on the column
        self.kind = source.description
        self.impl = _column_type(source.description)
        self._use(source, source.next_id)

    def _use(self, source: IdSource | IdGenerator[Any] | None, next_id: Callable[[], Any]) -> None:
        # private, so not part of the cache key: the compiled SQL does not depend on the generator. No source: the
        # generator of the process
        self._source, self._next_id = source, next_id

    def load_dialect_impl(self, dialect: Any) -> TypeEngine[Any]:
        if isinstance(self.impl, sa.LargeBinary) and dialect.name in ("mysql", "mariadb"):
            # a BLOB cannot be a key there
            return dialect.type_descriptor(mysql.BINARY(self.impl.length))  # type: ignore[no-any-return]
        return super().load_dialect_impl(dialect)

    def process_bind_param(self, value: Any, dialect: object) -> Any:
        if value is None:
            return None
        if self.kind.is_number:
            return _check_id(value)
        return _check_type(value, self.kind)

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        # `id == x` compares ids; in `id >> 22` and `id % 16` the other number is not an id
        if op is None or operators.is_comparison(op):
            return self
        return self.impl_instance.coerce_compared_value(op, value)

    def next_for(self, context: Any) -> Any:
        """Return the next id for the statement that *context* executes; SQLAlchemy calls it as a column's default."""
        default = context.current_column.default
        cache: dict[Any, Iterator[Any]] = getattr(context, _CACHE, {})
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

    def _batches(self, context: Any, count: int) -> Iterator[list[Any]]:
        """Yield *count* ids, MAX_BATCH at most at a time. Blocks as next_ids(), or awaits under asyncio."""
        ids: Any = process_generator if self._source is None else self._source
        while count > 0:
            size = min(count, MAX_BATCH)
            count -= size
            if context.dialect.is_async:
                driver = context.root_connection.connection.dbapi_connection
                yield driver.run_async(lambda _, size=size: ids.anext_ids(size))
            else:
                yield ids.next_ids(size)


class SnowflakeId(GeneratedId):
    """Column type for ids of the generator of the process: BIGINT, int in Python, 0 .. 2**63 - 1. See GeneratedId."""

    cache_ok = True

    def __init__(self) -> None:
        TypeDecorator.__init__(self)
        self._use(None, process_generator.next_id)

    def process_bind_param(self, value: int | None, dialect: object) -> int | None:
        return value if value is None else _check_id(value)


def _check_id(value: Any) -> int:
    """Return an id as an int; text is one if it is exactly its decimal digits, as in URLs, forms and sessions."""
    return check_id(int(value) if isinstance(value, str) and _is_decimal(value) else value)


@sa.event.listens_for(sa.Engine, "handle_error", retval=True)
def _on_error(context: Any) -> Exception | None:
    """Return the error of a generator as it is: programs try a job again, or reply 503, by its class."""
    error: Exception = context.original_exception
    return error if isinstance(error, SnowredisError) and not isinstance(error, InvalidId) else None


def _column_type(description: IdDescription) -> TypeEngine[Any]:
    """Return the type of the column in the database."""
    if description.type is UUID:
        return sa.Uuid()
    if description.type is str:
        return sa.String(description.text_length)
    return sa.BigInteger() if description.is_number else sa.LargeBinary((description.bits or 0) // 8)


def _check_type(value: Any, description: IdDescription) -> Any:
    """Return *value*. Raises InvalidId if it is no id of this description, or too long for its column."""
    is_of_type = isinstance(value, description.type)
    if is_of_type and (not isinstance(value, str) or len(value) <= description.text_length):
        return value
    limit = f" of at most {description.text_length} characters" if is_of_type else ""
    raise InvalidId(
        f"an id of the kind {description.kind!r} is a {description.type.__name__}{limit}, not {type(value).__name__} "
        f"{shown(value)}"
    )


@sa.event.listens_for(GeneratedId, "after_parent_attach", propagate=True)
def _on_column_of_type(_: GeneratedId, column: sa.Column[Any]) -> None:
    if mapper := sys.modules.get("strawberry_sqlalchemy_mapper"):
        # it refuses types that it does not know; models that are imported before it are told to it in one line
        known = getattr(mapper.StrawberrySQLAlchemyMapper, "_default_sqlalchemy_type_to_strawberry_type_map", {})
        known.setdefault(SnowflakeId, sys.modules["strawberry"].ID)
    # SQLAlchemy sets a column's default and foreign key after its type
    sa.event.listen(column, "after_parent_attach", _on_table_of_column)


def _on_table_of_column(column: sa.Column[Any], table: sa.Table) -> None:
    _set_default(column)
    # a table's primary key may be declared after its columns
    sa.event.listen(table, "after_parent_attach", lambda *_: _set_default(column))
    # tables that were declared before the one that they refer to
    for other in table.metadata.tables.values():
        for key in other.foreign_keys:
            if _target_of(key, table.metadata) == (table.key, column.key):
                _widen(key.parent, column)


@sa.event.listens_for(sa.ForeignKeyConstraint, "after_parent_attach")
def _on_foreign_key(constraint: sa.ForeignKeyConstraint, table: sa.Table) -> None:
    for key in constraint.elements:
        target, name = _target_of(key, table.metadata)
        if target in table.metadata.tables:
            _widen(key.parent, table.metadata.tables[target].columns.get(name))
    for column in constraint.columns:
        if isinstance(column.type, GeneratedId):
            _set_default(column)


def _target_of(key: sa.ForeignKey, metadata: sa.MetaData) -> tuple[str, str]:
    """Return the key in *metadata* of the table to which *key* refers, and the column."""
    # from SQLAlchemy 2.1 on, whose text of a name with a dot is an error
    if tokens := getattr(key, "target_tokens", None):
        schema, table, column = tokens
        schema = schema or metadata.schema
        return (f"{schema}.{table}" if schema else table), column
    table, _, column = key.target_fullname.rpartition(".")
    return (f"{metadata.schema}.{table}" if metadata.schema and "." not in table else table), column


def _widen(column: sa.Column[Any], target: sa.Column[Any] | None) -> None:
    """Give *column*, a foreign key to *target*, the type of that if it is a GeneratedId: 32 bits are too few."""
    # NullType: SQLAlchemy sets it itself; a subclass is somebody's decision
    if target is not None and isinstance(target.type, GeneratedId) and type(column.type) is sa.Integer:
        column.type = target.type


def render_item(kind: str, item: Any, autogen_context: Any) -> Any:
    """Render our types in migrations of Alembic as what they are in the database, so that they import nothing.

    In env.py: ``context.configure(..., render_item=render_item)``.
    """
    is_ours = kind == "type" and isinstance(item, GeneratedId)
    return f"sa.{item.load_dialect_impl(autogen_context.dialect)!r}" if is_ours else False


def _set_default(column: sa.Column[Any]) -> None:
    """Add the default that makes ids to *column*, or remove it. Raises ArgumentError for autoincrement=True."""
    if column.autoincrement is True:
        name = type(column.type).__name__
        raise ArgumentError(f"{column}: a {name} is never autoincrement. Leave autoincrement out.")
    if column.primary_key:
        column.autoincrement = False
    makes_ids = not column.nullable and not column.foreign_keys and column.server_default is None
    default_function = getattr(column.default, "arg", None)
    if makes_ids and column.default is None and isinstance(column.type, GeneratedId):
        column.default = sa.ColumnDefault(column.type.next_for)
    elif not makes_ids and isinstance(getattr(default_function, "__self__", None), GeneratedId):
        column.default = None
