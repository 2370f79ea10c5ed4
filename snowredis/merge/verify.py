"""Prove a change of ids and a copy by other ways than those that made them: checksums of rows, and joins.

The server adds up each table before and after a change. Afterwards an id counts as what the map says that it was
before, so the checksum covers every column: a row that lost a value, or refers to another row, changes it.

After a copy, each server computes a number for the key and one for all columns of every row. DuckDB compares them, so
nothing is held in memory, and the rows that are missing are named. Matched rows are compared by the server, as the copy
did it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.databases import count_rows, reading, row_text, stream, text_literal
from snowredis.merge.journal import MAP, Run, pairs_of
from snowredis.merge.matching import plain_columns, stage
from snowredis.merge.obstacles import orphans
from snowredis.merge.pair import Databases, Sides
from snowredis.merge.plan_file import DomainPlan, Plan
from snowredis.merge.progress import Progress
from snowredis.merge.schema import ColumnName, Domain, Schema, TableName, is_integer
from snowredis.merge.support import support_of
from snowredis.merge.workspace import Workspace

# rows that are compared at once, and rows that a finding names
_PAGE, _NAMED = 100_000, 3
# blocks of a table whose sums are compared before its rows
_BLOCKS = 1_000


def sums(
    engine: sa.Engine,
    schema: Schema,
    run: Run,
    mapped: Iterable[DomainPlan],
    progress: Progress,
    *,
    by_map: bool = True,
) -> dict[str, list[Any]]:
    """Return how many rows each table has, and their checksum.

    Args:
        mapped: domains whose new ids count as the old ones.
        by_map: rows may have been made since, whose numbers a counter did not move.
    """
    domains, found = list(mapped), dict[str, list[Any]]()
    with reading(engine) as connection:
        for name, table in schema.tables.items():
            progress.start(f"adding up the rows of {name}")
            columns, source = _columns_before(name, table, domains, run, by_map=by_map)
            found[str(name)] = _sum(connection, columns, source)
    return found


def id_sums(connection: sa.Connection, schema: Schema, domain: Domain) -> str:
    """Return how many ids the keys of a domain hold, and their checksum."""
    columns = [schema.column(name) for name in domain.keys]
    return str([_sum(connection, [column], column.table) for column in columns])


def _sum(connection: sa.Connection, columns: Sequence[sa.ColumnElement[Any]], source: sa.FromClause) -> list[Any]:
    """Return how many rows there are, and their checksum."""
    query = sa.select(sa.func.count(), support_of(connection.engine).checksum(columns)).select_from(source)
    count, total = connection.execute(query).one()
    return [int(count), str(total or 0)]


def _columns_before(
    name: TableName, table: sa.Table, domains: Sequence[DomainPlan], run: Run, *, by_map: bool
) -> tuple[list[sa.ColumnElement[Any]], sa.FromClause]:
    """Return the columns of a table with old ids in place of new ones, and what they are selected from."""
    source: sa.FromClause = table
    values: dict[str, sa.ColumnElement[Any]] = dict(table.c.items())
    parts = [(of, part) for of in domains for part in of.domain.wholes if part.column.table_name == name]
    # after the others: the kind may be an id that has changed, too
    parts += [(of, part) for of in domains for part in of.domain.partials if part.column.table_name == name]
    for at, (of, part) in enumerate(parts):
        column = table.c[part.column.column]
        if of.kind == "counter" and not by_map and part in of.domain.wholes:
            number = sa.cast(column, sa.BigInteger)
            # a number that did not move is not what it was
            unmoved = (number >= of.lowest, -1 - number)
            values[column.name] = sa.case((number >= of.lowest + of.offset, number - of.offset), unmoved, else_=number)
            continue
        pairs = MAP.alias(f"m{at}")
        old, new = (sa.cast(side, sa.String(40)) if part.is_text else side for side in (pairs.c.old, pairs.c.new))
        mine = (pairs.c.run == run.number, pairs.c.domain == of.number, new == column)
        source = source.outerjoin(pairs, sa.and_(part.applies(values), *mine))
        before = sa.func.coalesce(old, values[column.name])
        # MariaDB makes a decimal of an unsigned column and a signed one
        values[column.name] = before if part.is_text else sa.cast(before, sa.BigInteger)
    # all columns are read the same way before and after: CHAR has spaces at its end
    texts = {part.column for d in run.domains for part in d.domain.partials if part.is_text}
    types = {c: sa.Text() if c in texts else sa.BigInteger() for d in run.domains for c in d.domain.all_columns}
    columns = [
        sa.cast(value, types[c]) if (c := ColumnName(*name, key)) in types else value for key, value in values.items()
    ]
    return columns, source


def old_ids(
    connection: sa.Connection, schema: Schema, run: Run, plans: Iterable[DomainPlan]
) -> Iterator[tuple[ColumnName, Any]]:
    """Yield the key columns that have ids from before, each with one of them."""
    for plan in plans:
        for name in plan.domain.keys:
            column = schema.column(name)
            query = sa.select(column).join(MAP, column == MAP.c.old).where(*pairs_of(run, plan.number)).limit(1)
            if (row := connection.execute(query).first()) is not None:
                yield name, row[0]


def check_result(
    engine: sa.Engine, schema: Schema, run: Run, mapped: Sequence[DomainPlan], tail: str, progress: Progress
) -> None:
    """Refuse a database that is not what it was, besides its ids, or in which a reference leads to no row; MergeError.

    Args:
        mapped: domains whose new ids count as the old ones.
        tail: the end of the message: what was changed, and what to do.
    """
    for name, (count, total) in sums(engine, schema, run, mapped, progress, by_map=False).items():
        had, before = run.sums.get(name, [0, ""])
        if [count, total] != [had, before]:
            what = f"has {count:,} rows, and had {had:,}"
            if count == had:
                what = "has other values than before, besides its ids"
            raise MergeError(
                f"{name} {what}. {tail}; another process wrote to it, or a trigger did: compare it with a backup."
            )
    progress.start("checking references")
    with reading(engine) as connection:
        for column, an_id in old_ids(connection, schema, run, [plan for plan in mapped if plan.kind == "layout"]):
            raise MergeError(f"{column} still has the old id {an_id}. {tail}; a trigger may keep it.")
        for key, values in orphans(connection, schema):
            raise MergeError(f"foreign key {key} leads nowhere from {values[0]}. {tail}.")


# --- after a copy ------------------------------------------------------------------------------------------


def copied_columns(table: sa.Table) -> list[str]:
    """Return the columns that are copied: all but those that the database computes."""
    return [column.name for column in table.c if column.computed is None]


class Copied:
    """Comparison of both databases after a copy.

    Attributes:
        rows: how many the database that changed has, in how many tables.
    """

    def __init__(self, plan: Plan, databases: Databases, sides: Sides, progress: Progress) -> None:
        self._plan, self._databases, self._sides = plan, databases, sides
        self._kept, self._changed = (connection for connection, _ in sides)
        self._progress, self._support = progress, support_of(databases.kept)
        self.rows, self.tables = 0, len(databases.changed_schema.tables)

    def findings(self) -> Iterator[str]:
        """Yield what is wrong, one line each."""
        with Workspace() as workspace:
            for name in self._databases.changed_schema.tables:
                self._progress.start(f"comparing {name}")
                yield from self._compare_table(workspace, name)
        self._progress.start("checking counters and references")
        yield from self._counters()
        for key, values in orphans(self._kept, self._databases.kept_schema):
            yield f"foreign key {key} leads nowhere from {', '.join(values)}"

    def _compare_table(self, workspace: Workspace, name: TableName) -> Iterator[str]:
        theirs = self._databases.changed_schema.tables[name]
        columns = copied_columns(theirs)
        keys = [column.name for column in theirs.primary_key.columns] or columns
        mine, count = (count_rows(connection, schema.tables[name]) for connection, schema in self._sides)
        self.rows += count
        same, had = self._plan.same.get(str(name), 0), self._plan.kept_rows[str(name)]
        if mine < had + count - same:
            expected = f"{had:,} of before and {count - same:,} of the copy are expected"
            yield f"{name}: {mine:,} rows are there, and {expected}"
        if matched := self._plan.matched.get(str(name)):
            texts = [("has neither its row nor one that matches", self._unmatched(name, keys, matched))]
        else:
            absent, other = self._different(workspace, name, keys, columns)
            texts = [
                ("does not have", self._keys_of(name, keys, absent)),
                ("has other values of", self._keys_of(name, keys, other)),
            ]
        for text, (number, examples) in texts:
            if number:
                yield f"{name}: the first database {text} {number:,} rows, such as {', '.join(examples)}"

    def _different(
        self, workspace: Workspace, name: TableName, keys: list[str], columns: list[str]
    ) -> tuple[list[int], list[int]]:
        """Return the hashes of the keys that the first database lacks, and of those that have other values there."""
        conditions = self._where_it_differs(name, keys, columns)
        workspace.rows("CREATE OR REPLACE TEMP TABLE copied (side INTEGER, k BIGINT, h BIGINT)")
        for side, (connection, schema) in enumerate(self._sides):
            table = schema.tables[name]
            hashes = [self._support.row_hash([table.c[c] for c in of]) for of in (keys, columns)]
            found = stream(connection, sa.select(*hashes).where(conditions[side]))
            while page := list(islice(found, _PAGE)):
                values = np.array([(int(k), int(h)) for k, h in page], dtype=np.int64)
                workspace.insert("copied", f"{side}, k, h", {"k": values[:, 0], "h": values[:, 1]})
        # a row that is there several times must be there as often
        grouped = "SELECT k, h, count(*) AS times FROM copied WHERE side = {} GROUP BY ALL"
        wrong = (
            f"SELECT theirs.k, bool_or(other.k IS NOT NULL) FROM ({grouped.format(1)}) theirs LEFT JOIN "
            f"({grouped.format(0)}) ours USING (k, h) LEFT JOIN (SELECT DISTINCT k FROM copied WHERE side = 0) other "
            "ON other.k = theirs.k WHERE theirs.times > coalesce(ours.times, 0) GROUP BY 1 ORDER BY 1"
        )
        differ = workspace.rows(wrong)
        return [k for k, is_there in differ if not is_there], [k for k, is_there in differ if is_there]

    def _where_it_differs(
        self, name: TableName, keys: list[str], columns: list[str]
    ) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
        """Return conditions for the rows of each database in blocks of the integer key whose sums differ; else for all.

        So only few rows are fetched.
        """
        ours, theirs = (schema.tables[name].c[keys[0]] for _, schema in self._sides)
        if len(keys) != 1 or not is_integer(theirs):
            return sa.true(), sa.true()
        ends = self._changed.execute(sa.select(sa.func.min(theirs), sa.func.max(theirs))).one()
        least, most = (int(end or 0) for end in ends)
        numbers = [(sa.cast(key, sa.BigInteger) - least) // ((most - least) // _BLOCKS + 1) for key in (ours, theirs)]
        both = []
        for (connection, _), number, key in zip(self._sides, numbers, (ours, theirs), strict=True):
            query = sa.select(number, sa.func.count(), self._support.checksum([key.table.c[c] for c in columns]))
            found = connection.execute(query.where(key.between(least, most)).group_by(number))
            both.append({int(at): (count, int(total)) for at, count, total in found})
        mine, other = both
        differ = [at for at, of_block in other.items() if mine.get(at) != of_block]
        return numbers[0].in_(differ), numbers[1].in_(differ)

    def _keys_of(self, name: TableName, keys: list[str], hashes: list[int]) -> tuple[int, list[str]]:
        """Return how many rows these are, and the keys of some."""
        if not hashes:
            return 0, []
        table = self._databases.changed_schema.tables[name]
        plain = plain_columns(table, keys)
        query = sa.select(*plain).where(self._support.row_hash([table.c[key] for key in keys]).in_(hashes[:_NAMED]))
        return len(hashes), [row_text(row) for row in self._changed.execute(query.limit(_NAMED))]

    def _unmatched(self, name: TableName, keys: list[str], matched: list[str]) -> tuple[int, list[str]]:
        """Return how many rows match no row of the other database under the same key, and some."""
        mine, theirs = (schema.tables[name] for schema in (self._databases.kept_schema, self._databases.changed_schema))
        names = list(dict.fromkeys([*keys, *matched]))
        rows = stream(self._changed, sa.select(*plain_columns(theirs, names)))
        staged = stage(self._kept, sa.select(*plain_columns(mine, names)), rows)
        there = sa.exists().where(*(mine.c[column] == staged.c[column] for column in names))
        query: sa.Select[Any] = sa.select(*(staged.c[key] for key in keys)).where(~there)
        missing = self._kept.execute(query).all()
        return len(missing), [row_text(row) for row in missing[:_NAMED]]

    def _counters(self) -> Iterator[str]:
        both = self._databases
        mine = {counter.name: counter for counter in self._support.counters(self._kept, both.kept_schema)}
        for counter in mine.values():
            if counter.is_behind:
                text = f"the counter {counter.name} gives {counter.next:,} next, and {counter.highest:,} is there"
                yield f"{text}: {counter.statement};"
        for theirs in self._support.counters(self._changed, both.changed_schema):
            if not theirs.columns and (own := mine.get(theirs.name)) and own.next < theirs.next:
                what = f"gives {own.next:,} next, and {theirs.next:,} in the second database"
                move = f"SELECT setval({text_literal(theirs.name)}, {theirs.next - 1});"
                yield f"the sequence {theirs.name}, which no column uses, {what}: {move}"
