"""Run statements of DuckDB so that Ctrl-C stops them, and tell how far they are.

DuckDB does not look at signals while a statement runs, so statements run in a thread, and the main thread waits. That
thread is never inside DuckDB when the interpreter ends, which would abort the process.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

import duckdb

__all__ = ["Query"]

# how often the main thread looks at the progress
_POLL_S = 0.2
_STOP_POLL_S = 0.02


class _Job:
    """A call that the thread makes, and its outcome."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.finished = threading.Event()
        self.is_cancelled = False
        self.result: Any = None
        self.error: BaseException | None = None


class Query:
    """Statements on one connection, one after the other.

    *on_progress* is called from the main thread while a statement runs, with the part of it that is done, 0 to 1.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=_work, args=(self._jobs,), name="snowredis-duckdb", daemon=True).start()

    def rows(
        self, sql: str, *values: object, on_progress: Callable[[float], None] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run *sql* with *values* for its question marks; return all rows of its result."""
        rows: list[tuple[Any, ...]] = self._in_thread(
            lambda: self._connection.execute(sql, values or None).fetchall(), on_progress
        )
        return rows

    def arrays(self, sql: str) -> Mapping[str, Any]:
        """Run *sql* and return its columns as arrays of numpy."""
        arrays: Mapping[str, Any] = self._in_thread(lambda: self._connection.execute(sql).fetchnumpy(), None)
        return arrays

    def register(self, name: str, columns: Mapping[str, Any]) -> None:
        """Make arrays of numpy a table that later statements read."""
        self._connection.register(name, columns)

    def unregister(self, name: str) -> None:
        self._connection.unregister(name)

    def close(self) -> None:
        """End the thread; no statement is running."""
        self._jobs.put(None)

    def _in_thread(self, call: Callable[[], Any], on_progress: Callable[[float], None] | None) -> Any:
        job = _Job(call)
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
        return job.result

    def _stop(self, job: _Job) -> None:
        """Stop *job* wherever it is, and wait for that however often Ctrl-C is pressed."""
        # after this one the thread is done with *job*; whether *job* was put into the queue at all is not known
        job.is_cancelled = True
        last = _Job(lambda: None)
        is_put = False
        while not last.finished.is_set():
            with contextlib.suppress(KeyboardInterrupt):
                if not is_put:
                    self._jobs.put(last)
                    is_put = True
                # a statement that has not begun does not see it
                self._connection.interrupt()
                last.finished.wait(_STOP_POLL_S)


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            if not job.is_cancelled:
                job.result = job.call()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            job.error = error
        job.finished.set()
