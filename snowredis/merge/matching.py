"""Rows that both databases have under other ids, as the server whose ids stay compares them.

What is compared are rows of the database that changes in a temporary table of the other: so its types and collations
decide, as they do when the rows are copied.
"""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any

import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.databases import row_text, stream
from snowredis.merge.obstacles import check_columns
from snowredis.merge.pair import Work
from snowredis.merge.plan_file import DomainPlan, Pair
from snowredis.merge.schema import ColumnName, Domain, TableName, option

_PAGE = 5_000


def plain_columns(table: sa.FromClause, names: Sequence[str]) -> list[sa.ColumnElement[Any]]:
    """Return columns as the driver gives their values."""
    return [sa.type_coerce(table.c[name], sa.types.NULLTYPE).label(name) for name in names]


def stage(kept: sa.Connection, query: sa.Select[Any], rows: Iterator[Sequence[Any]]) -> sa.TableClause:
    """Put rows of the other database into a temporary table with the columns of *query*, with types and collations."""
    name = f"snowredis_stage_{secrets.token_hex(4)}"
    columns: list[sa.ColumnClause[Any]] = [sa.column(str(column.name)) for column in query.selected_columns]
    text = str(query.where(sa.literal_column("1 = 0")).compile(kept, compile_kwargs={"literal_binds": True}))
    kept.exec_driver_sql(f"CREATE TEMPORARY TABLE {name} AS {text}")
    staged = sa.table(name, *columns)
    insert = sa.insert(staged).values({column.name: sa.bindparam(f"b{at}") for at, column in enumerate(columns)})
    while page := list(islice(rows, _PAGE)):
        kept.execute(insert, [{f"b{at}": value for at, value in enumerate(row)} for row in page])
    return staged


def translated_rows(work: Work, name: TableName, query: sa.Select[Any]) -> Iterator[list[Any]]:
    """Yield rows of a table of the database that changes, with the ids that it will have."""
    maps: list[dict[Any, int] | None] = []
    for column in query.selected_columns:
        domain = work.domain_of(ColumnName(*name, str(column.name)))
        maps.append({old: new for old, _, new in work.store.pairs(work.scans[domain.name].number)} if domain else None)
    for row in stream(work.changed, query):
        yield [value if of is None else of.get(value, value) for value, of in zip(row, maps, strict=True)]


def matches_in_order(work: Work, domains: Sequence[Domain]) -> list[Domain]:
    """Return the matched domains so that each comes after those whose ids say that its rows are the same."""
    matched = [domain for domain in domains if work.is_matched(domain)]
    by = {d: {ColumnName(*d.table_name, column) for column in work.matched[d.table_name]} for d in matched}
    try:
        return list(TopologicalSorter({d: [o for o in matched if by[d] & set(o.columns)] for d in by}).static_order())
    except CycleError as error:
        raise MergeError(
            f"--match: {error.args[1][0].table_name} is matched by ids that depend on it. Nothing was planned; match "
            "it by other columns."
        ) from error


def match(work: Work, domain: Domain) -> DomainPlan:
    """Give the rows that both databases have the ids of the first, and all others ids that are free."""
    name, scan = domain.table_name, work.scans[domain.name]
    if len(domain.keys) != 1:
        raise MergeError(f"--match {name}: its key is that of several tables. Nothing was planned; match the others.")
    same = dict(same_rows(work, name, domain.keys[0].column))
    # these include ids that some rows refer to, and that no row has
    taken, old_ids = set(work.store.ids("kept", scan.number)), work.store.ids("changed", scan.number)
    free = scan.highest
    moved = {old: new for old, new in same.items() if old != new}
    for old in old_ids:
        if old in taken and old not in same:
            free += 1
            moved[old] = free
    # a new id that is also an old one: all go through temporary ids, above everything
    through = not set(moved.values()).isdisjoint(old_ids)
    pairs: list[Pair] = [
        (old, free + at if through else new, new) for at, (old, new) in enumerate(sorted(moved.items()), 1)
    ]
    work.store.add(scan.number, pairs)
    check_columns(work, domain, free + len(pairs) * through)
    return work.domain_plan(domain, "match")


def same_rows(work: Work, name: TableName, key: str | None) -> list[tuple[int, int]]:
    """Return the ids of the rows of a matched table that both databases have: in the one that changes, in the other.

    Args:
        key: the column of the ids; None: the rows have none, or only such as also name them.

    Raises:
        MergeError: the columns do not name each row, or a row is nearly the same as one of the other database.
    """
    columns, mine, theirs = work.matched[name], work.kept_schema.tables[name], work.changed_schema.tables[name]

    def selected(table: sa.Table) -> sa.Select[Any]:
        ids = [table.c[key].label("snowredis_id")] if key else []
        return sa.select(*ids, *plain_columns(table, columns))

    staged = stage(work.kept, selected(mine), translated_rows(work, name, selected(theirs)))
    for table in (mine, staged):
        _check_names_each(work, name, table)
    equal = sa.and_(*(mine.c[column] == staged.c[column] for column in columns))
    found = (staged.c.snowredis_id, mine.c[key]) if key else (sa.literal(0), sa.literal(0))
    pairs = [(row[0], row[1]) for row in work.kept.execute(sa.select(*found).select_from(mine).join(staged, equal))]
    work.same[str(name)] = len(pairs)
    if not work.independent & {ColumnName(*name, column) for column in columns}:
        left = sa.select(*plain_columns(staged, columns)).where(~sa.exists(sa.select(mine).where(equal)))
        _check_near(work, name, sa.select(*plain_columns(mine, columns)), left)
    return pairs


def _check_names_each(work: Work, name: TableName, table: sa.FromClause) -> None:
    columns = [table.c[column] for column in work.matched[name]]
    query = sa.select(*columns).group_by(*columns)
    either = sa.or_(sa.func.count() > 1, *(column.is_(None) for column in columns))
    if row := work.kept.execute(query.having(either).limit(1)).first():
        raise MergeError(
            f"--match {name}: for the server, two rows have the same {', '.join(work.matched[name])}, or one has NULL: "
            f"{row_text(row)}. Nothing was planned; match by columns that name each row."
        )


def _plainly(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple(unicodedata.normalize("NFKC", str(value)).casefold().strip() for value in row)


def _check_near(work: Work, name: TableName, ours: sa.Select[Any], left: sa.Select[Any]) -> None:
    """Refuse rows that are *left* and that a person may take for one of *ours*, although the server does not."""
    columns = work.matched[name]
    if not any(isinstance(work.kept_schema.tables[name].c[column].type, sa.String) for column in columns):
        return
    named = {_plainly(row): row_text(row) for row in stream(work.kept, ours)}
    near = [(row_text(row), named[_plainly(row)]) for row in stream(work.kept, left) if _plainly(row) in named]
    if near:
        pairs = ", ".join(f"{theirs} and {mine}" for theirs, mine in sorted(near)[:3])
        raise MergeError(
            f"--match {name}: rows are nearly the same, and the server holds them to be different, such as {pairs}. "
            "Nothing was planned; correct them in one of the databases, or say that they are different rows with "
            f"{option('independent', ColumnName(*name, columns[0]))}."
        )
