"""Prove a copy: every row of the database that changed is in the other one, as it was or as the row that matches it.

Each server computes a number for the key and one for all columns of every row. DuckDB compares them, so nothing is held
in memory, and the rows that are missing are named. Matched rows are compared by the server, as the copy did it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import sqlalchemy as sa

from snowredis.errors import shown
from snowredis.merge.databases import stream
from snowredis.merge.matching import plain_columns, stage
from snowredis.merge.obstacles import orphans
from snowredis.merge.pair import Databases, workspace
from snowredis.merge.plan_file import Plan
from snowredis.merge.progress import Progress
from snowredis.merge.schema import TableName
from snowredis.merge.support import support_of
from snowredis.merge.workspace import Workspace

__all__ = ["Copied", "copied_columns"]

_PAGE = 100_000
# rows that a finding names
_NAMED = 3


def copied_columns(table: sa.Table) -> list[str]:
    """Return the columns that are copied: all but those that the database computes."""
    return [column.name for column in table.c if column.computed is None]


class Copied:
    """Comparison of both databases after a copy.

    Attributes:
        rows: how many the database that changed has, in how many tables.
    """

    def __init__(
        self, plan: Plan, databases: Databases, kept: sa.Connection, changed: sa.Connection, progress: Progress
    ) -> None:
        self._plan, self._databases, self._kept, self._changed = plan, databases, kept, changed
        self._progress, self._support = progress, support_of(databases.kept)
        self.rows, self.tables = 0, len(databases.of_changed.tables)

    def findings(self) -> Iterator[str]:
        """Yield what is wrong, one line each."""
        for connection in (self._kept, self._changed):
            self._support.prepare(connection)
        with workspace() as place:
            for name in self._databases.of_changed.tables:
                self._progress.start(f"comparing {name}")
                yield from self._of_table(place, name)
        self._progress.start("checking counters and references")
        yield from self._counters()
        for key, values in orphans(self._kept, self._databases.of_kept):
            yield f"foreign key {key} leads nowhere from {', '.join(values)}"

    def _of_table(self, place: Workspace, name: TableName) -> Iterator[str]:
        both = ((self._kept, self._databases.of_kept), (self._changed, self._databases.of_changed))
        theirs = self._databases.of_changed.tables[name]
        columns = copied_columns(theirs)
        keys = [column.name for column in theirs.primary_key.columns] or columns
        place.rows("CREATE OR REPLACE TEMP TABLE copied (side INTEGER, k BIGINT, h BIGINT)")
        for side, (connection, schema) in enumerate(both):
            hashes = [self._support.row_hash([schema.tables[name].c[c] for c in of]) for of in (keys, columns)]
            found = stream(connection, sa.select(*hashes))
            while page := list(islice(found, _PAGE)):
                values = np.array([(int(k), int(h)) for k, h in page], dtype=np.int64)
                place.insert("copied", f"{side}, k, h", {"k": values[:, 0], "h": values[:, 1]})
        mine, count = (place.rows(f"SELECT count(*) FROM copied WHERE side = {side}")[0][0] for side in (0, 1))
        self.rows += count
        same, had = self._plan.same.get(str(name), 0), self._plan.kept_rows[str(name)]
        if mine < had + count - same:
            yield (
                f"{name}: {mine:,} rows are there, and {had:,} of before and {count - same:,} of the copy are expected"
            )
        # a row that is there several times must be there as often
        grouped = "SELECT k, h, count(*) AS times FROM copied WHERE side = {} GROUP BY ALL"
        wrong = (
            f"SELECT theirs.k, bool_or(other.k IS NOT NULL) FROM ({grouped.format(1)}) theirs LEFT JOIN "
            f"({grouped.format(0)}) ours USING (k, h) LEFT JOIN (SELECT DISTINCT k FROM copied WHERE side = 0) other "
            "ON other.k = theirs.k WHERE theirs.times > coalesce(ours.times, 0) GROUP BY 1 ORDER BY 1"
        )
        found_wrong = dict(place.rows(wrong))
        if matched := self._plan.matched.get(str(name)):
            missing = self._unmatched(name, keys, matched, set(found_wrong))
            texts = [("has neither its row nor one that matches", missing)]
        else:
            absent, other = (
                [k for k, exists in found_wrong.items() if exists is is_there] for is_there in (False, True)
            )
            texts = [
                ("does not have", self._keys_of(name, keys, absent)),
                ("has other values of", self._keys_of(name, keys, other)),
            ]
        for text, (number, examples) in texts:
            if number:
                yield f"{name}: the first database {text} {number:,} rows, such as {', '.join(examples)}"

    def _keys_of(self, name: TableName, keys: list[str], hashes: list[int]) -> tuple[int, list[str]]:
        """Return how many rows these are, and the keys of some."""
        if not hashes:
            return 0, []
        table = self._databases.of_changed.tables[name]
        plain = plain_columns(table, keys)
        query = sa.select(*plain).where(self._support.row_hash([table.c[key] for key in keys]).in_(hashes[:_NAMED]))
        return len(hashes), [
            shown(row[0] if len(row) == 1 else tuple(row)) for row in self._changed.execute(query.limit(_NAMED))
        ]

    def _unmatched(
        self, name: TableName, keys: list[str], matched: list[str], hashes: set[int]
    ) -> tuple[int, list[str]]:
        """Return the rows among *hashes* that match no row of the other database under the same key."""
        if not hashes:
            return 0, []
        mine, theirs = (schema.tables[name] for schema in (self._databases.of_kept, self._databases.of_changed))
        names = list(dict.fromkeys([*keys, *matched]))
        of_key = self._support.row_hash([theirs.c[key] for key in keys])
        rows = (
            row[1:]
            for row in stream(self._changed, sa.select(of_key, *plain_columns(theirs, names)))
            if int(row[0]) in hashes
        )
        staged = stage(self._kept, sa.select(*plain_columns(mine, names)), rows)
        there = sa.exists().where(*(mine.c[column] == staged.c[column] for column in names))
        query: sa.Select[Any] = sa.select(*(staged.c[key] for key in keys)).where(~there)
        missing = self._kept.execute(query).all()
        return len(missing), [shown(row[0] if len(row) == 1 else tuple(row)) for row in missing[:_NAMED]]

    def _counters(self) -> Iterator[str]:
        both = self._databases
        mine = {counter.name: counter for counter in self._support.counters(self._kept, both.of_kept)}
        for counter in mine.values():
            if counter.is_behind:
                text = f"the counter {counter.name} gives {counter.next:,} next, and {counter.highest:,} is there"
                yield f"{text}: {counter.statement};"
        for theirs in self._support.counters(self._changed, both.of_changed):
            if not theirs.columns and (own := mine.get(theirs.name)) and own.next < theirs.next:
                yield (
                    f"the sequence {theirs.name}, which no column uses, gives {own.next:,} next, and {theirs.next:,} "
                    f"in the second database: SELECT setval('{theirs.name}', {theirs.next - 1});"
                )
