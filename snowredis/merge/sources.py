"""Sources of ids, as a person writes them: where they are, and their values in the table ``ids`` of a DuckDB.

    players.parquet#id                                  one column of a file
    europe=dumps/players-*.csv.gz#player_id             several files that are one source, with a name
    ids.txt.gz                                          one id per line
    postgresql://app@db1/game#players.id                a table and a column
    sqlite:///shard.db#main.players.id                  … with its schema

The table has the columns source, id, rejected. An id is a whole number of 64 bits; a value that is none is stored as
text, in ``rejected``. Every value passes as a text, so that nothing rounds it.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
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
    if match and not any(Path(each).is_file() for each in (text, text.rpartition("#")[0])):
        name, text = match[1], match[2]
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
    if not hash_sign or Path(text).is_file():
        path, column = text, ""
    return Source(name or Path(path).name, path, column)


class Workspace:
    """A temporary DuckDB database with the table ``ids``; a context manager that removes its files."""

    def __init__(self) -> None:
        self._files = tempfile.TemporaryDirectory(prefix="snowredis-merge-", ignore_cleanup_errors=True)
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": _MEMORY,
            "temp_directory": f"{self._files.name}/spill",
            # the order of rows does not matter, and keeping it takes memory
            "preserve_insertion_order": False,
            # nothing is downloaded
            "autoinstall_known_extensions": False,
        }
        self._connection = duckdb.connect(f"{self._files.name}/ids.duckdb", config=settings)
        # DuckDB would print it among the lines of the report; it is a setting of the connection
        self.rows("SET enable_progress_bar = false")
        self.rows("CREATE TABLE ids (source USMALLINT, id BIGINT, rejected VARCHAR)")

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

    def store(self, number: int, values: str, *given: object) -> None:
        """Store the ids of source *number*: those of a query with one column of texts, which is called value."""
        rejected = "CASE WHEN id IS NULL THEN coalesce(left(value, 200), '') END"
        query = f"SELECT {number}, id, {rejected} FROM (SELECT value, {_ID} AS id FROM ({values}))"
        self.rows(f"INSERT INTO ids {query}", *given)

    @contextlib.contextmanager
    def errors(self, what: str, advice: str = "") -> Iterator[None]:
        """Turn errors of DuckDB into MergeError."""
        try:
            yield
        except duckdb.Error as error:
            reason = str(error).partition(": ")[2].splitlines()[0].strip().rstrip(".")
            raise unreadable(
                f"{what}: {reason}. None of its ids was used; {advice}if memory or disk space is missing, free some at "
                f"{self._files.name}, or set TMPDIR to another place."
            ) from error


# --- reading -----------------------------------------------------------------------------------------------


def ingest(workspace: Workspace, sources: Sequence[Source], progress: Progress) -> None:
    """Read all sources into the table ``ids``.

    Raises:
        MergeError: a source cannot be read.
    """
    # all sources are looked at before the first is read: a wrong path is found at once
    opened = [open_database(source.location) if source.table else _files_of(source) for source in sources]
    for number, (source, found) in enumerate(zip(sources, opened, strict=True)):
        if isinstance(found, list):
            progress.start(f"reading {source.name}", sum(path.stat().st_size for path in found))
            for path in found:
                _read_file(workspace, number, source, path)
                progress.add(path.stat().st_size)
        else:
            progress.start(f"reading {source.name}")
            with transaction(found) as database:
                _read_column(workspace, number, source, database)
        _check_holds_ids(workspace, number, source)


def _files_of(source: Source) -> list[Path]:
    paths = [Path(source.location)]
    if not paths[0].exists():
        paths = sorted(Path(name) for name in glob.glob(source.location, recursive=True))
    if not paths:
        raise unreadable(f"{source.name}: there is no file {source.location!r}. Nothing was read; check the path.")
    for path in paths:
        if not (path.exists() and path.stat().st_size):
            raise unreadable(
                f"{source.name}: {path} is empty, it has 0 bytes, or it is a link that leads nowhere. Nothing was "
                "read, since an export that failed looks like this; leave it out if it is meant to be empty."
            )
    return paths


def _read_file(workspace: Workspace, number: int, source: Source, path: Path) -> None:
    what = f"{source.name}: {path} cannot be read"
    advice = "export or copy it again, or correct its name if it is another kind of file; "
    if path.suffix.lower() == ".gz":
        # DuckDB compares no checksum
        try:
            with gzip.open(path) as file:
                while file.read(_CHUNK_BYTES):
                    pass
        except (OSError, EOFError, zlib.error) as error:
            text = f"{what}: it is damaged or truncated ({error}). None of its ids was used; export or copy it again."
            raise unreadable(text) from error
    with workspace.errors(what, advice):
        table = f"read_parquet({text_literal(str(path))})"
        names = []
        if path.suffix.lower() != ".parquet":
            # without skip and comment, DuckDB leaves out lines that it takes for a preamble or a comment
            options = f"{text_literal(str(path))}, all_varchar = true, skip = 0, comment = ''"
            table = f"read_csv({options})"
            names = _columns(workspace, table)
            if any(name.strip().isdigit() for name in names):
                # the first id is no header
                table, names = f"read_csv({options}, header = false)", []
        quoted = _column(source, path, names or _columns(workspace, table)).replace('"', '""')
        workspace.store(number, f'SELECT "{quoted}"::VARCHAR AS value FROM {table}')


def _columns(workspace: Workspace, table: str) -> list[str]:
    return [name for name, *_ in workspace.rows(f"DESCRIBE SELECT * FROM {table}")]


def _column(source: Source, path: Path, names: Sequence[str]) -> str:
    """Return the name of the source's column: the given one, the only one, or ``id``."""
    if not source.column and len(names) == 1:
        return names[0]
    wanted = source.column or "id"
    matches = [name for name in names if name == wanted]
    matches = matches or [name for name in names if name.strip().lower() == wanted.lower()]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(map(shown, names[:12])) + ", …" * (len(names) > 12)
    raise unreadable(
        f"{source.name}: {path} has {len(matches) or 'no'} column{'s' * (len(matches) > 1)} {shown(wanted)}; it has "
        f"{listed or 'none'}. None of its values was used; name one of these after a #. Columns without a header are "
        "column0, column1, …"
    )


def _read_column(workspace: Workspace, number: int, source: Source, database: Database) -> None:
    # SQLite takes a quoted name that no column has for a text, unless the table stands before it
    query = f"SELECT t.{database.quote(source.column)} FROM {'.'.join(map(database.quote, source.table))} t"
    # one transaction: each commit would write its rows twice
    workspace.rows("BEGIN")
    for page in database.pages(query):
        texts = [None if value is None else str(value) for (value,) in page]
        workspace.store(number, "SELECT unnest(?::VARCHAR[]) AS value", texts)
    workspace.rows("COMMIT")


def _check_holds_ids(workspace: Workspace, number: int, source: Source) -> None:
    """Refuse a column with values, of which none is an id."""
    (ids,) = workspace.rows("SELECT count(id), count(nullif(rejected, '')) FROM ids WHERE source = ?", number)
    if ids[1] and not ids[0]:
        given = workspace.rows("SELECT rejected FROM ids WHERE source = ? AND rejected <> '' LIMIT 3", number)
        raise unreadable(
            f"{source.name}: {source.shown} holds no ids, but {', '.join(shown(text) for (text,) in given)}. None of "
            "its values was used; name the column of the ids after a #. Numbers with a decimal point or an exponent "
            "have lost their last digits: export them as whole numbers."
        )
