"""Copy all ids of a chaos run into one table of PostgreSQL, whose primary key says whether one is repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.lab.chaos.runs import RecordedRuns, read_runs

TABLE = "snowredis_chaos_ids"
# ids that one COPY, which is a transaction of its own, brings
BATCH_IDS = 500_000


@dataclass
class Copied:
    """Result of copy_ids(): how many ids are in the table, and the error of the database, which is empty if none is."""

    ids: int = 0
    seconds: float = 0.0
    error: str = ""


def copy_ids(url: str, directory: Path) -> Copied:
    """Copy the ids that the processes of a run recorded in *directory* into a new table, and stop at an error.

    The table stays: it is the evidence. Raises psycopg.Error if it exists already, or for anything but a repeated id.
    """
    copied, began_s = Copied(), time.monotonic()
    with psycopg.connect(url, autocommit=True) as connection:
        # the table is not logged: a crash of the server only means that the run has to be repeated
        connection.execute(f"CREATE UNLOGGED TABLE {TABLE} (id bigint PRIMARY KEY)")
        for path in sorted(directory.glob("*.runs")):
            for lines in _batches(read_runs(path)):
                try:
                    with connection.cursor().copy(f"COPY {TABLE} FROM STDIN") as copy:
                        copy.write(lines)
                except psycopg.errors.UniqueViolation as error:
                    copied.error = f"{path.name}: {error.diag.message_primary}: {error.diag.message_detail}"
                    break
            if copied.error:
                break
        row = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
        copied.ids = int(row[0]) if row is not None else 0
    copied.seconds = time.monotonic() - began_s
    return copied


def _batches(runs: RecordedRuns) -> Iterator[str]:
    """Yield the ids of a file as lines, BATCH_IDS at a time or a little more."""
    lines: list[str] = []
    size = 0
    for first, count, _ in runs.rows():
        lines.append("\n".join(map(str, range(first, first + count))))
        size += count
        if size >= BATCH_IDS:
            yield "\n".join(lines) + "\n"
            lines, size = [], 0
    if lines:
        yield "\n".join(lines) + "\n"
