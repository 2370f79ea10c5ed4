"""Read the ids of all sources into the workspace.

Fills the view ``ids`` (source, id, rejected): whole numbers of 64 bits, and as text the values that are none. Columns
of whole numbers in Parquet are not copied: the view reads their files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import NoSuchTableError

from snowredis.errors import shown
from snowredis.merge import SourceError
from snowredis.merge.databases import open_database, reading, stream
from snowredis.merge.files import files_of, parsed, rejected, select_statement, unreadable
from snowredis.merge.progress import Progress
from snowredis.merge.sources import Source, without_password
from snowredis.merge.workspace import Workspace

__all__ = ["ingest"]

# rows that are stored at once: some 10 MB as Python integers
_PAGE_ROWS = 100_000
# a row of a table is as much work as these bytes of a file
_ROW_WEIGHT = 30


def ingest(workspace: Workspace, sources: Sequence[Source], progress: Progress) -> None:
    """Read all sources into the table ``stored``, and make the view ``ids``.

    Raises:
        SourceError: a source cannot be read.
    """
    # all files are looked at before the first is read: a wrong path is found at once
    files = {number: files_of(source) for number, source in enumerate(sources) if source.kind != "database"}
    views = ["SELECT source, id, rejected FROM stored"]
    with contextlib.ExitStack() as stack:
        tables = {
            number: stack.enter_context(_open_table(source))
            for number, source in enumerate(sources)
            if source.kind == "database"
        }
        total = sum(rows * _ROW_WEIGHT for _, _, rows in tables.values())
        total += sum(path.stat().st_size for paths in files.values() for path in paths)
        progress.start("reading", total, "B")
        for number, source in enumerate(sources):
            for path in files.get(number, ()):
                views += _read_file(workspace, number, source, path, progress)
            if number in tables:
                _read_table(workspace, number, source, tables[number], progress)
    workspace.rows(f"CREATE OR REPLACE TEMP VIEW ids AS {' UNION ALL '.join(views)}")
    workspace.rows("CHECKPOINT")


# --- files -----------------------------------------------------------------------------------------------


def _read_file(workspace: Workspace, number: int, source: Source, path: Path, progress: Progress) -> list[str]:
    """Store the ids of a file; or return the SELECT that reads them, if nothing has to be stored."""
    weight = path.stat().st_size
    try:
        statement, is_whole = select_statement(workspace, source, path, number)
        # of a column that is not stored, a damaged file is found now
        read = f"SELECT count(id) FROM ({statement})" if is_whole else f"INSERT INTO stored {statement}"
        workspace.rows(read, on_progress=lambda done: progress.show(done * weight))
        progress.add(weight, path.name)
        return [statement] if is_whole else []
    except duckdb.Error as error:
        if isinstance(error, duckdb.OutOfMemoryException) or "could not write" in str(error).lower():
            # not the file's fault: this machine's memory, or its disk
            raise
        raise unreadable(source, path, _first_lines(str(error))) from error


def _first_lines(message: str) -> str:
    """Return what a message of DuckDB says, without its advice on options of its own."""
    kept = []
    for line in message.partition(": ")[2].splitlines():
        if not line.strip() or line.startswith(("Possible", "LINE 1", "  file", "The search")):
            break
        kept.append(line.strip())
    return ", ".join(kept) or message.splitlines()[0]


# --- tables ----------------------------------------------------------------------------------------------

_Table = tuple[sa.Connection, sa.Column[Any], int]


@contextlib.contextmanager
def _open_table(source: Source) -> Iterator[_Table]:
    """Yield a connection, the column, and how many rows there are."""
    engine = open_database(source.location, read_only=True)
    try:
        column = column_of(engine, source)
        with reading(engine) as connection:
            yield (connection, column, connection.scalar(sa.select(sa.func.count()).select_from(column.table)) or 0)
    finally:
        engine.dispose()


def column_of(engine: sa.Engine, source: Source) -> sa.Column[Any]:
    """Return the column of *source*, as the database describes it; SourceError if it cannot hold ids."""

    def refused(what: str, advice: str) -> SourceError:
        place = without_password(source.location)
        return SourceError(f"{source.name}: {place}: {what}. Nothing of it was used. {advice}.")

    try:
        table = sa.Table(str(source.table), sa.MetaData(), schema=source.schema, autoload_with=engine)
    except NoSuchTableError:
        inspector = sa.inspect(engine)
        names = inspector.get_table_names(source.schema) + inspector.get_view_names(source.schema)
        advice = f"It has {_listed(names)}; name one of these after the #"
        raise refused(f"there is no table {shown(source.table)}", advice) from None
    column = table.c.get(str(source.column))
    if column is None:
        what = f"table {shown(source.table)} has no column {shown(source.column)}"
        raise refused(what, f"It has {_listed(list(table.c.keys()))}; name one of these after the #")
    what = f"column {shown(source.column)} holds {column.type}"
    if isinstance(column.type, sa.Float):
        loses = "which loses the last digits of an id from 2**53 on"
        raise refused(f"{what}, {loses}", "Name a column of whole numbers")
    if not isinstance(column.type, sa.Integer | sa.Numeric | sa.String | sa.types.NullType):
        raise refused(f"{what}, not whole numbers", "Name the column of the ids")
    return column


def _listed(names: list[str]) -> str:
    return (", ".join(map(shown, names[:12])) + (", …" if len(names) > 12 else "")) or "none"


def _read_table(workspace: Workspace, number: int, source: Source, table: _Table, progress: Progress) -> None:
    connection, column, rows = table
    read, page = 0, list[Any]()
    # one transaction: each commit would write its rows twice
    workspace.rows("BEGIN")
    for (value,) in stream(connection, sa.select(column)):
        page.append(value)
        if len(page) == _PAGE_ROWS:
            _store_page(workspace, number, source, page, is_first=not read)
            read += len(page)
            page = []
            progress.add(_PAGE_ROWS * _ROW_WEIGHT)
    _store_page(workspace, number, source, page, is_first=not read)
    workspace.rows("COMMIT")
    progress.add((rows - read) * _ROW_WEIGHT, source.name)


def _store_page(workspace: Workspace, number: int, source: Source, values: Sequence[Any], *, is_first: bool) -> None:
    # bool is another type
    if set(map(type, values)) <= {int}:
        with contextlib.suppress(OverflowError):
            array = np.array(values, dtype=np.int64)
            workspace.insert("stored", f"{number}, value, NULL", {"value": array})
            return
    texts = np.array(["" if value is None else str(value) for value in values], dtype=object)
    an_id = parsed("VARCHAR")
    workspace.insert("stored", f"{number}, {an_id}, {rejected(an_id)}", {"value": texts})
    if is_first:
        query = f"SELECT count(id), list(rejected) FILTER (rejected <> '') FROM stored WHERE source = {number}"
        ids, others = workspace.rows(query)[0]
        if others and not ids:
            raise SourceError(
                f"{source.name}: {source.shown} holds no ids, but {', '.join(map(shown, others[:3]))}. None of its "
                "values was used; name the column of the ids after the #."
            )
