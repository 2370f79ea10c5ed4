"""Find the ids that are in the workspace more than once.

Ids are divided into ranges that fit the memory. Those of one range are fetched and sorted in memory by numpy; then
DuckDB looks up where the few equal ones are. A GROUP BY of all ids spills to disk and takes ten times as long. A range
is cheap to fetch: DuckDB stores the least and greatest id of each block, and the ids of a file mostly grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from snowredis.merge.check.progress import Meter, Reporter
from snowredis.merge.check.query import Query
from snowredis.merge.check.workspace import Workspace

__all__ = ["find_duplicates"]

# ids from which the ranges are estimated
_SAMPLED = 100_000
# of the ids that fit: estimates are off
_FILL = 0.8
_MIN, _MAX = -(1 << 63), (1 << 63) - 1

# half-open
Range = tuple[int, int]


def find_duplicates(workspace: Workspace, report: Reporter) -> None:
    """Fill the table ``duplicates``: a row for each repeated id and source, with how often it is there."""
    query, at_once = workspace.query, workspace.budget.sorted_ids
    query.rows("CREATE OR REPLACE TABLE duplicates (id BIGINT, source USMALLINT, times BIGINT)")
    total: int = query.rows("SELECT count(id) FROM ids")[0][0]
    meter = Meter("compare", total, report)
    for low, high, count in _ranges(query, total, at_once):
        # too many to be fetched: a single id
        repeated = np.array([low]) if count > at_once else _repeated(_fetch(query, low, high))
        if len(repeated):
            _store(query, repeated, low, high)
        meter.add("", count, count)


def _fetch(query: Query, low: int, high: int) -> Any:
    column = query.arrays(f"SELECT id FROM ids WHERE {_within(low, high)}")["id"]
    # NULL is not in any range, so what a masked array hides is nothing
    return np.ma.getdata(column)


def _repeated(ids: Any) -> Any:
    """Return the ids that are there more than once, each once; sorts *ids*."""
    ids.sort()
    return np.unique(ids[1:][ids[1:] == ids[:-1]])


def _store(query: Query, repeated: Any, low: int, high: int) -> None:
    query.register("repeated", {"id": repeated})
    query.rows(
        "INSERT INTO duplicates SELECT id, source, count(*) FROM ids SEMI JOIN repeated USING (id) "
        f"WHERE {_within(low, high)} GROUP BY id, source"
    )
    query.unregister("repeated")


def _ranges(query: Query, total: int, at_once: int) -> Iterator[tuple[int, int, int]]:
    """Yield ranges with the number of their ids, in order; above *at_once* only where all are the same id."""
    if total <= at_once:
        # BIGINT's last value is not below any other: the last range includes it
        pending: list[Range] = [(_MIN, _MAX + 1)]
    else:
        cuts = _quantiles(query, total, max(2, round(total / (at_once * _FILL))))
        pending = list(zip([_MIN, *cuts], [*cuts, _MAX + 1], strict=True))
    pending.reverse()
    while pending:
        low, high = pending.pop()
        count, least, greatest = query.rows(
            f"SELECT count(id), min(id), max(id) FROM ids WHERE {_within(low, high)}"
        )[0]
        if not count:
            continue
        if count > at_once and least < greatest:
            middle = (least + greatest) // 2 + 1
            pending += [(middle, greatest + 1), (least, middle)]
        else:
            yield least, greatest + 1, count


def _within(low: int, high: int) -> str:
    return f"id BETWEEN {low} AND {high - 1}"


def _quantiles(query: Query, total: int, parts: int) -> list[int]:
    percent = min(100.0, 100.0 * _SAMPLED / total)
    sample = np.ma.getdata(
        query.arrays(
            f"SELECT id FROM ids WHERE id IS NOT NULL USING SAMPLE {percent} PERCENT (bernoulli, 1)"
        )["id"]
    )
    sample.sort()
    at = [len(sample) * part // parts for part in range(1, parts)]
    return sorted({int(sample[index]) for index in at}) if len(sample) else []
