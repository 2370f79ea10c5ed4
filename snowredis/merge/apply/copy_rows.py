"""Copy the rows of one database into the other, after their ids were changed; parents first, in batches that resume.

Tables whose rows refer to each other in a circle, and tables without a key, are copied in one transaction each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import sqlalchemy as sa

from snowredis.errors import MergeError
from snowredis.merge.apply.run import Databases
from snowredis.merge.apply.sums import add_up
from snowredis.merge.databases import reading, stream, writing
from snowredis.merge.id_domains import TableName
from snowredis.merge.journal import Copies, Copy
from snowredis.merge.plan.plan_file import Plan
from snowredis.merge.plan.scan import find_clashes, ids_of

__all__ = ["copy_rows"]

# rows of one INSERT, and of one look-up by key
_STATEMENT = 500
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """A table in both databases.

    Attributes:
        columns: those that are copied: all but computed ones.
        key: primary key, by which batches continue; empty if there is none of numbers and texts.
    """

    name: TableName
    source: sa.Table
    target: sa.Table
    columns: list[str]
    key: list[str]
    shared: bool


class _Copier:
    """Copies tables from the changed database into the one that was kept."""

    def __init__(
        self, plan: Plan, databases: Databases, batch_rows: int, report: Callable[[str, int], None]
    ) -> None:
        self._plan, self._databases, self._batch_rows, self._report = plan, databases, batch_rows, report
        self._copies = Copies(databases.kept, plan)
        self._support = databases.support
        self._rows = 0

    def run(self) -> int:
        """Copy what is not copied yet, verify all of it, and return the number of copied rows."""
        state = self._copies.read()
        if not state:
            self._check()
            state = self._copies.begin(str(name) for name in self._databases.of_changed.tables)
        self._rows = sum(copy.rows for copy in state.values())
        self._move_counters()
        for names in self._databases.of_kept.parents_first():
            tables = [self._table(name) for name in names if str(name) in state]
            todo = [table for table in tables if not state[str(table.name)].finished]
            if not todo:
                continue
            if self._databases.of_kept.refers_in_a_circle(names) or not all(table.key for table in todo):
                self._copy_at_once(todo, state)
            else:
                for table in todo:
                    self._copy_in_batches(table, state[str(table.name)])
        self._move_counters()
        for name in state:
            self._verify(self._table(next(n for n in self._databases.of_changed.tables if str(n) == name)))
        return self._rows

    def _text(self) -> str:
        return f"{self._rows:,} rows were copied until then, and stay"

    def _check(self) -> None:
        if self._plan.conflicts:
            lines = "; ".join(f"{one.table}: {one.text}" for one in self._plan.conflicts[:3])
            raise MergeError(
                f"the plan found {len(self._plan.conflicts)} obstacles to a copy: {lines}. No row was copied; remove "
                "them and make a new plan."
            )
        with reading(self._databases.kept) as kept, reading(self._databases.changed) as changed:
            for domain_plan, domain in self._databases.domains:
                if domain_plan.kind == "shared":
                    continue
                self._report(f"looking for ids of {domain.name} that clash", self._rows)
                scan = find_clashes(
                    ids_of(kept, self._databases.of_kept, domain),
                    ids_of(changed, self._databases.of_changed, domain),
                    None,
                )
                if scan.clashes:
                    raise MergeError(
                        f"{domain.name}: {len(scan.clashes):,} ids are in both databases, such as {scan.clashes[0]}. "
                        "No row was copied; the database that is kept has them since the plan was made: make another."
                    )

    def _table(self, name: TableName) -> _Table:
        source, target = self._databases.of_changed.tables[name], self._databases.of_kept.tables[name]
        columns = [column.name for column in source.c if column.computed is None]
        key = [column.name for column in target.primary_key.columns]
        simple = all(isinstance(source.c[column].type, sa.Integer | sa.String) for column in key)
        shared = any(table.name == str(name) and table.shared for table in self._plan.tables)
        return _Table(name, source, target, columns, key if simple else [], shared)

    def _copy_in_batches(self, table: _Table, copy: Copy) -> None:
        while True:
            with reading(self._databases.changed) as connection:
                rows = self._batch(connection, table, copy.done_to)
            if not rows:
                with writing(self._databases.kept, self._text()) as connection:
                    self._copies.advance(connection, copy, finished=True)
                return
            with writing(self._databases.kept, self._text()) as connection:
                done_to = list(rows[-1][: len(table.key)])
                copy = self._copies.advance(connection, copy, done_to=done_to)
                with self._support.relaxed(connection, [table.name], keys=False):
                    count = self._insert(connection, table, rows)
                copy = self._copies.advance(connection, copy, rows=copy.rows + count)
            self._rows += count
            self._report(f"copying {table.name}", self._rows)

    def _copy_at_once(self, tables: list[_Table], state: dict[str, Copy]) -> None:
        count = 0
        with (
            reading(self._databases.changed) as source,
            writing(self._databases.kept, self._text()) as connection,
        ):
            copies = [
                self._copies.advance(connection, state[str(table.name)], finished=True) for table in tables
            ]
            with self._support.relaxed(connection, [table.name for table in tables]):
                for table, copy in zip(tables, copies, strict=True):
                    rows = iter(stream(source, sa.select(*self._raw(table.source, table))))
                    copied = 0
                    before = None if table.key else self._sum(connection, table.target, table)
                    while batch := list(islice(rows, self._batch_rows)):
                        copied += self._insert(connection, table, batch)
                        self._report(f"copying {table.name}", self._rows + count + copied)
                    if before is not None:
                        self._check_sum(source, connection, table, before)
                    self._copies.advance(connection, copy, rows=copied)
                    count += copied
        self._rows += count

    def _raw(self, table: sa.Table, of: _Table) -> list[sa.ColumnElement[Any]]:
        """Return the key columns as they are, by which rows are found again, and all columns to copy."""
        return [
            *(table.c[name] for name in of.key),
            *(self._support.raw(table.c[name]) for name in of.columns),
        ]

    def _batch(self, connection: sa.Connection, table: _Table, after: list[Any] | None) -> list[Row]:
        key = [table.source.c[name] for name in table.key]
        query = sa.select(*self._raw(table.source, table)).order_by(*key).limit(self._batch_rows)
        if after is not None:
            query = query.where(_after(key, after))
        return [tuple(row) for row in connection.execute(query)]

    def _insert(self, connection: sa.Connection, table: _Table, rows: Sequence[Sequence[Any]]) -> int:
        """Insert rows of _raw(); of a shared table only those that are not there."""
        width = len(table.key)
        if table.shared and width:
            there = {key for key, _ in self._found(connection, table, rows)}
            rows = [row for row in rows if tuple(row[:width]) not in there]
        # as text: an insert() would convert the raw values by the types of the columns
        names = ", ".join(map(self._support.quote, table.columns)).replace(":", "\\:")
        values = ", ".join(f":v{at}" for at in range(len(table.columns)))
        into = self._support.name(table.name).replace(":", "\\:")
        statement = sa.text(f"INSERT INTO {into} ({names}) VALUES ({values})")
        for at in range(0, len(rows), _STATEMENT):
            connection.execute(
                statement,
                [
                    {f"v{at}": value for at, value in enumerate(row[width:])}
                    for row in rows[at : at + _STATEMENT]
                ],
            )
        return len(rows)

    def _found(
        self, connection: sa.Connection, table: _Table, rows: Sequence[Sequence[Any]]
    ) -> Iterator[tuple[Row, Row]]:
        """Yield the rows of the target that have the keys of *rows*: key, and all columns."""
        key = [table.target.c[name] for name in table.key]
        for at in range(0, len(rows), _STATEMENT):
            keys = [tuple(row[: len(key)]) for row in rows[at : at + _STATEMENT]]
            found = key[0].in_([value for (value,) in keys]) if len(key) == 1 else sa.tuple_(*key).in_(keys)
            for row in connection.execute(sa.select(*self._raw(table.target, table)).where(found)):
                yield tuple(row[: len(key)]), tuple(row[len(key) :])

    # --- checks ----------------------------------------------------------------------------------------

    def _verify(self, table: _Table) -> None:
        """Check that every row of the source is in the target, with the same values."""
        if not table.key:
            return
        after: list[Any] | None = None
        with reading(self._databases.changed) as source, reading(self._databases.kept) as target:
            while rows := self._batch(source, table, after):
                found = dict(self._found(target, table, rows))
                for row in rows:
                    key, values = row[: len(table.key)], row[len(table.key) :]
                    if found.get(key) != values:
                        what = "is missing" if key not in found else "has other values"
                        raise MergeError(
                            f"{table.name}: the row {key} {what} in the database that it was copied to. {self._text()}"
                            "; somebody changed it meanwhile, or a trigger did: compare the two."
                        )
                after = list(rows[-1][: len(table.key)])
                self._report(f"verifying {table.name}", self._rows)

    def _sum(self, connection: sa.Connection, target: sa.Table, table: _Table) -> tuple[int, int]:
        columns = [self._support.raw(target.c[name]) for name in table.columns]
        return add_up(stream(connection, sa.select(*columns)))

    def _check_sum(
        self, source: sa.Connection, target: sa.Connection, table: _Table, before: tuple[int, int]
    ) -> None:
        copied = self._sum(source, table.source, table)
        after = self._sum(target, table.target, table)
        if after != (before[0] + copied[0], (before[1] + copied[1]) % (1 << 64)):
            raise MergeError(
                f"{table.name}: the rows differ after the copy. It was undone; {self._text()}. A trigger changed them: "
                "drop it for the merge."
            )

    def _move_counters(self) -> None:
        for domain_plan, domain in self._databases.domains:
            if domain_plan.kind == "counter":
                for name in domain.keys:
                    if name.of in self._databases.of_kept.tables:
                        self._move_counter(name)

    def _move_counter(self, name: Any) -> None:
        with reading(self._databases.changed) as connection:
            highest = connection.scalar(sa.select(sa.func.max(self._databases.of_changed.column(name))))
        if highest is not None:
            with writing(self._databases.kept, self._text()) as connection:
                column = self._databases.of_kept.column(name)
                self._support.move_counter(connection, column, name, int(highest))


def _after(key: Sequence[sa.Column[Any]], values: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a key is above *values*, such that MariaDB, too, takes the rows from the index."""
    column, value = key[0], sa.literal(values[0], key[0].type)
    if len(key) == 1:
        return column > value
    return sa.and_(column >= value, sa.or_(column > value, _after(key[1:], values[1:])))


def copy_rows(
    plan: Plan,
    databases: Databases,
    *,
    batch_rows: int,
    report: Callable[[str, int], None] = lambda _t, _n: None,
) -> int:
    """Copy all rows of the changed database into the other one, from where the last process stopped.

    Returns:
        How many rows were copied, also by earlier processes.

    Raises:
        MergeError: refused or stopped; the message says what was copied.
    """
    return _Copier(plan, databases, batch_rows, report).run()
