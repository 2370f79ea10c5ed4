"""Sources of ids, as a person writes them: where they are, and their values in the table ``ids`` of a DuckDB.

    players.parquet#id                                  one column of a file
    europe=dumps/players-*.csv.gz#player_id             several files that are one source, with a name
    ids.txt.gz                                          one id per line
    postgresql://app@db1/game#players.id                a table and a column
    sqlite:///shard.db#main.players.id                  … with its schema

The table has the columns source, id, rejected. An id is a whole number of 64 bits. A value that is none is stored as
text, in ``rejected``. DuckDB reads the files: CSV, plain text, gzip of both, and Parquet. It looks at signals while a
statement runs: within 1 to 4 s, measured.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import duckdb
import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import NoSuchTableError

from snowredis.errors import ConfigError, shown
from snowredis.merge import MergeError, unreadable
from snowredis.merge.databases import STREAMED, Progress, open_database, reading, text_literal

MIB = 1 << 20
# Python, DuckDB, numpy and SQLAlchemy, loaded and idle: 90 to 110 MiB measured
_IDLE_BYTES = 160 * MIB
MIN_MEMORY = 384 * MIB
# DuckDB exceeds its limit by what its allocator keeps: 20 % measured; arrays of numpy have the rest
_DUCKDB_PERCENT = 40
# memory of a check that says nothing of it
_MEMORY = 1 << 30


class Workspace:
    """A temporary DuckDB database under a bound of memory; a context manager that removes its files.

    Args:
        memory_bytes: what the whole process may take at its peak.

    Attributes:
        directory: where they are.
        duckdb_bytes: limit of DuckDB's own accounting.

    Raises:
        ConfigError: too little memory.
    """

    def __init__(self, memory_bytes: int = _MEMORY) -> None:
        if memory_bytes < MIN_MEMORY:
            raise ConfigError(
                f"{memory_bytes // MIB} MiB of memory are too little for a check. Nothing was read; give it "
                f"{MIN_MEMORY // MIB} MiB or more."
            )
        self.duckdb_bytes = (memory_bytes - _IDLE_BYTES) * _DUCKDB_PERCENT // 100
        self._files = tempfile.TemporaryDirectory(prefix="snowredis-merge-", ignore_cleanup_errors=True)
        self.directory = Path(self._files.name)
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self.duckdb_bytes // MIB}MiB",
            "temp_directory": str(self.directory / "spill"),
            # the order of rows does not matter, and keeping it takes memory
            "preserve_insertion_order": False,
            # nothing is downloaded
            "autoinstall_known_extensions": False,
        }
        self._connection = duckdb.connect(str(self.directory / "ids.duckdb"), config=settings)
        # DuckDB would print it among the lines of the report; it is a setting of the connection
        with _statement():
            self._connection.execute("SET enable_progress_bar = false")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(duckdb.Error):
            self._connection.close()
        self._files.cleanup()

    # --- statements ------------------------------------------------------------------------------------

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run *sql* with *values* for its question marks; return all rows of its result.

        Raises:
            KeyboardInterrupt: a signal handler raised any exception while the statement ran.
        """
        with _statement():
            return self._connection.execute(sql, values or None).fetchall()

    def insert(self, table: str, columns: str, arrays: Mapping[str, Any]) -> None:
        """Insert arrays of numpy as rows: *columns* are expressions over their names."""
        self._connection.register("given", arrays)
        try:
            self.rows(f"INSERT INTO {table} SELECT {columns} FROM given")
        finally:
            self._connection.unregister("given")


@contextlib.contextmanager
def _statement() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # DuckDB raises an error of its own in place of what the handler raised: also while it fetches rows
        raise KeyboardInterrupt from error


