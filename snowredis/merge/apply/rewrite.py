"""Rewrite ids and all that refers to them, in batches of old ids.

A batch changes an id in its own column and in every column that refers to it, in one transaction: after each commit
all references are right. An old id is never equal to a new one, so a batch that is repeated changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from snowredis.merge.databases import reading, writing
from snowredis.merge.id_domains import ColumnName, Domain, Schema
from snowredis.merge.journal import MAP, Journal, Run
from snowredis.merge.support import Support

__all__ = ["Rewriter"]

# ids of the first batch; later ones follow from how many rows refer to an id
_FIRST = 500


class Rewriter:
    """Rewrites the ids of one database.

    Args:
        batch_rows: values that one transaction changes at most; more only for a single id that has more references.
        report: is told what is done, and how many values were changed.
    """

    def __init__(
        self,
        engine: sa.Engine,
        schema: Schema,
        support: Support,
        journal: Journal,
        batch_rows: int,
        report: Callable[[str, int], None],
    ) -> None:
        self._engine, self._schema, self._support = engine, schema, support
        self._journal, self._batch_rows, self._report = journal, batch_rows, report
        self._kept: dict[ColumnName, list[str]] = {}

    def rewrite(self, run: Run, number: int, domain: Domain) -> Run:
        """Rewrite the ids of *domain*, from where *run* is; return its state after."""
        if run.domain > number:
            return run
        done_to = run.done_to if run.domain == number else None
        size = _FIRST
        while True:
            with reading(self._engine) as connection:
                bounds = self._bounds(connection, run, number, domain, done_to, size)
            if bounds is None:
                break
            last, ids, values = bounds
            run = self._batch(run, number, domain, done_to, last)
            done_to = last
            # a batch of twice as many ids, unless it would be too large
            size = max(1, min(2 * ids, ids * self._batch_rows // max(values, 1)))
            self._report(domain.name, run.changed)
        return run

    def _bounds(
        self, connection: sa.Connection, run: Run, number: int, domain: Domain, after: int | None, size: int
    ) -> tuple[int, int, int] | None:
        """Return the last old id of the next batch, how many ids it has, and how many values hold them."""
        mine = _range(run, number, after, None)
        while True:
            ids = sa.select(MAP.c.old).where(*mine).order_by(MAP.c.old).limit(size).subquery()
            count, last = connection.execute(sa.select(sa.func.count(), sa.func.max(ids.c.old))).one()
            if not count:
                return None
            values = sum(
                self._count(connection, column, _range(run, number, after, last)) for column in domain.columns
            )
            if values <= self._batch_rows or count == 1:
                return int(last), int(count), values
            size = max(1, count // 2)

    def _count(self, connection: sa.Connection, name: ColumnName, mine: list[sa.ColumnElement[bool]]) -> int:
        column = self._schema.column(name)
        query = (
            sa.select(sa.func.count()).select_from(column.table.join(MAP, column == MAP.c.old)).where(*mine)
        )
        return connection.scalar(query) or 0

    def _batch(self, run: Run, number: int, domain: Domain, after: int | None, last: int) -> Run:
        tables = list(dict.fromkeys(column.of for column in domain.columns))
        text = f"{run.changed:,} values were changed until then, and stay as they are"
        with writing(self._engine, text, keys=False) as connection:
            # locks the journal's row: whoever comes second finds another version
            run = self._journal.advance(connection, run, domain=number, done_to=last)
            with self._support.relaxed(connection, tables):
                changed = sum(
                    self._update(connection, column, run, number, after, last) for column in domain.columns
                )
            run = self._journal.advance(connection, run, changed=run.changed + changed)
        return run

    def _update(
        self, connection: sa.Connection, name: ColumnName, run: Run, number: int, after: int | None, last: int
    ) -> int:
        table, column = self._schema.tables[name.of], self._schema.column(name)
        if name not in self._kept:
            self._kept[name] = self._support.kept_columns(connection, name.of)
        values: dict[Any, Any] = {table.c[other]: table.c[other] for other in self._kept[name]}
        mine = _range(run, number, after, last)
        if connection.dialect.name == "sqlite":
            # SQLite would read the whole table for each batch of an UPDATE FROM without statistics
            new = sa.select(MAP.c.new).where(*mine, MAP.c.old == column).correlate(table).scalar_subquery()
            statement = sa.update(table).where(column.in_(sa.select(MAP.c.old).where(*mine)))
        else:
            new = MAP.c.new  # type: ignore[assignment]
            statement = sa.update(table).where(column == MAP.c.old, *mine)
        done = connection.execute(statement.values({column: new, **values}))
        return done.rowcount


def _range(run: Run, number: int, after: int | None, last: int | None) -> list[sa.ColumnElement[bool]]:
    conditions = [MAP.c.run == run.number, MAP.c.domain == number]
    if after is not None:
        conditions.append(MAP.c.old > after)
    if last is not None:
        conditions.append(MAP.c.old <= last)
    return conditions
