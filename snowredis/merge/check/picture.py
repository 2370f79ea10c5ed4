"""Data for the picture of a check: ids of each source by worker id and period, and how many of them clash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snowredis.merge.check.query import Query
from snowredis.merge.field_sql import Bounds, FieldSql
from snowredis.merge.sources import Source

__all__ = ["Cell", "Picture", "Row", "draw"]

MAX_ROWS = 64
COLUMNS = 96


@dataclass(frozen=True, slots=True)
class Row:
    """Worker ids that share a row of the picture, as (datacenter, worker); both ends included."""

    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cell:
    """One row in one period.

    Attributes:
        ids: how many ids each source has, by its number.
        repeated: how many of them are repeated anywhere.
    """

    row: int
    column: int
    ids: dict[int, int]
    repeated: int


@dataclass(frozen=True, slots=True)
class Picture:
    """A grid of worker ids and periods.

    Attributes:
        start_ms: Unix ms at which the first column starts.
        column_ms: length of a column.
        columns: how many there are.
        cells: those that have ids, in no order.
    """

    start_ms: int
    column_ms: int
    columns: int
    rows: list[Row]
    cells: list[Cell]


def draw(query: Query, sources: Sequence[Source], bounds: Sequence[Bounds]) -> Picture:
    """Count ids by worker and period. Reads the tables ``ids``, ``duplicates`` and ``workers``."""
    first, last = query.rows("SELECT min(first_ms), max(last_ms) FROM workers")[0]
    if first is None:
        return Picture(0, 1, 0, [], [])
    column_ms = max(1, -(-(last - first + 1) // COLUMNS))
    most = max(source.layout.workers for source in sources)
    lanes = [
        lane
        for (lane,) in query.rows(
            f"SELECT DISTINCT datacenter * {most} + worker AS lane FROM workers ORDER BY lane"
        )
    ]
    per_row = -(-len(lanes) // MAX_ROWS)
    groups = [lanes[at : at + per_row] for at in range(0, len(lanes), per_row)]
    rows = [Row(divmod(group[0], most), divmod(group[-1], most)) for group in groups]
    query.rows("CREATE OR REPLACE TEMP TABLE picture_rows (number BIGINT, first BIGINT)")
    for number, group in enumerate(groups):
        query.rows("INSERT INTO picture_rows VALUES (?, ?)", number, group[0])
    counted: dict[tuple[int, int], dict[int, int]] = {}
    repeated: dict[tuple[int, int], int] = {}
    for number, source in enumerate(sources):
        for row, column, count in query.rows(
            _count("ids", number, source, bounds[number], most, first, column_ms)
        ):
            counted.setdefault((row, column), {})[number] = count
        for row, column, count in query.rows(
            _count("duplicates", number, source, bounds[number], most, first, column_ms)
        ):
            repeated[row, column] = repeated.get((row, column), 0) + count
    cells = [Cell(row, column, ids, repeated.get((row, column), 0)) for (row, column), ids in counted.items()]
    return Picture(first, column_ms, (last - first) // column_ms + 1, rows, cells)


def _count(
    table: str, number: int, source: Source, bounds: Bounds, most: int, first: int, column_ms: int
) -> str:
    fields = FieldSql(source.layout)
    # grouped by lane first: there are far fewer lanes than ids, and only they are joined with the rows
    return (
        f"SELECT picture_rows.number, col, sum(count)::BIGINT FROM (SELECT {fields.datacenter} * {most} + "
        f"{fields.worker} AS lane, "
        f"({fields.time_ms} - {first}) // {column_ms} AS col, count(*) AS count FROM {table} WHERE source "
        f"= {number} AND "
        f"id BETWEEN {bounds.first} AND {bounds.future - 1} GROUP BY ALL) ASOF JOIN picture_rows "
        "ON lane >= picture_rows.first GROUP BY ALL"
    )
