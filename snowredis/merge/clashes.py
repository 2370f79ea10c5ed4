"""Find what would stop the copy, before the first id changes. Each finding is one line, with an option to paste.

Unique keys that rows of both databases have are found by the server of the database whose ids stay, which compares as
it will when the rows are copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from snowredis.merge.databases import catalog_query, count_rows, row_text
from snowredis.merge.matching import plain_columns, stage, translated_rows
from snowredis.merge.obstacles import triggers
from snowredis.merge.pair import Work
from snowredis.merge.plan_file import DomainPlan
from snowredis.merge.schema import ColumnName, TableName, is_integer, option

# rows that a finding names, and the first rows of tables that are compared as a whole
_NAMED, _FIRST = 3, 10_000


class _Key(NamedTuple):
    """A unique key: its columns or expressions, and the condition of a partial one."""

    parts: tuple[str, ...]
    where: str | None
    is_plain: bool


def clashes(work: Work, plans: Mapping[str, DomainPlan]) -> list[str]:
    """Return what would make the copy fail, or rows be there twice."""
    renewed = {column for plan in plans.values() if plan.kind != "match" for column in plan.domain.all_columns}
    # they would be there twice
    known = {column for domain in work.changed_schema.domains for column in domain.all_columns} | work.independent
    counted = sorted(work.counted - known, key=str)
    found = [
        f"{name} is counted, and no key by itself: {option('id', name)} or {option('independent', name)}"
        for name in counted
    ]
    found += _codes(work)
    renewed.update(counted)
    key_of = {plan.domain.table_name: plan.domain.keys[0] for plan in plans.values() if plan.kind != "match"}
    for name in work.changed_schema.tables:
        of_keys = [*_clashing_keys(work, name, renewed), *_clashing_trees(work, name)]
        found += of_keys or (_same_rows(work, key_of[name], renewed) if name in key_of else [])
    if work.support.kind == "postgresql":
        found += _partitions(work, plans)
    if not work.request.with_triggers:
        texts = triggers(work.kept, work.changed_schema.tables, "INSERT")
        found += [f"in the first database, {text}" for text in texts]
    return found


# --- unique keys -----------------------------------------------------------------------------------------


def _clashing_keys(work: Work, name: TableName, renewed: set[ColumnName]) -> Iterator[str]:
    for key in _unique_keys(work, name):
        # ids that are new to the other database are in none of its keys
        if renewed & {ColumnName(*name, part) for part in key.parts}:
            continue
        count, rows = _clashing(work, name, key)
        if count:
            texts = ", ".join(map(row_text, rows))
            what = f"{name}: {count:,} rows have the same {', '.join(key.parts)} as one in the other, such as {texts}"
            yield f"{what}: {_remedy(work, name, key)}"


def _unique_keys(work: Work, name: TableName) -> list[_Key]:
    inspector, table = sa.inspect(work.kept), work.kept_schema.tables[name]
    found = [_Key(tuple(column.name for column in table.primary_key.columns), None, True)]
    # SQLite lists indexes of UNIQUE in CREATE TABLE only with this option; the other databases always do
    for index in inspector.get_indexes(name.table, name.schema, include_auto_indexes=True):
        if index["unique"]:
            parts = index.get("expressions") or [str(column) for column in index["column_names"]]
            where = index.get("dialect_options", {}).get(f"{work.kept.dialect.name}_where")
            found.append(_Key(tuple(map(str, parts)), where, all(index["column_names"])))
    return [key for key in dict.fromkeys(found) if key.parts]


def _clashing(work: Work, name: TableName, key: _Key) -> tuple[int, list[tuple[Any, ...]]]:
    """Return how many rows have a key of a row in the other database, without those that are matched, and some keys."""
    matched = work.matched.get(name, ())

    def selected(table: sa.Table) -> sa.Select[Any]:
        parts: list[sa.ColumnElement[Any]] = [
            sa.literal_column(part).label(f"k{at}") for at, part in enumerate(key.parts)
        ]
        if key.is_plain:
            # a plain column keeps its name, by which its ids are translated
            parts = plain_columns(table, key.parts)
        more = [part for part in matched if not key.is_plain or part not in key.parts]
        query = sa.select(*parts, *plain_columns(table, more)).select_from(table)
        return query if key.where is None else query.where(sa.literal_column(key.where))

    own = selected(work.kept_schema.tables[name])
    if not work.kept.scalar(sa.select(sa.exists(own))):
        return 0, []
    mine = own.subquery("mine")
    staged = stage(work.kept, own, translated_rows(work, name, selected(work.changed_schema.tables[name])))
    columns = [str(column.name) for column in mine.columns][: len(key.parts)]
    equal = sa.and_(*(mine.c[column] == staged.c[column] for column in columns))
    query = sa.select(*(staged.c[column] for column in columns)).select_from(mine).join(staged, equal)
    if matched:
        whole = work.kept_schema.tables[name].alias("whole")
        query = query.where(~sa.exists().where(*(whole.c[column] == staged.c[column] for column in matched)))
    count = count_rows(work.kept, query.subquery())
    return count, [tuple(row) for row in work.kept.execute(query.limit(_NAMED))] if count else []


def _remedy(work: Work, name: TableName, key: _Key) -> str:
    correct = "correct those rows in one of the databases"
    if name in work.matched:
        return f"{correct}; {', '.join(work.matched[name])} says that they are not the same"
    if not key.is_plain or key.where:
        return correct
    if numbers := [part for part in key.parts if ColumnName(*name, part) in work.counted]:
        return option("id", f"{name}.{numbers[0]}")
    primary = set(work.changed_schema.tables[name].primary_key.columns.keys())
    domains = [work.domain_of(ColumnName(*name, part)) for part in key.parts]
    # equal ids are no reason to take rows for the same, unless they are pairs of rows that are the same
    if primary == set(key.parts) and not all(domain and work.is_matched(domain) for domain in domains):
        return f"{correct}, or give them other keys"
    if not _are_same(work, name, key.parts):
        return f"{correct}, or match them if two such rows are one: the copy leaves out the second"
    return f"{option('match', f'{name}=' + ','.join(key.parts))} or {correct}"


def _are_same(work: Work, name: TableName, parts: Sequence[str]) -> bool:
    """Return whether the first rows with an equal key are equal in all other columns, but for their ids."""
    keys = {key.column for domain in work.changed_schema.domains for key in domain.keys if key.table_name == name}
    columns = [*parts, *(c.name for c in work.changed_schema.tables[name].c if c.name not in {*parts, *keys})]
    mine, theirs = ({row[: len(parts)]: row for row in rows} for rows in _first_rows(work, name, columns, parts))
    return all(mine[key] == theirs[key] for key in mine.keys() & theirs.keys())


def _first_rows(
    work: Work, name: TableName, columns: Sequence[str], order: Sequence[str]
) -> Iterator[list[tuple[str, ...]]]:
    """Yield rows of the database that is kept, and of the other with the ids that it will have, as texts."""
    for connection, schema in work.sides:
        table = schema.tables[name]
        query = sa.select(*plain_columns(table, columns)).order_by(*(table.c[one] for one in order)).limit(_FIRST)
        rows = connection.execute(query) if connection is work.kept else translated_rows(work, name, query)
        yield [tuple(map(str, row)) for row in rows]


# --- tables that both have, counters, trees --------------------------------------------------------------


def _same_rows(work: Work, key: ColumnName, renewed: set[ColumnName]) -> Iterator[str]:
    """Yield the table of *key* if most of its first rows are in both databases."""
    name = key.table_name
    table = work.changed_schema.tables[name]
    columns = [column.name for column in table.c if ColumnName(*name, column.name) not in renewed]
    if not columns or len(columns) + 1 < len(table.c):
        return
    other, rows = _first_rows(work, name, columns, [key.column])
    same = len(set(rows) & set(other))
    if rows and same * 2 >= len(rows):
        names = next((k.parts for k in _unique_keys(work, name) if k.is_plain and set(k.parts) <= set(columns)), ())
        text = f"{name}: {same:,} of {len(rows):,} rows are in both databases, and would be there twice"
        if key in work.independent:
            work.notes.append(f"{text}, since --independent {key} says that they are other rows")
        else:
            # without a unique key, a person must know what names a row
            matched = option("match", f"{name}={','.join(names) or 'COLUMNS'}")
            yield f"{text}: {matched} or {option('independent', key)}"


def _codes(work: Work) -> Iterator[str]:
    """Yield unique numbers that others refer to, and that may be codes of rows in place of ids."""
    for domain in work.changed_schema.domains:
        scan = work.scans[domain.name]
        if scan.clashes and not set(domain.keys) & work.counted and work.changed_schema.is_code(domain):
            new, stay = option("id", domain.name), option("independent", domain.name)
            text = f"{scan.clashes:,} of these numbers are in both databases, and they are no primary key"
            yield f"{domain.name}: {text}: {stay} if they are codes that stay or {new} for new numbers"


def _clashing_trees(work: Work, name: TableName) -> Iterator[str]:
    """Yield nested sets whose trees have the same numbers."""
    columns = work.changed_schema.tables[name].c
    column = ColumnName(*name, "tree_id" if "tree_id" in columns else "lft")
    if "lft" not in columns or column in work.independent or work.domain_of(column):
        return
    both = [set(connection.scalars(sa.select(columns[column.column]).distinct())) for connection, _ in work.sides]
    if both[0] & both[1]:
        remedy = option("id", column) if column.column == "tree_id" else "number those of one database anew"
        what = f"{len(both[0] & both[1])} values of {column.column} are in both databases, as if their trees were one"
        yield f"{name}: {what}: {remedy} or {option('independent', column)}"


# --- partitions ------------------------------------------------------------------------------------------


def _partitions(work: Work, plans: Mapping[str, DomainPlan]) -> Iterator[str]:
    """Yield rows that have no partition: in the other database, or here under their new ids."""
    offsets = {column: plan.offset for plan in plans.values() for column in plan.domain.columns}
    for name, table in work.changed_schema.tables.items():
        query = catalog_query("postgresql", "partition_conditions")
        for where, connection in (("first", work.kept), ("second", work.changed)):
            partitions = connection.scalars(query, {"root": work.support.name(name)})
            conditions = [re.sub(r"satisfies_hash_partition\(.*?\)", "true", condition) for condition in partitions]
            if not conditions:
                continue
            moved = {c.name: c + offsets.get(ColumnName(*name, c.name), 0) for c in table.c if is_integer(c)}
            # a row for which the condition is NULL is in no partition
            inner = sa.select(*(moved.get(c.name, c).label(c.name) for c in table.c)).subquery("moved")
            none = " AND ".join(f"({condition}) IS NOT TRUE" for condition in conditions)
            keys = [inner.c[column.name] for column in table.primary_key.columns] or list(inner.c)
            lost = sa.select(*keys).select_from(inner).where(sa.literal_column(none, sa.Boolean))
            rows = work.changed.execute(lost.limit(_NAMED)).all()
            if rows:
                rest = work.support.name(TableName(name.schema, f"{name.table}_rest"))
                make = f"CREATE TABLE {rest} PARTITION OF {work.support.name(name)} DEFAULT;"
                texts = ", ".join(map(row_text, rows))
                yield f"{name}: rows have no partition in the {where} database, such as {texts}: make one, or {make}"
