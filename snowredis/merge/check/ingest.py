"""Read the ids of all sources into the workspace; what an earlier run read completely is not read again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from snowredis.core.presets import layout_spec
from snowredis.errors import SourceError, shown
from snowredis.merge.check.archives import is_compressed, truncation
from snowredis.merge.check.files import FilePart, insert_statement, parts_of, unreadable
from snowredis.merge.check.progress import Meter, Reporter
from snowredis.merge.check.query import Query
from snowredis.merge.check.tables import Page, TableReader
from snowredis.merge.check.workspace import Workspace
from snowredis.merge.sources import Source

__all__ = ["PartRead", "ingest", "parts_read"]

# a row of a table is as much work as these bytes of a file
_ROW_WEIGHT = 30


@dataclass(frozen=True, slots=True)
class PartRead:
    """A file or a table that was read completely.

    Attributes:
        source: number of its source.
        read_ms: when, Unix ms; an earlier run may have read it.
    """

    source: int
    name: str
    rows: int
    read_ms: int


def ingest(workspace: Workspace, sources: Sequence[Source], report: Reporter) -> None:
    """Read what is missing.

    Raises:
        SourceError: a source cannot be read, or the workspace is one of other sources.
    """
    _match_sources(workspace.query, sources)
    # all files are looked at before the first is read: a wrong path is found at once
    files = {number: parts_of(source) for number, source in enumerate(sources) if source.kind != "database"}
    ingestion = _Ingestion(workspace.query, sources, files, report)
    ingestion.forget_changed()
    ingestion.run()
    workspace.query.rows("CHECKPOINT")


def parts_read(query: Query) -> list[PartRead]:
    """Return what was read completely."""
    rows = query.rows("SELECT source, part, rows, read_ms FROM parts WHERE complete ORDER BY source, part")
    return [PartRead(*row) for row in rows]


def _match_sources(query: Query, sources: Sequence[Source]) -> None:
    """Store which sources there are; refuse a workspace of others."""
    given = [
        (number, source.name, source.shown, layout_spec(source.layout))
        for number, source in enumerate(sources)
    ]
    stored = query.rows("SELECT source, name, location, layout FROM sources ORDER BY source")
    if not stored:
        for number, *texts in given:
            query.rows("INSERT INTO sources VALUES (?, ?, ?, ?)", number, *texts)
    elif [row[:3] for row in stored] != [row[:3] for row in given]:
        raise SourceError(
            f"the state is of other sources: {', '.join(f'{name} ({location})' for _, name, location, _ in stored)}. "
            "Nothing was read; give the same sources in the same order, or another directory with --state."
        )


class _Ingestion:
    def __init__(
        self, query: Query, sources: Sequence[Source], files: dict[int, list[FilePart]], report: Reporter
    ) -> None:
        self._query, self._sources, self._files, self._report = query, sources, files, report

    def forget_changed(self) -> None:
        """Forget files that changed since they were read, or that are not of the sources any more."""
        current = {
            (number, part.name, part.fingerprint) for number, parts in self._files.items() for part in parts
        }
        for source, part, fingerprint in self._query.rows("SELECT source, part, fingerprint FROM parts"):
            if source in self._files and (source, part, fingerprint) not in current:
                # the rows of one part are not told apart from those of the others of its source
                with self._transaction():
                    self._query.rows("DELETE FROM ids WHERE source = ?", source)
                    self._query.rows("DELETE FROM parts WHERE source = ?", source)

    def run(self) -> None:
        done = {
            (source, part): rows
            for source, part, rows in self._query.rows("SELECT source, part, rows FROM parts WHERE complete")
        }
        with contextlib.ExitStack() as stack:
            tables = {}
            for number, source in enumerate(self._sources):
                if source.kind == "database" and (number, source.shown) not in done:
                    tables[number] = stack.enter_context(self._open_table(number, source))
            weights = sum(part.weight for parts in self._files.values() for part in parts)
            weights += sum(reader.rows * _ROW_WEIGHT for reader in tables.values())
            read = sum(
                part.weight
                for number, parts in self._files.items()
                for part in parts
                if (number, part.name) in done
            )
            ids = self._query.rows("SELECT coalesce(sum(rows), 0) FROM parts")[0][0]
            self._meter = Meter("read", weights, self._report, done=read, ids=int(ids))
            for number, source in enumerate(self._sources):
                for part in self._files.get(number, ()):
                    if (number, part.name) not in done:
                        self._read_file(number, source, part)
                if number in tables:
                    self._read_table(number, source, tables[number])

    # --- files -------------------------------------------------------------------------------------

    def _read_file(self, number: int, source: Source, part: FilePart) -> None:
        what = source.name if len(self._files[number]) == 1 else f"{source.name}: {part.path.name}"

        def progress(done: float) -> None:
            self._meter.show(what, done * part.weight)

        self._meter.show(what)
        try:
            try:
                rows = self._insert_file(number, source, part, progress)
            except duckdb.InvalidInputException as error:
                if "unicode" not in str(error).lower() or source.kind == "parquet":
                    raise
                # digits are the same in every encoding that extends ASCII, so another column is what it stumbles over
                rows = self._insert_file(number, source, part, progress, latin_1=True)
        except duckdb.Error as error:
            if isinstance(error, duckdb.OutOfMemoryException) or "could not write" in str(error).lower():
                # not the file's fault: this machine's memory, or its disk
                raise
            raise unreadable(source, part.path, _first_lines(str(error))) from error
        self._meter.add(what, part.weight, rows)

    def _insert_file(
        self,
        number: int,
        source: Source,
        part: FilePart,
        progress: Callable[[float], None],
        *,
        latin_1: bool = False,
    ) -> int:
        statement = insert_statement(self._query, source, part.path, number, latin_1=latin_1)
        with _verified(source, part) as check, self._transaction():
            rows = int(self._query.rows(statement, on_progress=progress)[0][0])
            check()
            self._query.rows(
                "INSERT INTO parts VALUES (?, ?, ?, ?, ?, NULL, true)",
                *(number, part.name, part.fingerprint, rows, _now_ms()),
            )
        return rows

    # --- tables ------------------------------------------------------------------------------------

    def _open_table(self, number: int, source: Source) -> TableReader:
        stored = self._query.rows(
            "SELECT position FROM parts WHERE source = ? AND part = ?", number, source.shown
        )
        after = int(stored[0][0]) if stored and stored[0][0] is not None else None
        reader = TableReader(source, after)
        if not stored or not reader.in_order:
            with self._transaction():
                self._query.rows("DELETE FROM ids WHERE source = ?", number)
                self._query.rows("DELETE FROM parts WHERE source = ?", number)
                self._query.rows(
                    "INSERT INTO parts VALUES (?, ?, '', 0, ?, NULL, false)", number, source.shown, _now_ms()
                )
        return reader

    def _read_table(self, number: int, source: Source, reader: TableReader) -> None:
        self._meter.show(source.name)
        is_first = True
        for page in reader.pages():
            rows = len(page.ids) * page.times + len(page.rejected)
            if is_first and not len(page.ids) and any(page.rejected):
                raise SourceError(
                    f"{source.name}: {source.shown} holds no ids, but "
                    f"{', '.join(shown(text) for text in page.rejected[:3])}. None of its values was "
                    "used; name the column "
                    "of the ids after the #."
                )
            is_first = False
            with self._transaction():
                self._insert_page(number, page)
                self._query.rows(
                    "UPDATE parts SET rows = rows + ?, position = coalesce(?, position), read_ms = ? WHERE source = ?",
                    *(rows, None if page.position is None else str(page.position), _now_ms(), number),
                )
            self._meter.add(source.name, rows * _ROW_WEIGHT, rows, finished=False)
        self._query.rows("UPDATE parts SET complete = true, read_ms = ? WHERE source = ?", _now_ms(), number)
        self._meter.add(source.name, 0, 0)

    def _insert_page(self, number: int, page: Page) -> None:
        for name, array, values in (
            ("page_ids", page.ids, "value, NULL"),
            ("page_rejected", np.array(page.rejected, dtype=object), "NULL, value"),
        ):
            if len(array):
                self._query.register(name, {"value": array})
                times = f", range({page.times})" if name == "page_ids" and page.times > 1 else ""
                self._query.rows(f"INSERT INTO ids SELECT {number}, {values} FROM {name}{times}")
                self._query.unregister(name)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._query.rows("BEGIN")
        try:
            yield
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                self._query.rows("ROLLBACK")
            raise
        self._query.rows("COMMIT")


@contextlib.contextmanager
def _verified(source: Source, part: FilePart) -> Iterator[Callable[[], None]]:
    """Check a compressed file while it is read; yields a function that waits, and raises if it is damaged."""
    if source.kind == "parquet" or not is_compressed(part.path):
        yield lambda: None
        return
    stop, outcome = threading.Event(), list[str | None]()
    thread = threading.Thread(
        target=lambda: outcome.append(truncation(part.path, stop.is_set)),
        name="snowredis-archive",
        daemon=True,
    )

    def check() -> None:
        thread.join()
        if not outcome:
            raise unreadable(source, part.path, "it could not be read a second time")
        if outcome[0] is not None:
            raise unreadable(source, part.path, outcome[0])

    thread.start()
    try:
        yield check
    finally:
        stop.set()
        thread.join()


def _first_lines(message: str) -> str:
    """Return what a message of DuckDB says, without its advice on options of its own."""
    kept = []
    for line in message.partition(": ")[2].splitlines():
        if not line.strip() or line.startswith(("Possible", "LINE 1", "  file")):
            break
        kept.append(line.strip())
    return ", ".join(kept) or message.splitlines()[0]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
