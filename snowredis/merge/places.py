"""Run the queries of a check where the ids are: in the workspace, or in the one server that has all sources.

In a server, only what the queries count and the few ids that clash are sent. Its tables are compared by a join there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import sqlalchemy as sa

from snowredis.merge.databases import open_database, reading
from snowredis.merge.id_sql import quoted, translated
from snowredis.merge.ingest import column_of, ingest
from snowredis.merge.progress import Progress
from snowredis.merge.sources import Source
from snowredis.merge.workspace import Workspace

__all__ = ["Places"]

_DIALECTS = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}
# a join for each pair of more sources takes longer than reading them
_JOINED = 4


class Places:
    """Places of the ids of each source."""

    def __init__(self, workspace: Workspace, sources: Sequence[Source]) -> None:
        self.workspace, self._sources = workspace, sources
        self._stack = contextlib.ExitStack()
        self._connection: sa.Connection | None = None

    def close(self) -> None:
        """Close the connection to the server, if there is one."""
        self._stack.close()

    def find(self, progress: Progress) -> None:
        """Read what has to be read, and fill the table ``duplicates``: id, source, and how often it is there."""
        self.workspace.rows("CREATE OR REPLACE TABLE duplicates (id BIGINT, source USMALLINT, times BIGINT)")
        if self._open_server():
            progress.start("comparing in the server")
            self._find_in_server()
        else:
            ingest(self.workspace, self._sources, progress)
            self._find_here(progress)

    def rows(self, number: int, query: str) -> list[tuple[Any, ...]]:
        """Return the rows, whole numbers, of a query of ``ids``, the ids of one source."""
        if self._connection is None:
            return self.workspace.rows(_of_source(query, number))
        ids = f"(SELECT {self._id(number)} AS id FROM {self._table(number)}) AS ids"
        return self._in_server(re.sub(r"\bids\b", ids, query))

    def insert(self, table: str, prefix: str, number: int, query: str) -> None:
        """Insert the values *prefix* and each row of such a query into a table of the workspace."""
        if self._connection is None:
            self.workspace.rows(f"INSERT INTO {table} SELECT {prefix}, * FROM ({_of_source(query, number)})")
        elif rows := self.rows(number, query):
            columns = {f"c{at}": values for at, values in enumerate(np.array(rows, dtype=np.int64).T)}
            self.workspace.insert(table, ", ".join([prefix, *columns]), columns)

    # --- here ------------------------------------------------------------------------------------------

    def _find_here(self, progress: Progress) -> None:
        """Sort the ids in as many parts as the memory needs: equal ones are neighbors then.

        Sources are nearly always in the order of their ids, and a stable sort only merges what is in order: a fifth of
        the time of DuckDB's GROUP BY.
        """
        # a part has some more or less than fit
        rows, most = self.workspace.rows, self.workspace.ids_at_once * 5 // 4
        rows("CREATE OR REPLACE TEMP TABLE repeated (id BIGINT)")
        parts = self._parts(rows("SELECT count(id) FROM ids")[0][0])
        progress.start("comparing", len(parts))
        for mine in parts:
            ids = self.workspace.column(f"SELECT id FROM ids WHERE {mine} LIMIT {most}")
            if len(ids) < most:
                ids.sort(kind="stable")
                self.workspace.insert("repeated", "id", {"id": np.unique(ids[1:][ids[1:] == ids[:-1]])})
            else:
                # one id is there more often than fits
                del ids
                rows(f"INSERT INTO repeated SELECT id FROM ids WHERE {mine} GROUP BY id HAVING count(*) > 1")
            progress.add(1)
        # few, so that all sources are read once more for all of them; each is there twice or more
        if count := rows("SELECT count(*) FROM repeated")[0][0]:
            for mine in self._parts(2 * count):
                found = f"SELECT id, source, count(*) FROM ids SEMI JOIN repeated USING (id) WHERE {mine} GROUP BY ALL"
                rows(f"INSERT INTO duplicates {found}")

    def _parts(self, ids: int) -> list[str]:
        """Return conditions that divide so many ids into parts that can be sorted at once."""
        count = max(1, -(-ids // self.workspace.ids_at_once))
        return [f"id IS NOT NULL AND hash(id) % {count} = {part}" for part in range(count)]

    # --- in a server -----------------------------------------------------------------------------------

    def _open_server(self) -> bool:
        """Connect to the server that has all sources, if there is one and all columns are keys of signed integers."""
        databases = {source.location for source in self._sources}
        if len(databases) > 1 or not 2 <= len(self._sources) <= _JOINED or self._sources[0].kind != "database":
            return False
        engine = open_database(databases.pop(), read_only=True)
        self._stack.callback(engine.dispose)
        columns = [column_of(engine, source) for source in self._sources]
        if engine.dialect.name not in _DIALECTS or not all(map(_is_key, columns)):
            return False
        self._connection = self._stack.enter_context(reading(engine))
        return True

    def _find_in_server(self) -> None:
        found: set[tuple[int, int]] = set()
        for one, other in combinations(range(len(self._sources)), 2):
            tables = f"{self._table(one)} AS a JOIN {self._table(other)} AS b"
            ids = self._in_server(f"SELECT a.{self._id(one)} FROM {tables} ON a.{self._id(one)} = b.{self._id(other)}")
            found |= {(an_id, number) for (an_id,) in ids for number in (one, other)}
        if found:
            table = np.array(list(found), dtype=np.int64)
            self.workspace.insert("duplicates", "id, source, 1", {"id": table[:, 0], "source": table[:, 1]})

    def _in_server(self, query: str) -> list[tuple[Any, ...]]:
        assert self._connection is not None  # noqa: S101 - for mypy
        text = translated(query, _DIALECTS[self._connection.dialect.name])
        rows = self._connection.exec_driver_sql(text.replace("%", "%%")).all()
        return [tuple(None if value is None else int(value) for value in row) for row in rows]

    def _table(self, number: int) -> str:
        source = self._sources[number]
        return ".".join(quoted(part) for part in (source.schema, source.table) if part is not None)

    def _id(self, number: int) -> str:
        return quoted(str(self._sources[number].column))


def _is_key(column: sa.Column[Any]) -> bool:
    """Return whether *column* has signed integers of which each is there once."""
    is_signed = isinstance(column.type, sa.Integer) and not getattr(column.type, "unsigned", False)
    keys = [key.name for key in column.table.primary_key.columns]
    return is_signed and keys == [column.name]


def _of_source(query: str, number: int) -> str:
    return re.sub(r"\bids\b( WHERE)?", lambda m: f"ids WHERE source = {number}{' AND' if m[1] else ''}", query)
