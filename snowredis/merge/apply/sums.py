"""Checksums of tables that do not depend on the order of rows; before the change, with new ids in place of old ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import sqlalchemy as sa

from snowredis.merge.databases import stream
from snowredis.merge.id_domains import ColumnName, TableName
from snowredis.merge.journal import MAP
from snowredis.merge.support import Support

__all__ = ["add_up", "sum_of_table"]

_MASK = (1 << 64) - 1


def add_up(rows: Iterable[Sequence[object]]) -> tuple[int, int]:
    """Return how many rows there are, and the sum of their hashes, modulo 2**64."""
    count, total = 0, 0
    for row in rows:
        count += 1
        total += int.from_bytes(
            blake2b(repr(tuple(row)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        )
    return count, total & _MASK


def sum_of_table(
    connection: sa.Connection,
    support: Support,
    name: TableName,
    table: sa.Table,
    mapped: dict[ColumnName, int],
    run: int,
) -> tuple[int, int]:
    """Return the number of rows of *table* and their checksum.

    Args:
        mapped: columns that count with their new ids, and the domain of each; empty: rows count as they are.
    """
    columns: list[sa.ColumnElement[object]] = []
    source: sa.FromClause = table
    for column in table.c:
        if column.computed is not None:
            # may be computed from an id
            continue
        domain = mapped.get(ColumnName(*name, column.name))
        if domain is None:
            columns.append(support.raw(column))
            continue
        pairs = MAP.alias(f"map{len(columns)}")
        source = source.outerjoin(
            pairs, sa.and_(pairs.c.run == run, pairs.c.domain == domain, pairs.c.old == column)
        )
        # MariaDB makes a decimal of a column without a sign and one with
        columns.append(support.raw(sa.cast(sa.func.coalesce(pairs.c.new, column), sa.BigInteger)))
    return add_up(stream(connection, sa.select(*columns).select_from(source)))
