"""The working directory of a check: one DuckDB database with what was read, under a bound of memory.

The directory is a temporary one, or the one that a person named to be able to stop and go on. What a statement
spills to disk is in `spill/` inside it, and is removed when the workspace is closed, or opened again after a kill.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import duckdb

from snowredis.errors import ConfigError, SourceError
from snowredis.merge.check.query import Query

__all__ = ["MIN_MEMORY", "MemoryBudget", "Workspace"]

MIB = 1 << 20
# Python, DuckDB, numpy and SQLAlchemy, loaded and idle: 90 to 110 MiB measured
_IDLE_BYTES = 160 * MIB
MIN_MEMORY = 384 * MIB
# an id that is fetched to be sorted takes 8 bytes in DuckDB's result, 8 in its array, 1 in its mask, and is copied once
_BYTES_PER_SORTED_ID = 26
# raised if the tables change: what an older version left is not read
_VERSION = 1
_TABLES = """
CREATE TABLE meta (version INTEGER);
CREATE TABLE sources (source USMALLINT, name VARCHAR, location VARCHAR, layout VARCHAR);
CREATE TABLE parts (source USMALLINT, part VARCHAR, fingerprint VARCHAR, rows BIGINT, read_ms BIGINT, position VARCHAR,
    complete BOOLEAN);
CREATE TABLE ids (source USMALLINT, id BIGINT, rejected VARCHAR);
"""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Division of the memory of the whole process.

    Attributes:
        duckdb_bytes: limit of DuckDB's own accounting.
        sorted_ids: how many ids are fetched and sorted at once.
    """

    duckdb_bytes: int
    sorted_ids: int

    @classmethod
    def of(cls, total_bytes: int) -> MemoryBudget:
        """Divide *total_bytes*, what the process may take at its peak; ConfigError if that is too little."""
        if total_bytes < MIN_MEMORY:
            raise ConfigError(
                f"{total_bytes // MIB} MiB of memory are too little for a check. Nothing was read; give it "
                f"{MIN_MEMORY // MIB} MiB or more."
            )
        available = total_bytes - _IDLE_BYTES
        # DuckDB exceeds its limit by what its allocator keeps: 20 % measured
        return cls(available * 45 // 100, available * 30 // 100 // _BYTES_PER_SORTED_ID)


class Workspace:
    """The database of one check; a context manager.

    Attributes:
        query: runs statements in it.
        budget: of memory.
        directory: where it is.
        kept: whether the directory stays when it is closed.
    """

    def __init__(self, directory: Path | None, memory_bytes: int, *, threads: int | None = None) -> None:
        self.budget = MemoryBudget.of(memory_bytes)
        self.kept = directory is not None
        if directory is None:
            self.directory = Path(tempfile.mkdtemp(prefix="snowredis-merge-"))
        else:
            self.directory = directory
            _make_directory(directory)
        self._spill = self.directory / "spill"
        try:
            self._connection = self._connect(threads)
            self.query = Query(self._connection)
            self._prepare()
        except BaseException:
            self._clean()
            raise

    def _connect(self, threads: int | None) -> duckdb.DuckDBPyConnection:
        shutil.rmtree(self._spill, ignore_errors=True)
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self.budget.duckdb_bytes // MIB}MiB",
            "temp_directory": str(self._spill),
            # the order of rows does not matter, and keeping it takes memory
            "preserve_insertion_order": False,
            # nothing is downloaded
            "autoinstall_known_extensions": False,
        }
        if threads:
            settings["threads"] = threads
        path = self.directory / "check.duckdb"
        try:
            connection = duckdb.connect(str(path), config=settings)
        except duckdb.IOException as error:
            reason = "another process uses it" if "lock" in str(error).lower() else str(error)
            raise SourceError(
                f"the state in {self.directory} cannot be opened: {reason}. Nothing was read; wait for "
                "that process, or "
                "name another directory with --state."
            ) from error
        except duckdb.Error as error:
            raise self._unusable(str(error)) from error
        # of the connection; without the first there is no progress to ask for
        for name, value in (("enable_progress_bar", "true"), ("enable_progress_bar_print", "false")):
            connection.execute(f"SET {name} = {value}")
        return connection

    def _prepare(self) -> None:
        tables = {name for (name,) in self.query.rows("SELECT table_name FROM duckdb_tables()")}
        if not tables:
            self.query.rows(_TABLES)
            self.query.rows("INSERT INTO meta VALUES (?)", _VERSION)
        elif "meta" not in tables or self.query.rows("SELECT version FROM meta") != [(_VERSION,)]:
            raise self._unusable("it was made by another version, or by another program")

    def _unusable(self, reason: str) -> SourceError:
        return SourceError(
            f"the state in {self.directory} is of no use: {reason}. Nothing was read; remove the directory, or name "
            "another one with --state."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, and remove what is not kept."""
        self.query.close()
        with contextlib.suppress(duckdb.Error):
            self._connection.close()
        self._clean()

    def _clean(self) -> None:
        shutil.rmtree(self._spill if self.kept else self.directory, ignore_errors=True)


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
            f"{directory} holds other files, such as {min(strangers)}. Nothing was read; name an empty or "
            "new directory "
            "with --state."
        )