Kind = Literal["database", "csv", "parquet"]
# file endings -> how DuckDB reads the file; .gz may follow that of a text
FILE_KINDS: dict[str, Kind] = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet"}
_GZIP = ".gz"
_NAME = re.compile(r"([A-Za-z0-9_.-]{1,64})=(.+)", re.DOTALL)
_URL = re.compile(r"[a-z][a-z0-9+_]*://", re.IGNORECASE)
# user:password@ of a URL; a password may hold an unescaped @, and ends at the last one before the path
_PASSWORD = re.compile(r"(://[^:/@\s]*):[^/\s]*@")
_PASSWORD_IN_QUERY = re.compile(r"([?&]password=)[^&#\s]*", re.IGNORECASE)
# parts of schema.table.column; a part in double quotes may hold anything, and "" is one quote
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_PARTS = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern})){{1,2}}")
# values of a file that are looked at before all are read
_SAMPLED = 1000
_CHUNK_BYTES = 1 << 20
_WHOLE_TYPES = re.compile(r"VARCHAR|U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|BIGNUM|DECIMAL\(\d+,0\)")
_TABLE = "CREATE TABLE ids (source USMALLINT, id BIGINT, rejected VARCHAR)"


@dataclass(frozen=True, slots=True)
class Source:
    """One column of ids.

    Attributes:
        name: what reports call it; different for each source of one run.
        kind: how it is read.
        location: path or pattern of files, or URL of the database, with its password.
        column: name of the column; None: the only column of the file, or "id".
        table, schema: of a database.
    """

    name: str
    kind: Kind
    location: str
    column: str | None = None
    table: str | None = None
    schema: str | None = None

    @property
    def shown(self) -> str:
        """Location and column as text for people and for files, without the password."""
        column = ".".join(part for part in (self.schema, self.table, self.column) if part is not None)
        return without_password(self.location) + (f"#{column}" if column else "")


def without_password(url: str) -> str:
    """Return *url* with ``***`` in place of its password."""
    return _PASSWORD_IN_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def parse_sources(texts: Sequence[str]) -> list[Source]:
    """Return the sources that *texts* name: [NAME=]LOCATION[#COLUMN], see the top of this module.

    Raises:
        MergeError: a text that names no source, or two sources of the same name.
    """
    sources = [_parse(*_split_name(text)) for text in texts]
    names = [source.name for source in sources]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise unreadable(
            f"two sources are named {shown(min(repeated))}. Nothing was read; give each source another NAME=."
        )
    return sources


def _split_name(text: str) -> tuple[str | None, str]:
    match = _NAME.fullmatch(text)
    # a file may be called a=b
    if match is None or Path(text).exists() or Path(text.rpartition("#")[0]).is_file():
        return None, text
    return match[1], match[2]


def _parse(name: str | None, text: str) -> Source:
    if _URL.match(text):
        location, schema, table, column = _split_url(text)
        database = without_password(location).rpartition("/")[2].partition("?")[0]
        return Source(name or f"{database}.{table}", "database", location, column, table, schema)
    location, given = _split_column(text)
    return Source(name or Path(location).name, kind_of(location), location, given)


def _split_column(text: str) -> tuple[str, str | None]:
    path, hash_sign, column = text.rpartition("#")
    if not hash_sign or not path or Path(text).is_file():
        return text, None
    return path, column or None


def kind_of(path: str) -> Kind:
    """Return how a file of this name is read; MergeError if its ending is unknown."""
    name = path.lower()
    kind = FILE_KINDS.get(Path(name.removesuffix(_GZIP)).suffix)
    if kind is None or (kind == "parquet" and name.endswith(_GZIP)):
        raise unreadable(
            f"{shown(path)} is not a kind of source that can be read: its name ends in none of "
            f"{', '.join(FILE_KINDS)} (all but parquet also with {_GZIP} after it), and it is no URL of a database. "
            "Nothing was read; rename the file, or write a URL such as postgresql://host/db#table.column."
        )
    return kind


def _split_url(text: str) -> tuple[str, str | None, str, str]:
    location, _, names = text.partition("#")
    if not _PARTS.fullmatch(names):
        raise unreadable(
            f"{shown(without_password(text))} names no table and column. Nothing was read; write them after a #, "
            "such as postgresql://host/db#players.id, or #schema.players.id."
        )
    parts = [quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(names)]
    schema, table, column = [None, *parts][-3:]
    return location, schema, str(table), str(column)


# --- reading -----------------------------------------------------------------------------------------------


