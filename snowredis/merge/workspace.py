"""The DuckDB database of one check, under a bound of memory, with statements that Ctrl-C stops.

Its directory is temporary, or the one that --state names, so that a stopped check can go on. What a statement spills to
the disk is in `spill/` inside it. DuckDB does not look at signals while a statement runs, so statements run in a
thread and the main thread waits. That thread is never inside DuckDB when the interpreter ends, which would abort the
process.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

import duckdb

from snowredis.errors import ConfigError
from snowredis.merge import SourceError

__all__ = ["MIN_MEMORY", "Workspace"]

MIB = 1 << 20
# Python, DuckDB, numpy and SQLAlchemy, loaded and idle: 90 to 110 MiB measured
_IDLE_BYTES = 160 * MIB
MIN_MEMORY = 384 * MIB
# DuckDB exceeds its limit by what its allocator keeps: 20 % measured
_DUCKDB_PERCENT = 75
# of DuckDB's memory for each id that is grouped at once
_BYTES_PER_ID = 40
# raised if the tables change: what an older version left is not read
_VERSION = 2
_TABLES = """
CREATE TABLE meta (version INTEGER);
CREATE TABLE sources (source USMALLINT, name VARCHAR, location VARCHAR, layout VARCHAR);
CREATE TABLE parts (source USMALLINT, part VARCHAR, fingerprint VARCHAR, rows BIGINT, read_ms BIGINT);
CREATE TABLE stored (source USMALLINT, id BIGINT, rejected VARCHAR);
"""
# how often the main thread looks at the progress, and how often it interrupts
_POLL_S, _STOP_POLL_S = 0.2, 0.02


class Workspace:
    """A context manager that removes what is not kept.

    Attributes:
        directory: where it is.
        duckdb_bytes: limit of DuckDB's own accounting.

    Raises:
        ConfigError: too little memory, or a directory that cannot be used.
        SourceError: the state is in use, or of another version.
    """

    def __init__(self, directory: Path | None, memory_bytes: int, *, threads: int | None = None) -> None:
        if memory_bytes < MIN_MEMORY:
            raise ConfigError(
                f"{memory_bytes // MIB} MiB of memory are too little for a check. Nothing was read; give it "
                f"{MIN_MEMORY // MIB} MiB or more."
            )
        self.duckdb_bytes = (memory_bytes - _IDLE_BYTES) * _DUCKDB_PERCENT // 100
        self._kept = directory is not None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="snowredis-merge-"))
        if directory is not None:
            _make_directory(directory)
        self._spill = self.directory / "spill"
        try:
            self._connection = self._connect(threads)
            self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), name="snowredis-duckdb", daemon=True).start()
            self._prepare()
        except BaseException:
            self._clean()
            raise

    def _connect(self, threads: int | None) -> duckdb.DuckDBPyConnection:
        shutil.rmtree(self._spill, ignore_errors=True)
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self.duckdb_bytes // MIB}MiB",
            "temp_directory": str(self._spill),
            # the order of rows does not matter, and keeping it takes memory
            "preserve_insertion_order": False,
            # nothing is downloaded
            "autoinstall_known_extensions": False,
        }
        if threads:
            settings["threads"] = threads
        try:
            connection = duckdb.connect(str(self.directory / "check.duckdb"), config=settings)
        except duckdb.IOException as error:
            reason = "another process uses it" if "lock" in str(error).lower() else str(error)
            raise SourceError(
                f"the state in {self.directory} cannot be opened: {reason}. Nothing was read; wait for that process, "
                "or name another directory with --state."
            ) from error
        except duckdb.Error as error:
            raise self._unusable(str(error)) from error
        # of the connection; without the first there is no progress to ask for
        for name, value in (("enable_progress_bar", "true"), ("enable_progress_bar_print", "false")):
            connection.execute(f"SET {name} = {value}")
        return connection

    def _prepare(self) -> None:
        tables = {name for (name,) in self.rows("SELECT table_name FROM duckdb_tables()")}
        if not tables:
            self.rows(_TABLES)
            self.rows("INSERT INTO meta VALUES (?)", _VERSION)
        elif "meta" not in tables or self.rows("SELECT version FROM meta") != [(_VERSION,)]:
            raise self._unusable("it was made by another version, or by another program")

    def _unusable(self, reason: str) -> SourceError:
        return SourceError(
            f"the state in {self.directory} is of no use: {reason}. Nothing was read; remove the directory, or name "
            "another one with --state."
        )

    @property
    def ids_at_once(self) -> int:
        """Return how many ids fit the memory while they are grouped."""
        return self.duckdb_bytes // _BYTES_PER_ID

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, and remove what is not kept; no statement is running."""
        self._jobs.put(None)
        with contextlib.suppress(duckdb.Error):
            self._connection.close()
        self._clean()

    def _clean(self) -> None:
        shutil.rmtree(self._spill if self._kept else self.directory, ignore_errors=True)

    # --- statements ------------------------------------------------------------------------------------

    def rows(
        self, sql: str, *values: object, on_progress: Callable[[float], None] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run *sql* with *values* for its question marks; return all rows of its result.

        Args:
            on_progress: called from the main thread while the statement runs, with the part that is done, 0 to 1.
        """
        job = _Job(lambda: self._connection.execute(sql, values or None).fetchall())
        try:
            self._jobs.put(job)
            while not job.finished.wait(_POLL_S):
                percent = self._connection.query_progress() if on_progress else -1.0
                if on_progress and percent >= 0:
                    on_progress(percent / 100)
        except BaseException:
            self._stop(job)
            raise
        if job.error is not None:
            raise job.error
        rows: list[tuple[Any, ...]] = job.result
        return rows

    def insert(self, table: str, columns: str, arrays: Mapping[str, Any]) -> None:
        """Insert arrays of numpy as rows: *columns* are expressions over their names."""
        self._connection.register("given", arrays)
        try:
            self.rows(f"INSERT INTO {table} SELECT {columns} FROM given")
        finally:
            self._connection.unregister("given")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.rows("BEGIN")
        try:
            yield
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                self.rows("ROLLBACK")
            raise
        self.rows("COMMIT")

    def _stop(self, job: _Job) -> None:
        """Stop *job* wherever it is, and wait for that however often Ctrl-C is pressed."""
        # after this one the thread is done with *job*; whether *job* was put into the queue at all is not known
        job.is_cancelled = True
        last, is_put = _Job(lambda: None), False
        while not last.finished.is_set():
            with contextlib.suppress(KeyboardInterrupt):
                if not is_put:
                    self._jobs.put(last)
                    is_put = True
                # a statement that has not begun does not see it
                self._connection.interrupt()
                last.finished.wait(_STOP_POLL_S)


class _Job:
    """A call that the thread makes, and its outcome."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.finished = threading.Event()
        self.is_cancelled = False
        self.result: Any = None
        self.error: BaseException | None = None


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            if not job.is_cancelled:
                job.result = job.call()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            job.error = error
        job.finished.set()


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be made: {error.strerror}. Nothing was read; name another directory with --state."
        ) from error
    strangers = {entry.name for entry in directory.iterdir()} - {"check.duckdb", "check.duckdb.wal", "spill"}
    if strangers:
        raise ConfigError(
            f"{directory} holds other files, such as {min(strangers)}. Nothing was read; name an empty or new "
            "directory with --state."
        )
