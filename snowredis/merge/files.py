"""Read ids from files with DuckDB: CSV, plain text, gzip of both, and Parquet."""

from __future__ import annotations

import glob
import gzip
import re
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from snowredis.errors import shown
from snowredis.merge import SourceError
from snowredis.merge.id_sql import quoted, text_literal
from snowredis.merge.sources import Source
from snowredis.merge.workspace import Workspace

__all__ = ["files_of", "parsed", "rejected", "select_statement", "unreadable"]

# a column of which none of the first values is an id is the wrong one
_SAMPLED = 1000
_CHUNK_BYTES = 1 << 20
_WHOLE_TYPES = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_WIDE_TYPES = re.compile(r"VARCHAR|UBIGINT|HUGEINT|UHUGEINT|BIGNUM|DECIMAL\(\d+,0\)")


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
        try:
            is_empty = not path.stat().st_size
        except OSError as error:
            raise SourceError(
                f"{source.name}: {path} cannot be read: {error.strerror}. Nothing was read; check the path and its "
                "rights."
            ) from error
        if is_empty:
            raise SourceError(
                f"{source.name}: {path} is empty, it has 0 bytes. Nothing was read, since an export that failed looks "
                "like this; leave it out if it is meant to be empty."
            )
    return paths


def select_statement(workspace: Workspace, source: Source, path: Path, number: int) -> tuple[str, bool]:
    """Return a SELECT of (source, id, rejected) of one file, and whether it reads whole numbers without parsing text.

    Args:
        number: of the source, in the table.

    Raises:
        SourceError: the file has no such column, or the column has no ids.
    """
    if path.suffix.lower() == ".gz":
        _check_gzip(source, path)
    table = f"read_parquet({text_literal(str(path))})"
    if source.kind != "parquet":
        # without these two DuckDB leaves out lines that it takes for a preamble or a comment
        options = f"{text_literal(str(path))}, all_varchar = true, skip = 0, comment = ''"
        table = f"read_csv({options})"
        if any(name.strip().isdigit() for name in _columns(workspace, table)):
            # the first id is no header
            table = f"read_csv({options}, header = false)"
    kinds = _columns(workspace, table)
    name = _column(source, path, list(kinds))
    kind, value = kinds[name], quoted(name)
    if kind in _WHOLE_TYPES:
        missing = f"CASE WHEN {value} IS NULL THEN '' END"
        return f"SELECT {number} AS source, {value}::BIGINT AS id, {missing} AS rejected FROM {table}", True
    if not _WIDE_TYPES.fullmatch(kind):
        raise SourceError(
            f"{source.name}: column {shown(name)} of {path} holds {kind}, not whole numbers. None of its values was "
            "used; name the column of the ids after a #. Numbers with a decimal point lose the last digits of an id."
        )
    values = f"SELECT {value} AS value FROM {table}"
    rows = workspace.rows(f"SELECT {parsed(kind)}, value::VARCHAR FROM ({values} LIMIT {_SAMPLED})")
    given = [text for _, text in rows if text]
    if given and all(an_id is None for an_id, _ in rows):
        raise SourceError(
            f"{source.name}: column {shown(name)} of {path} holds no ids, but {', '.join(map(shown, given[:3]))}. None "
            f"of its values was used; name the column of the ids after a #, such as {path.name}#id. Numbers with a "
            "decimal point or an exponent are no ids: export them as whole numbers."
        )
    inner = f"SELECT value, {parsed(kind)} AS id FROM ({values})"
    return f"SELECT {number} AS source, id, {rejected('id')} AS rejected FROM ({inner})", False


def _check_gzip(source: Source, path: Path) -> None:
    """Refuse a damaged archive: DuckDB compares no checksum."""
    try:
        with gzip.open(path) as file:
            while file.read(_CHUNK_BYTES):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(source, path, f"it is damaged or truncated ({error})") from error


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
    listed = ", ".join(map(shown, islice(names, 12))) + (", …" if len(names) > 12 else "")
    raise SourceError(
        f"{source.name}: {path} has {len(matches) or 'no'} column{'s' * (len(matches) > 1)} {shown(wanted)}; it has "
        f"{listed}. None of its values was used; name one of these after a #. Columns without a header are column0, "
        "column1, …"
    )


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
