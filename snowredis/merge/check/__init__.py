"""`snowredis merge check`: which ids of several files and tables are repeated, which cannot be right, which will clash.

The path of an id: sources.py says where it is, files.py or tables.py reads it, ingest.py stores it in the workspace,
compare.py finds those that are equal, summarize.py, problems.py and picture.py say what that means.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import duckdb

from snowredis.errors import SourceError
from snowredis.merge.check.compare import find_duplicates
from snowredis.merge.check.ingest import ingest
from snowredis.merge.check.picture import Picture, draw
from snowredis.merge.check.problems import find_problems
from snowredis.merge.check.progress import Progress, Reporter
from snowredis.merge.check.result import CheckResult
from snowredis.merge.check.summarize import Summaries
from snowredis.merge.check.workspace import MIB, MIN_MEMORY, Workspace
from snowredis.merge.field_sql import Bounds
from snowredis.merge.sources import Source

__all__ = ["DEFAULT_MEMORY", "MAX_SOURCES", "MIN_MEMORY", "Check", "Progress", "Reporter"]

DEFAULT_MEMORY = 1 << 30
# sources of an id are a set of bits in 127 bits of a HUGEINT; several files can be one source
MAX_SOURCES = 100
# ids whose time is less than this ahead are not from the future: clocks differ
_CLOCKS_DIFFER_MS = 60_000


class Check:
    """One check; a context manager that removes what it stored.

    Args:
        sources: columns of ids, from parse_sources().
        state: directory that keeps what was read, so that the same check can go on after a stop; None: a temporary one.
        memory_bytes: what the whole process may take at its peak.
        threads: of DuckDB; None: one for each core.

    Raises:
        ConfigError: too little memory, or a directory that cannot be used.
        SourceError: too many sources, or a state that is of no use.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        state: Path | None = None,
        memory_bytes: int = DEFAULT_MEMORY,
        threads: int | None = None,
    ) -> None:
        if len(sources) > MAX_SOURCES:
            raise SourceError(
                f"{len(sources)} sources are more than {MAX_SOURCES}. Nothing was read; several files can "
                "be one source: "
                "write a pattern in quotes, such as 'shard1=dumps/*.csv#id'."
            )
        self._sources = sources
        self._workspace = Workspace(state, memory_bytes, threads=threads)
        self._bounds: list[Bounds] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._workspace.close()

    def run(self, report: Reporter = lambda _: None, *, now_ms: int | None = None) -> CheckResult:
        """Read what is missing, and compare everything.

        Args:
            report: called with the progress, several times a second at most.
            now_ms: ids of later times are from the future; None: the clock of this host.

        Raises:
            SourceError: a source cannot be read, or the disk or the memory is too small.
        """
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        query = self._workspace.query
        with self._errors():
            started_s = time.monotonic()
            ingest(self._workspace, self._sources, report)
            read_s = time.monotonic() - started_s
            find_duplicates(self._workspace, report)
            self._bounds = [Bounds.of(source.layout, now_ms + _CLOCKS_DIFFER_MS) for source in self._sources]
            summaries = Summaries(query, self._sources, self._bounds)
            sources = summaries.sources()
            repeated_ids, repeated_rows = summaries.totals()
            period_ms, by_time = summaries.by_time()
            return CheckResult(
                sources=sources,
                ids=sum(source.ids for source in sources),
                repeated_ids=repeated_ids,
                repeated_rows=repeated_rows,
                duplicates=summaries.duplicates(),
                by_worker=summaries.by_worker(),
                by_time=by_time,
                period_ms=period_ms,
                examples=summaries.examples(),
                problems=find_problems(query, self._sources, self._bounds),
                shared_workers=summaries.shared_workers(),
                now_ms=now_ms,
                read_s=read_s,
                compare_s=time.monotonic() - started_s - read_s,
            )

    def picture(self) -> Picture:
        """Return who made what when, as numbers of ids; after run()."""
        with self._errors():
            return draw(self._workspace.query, self._sources, self._bounds)

    def export_duplicates(self, path: Path) -> None:
        """Write all repeated ids to a .csv or .parquet file: id, source, times; after run()."""
        from snowredis.merge.check.export import export_duplicates

        with self._errors():
            export_duplicates(self._workspace.query, self._sources, path)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise SourceError(
                f"the memory or the disk is too small: {str(error).splitlines()[0]}. The check was "
                "stopped; give it more "
                f"with --memory, now {self._workspace.budget.duckdb_bytes // MIB} MiB for DuckDB, or free "
                "disk space at "
                f"{self._workspace.directory}."
            ) from error
        except duckdb.Error as error:
            raise SourceError(
                f"DuckDB cannot go on: {str(error).splitlines()[0]}. The check was stopped; free disk space at "
                f"{self._workspace.directory} if that is what is missing, or name another place with --state."
            ) from error
