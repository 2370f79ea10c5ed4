"""Write all repeated ids to a file, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from snowredis.errors import ConfigError
from snowredis.merge.check.query import Query
from snowredis.merge.field_sql import text_literal
from snowredis.merge.sources import Source

__all__ = ["check_path", "export_duplicates"]

_FORMATS = {".csv": "FORMAT csv, HEADER true", ".parquet": "FORMAT parquet"}


def check_path(path: Path) -> None:
    """Raise ConfigError if *path* is not a file that export_duplicates() can write."""
    if path.suffix not in _FORMATS or not path.absolute().parent.is_dir():
        raise ConfigError(
            f"{path} cannot be written: it must end in {' or '.join(_FORMATS)}, in a directory that "
            "exists. Nothing was "
            "read; name another file with --duplicates."
        )


def export_duplicates(query: Query, sources: Sequence[Source], path: Path) -> None:
    """Write the table ``duplicates`` with the names of the sources, in the order of the ids."""
    names = " ".join(
        f"WHEN {number} THEN {text_literal(source.name)}" for number, source in enumerate(sources)
    )
    query.rows(
        f"COPY (SELECT id, CASE source {names} END AS source, times FROM duplicates ORDER BY id, duplicates.source) "
        f"TO {text_literal(str(path))} ({_FORMATS[path.suffix]})"
    )
