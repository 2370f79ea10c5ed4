"""Find what stands in the way of a merge, besides ids that clash: rows without a parent, rows that both sides have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import sqlalchemy as sa

from snowredis.errors import MergeError, shown
from snowredis.merge.databases import stream
from snowredis.merge.id_domains import ColumnName, ForeignKey, Schema, TableName
from snowredis.merge.plan.plan_file import Conflict
from snowredis.merge.support import support_of

__all__ = ["check_no_orphans", "conflicts", "orphans"]

# keys that one query looks up
_BATCH = 300
# rows that a message names
_NAMED = 3


def orphans(schema: Schema, key: ForeignKey) -> sa.Select[tuple[object, ...]]:
    """Return a query for the values of *key* that refer to no row."""
    child = schema.tables[key.child].alias("child")
    parent = schema.tables[key.parent].alias("parent")
    pairs = list(zip(key.columns, key.parents, strict=True))
    found = sa.exists().where(*(parent.c[one.column] == child.c[other.column] for other, one in pairs))
    columns = [child.c[column.column] for column in key.columns]
    return sa.select(*columns).where(*(column.is_not(None) for column in columns), ~found)


def check_no_orphans(connection: sa.Connection, schema: Schema, which: str) -> None:
    """Refuse a database with rows that refer to a row that does not exist: a merge would give them a parent.

    Raises:
        MergeError: there are some.
    """
    for key in schema.foreign_keys:
        rows = connection.execute(orphans(schema, key).limit(_NAMED)).all()
        if rows:
            values = ", ".join(shown(row[0] if len(row) == 1 else tuple(row)) for row in rows)
            raise MergeError(
                f"the database {which} has rows of {key.child} whose {', '.join(c.column for c in key.columns)} leads "
                f"to no row of {key.parent}, such as {values}. Nothing was planned, since a row of the other database "
                f"may have that id; delete those rows, or set the column to NULL."
            )


def conflicts(
    kept: sa.Connection,
    changed: sa.Connection,
    of_kept: Schema,
    of_changed: Schema,
    safe: set[ColumnName],
    shared: set[TableName],
) -> Iterator[Conflict]:
    """Yield what keeps rows from being copied: tables or columns that differ, keys that both databases have.

    Args:
        safe: columns whose values are in one database only, since their ids get new values or never clashed.
        shared: tables whose equal rows are one row.
    """
    for name, table in of_changed.tables.items():
        target = of_kept.tables.get(name)
        if target is None:
            yield Conflict(
                str(name), "the table exists only in the database that changes; create it, or --exclude it"
            )
            continue
        missing = sorted({column.name for column in table.c} ^ {column.name for column in target.c})
        if missing:
            yield Conflict(
                str(name), f"columns are in one database only: {', '.join(missing)}; migrate one of them"
            )
            continue
        columns = _copied(table)
        for key in _unique_keys(target):
            if {ColumnName(*name, column) for column in key} & safe or not set(key) <= set(columns):
                continue
            whole = columns if name in shared else []
            yield from _rows_in_both(kept, changed, (target, table), key, whole)


def _copied(table: sa.Table) -> list[str]:
    return [column.name for column in table.c if column.computed is None]


def _unique_keys(table: sa.Table) -> list[tuple[str, ...]]:
    """Return the columns of the primary key and of every unique constraint and index, each once."""
    keys = [tuple(column.name for column in table.primary_key.columns)]
    keys += [
        tuple(column.name for column in constraint.columns)
        for constraint in table.constraints
        if isinstance(constraint, sa.UniqueConstraint)
    ]
    for index in table.indexes:
        # of a part of the rows, or of expressions: not compared; the copy itself finds those
        partial = any(
            index.dialect_options[name].get("where") is not None for name in ("postgresql", "sqlite")
        )
        if index.unique and not partial and len(index.columns) == len(index.expressions):
            keys.append(tuple(column.name for column in index.columns))
    return [key for key in dict.fromkeys(keys) if key]


def _rows_in_both(
    kept: sa.Connection,
    changed: sa.Connection,
    tables: tuple[sa.Table, sa.Table],
    key: Sequence[str],
    whole: Sequence[str],
) -> Iterator[Conflict]:
    """Yield a conflict if rows of both tables have the same *key*, and differ in one of the columns *whole*, if any."""
    target, table = tables
    raw = support_of(kept.engine).raw
    columns, others = (
        [*(side.c[name] for name in key), *(raw(side.c[name]) for name in whole)] for side in (table, target)
    )
    query = sa.select(*columns).where(*(table.c[name].is_not(None) for name in key))
    width, keys = len(key), [target.c[name] for name in key]
    count, named = 0, []
    for batch in _batches(stream(changed, query)):
        rows = {tuple(row[:width]): tuple(row[width:]) for row in batch}
        same = keys[0].in_([value for (value,) in rows]) if width == 1 else sa.tuple_(*keys).in_(list(rows))
        for row in kept.execute(sa.select(*others).where(same)):
            found = tuple(row[:width])
            if whole and rows.get(found) == tuple(row[width:]):
                continue
            count += 1
            named += [found] if count <= _NAMED else []
    if count:
        values = ", ".join(shown(value[0] if width == 1 else value) for value in named)
        remedy = "change them in one, or, if they are the same rows, name the table with --shared"
        if whole:
            remedy = "and they differ: make them equal"
        elif width > 1:
            remedy = f"give a column of them new ids with --id; or {remedy}"
        text = f"{count:,} rows have the same {', '.join(key)} in both databases, such as {values}; {remedy}"
        yield Conflict(str(TableName(table.schema, table.name)), text)


def _batches(rows: Iterable[Sequence[object]]) -> Iterator[list[Sequence[object]]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, _BATCH)):
        yield batch
