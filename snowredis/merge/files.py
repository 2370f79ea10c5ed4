"""Read ids from files with DuckDB: CSV, plain text and Parquet.

What is wrong with a file as a whole is said before its ids are read. A .gz or .zst file is first read as an archive,
since DuckDB reads the beginning of a truncated .zst without an error.
"""

from __future__ import annotations

import csv
import glob
import re
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import zstandard

from snowredis.errors import shown
from snowredis.merge import SourceError
from snowredis.merge.id_sql import quoted, text_literal
from snowredis.merge.sources import COMPRESSED, Source
from snowredis.merge.workspace import Workspace

__all__ = ["check_archive", "files_of", "parsed", "rejected", "select_statement", "unreadable"]

_DELIMITERS = ",;\t|"
# a column of which none of the first values is an id is the wrong one
_SAMPLED = 1000
_WHOLE_TYPES = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_WIDE_TYPES = re.compile(r"UBIGINT|HUGEINT|UHUGEINT|BIGNUM|DECIMAL\(\d+,0\)")


def files_of(source: Source) -> list[Path]:
    """Return the files that the path or pattern of *source* names.

    Raises:
        SourceError: there is none, it cannot be read, or it is empty.
    """
    paths = [Path(source.location)]
    if not paths[0].exists():
        paths = sorted(Path(name) for name in glob.glob(source.location, recursive=True))
    if not paths:
        raise SourceError(f"{source.name}: there is no file {source.location!r}. Nothing was read; check the path.")
    for path in paths:
        _check_file(source, path)
    return paths


def _check_file(source: Source, path: Path) -> None:
    try:
        with path.open("rb") as file:
            is_empty = not file.read(1)
    except OSError as error:
        raise SourceError(
            f"{source.name}: {path} cannot be read: {error.strerror}. Nothing was read; check the path and its rights."
        ) from error
    if is_empty:
        raise SourceError(
            f"{source.name}: {path} is empty, it has 0 bytes. Nothing was read, since an export that failed looks like "
            "this; leave it out if it is meant to be empty."
        )


def select_statement(
    workspace: Workspace, source: Source, path: Path, number: int, *, latin_1: bool = False
) -> tuple[str, bool]:
    """Return a SELECT of (source, id, rejected) of one file, and whether it reads whole numbers without parsing text.

    Args:
        number: of the source, in the table.
        latin_1: read text as Latin-1, in which every byte is a character: for files that are not UTF-8.

    Raises:
        SourceError: the file has no such column, or the column has no ids.
    """
    if source.kind == "parquet":
        column, kind = _parquet_column(workspace, source, path)
        table = f"read_parquet({text_literal(str(path))})"
    else:
        column, kind = "c1", "VARCHAR"
        table = _text_table(workspace, source, path, latin_1=latin_1)
    value = quoted(column)
    if kind in _WHOLE_TYPES:
        missing = f"CASE WHEN {value} IS NULL THEN '' END"
        return f"SELECT {number} AS source, {value}::BIGINT AS id, {missing} AS rejected FROM {table}", True
    values = f"SELECT {value} AS value FROM {table}"
    if source.kind == "text":
        values += f" WHERE {value} IS NOT NULL AND trim({value}) <> ''"
    _check_sample(workspace, source, path, f"SELECT {parsed(kind)}, value::VARCHAR FROM ({values} LIMIT {_SAMPLED})")
    inner = f"SELECT value, {parsed(kind)} AS id FROM ({values})"
    return f"SELECT {number} AS source, id, {rejected('id')} AS rejected FROM ({inner})", False


def parsed(kind: str) -> str:
    """Return the expression that makes a BIGINT of ``value``, or NULL; rounds nothing, ignores spaces around it."""
    number = "try_cast(value AS BIGINT)"
    if kind != "VARCHAR":
        return number
    # the first test is the fast one; what it refuses is rare
    return (
        f"CASE WHEN {number}::VARCHAR = value THEN {number} "
        r"WHEN regexp_full_match(value, '\s*[0-9]+\s*') THEN try_cast(trim(value) AS BIGINT) END"
    )


def rejected(an_id: str) -> str:
    """Return the expression for the text of a ``value`` that is no id: where *an_id* is NULL."""
    return f"CASE WHEN {an_id} IS NULL THEN coalesce(left(value::VARCHAR, 200), '') END"


def unreadable(source: Source, path: Path, reason: str) -> SourceError:
    """Return the error for a file that cannot be read as what its name says."""
    return SourceError(
        f"{source.name}: {path} cannot be read as {source.kind}: {reason.strip().rstrip('.')}. None of "
        "its ids was used; export or copy it again, or correct its name if it is another kind of file."
    )


def _check_sample(workspace: Workspace, source: Source, path: Path, sample: str) -> None:
    rows = workspace.rows(sample)
    given = [text for _, text in rows if text]
    if given and all(an_id is None for an_id, _ in rows):
        raise SourceError(
            f"{source.name}: {_column_text(source)} of {path} holds no ids, but "
            f"{', '.join(map(shown, given[:3]))}. None of "
            "its values was used; name the column of the ids after a #, such as "
            f"{path.name}#id. Numbers with a decimal point or an exponent are no ids: export them as whole numbers."
        )