def ingest(workspace: Workspace, sources: Sequence[Source], progress: Progress) -> None:
    """Read all sources into the table ``ids``.

    Raises:
        MergeError: a source cannot be read.
    """
    workspace.rows(_TABLE)
    # all sources are looked at before the first is read: a wrong path is found at once
    with contextlib.ExitStack() as stack:
        opened: list[_Table | list[Path]] = [
            _open_table(source, stack) if source.kind == "database" else _files_of(source) for source in sources
        ]
        for number, (source, found) in enumerate(zip(sources, opened, strict=True)):
            if isinstance(found, tuple):
                _read_table(workspace, number, source, found, progress)
                continue
            progress.start(f"reading {source.name}", sum(path.stat().st_size for path in found))
            for path in found:
                _read_file(workspace, number, source, path)
                progress.add(path.stat().st_size)
    workspace.rows("CHECKPOINT")


# --- files -----------------------------------------------------------------------------------------------


def _files_of(source: Source) -> list[Path]:
    """Return the files that the path or pattern of *source* names.

    Raises:
        MergeError: there is none, it cannot be read, or it is empty.
    """
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
    if path.suffix.lower() == ".gz":
        _check_gzip(source, path)
    try:
        workspace.rows(f"INSERT INTO ids {_select_statement(workspace, source, path, number)}")
    except duckdb.Error as error:
        if isinstance(error, duckdb.OutOfMemoryException) or "could not write" in str(error).lower():
            # the file is right: this machine's memory or disk is too small
            raise
        raise _unreadable(source, path, str(error).partition(": ")[2].splitlines()[0]) from error


def _select_statement(workspace: Workspace, source: Source, path: Path, number: int) -> str:
    """Return a SELECT of (source, id, rejected) of one file.

    Raises:
        MergeError: the file has no such column, or the column has no ids.
    """
    table = f"read_parquet({text_literal(str(path))})"
    if source.kind != "parquet":
        # without skip and comment, DuckDB leaves out lines that it takes for a preamble or a comment
        options = f"{text_literal(str(path))}, all_varchar = true, skip = 0, comment = ''"
        table = f"read_csv({options})"
        if any(name.strip().isdigit() for name in _columns(workspace, table)):
            # the first id is no header
            table = f"read_csv({options}, header = false)"
    kinds = _columns(workspace, table)
    name = _column(source, path, list(kinds))
    kind, quoted = kinds[name], name.replace('"', '""')
    if not _WHOLE_TYPES.fullmatch(kind):
        raise unreadable(
            f"{source.name}: column {shown(name)} of {path} holds {kind}, not whole numbers. None of its values was "
            "used; name the column of the ids after a #. Numbers with a decimal point lose the last digits of an id."
        )
    values = f'SELECT "{quoted}" AS value FROM {table}'
    rows = workspace.rows(f"SELECT {_parsed(kind)}, value::VARCHAR FROM ({values} LIMIT {_SAMPLED})")
    _check_holds_ids(source, f"column {shown(name)} of {path}", rows)
    return f"SELECT {number}, id, {_rejected('id')} FROM (SELECT value, {_parsed(kind)} AS id FROM ({values}))"


def _check_holds_ids(source: Source, where: str, rows: Sequence[tuple[int | None, str | None]]) -> None:
    """Refuse a column of which none of the first values, as ids and as texts, is an id."""
    given = [text for _, text in rows if text]
    if given and all(an_id is None for an_id, _ in rows):
        raise unreadable(
            f"{source.name}: {where} holds no ids, but {', '.join(map(shown, given[:3]))}. None of its values was "
            "used; name the column of the ids after a #. Numbers with a decimal point or an exponent are no ids: "
            "export them as whole numbers."
        )


def _check_gzip(source: Source, path: Path) -> None:
    """Refuse a damaged archive: DuckDB compares no checksum."""
    try:
        with gzip.open(path) as file:
            while file.read(_CHUNK_BYTES):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(source, path, f"it is damaged or truncated ({error})") from error


def _columns(workspace: Workspace, table: str) -> dict[str, str]:
    return {row[0]: row[1] for row in workspace.rows(f"DESCRIBE SELECT * FROM {table}")}


