"""`snowredis merge check`: which ids of several files and tables are repeated, which cannot be right, which will clash.

The path of an id: sources.py says where it is, ingest.py reads it into the workspace, where this file finds those
that are there twice. findings.py says what that means.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import duckdb
import numpy as np

from snowredis.core.layout import Layout
from snowredis.errors import ConfigError
from snowredis.merge import SourceError
from snowredis.merge.findings import CheckResult, Findings
from snowredis.merge.ingest import ingest
from snowredis.merge.progress import Progress
from snowredis.merge.sources import Source
from snowredis.merge.workspace import MIB, Workspace, text_literal

__all__ = ["DEFAULT_MEMORY", "Check", "check_export_path"]

DEFAULT_MEMORY = 1 << 30
# sources of an id are a set of bits in 127 bits of a HUGEINT; several files can be one source
MAX_SOURCES = 100
_EXPORTS = {".csv": "FORMAT csv, HEADER true", ".parquet": "FORMAT parquet"}


class Check:
    """One check; a context manager that removes what it stored.

    Args:
        sources: columns of ids, from parse_sources().
        layout: of all ids.
        memory_bytes: what the whole process may take at its peak.
        threads: of DuckDB; None: one for each core.

    Raises:
        ConfigError: too little memory.
        SourceError: too many sources.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        layout: Layout,
        *,
        memory_bytes: int = DEFAULT_MEMORY,
        threads: int | None = None,
    ) -> None:
        if len(sources) > MAX_SOURCES:
            raise SourceError(
                f"{len(sources)} sources are more than {MAX_SOURCES}. Nothing was read; several files can be one "
                "source: write a pattern in quotes, such as 'shard1=dumps/*.csv#id'."
            )
        self._sources, self._layout = sources, layout
        self._workspace = Workspace(memory_bytes, threads=threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._workspace.close()

    def run(self, progress: Progress | None = None, *, now_ms: int | None = None) -> CheckResult:
        """Read and compare everything.

        Args:
            now_ms: ids of later times are from the future; None: the clock of this host.

        Raises:
            SourceError: a source cannot be read, or the disk or the memory is too small.
        """
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        with self._errors():
            started_s = time.monotonic()
            progress = progress or Progress(shown=False)
            ingest(self._workspace, self._sources, progress)
            read_s = time.monotonic() - started_s
            self._find_repeated(progress)
            findings = Findings(self._workspace.rows, self._sources, self._layout, now_ms)
            return findings.result(read_s, started_s + read_s)

    def _find_repeated(self, progress: Progress) -> None:
        """Fill the table ``duplicates``: id, source, and how often it is there.

        The ids are sorted in as many parts as the memory needs: equal ones are neighbors then. Sources are nearly
        always in the order of their ids, and a stable sort only merges what is in order: a fifth of the time of
        DuckDB's GROUP BY.
        """
        # a part has some more or less than fit
        rows, most = self._workspace.rows, self._workspace.ids_at_once * 5 // 4
        rows("CREATE OR REPLACE TABLE duplicates (id BIGINT, source USMALLINT, times BIGINT)")
        rows("CREATE OR REPLACE TEMP TABLE repeated (id BIGINT)")
        parts = self._parts(rows("SELECT count(id) FROM ids")[0][0])
        progress.start("comparing", len(parts))
        for mine in parts:
            ids = self._workspace.column(f"SELECT id FROM ids WHERE {mine} LIMIT {most}")
            if len(ids) < most:
                ids.sort(kind="stable")
                self._workspace.insert("repeated", "id", {"id": np.unique(ids[1:][ids[1:] == ids[:-1]])})
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
        count = max(1, -(-ids // self._workspace.ids_at_once))
        return [f"id IS NOT NULL AND hash(id) % {count} = {part}" for part in range(count)]

    def export_duplicates(self, path: Path) -> None:
        """Write all repeated ids to a .csv or .parquet file: id, source, times; after run()."""
        names = " ".join(f"WHEN {n} THEN {text_literal(source.name)}" for n, source in enumerate(self._sources))
        with self._errors():
            self._workspace.rows(
                f"COPY (SELECT id, CASE source {names} END AS source, times FROM duplicates "
                f"ORDER BY id, duplicates.source) TO {text_literal(str(path))} ({_EXPORTS[path.suffix]})"
            )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise SourceError(
                f"DuckDB cannot go on: {str(error).splitlines()[0]}. The check was stopped; if memory is missing, "
                f"give it more with --memory (now {self._workspace.duckdb_bytes // MIB} MiB for DuckDB); if it is disk "
                f"space, free some at {self._workspace.directory}, or set TMPDIR to another place."
            ) from error


def check_export_path(path: Path) -> None:
    """Raise ConfigError if *path* is not a file that export_duplicates() can write."""
    if path.suffix not in _EXPORTS or not path.absolute().parent.is_dir():
        raise ConfigError(
            f"{path} cannot be written: it must end in {' or '.join(_EXPORTS)}, in a directory that exists. Nothing "
            "was read; name another file with --duplicates."
        )