def _column_text(source: Source) -> str:
    return f"column {shown(source.column)}" if source.column is not None else "the column"


# --- Parquet ---------------------------------------------------------------------------------------


def _parquet_column(workspace: Workspace, source: Source, path: Path) -> tuple[str, str]:
    rows = workspace.rows(f"DESCRIBE SELECT * FROM read_parquet({text_literal(str(path))})")
    kinds = {row[0]: row[1] for row in rows}
    name = list(kinds)[_column_index(source, path, list(kinds))]
    kind = kinds[name]
    if kind in ("DOUBLE", "FLOAT"):
        raise SourceError(
            f"{source.name}: column {shown(name)} of {path} holds {kind}, numbers with a decimal point, "
            "which lose the last "
            "digits of an id from 2**53 on. None of its values was used; export the column as 64-bit integers."
        )
    if kind not in _WHOLE_TYPES and kind != "VARCHAR" and not _WIDE_TYPES.fullmatch(kind):
        raise SourceError(
            f"{source.name}: column {shown(name)} of {path} holds {kind}, not whole numbers. None of its "
            "values was used; "
            "name the column of the ids after a #."
        )
    return name, kind


# --- text ------------------------------------------------------------------------------------------


# lines as they are; they may end in different ways
_LINES = "header = false, columns = {'c1': 'VARCHAR'}, delim = '', quote = '', escape = '', strict_mode = false"


def _text_table(workspace: Workspace, source: Source, path: Path, *, latin_1: bool) -> str:
    """Return the table function that reads a column of a CSV, or the lines of a text, as the column c1."""
    start = f"read_csv({text_literal(str(path))}, auto_detect = false, encoding = '{'latin-1' if latin_1 else 'utf-8'}'"
    lines = f"{start}, {_LINES})"
    if source.kind == "text":
        if source.column is not None:
            raise SourceError(
                f"{source.name}: {path} is plain text, one id per line, and has no column {shown(source.column)}. "
                "Nothing was read; leave out what follows the #, or name the file .csv."
            )
        return lines
    ((line,), *_) = [*workspace.rows(f"SELECT c1 FROM {lines} LIMIT 1"), ("",)]
    delimiter = "\t" if ".tsv" in path.name.lower() else max(_DELIMITERS, key=lambda char: len(_cells(line, char)))
    header = _cells(line, delimiter)
    index = _column_index(source, path, header)
    has_header = not header[index].strip().isdigit()
    columns = ", ".join(f"c{1 if at == index else at + 2}: 'VARCHAR'" for at in range(len(header)))
    return (
        f"{start}, header = {has_header}, columns = {{{columns}}}, delim = {text_literal(delimiter)}, "
        """quote = '"', escape = '"')"""
    )


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line or ""], delimiter=delimiter), [""])


def _column_index(source: Source, path: Path, names: Sequence[str]) -> int:
    """Return the index of the source's column: by its name, by its number from 1, or the only one, or ``id``."""
    wanted = source.column
    lower = [name.strip().lower() for name in names]
    if wanted is None:
        if len(names) == 1:
            return 0
        wanted = "id"
    matches = [at for at, name in enumerate(names) if name == wanted]
    matches = matches or [at for at, name in enumerate(lower) if name == wanted.lower()]
    if len(matches) == 1:
        return matches[0]
    if not matches and source.kind == "csv" and wanted.isdigit() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    listed = ", ".join(map(shown, islice(names, 12))) + (", …" if len(names) > 12 else "")
    problem = f"has {len(matches)} columns" if matches else "has no column"
    hint = "name one of these after a #"
    if source.kind == "csv" and any(name.isdigit() for name in lower):
        hint = "its first line looks like data: if the header is missing, name the column by its number, such as #1"
    raise SourceError(
        f"{source.name}: {path} {problem} {shown(wanted)}; it has {listed}. None of its values was used; {hint}."
    )


# --- archives --------------------------------------------------------------------------------------------

_CHUNK_BYTES = 1 << 20
# gzip format, not zlib
_GZIP_BITS = 31


def check_archive(source: Source, path: Path) -> None:
    """Refuse a .gz or .zst file that is damaged or truncated. Reads all of it, 1 MiB at a time.

    Raises:
        SourceError: it is.
    """
    ending = path.suffix.lower()
    if ending not in COMPRESSED:
        return
    member = None
    with path.open("rb") as file:
        try:
            while data := file.read(_CHUNK_BYTES):
                # one member or frame after the other
                while data:
                    if member is None:
                        zstd = zstandard.ZstdDecompressor
                        member = zlib.decompressobj(_GZIP_BITS) if ending == ".gz" else zstd().decompressobj()
                    member.decompress(data)
                    if not member.eof:
                        break
                    data, member = member.unused_data, None
        except (zlib.error, zstandard.ZstdError) as error:
            raise unreadable(source, path, f"it is damaged ({error})") from error
    if member is not None:
        raise unreadable(source, path, "it is truncated: its end is missing")
