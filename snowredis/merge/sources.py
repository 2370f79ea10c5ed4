"""Sources of ids, as a person writes them: where they are, and their values in the table ``ids`` of a DuckDB.

    players.parquet#id                                  one column of a file
    europe=dumps/players-*.csv.gz#player_id             several files that are one source, with a name
    ids.txt.gz                                          one id per line
    postgresql://app@db1/game#players.id                a table and a column
    sqlite:///shard.db#main.players.id                  … with its schema

The table has the columns source, id, rejected. A source is its name. An id is a whole number of 64 bits; a value that
is none is stored as text, in ``rejected``. Every value passes as a text, so that nothing rounds it.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import duckdb

from snowredis.errors import shown
from snowredis.merge import unreadable
from snowredis.merge.databases import Progress, open_database, text_literal, without_password
from snowredis.merge.dialects import Database, transaction

# DuckDB's own accounting, which it exceeds by a fifth, measured; beyond it, it writes to the disk
_MEMORY = "384MiB"
_NAME = re.compile(r"([A-Za-z0-9_.-]{1,64})=(.+)", re.DOTALL)
_URL = re.compile(r"[a-z][a-z0-9+_]*://", re.IGNORECASE)
# parts of schema.table.column; a part in double quotes may hold anything, and "" is one quote
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_PARTS = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern})){{1,2}}")
# the head of a column is no number
_NUMBER_AS_HEAD = re.compile(r"\s*[-+]?\d+(\.\d*)?(e[-+]?\d+)?\s*", re.IGNORECASE)
_CHUNK_BYTES = 1 << 20
# makes a BIGINT of a text; rounds nothing, and ignores spaces around it. The first test is the fast one
_NUMBER = "try_cast(value AS BIGINT)"
_ID = (
    rf"CASE WHEN {_NUMBER}::VARCHAR = value THEN {_NUMBER} "
    r"WHEN regexp_full_match(value, '\s*[0-9]+\s*') THEN try_cast(trim(value) AS BIGINT) END"
)


class Source(NamedTuple):
    """One column of ids.

    Attributes:
        name: what reports call it; different for each source of one run.
        location: path or pattern of files, or URL of the database, with its password.
        column: its name; empty: the only column of the file, or "id".
        table: of a database: its name, with the schema before it if one is given.
    """

    name: str
    location: str
    column: str
    table: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Location and column as text for people, without the password."""
        column = ".".join((*self.table, self.column))
        return without_password(self.location) + (f"#{column}" if column else "")


def parse_sources(texts: Sequence[str]) -> list[Source]:
    """Return the sources that *texts* name: [NAME=]LOCATION[#COLUMN], see the top of this module.

    Raises:
        MergeError: a URL without a table and a column, or two sources of the same name.
    """
    sources = list(map(_parse, texts))
    names = [source.name for source in sources]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise unreadable(
            f"two sources are named {shown(min(repeated))}. Nothing was read; give each source another NAME=."
        )
    return sources


def _parse(text: str) -> Source:
    name, match = "", _NAME.fullmatch(text)
    # a file may be called a=b, or a#b
    if match and not any(map(os.path.isfile, (text, text.rpartition("#")[0]))):
        name, text = match.groups()
    if _URL.match(text):
        location, _, names = text.partition("#")
        if not _PARTS.fullmatch(names):
            raise unreadable(
                f"{shown(without_password(text))} names no table and column. Nothing was read; write them after a #, "
                "such as postgresql://host/db#players.id, or #schema.players.id."
            )
        *table, column = (quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(names))
        database = without_password(location).rpartition("/")[2].partition("?")[0]
        return Source(name or f"{database}.{table[-1]}", location, column, tuple(table))
    path, hash_sign, column = text.rpartition("#")
    if not hash_sign or os.path.isfile(text):
        path, column = text, ""
    return Source(name or Path(path).name, path, column)


