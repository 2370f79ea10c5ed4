"""A temporary DuckDB database under a bound of memory.

What a statement spills to the disk is in `spill/` inside its directory. DuckDB looks at signals while a statement
runs: within 1 to 4 s, measured.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import duckdb
import numpy as np

from snowredis.errors import ConfigError

MIB = 1 << 20
# Python, DuckDB, numpy and SQLAlchemy, loaded and idle: 90 to 110 MiB measured
_IDLE_BYTES = 160 * MIB
MIN_MEMORY = 384 * MIB
# DuckDB exceeds its limit by what its allocator keeps: 20 % measured; arrays of numpy have the rest
_DUCKDB_PERCENT = 40
# memory for each id that is sorted at once: 21 measured
_BYTES_PER_ID = 32
# memory of a check that says nothing of it
_MEMORY = 1 << 30


class Workspace:
    """A context manager that removes its files.

    Args:
        memory_bytes: what the whole process may take at its peak.

    Attributes:
        directory: where they are.
        duckdb_bytes: limit of DuckDB's own accounting.
        ids_at_once: how many ids fit the memory while they are sorted.

    Raises:
        ConfigError: too little memory.
    """

    def __init__(self, memory_bytes: int = _MEMORY) -> None:
        if memory_bytes < MIN_MEMORY:
            raise ConfigError(
                f"{memory_bytes // MIB} MiB of memory are too little for a check. Nothing was read; give it "
                f"{MIN_MEMORY // MIB} MiB or more."
            )
        free_bytes = memory_bytes - _IDLE_BYTES
        self.duckdb_bytes = free_bytes * _DUCKDB_PERCENT // 100
        self.ids_at_once = free_bytes // _BYTES_PER_ID
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

    def column(self, sql: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the only column of a query of whole numbers, none of which is NULL, as an array."""
        with _statement():
            (values,) = self._connection.execute(sql).fetchnumpy().values()
            return values

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
