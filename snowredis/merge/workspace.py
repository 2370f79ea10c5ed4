"""A temporary DuckDB database under a bound of memory, with statements that Ctrl-C stops.

What a statement spills to the disk is in `spill/` inside its directory. DuckDB looks at signals while a statement
runs: within 1 to 4 s, measured.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import duckdb
import numpy as np

from snowredis.errors import ConfigError

__all__ = ["MIN_MEMORY", "Workspace"]

MIB = 1 << 20
# Python, DuckDB, numpy and SQLAlchemy, loaded and idle: 90 to 110 MiB measured
_IDLE_BYTES = 160 * MIB
MIN_MEMORY = 384 * MIB
# DuckDB exceeds its limit by what its allocator keeps: 20 % measured; arrays of numpy have the rest
_DUCKDB_PERCENT = 40
# of all memory, for each id that is sorted at once: 21 measured
_BYTES_PER_ID = 32
# for a plan
_MEMORY = 2 << 30


class Workspace:
    """A context manager that removes its files.

    Attributes:
        directory: where they are.
        duckdb_bytes: limit of DuckDB's own accounting.
        ids_at_once: how many ids fit the memory while they are sorted.

    Raises:
        ConfigError: too little memory.
    """

    def __init__(self, memory_bytes: int = _MEMORY, *, threads: int | None = None) -> None:
        if memory_bytes < MIN_MEMORY:
            raise ConfigError(
                f"{memory_bytes // MIB} MiB of memory are too little for a check. Nothing was read; give it "
                f"{MIN_MEMORY // MIB} MiB or more."
            )
        free_bytes = memory_bytes - _IDLE_BYTES
        self.duckdb_bytes = free_bytes * _DUCKDB_PERCENT // 100
        self.ids_at_once = free_bytes // _BYTES_PER_ID
        self.directory = Path(tempfile.mkdtemp(prefix="snowredis-merge-"))
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self.duckdb_bytes // MIB}MiB",
            "temp_directory": str(self.directory / "spill"),
            # the order of rows does not matter, and keeping it takes memory
            "preserve_insertion_order": False,
            # nothing is downloaded
            "autoinstall_known_extensions": False,
        }
        if threads:
            settings["threads"] = threads
        try:
            self._connection = duckdb.connect(str(self.directory / "ids.duckdb"), config=settings)
        except BaseException:
            self._remove()
            raise

    def _remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, and remove its files."""
        with contextlib.suppress(duckdb.Error):
            self._connection.close()
        self._remove()

    # --- statements ------------------------------------------------------------------------------------

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run *sql* with *values* for its question marks; return all rows of its result.

        Raises:
            KeyboardInterrupt: a signal handler raised any exception while the statement ran.
        """
        return self._run(sql, *values).fetchall()

    def _run(self, sql: str, *values: object) -> duckdb.DuckDBPyConnection:
        try:
            return self._connection.execute(sql, values or None)
        except RuntimeError as error:
            # DuckDB's own, in place of what the handler raised
            raise KeyboardInterrupt from error

    def column(self, sql: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the only column of a query of whole numbers, none of which is NULL, as an array."""
        (values,) = self._run(sql).fetchnumpy().values()
        return values

    def insert(self, table: str, columns: str, arrays: Mapping[str, Any]) -> None:
        """Insert arrays of numpy as rows: *columns* are expressions over their names."""
        self._connection.register("given", arrays)
        try:
            self.rows(f"INSERT INTO {table} SELECT {columns} FROM given")
        finally:
            self._connection.unregister("given")


def text_literal(text: str) -> str:
    """Return *text* as a literal of DuckDB."""
    return "'" + text.replace("'", "''") + "'"
