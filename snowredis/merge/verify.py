"""Prove a change of ids by other ways than those that made it: checksums of all rows, and joins along all references.

The server adds up each table before and after. Afterwards an id counts as what the map says that it was before, so the
checksum covers every column: a row that lost a value, or refers to another row, changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.databases import reading
from snowredis.merge.journal import MAP, Run
from snowredis.merge.obstacles import first_orphan
from snowredis.merge.plan_file import DomainPlan
from snowredis.merge.progress import Progress
from snowredis.merge.schema import ColumnName, Domain, Schema, TableName
from snowredis.merge.support import support_of

__all__ = ["check_references", "check_sums", "id_sums", "sums"]

Sums = dict[str, list[Any]]


def sums(engine: sa.Engine, schema: Schema, run: Run, mapped: Iterable[DomainPlan], progress: Progress) -> Sums:
    """Return how many rows each table has, and their checksum.

    Args:
        mapped: domains whose new ids count as the old ones.
    """
    support, domains = support_of(engine), list(mapped)
    found: Sums = {}
    with reading(engine) as connection:
        support.prepare(connection)
        for name, table in schema.tables.items():
            progress.start(f"adding up the rows of {name}")
            columns, source = _as_before(name, table, domains, run)
            query = sa.select(sa.func.count(), support.checksum(columns)).select_from(source)
            count, total = connection.execute(query).one()
            found[str(name)] = [int(count), str(total or 0)]
    return found


def id_sums(connection: sa.Connection, schema: Schema, domain: Domain) -> str:
    """Return how many ids the keys of a domain hold, and their checksum."""
    support, found = support_of(connection.engine), []
    support.prepare(connection)
    for name in domain.keys:
        if name.of in schema.tables and name.column in schema.tables[name.of].c:
            column = schema.column(name)
            found.append(connection.execute(sa.select(sa.func.count(column), support.checksum([column]))).one())
    return str([[int(count), str(total or 0)] for count, total in found])


def _as_before(
    name: TableName, table: sa.Table, domains: Sequence[DomainPlan], run: Run
) -> tuple[list[sa.ColumnElement[Any]], sa.FromClause]:
    """Return the columns of a table with old ids in place of new ones, and what they are selected from."""
    source: sa.FromClause = table
    values: dict[str, sa.ColumnElement[Any]] = {}
    plain = {name_.column: d.number for d in domains for name_ in d.domain.columns if name_.of == name}
    for column in table.c:
        values[column.name] = column
        if column.name in plain:
            pairs = MAP.alias(f"m{len(values)}")
            source = source.outerjoin(pairs, _is_new(pairs, run, plain[column.name], column))
            # MariaDB makes a decimal of a column without a sign and one with
            values[column.name] = sa.cast(sa.func.coalesce(pairs.c.old, column), sa.BigInteger)
    partials = [(d.number, part) for d in domains for part in d.domain.partials if part.column.of == name]
    for at, (number, part) in enumerate(partials):
        column, pairs = table.c[part.column.column], MAP.alias(f"p{at}")
        # the kind may be an id that has changed, too
        is_kind = sa.cast(values[part.kind], sa.String(200)) == part.value
        source = source.outerjoin(pairs, sa.and_(is_kind, _is_new(pairs, run, number, column, is_text=part.is_text)))
        old = sa.cast(pairs.c.old, sa.String(40)) if part.is_text else pairs.c.old
        before = sa.func.coalesce(old, values[part.column.column])
        values[part.column.column] = before if part.is_text else sa.cast(before, sa.BigInteger)
    # what has no type that the sums must agree on is read the same way before and after
    texts = {part.column for d in run.domains for part in d.domain.partials if part.is_text}
    numbers = {each for d in run.domains for each in d.domain.all_columns} - texts
    columns = [
        sa.cast(value, sa.BigInteger) if ColumnName(*name, key) in numbers else value for key, value in values.items()
    ]
    return columns, source


def _is_new(
    pairs: sa.FromClause, run: Run, number: int, column: sa.ColumnElement[Any], *, is_text: bool = False
) -> sa.ColumnElement[bool]:
    new = sa.cast(pairs.c.new, sa.String(40)) if is_text else pairs.c.new
    return sa.and_(pairs.c.run == run.number, pairs.c.domain == number, new == column)


def check_sums(before: Mapping[str, list[Any]], after: Sums, tail: str) -> None:
    """Refuse a result in which a table is not what it was, besides its ids; MergeError."""
    for name, (count, total) in after.items():
        if [count, total] == before.get(name):
            continue
        had = before.get(name, [0, ""])[0]
        what = (
            "has other values than before, besides its ids" if count == had else f"has {count:,} rows, and had {had:,}"
        )
        raise MergeError(
            f"{name} {what}. {tail}; another process wrote to it, or a trigger did: compare it with a backup."
        )


def check_references(engine: sa.Engine, schema: Schema, tail: str) -> None:
    """Refuse a result in which a reference leads to no row; MergeError."""
    with reading(engine) as connection:
        if text := first_orphan(connection, schema):
            raise MergeError(f"{text}. {tail}.")