@contextlib.contextmanager
def file_errors(what: str, advice: str = "None of its ids was used") -> Iterator[None]:
    """Turn errors of DuckDB and of files into MergeError.

    Args:
        what: what was wrong; its reason comes after it.
        advice: what was refused, and what to do, unless the disk is full.
    """
    try:
        yield
    except (duckdb.Error, OSError, EOFError, zlib.error) as error:
        # its first line may only say where, and a list of options begins in the third
        lines = re.sub(r"^[A-Za-z ]+ Error: |Original Line:.*\n", "", str(error)).splitlines()
        reason = " ".join(lines[:2]).strip().rstrip(".")
        missing = "if memory or disk space is missing, free some, or set TMPDIR to another place"
        raise unreadable(f"{what}: {reason}. {advice}; {missing}.") from error


class Workspace:
    """A temporary DuckDB database; a context manager that removes its files.

    Raises:
        MergeError: its files cannot be made.
    """

    def __init__(self) -> None:
        with file_errors("no ids can be stored", "Nothing was read"):
            self._files = tempfile.TemporaryDirectory(prefix="snowredis-merge-", ignore_cleanup_errors=True)
            self._connection = duckdb.connect(
                f"{self._files.name}/ids.duckdb",
                config={
                    "memory_limit": _MEMORY,
                    "temp_directory": f"{self._files.name}/spill",
                    # the order of rows does not matter, and keeping it takes memory
                    "preserve_insertion_order": False,
                    # nothing is downloaded
                    "autoinstall_known_extensions": False,
                },
            )
            # DuckDB would print it among the lines of the report; it is a setting of the connection
            self.rows("SET enable_progress_bar = false")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(duckdb.Error):
            self._connection.close()
        self._files.cleanup()

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run *sql* with *values* for its question marks; return all rows of its result.

        Raises:
            KeyboardInterrupt: a signal handler raised any exception while the statement ran.
        """
        try:
            return self._connection.execute(sql, values or None).fetchall()
        except RuntimeError as error:
            # DuckDB raises an error of its own in place of what the handler raised: also while it fetches rows
            raise KeyboardInterrupt from error

    def store(self, source: str, values: str, *given: object) -> None:
        """Store the ids of a source, by its name: those of a query with one column of texts, which is called value."""
        rejected = "CASE WHEN id IS NULL THEN coalesce(left(value, 200), '') END"
        query = f"SELECT {text_literal(source)}, id, {rejected} FROM (SELECT value, {_ID} AS id FROM ({values}))"
        self.rows(f"INSERT INTO ids {query}", *given)


# --- reading -----------------------------------------------------------------------------------------------


def ingest(workspace: Workspace, sources: Sequence[Source], progress: Progress) -> None:
    """Read all sources into the table ``ids``, which is a new one.

    Raises:
        MergeError: a source cannot be read.
    """
    # reports have the sources in the order in which they were given, which is that of an ENUM
    names = ", ".join(text_literal(source.name) for source in sources)
    with file_errors("the sources cannot be named", "Nothing was read"):
        workspace.rows(f"CREATE OR REPLACE TABLE ids (source ENUM ({names}), id BIGINT, rejected VARCHAR)")
    # all sources are looked at before the first is read: a wrong path is found at once
    opened = [open_database(source.location) if source.table else _files_of(source) for source in sources]
    for source, found in zip(sources, opened, strict=True):
        if isinstance(found, list):
            progress.start(f"reading {source.name}", sum(map(os.path.getsize, found)))
            for path in found:
                _read_file(workspace, source, path)
                progress.add(os.path.getsize(path))
        else:
            progress.start(f"reading {source.name}")
            with transaction(found) as database, file_errors(f"{source.name}: {source.shown} cannot be read"):
                _read_column(workspace, source, database)
        _check_holds_ids(workspace, source)


def _files_of(source: Source) -> list[str]:
    is_file = os.path.isfile(source.location)
    paths = [source.location] if is_file else sorted(glob.glob(source.location, recursive=True))
    if not paths:
        raise unreadable(
            f"{source.name}: there is no file {source.location!r}. Nothing was read; check the path, and that you may "
            "read it."
        )
    for path in paths:
        if not (os.path.isfile(path) and os.path.getsize(path)):
            raise unreadable(
                f"{source.name}: {path} is empty, it has 0 bytes, or it is a directory, a pipe, or a link that leads "
                "nowhere. Nothing was read, since an export that failed looks like this; leave it out if it is meant "
                "to be empty."
            )
    return paths


def _read_file(workspace: Workspace, source: Source, path: str) -> None:
    advice = (
        "None of its ids was used; export or copy it again if it is damaged or truncated, end all lines alike, or "
        "correct its name if it is another kind of file"
    )
    kind = Path(path).suffix.lower()
    with file_errors(f"{source.name}: {path} cannot be read", advice):
        if kind == ".gz":
            # DuckDB compares no checksum
            with gzip.open(path) as file:
                if not file.read(1):
                    raise EOFError("it has no content")
                while file.read(_CHUNK_BYTES):
                    pass
        # else DuckDB takes the path for a pattern, and a directory year=2026 for a column
        options = f"{text_literal(glob.escape(path))}, hive_partitioning = false"
        table = f"read_parquet({options})"
        if kind != ".parquet":
            # without skip and comment, DuckDB leaves out lines that it takes for a preamble or a comment
            options += ", all_varchar = true, skip = 0, comment = ''"
            if ".csv" in Path(path).name.lower():
                # the first lines may have no quote, from which DuckDB takes it that none follows
                options += """, quote = '"'"""
            table = f"read_csv({options})"
            if any(map(_NUMBER_AS_HEAD.fullmatch, _columns(workspace, table))):
                # the first id is no header
                table = f"read_csv({options}, header = false)"
        quoted = _column(source, path, _columns(workspace, table)).replace('"', '""')
        workspace.store(source.name, f'SELECT "{quoted}"::VARCHAR AS value FROM {table}')


def _columns(workspace: Workspace, table: str) -> list[str]:
    return [name for name, *_ in workspace.rows(f"DESCRIBE SELECT * FROM {table}")]


def _column(source: Source, path: str, names: Sequence[str]) -> str:
    """Return the name of the source's column: the given one, the only one, or ``id``."""
    wanted = source.column or (names[0] if len(names) == 1 else "id")
    like = [name for name in names if name.strip().lower() == wanted.lower()]
    matches = [wanted] if wanted in names else like
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(map(shown, names[:12])) + ", …" * (len(names) > 12)
    raise unreadable(
        f"{source.name}: {path} has {len(matches) or 'no'} column{'s' * (len(matches) > 1)} {shown(wanted)}; it has "
        f"{listed or 'none'}. None of its values was used; name one of these after a #. Columns without a header are "
        "column0, column1, …"
    )


def _read_column(workspace: Workspace, source: Source, database: Database) -> None:
    # SQLite takes a quoted name that no column has for a text, unless the table stands before it
    query = f"SELECT t.{database.quote(source.column)} FROM {'.'.join(map(database.quote, source.table))} t"
    # one transaction: each commit would write its rows twice
    workspace.rows("BEGIN")
    for page in database.pages(query):
        texts = [None if value is None else str(value) for (value,) in page]
        workspace.store(source.name, "SELECT unnest(?::VARCHAR[]) AS value", texts)
    workspace.rows("COMMIT")


def _check_holds_ids(workspace: Workspace, source: Source) -> None:
    """Refuse a column with values, of which none is an id."""
    mine = f"FROM ids WHERE source = {text_literal(source.name)}"
    others = f"SELECT rejected {mine} AND rejected <> '' AND NOT EXISTS ({mine} AND id IS NOT NULL) LIMIT 3"
    if found := [shown(text) for (text,) in workspace.rows(others)]:
        raise unreadable(
            f"{source.name}: {source.shown} holds no ids, but {', '.join(found)}. None of its values was used; name "
            "the column of the ids after a #. Numbers with a decimal point or an exponent have lost their last digits: "
            "export them as whole numbers."
        )
