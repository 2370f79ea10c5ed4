"""Fill the new columns of all rows, in batches of bounded time, each a transaction with the position it reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from snowredis.merge.migrate.database import Batch, Database
from snowredis.merge.migrate.journal import Journal
from snowredis.merge.migrate.locks import retried
from snowredis.merge.migrate.plan import TableChange

__all__ = ["Progress", "fill_tables"]

# of a pass that found only rows that others had locked
_LOCKED_ROWS_WAIT_S = 0.2


class Progress(NamedTuple):
    """Progress of the backfill.

    Attributes:
        table: the one under way.
        part: of all tables, 0 to 1; an estimate.
        rows: filled in this run.
        rows_per_s: of this run.
        left_s: an estimate; None at the beginning.
    """

    table: str
    part: float
    rows: int
    rows_per_s: float
    left_s: float | None


class _Meter:
    """Part done, rate and time left of one run."""

    def __init__(self, ends: list[int]) -> None:
        self.ends, self.total = ends, max(1, sum(ends))
        self.started_s, self.rows = time.monotonic(), 0
        self.first: int | None = None

    def progress(self, table: TableChange, index: int, position: int) -> Progress:
        done = sum(self.ends[:index]) + min(position, self.ends[index])
        if self.first is None:
            self.first = done
        used_s = time.monotonic() - self.started_s
        here = done - self.first
        left_s = used_s * (self.total - done) / here if here else None
        return Progress(str(table), done / self.total, self.rows, self.rows / max(used_s, 1e-3), left_s)


def fill_tables(
    database: Database,
    journal: Journal,
    progress: dict[str, Any],
    *,
    batch_ms: int,
    rows_per_s: int | None,
    report: Callable[[Progress], None],
) -> None:
    """Fill every table of the plan, from where *progress* says that an earlier run got to.

    Args:
        progress: of the journal's entry; is changed.
        batch_ms: how long a batch should take: as long may others wait for its rows.
        rows_per_s: the most; None: no limit.
    """
    tables = database.plan.tables
    with database.engine.connect() as connection:
        meter = _Meter([database.end_of(connection, table) for table in tables])
    for index, table in enumerate(tables):
        if index < progress.get("table", 0):
            continue
        cursor, size, filled = progress.get("cursor"), database.batch_size, progress.get("rows", 0)
        while True:
            started_s = time.monotonic()
            batch = _one_batch(database, journal, table, cursor, size, progress | {"table": index})
            used_s = time.monotonic() - started_s
            meter.rows += batch.rows
            filled += batch.rows
            if batch.cursor is None:
                if not _has_unfilled_rows(database, table):
                    break
                # others had locked some rows
                cursor = None
                time.sleep(_LOCKED_ROWS_WAIT_S)
                continue
            cursor = batch.cursor
            report(meter.progress(table, index, database.position(cursor, filled)))
            size = _next_size(database, size, used_s, batch_ms)
            if rows_per_s:
                time.sleep(max(0.0, batch.rows / rows_per_s - used_s))
        progress |= {"table": index + 1, "cursor": None, "rows": 0}


def _one_batch(
    database: Database,
    journal: Journal,
    table: TableChange,
    cursor: Any,
    size: int,
    progress: dict[str, Any],
) -> Batch:
    result: list[Batch] = []

    def attempt() -> None:
        with (
            database.engine.connect().execution_options(snowredis_writes=True) as connection,
            connection.begin(),
        ):
            batch = database.fill(connection, table, cursor, size)
            rows = progress.get("rows", 0) + batch.rows
            journal.write_progress(connection, progress | {"cursor": batch.cursor, "rows": rows})
        result.append(batch)

    retried(f"fill rows of {table}", attempt)
    progress["rows"] = progress.get("rows", 0) + result[-1].rows
    return result[-1]


def _has_unfilled_rows(database: Database, table: TableChange) -> bool:
    """Return whether more rows are unfilled than the switch may fill."""
    some = f"SELECT 1 FROM {database.name(table)} WHERE {database.unfilled(table)} LIMIT {database.late_rows + 1}"
    with database.engine.connect() as connection:
        return len(database.execute(connection, some).all()) > database.late_rows


def _next_size(database: Database, size: int, used_s: float, batch_ms: int) -> int:
    """Return the size of the next batch: towards *batch_ms*, at most twice or half of this one's.

    Never below the first batch's: on a busy machine that would take as long, for fewer rows.
    """
    wanted = int(size * min(2.0, max(0.5, batch_ms / 1000 / max(used_s, 1e-4))))
    return max(database.batch_size, min(database.max_batch_size, wanted))