def _column(source: Source, path: Path, names: Sequence[str]) -> str:
    """Return the name of the source's column: the given one, the only one, or ``id``."""
    if source.column is None and len(names) == 1:
        return names[0]
    wanted = source.column or "id"
    matches = [name for name in names if name == wanted]
    matches = matches or [name for name in names if name.strip().lower() == wanted.lower()]
    if len(matches) == 1:
        return matches[0]
    raise unreadable(
        f"{source.name}: {path} has {len(matches) or 'no'} column{'s' * (len(matches) > 1)} {shown(wanted)}; it has "
        f"{_listed(names)}. None of its values was used; name one of these after a #. Columns without a header are "
        "column0, column1, …"
    )


def _parsed(kind: str) -> str:
    """Return the expression that makes a BIGINT of ``value``, or NULL; rounds nothing, ignores spaces around it."""
    number = "try_cast(value AS BIGINT)"
    if kind != "VARCHAR":
        return number
    # the first test is the fast one; what it refuses is rare
    return (
        f"CASE WHEN {number}::VARCHAR = value THEN {number} "
        r"WHEN regexp_full_match(value, '\s*[0-9]+\s*') THEN try_cast(trim(value) AS BIGINT) END"
    )


def _rejected(an_id: str) -> str:
    """Return the expression for the text of a ``value`` that is no id: where *an_id* is NULL."""
    return f"CASE WHEN {an_id} IS NULL THEN coalesce(left(value::VARCHAR, 200), '') END"


def _unreadable(source: Source, path: Path, reason: str) -> MergeError:
    """Return the error for a file that cannot be read as what its name says."""
    return unreadable(
        f"{source.name}: {path} cannot be read as {source.kind}: {reason.strip().rstrip('.')}. None of "
        "its ids was used; export or copy it again, or correct its name if it is another kind of file."
    )


# --- tables ----------------------------------------------------------------------------------------------

_Table = tuple[sa.Connection, sa.Column[Any], int]


def _open_table(source: Source, stack: contextlib.ExitStack) -> _Table:
    """Return a connection until *stack* ends, the column, and how many rows there are."""
    engine = open_database(source.location)
    stack.callback(engine.dispose)
    column, connection = column_of(engine, source), stack.enter_context(reading(engine))
    return connection, column, connection.scalar(sa.select(sa.func.count()).select_from(column.table)) or 0


def column_of(engine: sa.Engine, source: Source) -> sa.Column[Any]:
    """Return the column of *source*, as the database describes it; MergeError if it cannot hold ids."""

    def refused(what: str, advice: str) -> MergeError:
        location = without_password(source.location)
        return unreadable(f"{source.name}: {location}: {what}. Nothing of it was used. {advice}.")

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


def _listed(names: Sequence[str]) -> str:
    return (", ".join(map(shown, names[:12])) + (", …" if len(names) > 12 else "")) or "none"


def _read_table(workspace: Workspace, number: int, source: Source, table: _Table, progress: Progress) -> None:
    connection, column, rows = table
    progress.start(f"reading {source.name}", rows)
    # one transaction: each commit would write its rows twice
    workspace.rows("BEGIN")
    values = connection.execute(sa.select(column), execution_options=STREAMED).scalars()
    for at, page in enumerate(values.partitions()):
        _store_page(workspace, number, page)
        if not at:
            query = f"SELECT id, rejected FROM ids WHERE source = {number}"
            _check_holds_ids(source, source.shown, workspace.rows(query))
        progress.add(len(page))
    workspace.rows("COMMIT")


def _store_page(workspace: Workspace, number: int, values: Sequence[Any]) -> None:
    # type(True) is bool, so bools are not taken for ids
    if set(map(type, values)) <= {int}:
        with contextlib.suppress(OverflowError):
            array = np.array(values, dtype=np.int64)
            workspace.insert("ids", f"{number}, value, NULL", {"value": array})
            return
    texts = np.array(["" if value is None else str(value) for value in values], dtype=object)
    an_id = _parsed("VARCHAR")
    workspace.insert("ids", f"{number}, {an_id}, {_rejected(an_id)}", {"value": texts})
