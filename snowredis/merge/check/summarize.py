"""Summaries of what is in the workspace: repeated ids by source, worker and time, and worker ids that are shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snowredis.core.presets import layout_spec
from snowredis.merge.check.ingest import parts_read
from snowredis.merge.check.query import Query
from snowredis.merge.check.result import (
    DuplicatesByTime,
    DuplicatesByWorker,
    DuplicatesIn,
    Example,
    Occurrence,
    SharedWorkers,
    SourceSummary,
    WorkerRange,
)
from snowredis.merge.field_sql import Bounds, FieldSql
from snowredis.merge.sources import Source

__all__ = ["Summaries"]

MAX_WORKERS = 50
MAX_EXAMPLES = 20
MAX_RANGES = 20
# periods of duplicates: the first of which there are few enough
_PERIODS_MS = (60_000, 3_600_000, 86_400_000, 7 * 86_400_000)
_MAX_PERIODS = 72


class Summaries:
    """Reads the tables ``ids`` and ``duplicates``; makes ``workers`` and ``decoded`` of them.

    Args:
        bounds: of each source: ids outside are not attributed to a worker.
    """

    def __init__(self, query: Query, sources: Sequence[Source], bounds: Sequence[Bounds]) -> None:
        self._query, self._sources, self._bounds = query, sources, bounds
        query.rows(
            "CREATE OR REPLACE TEMP TABLE workers (source USMALLINT, layout USMALLINT, datacenter BIGINT, "
            "worker BIGINT, "
            "ids BIGINT, first_ms BIGINT, last_ms BIGINT)"
        )
        # one at a time: DuckDB reads only the blocks of that source
        for number in range(len(sources)):
            query.rows(self._workers_of(number))
        parts = " UNION ALL ".join(self._decoded(number) for number in range(len(sources)))
        query.rows(f"CREATE OR REPLACE TEMP VIEW decoded AS {parts}")

    def _workers_of(self, number: int) -> str:
        fields, bounds = FieldSql(self._sources[number].layout), self._bounds[number]
        layouts = [source.layout for source in self._sources]
        return (
            f"INSERT INTO workers SELECT {number}, {layouts.index(layouts[number])}, {fields.datacenter}, "
            f"{fields.worker}, "
            f"count(*), min({fields.time_ms}), max({fields.time_ms}) FROM ids WHERE source = {number} AND "
            f"id BETWEEN {bounds.first} AND {bounds.future - 1} GROUP BY ALL"
        )

    def _decoded(self, number: int) -> str:
        fields, limit = FieldSql(self._sources[number].layout), self._bounds[number].limit - 1
        columns = ", ".join(
            f"CASE WHEN id BETWEEN 0 AND {limit} THEN {expression} END AS {name}"
            for name, expression in (
                ("datacenter", fields.datacenter),
                ("worker", fields.worker),
                ("time_ms", fields.time_ms),
            )
        )
        return f"SELECT source, id, times, {columns} FROM duplicates WHERE source = {number}"

    def _name(self, number: int) -> str:
        return self._sources[number].name

    # --- sources -----------------------------------------------------------------------------------

    def sources(self) -> list[SourceSummary]:
        """Return what each source holds."""
        counts = {
            number: row
            for number, *row in self._query.rows(
                "SELECT source, count(*), count(id) FROM ids GROUP BY source"
            )
        }
        workers = {
            number: row
            for number, *row in self._query.rows(
                "SELECT source, count(*), min(first_ms), max(last_ms) FROM workers GROUP BY source"
            )
        }
        read_ms: dict[int, int] = {}
        for part in parts_read(self._query):
            read_ms[part.source] = max(part.read_ms, read_ms.get(part.source, 0))
        summaries = []
        for number, source in enumerate(self._sources):
            rows, ids = counts.get(number, (0, 0))
            count, first_ms, last_ms = workers.get(number, (0, None, None))
            summaries.append(
                SourceSummary(
                    name=source.name,
                    kind=source.kind,
                    location=source.shown,
                    layout=layout_spec(source.layout),
                    rows=rows,
                    ids=ids,
                    first_ms=first_ms,
                    last_ms=last_ms,
                    workers=count,
                    read_ms=read_ms.get(number, 0),
                )
            )
        return summaries

    # --- repeated ids ------------------------------------------------------------------------------

    def totals(self) -> tuple[int, int]:
        """Return how many different ids are repeated, and how many rows have them."""
        ids, rows = self._query.rows("SELECT count(DISTINCT id), coalesce(sum(times), 0) FROM duplicates")[0]
        return int(ids), int(rows)

    def duplicates(self) -> list[DuplicatesIn]:
        """Return the repeated ids by the set of sources that have them, the most first."""
        rows = self._query.rows(
            "SELECT mask, count(*), sum(times) FROM (SELECT bit_or(1::HUGEINT << source) AS mask, sum(times) AS times "
            "FROM duplicates GROUP BY id) GROUP BY mask ORDER BY 2 DESC, mask"
        )
        numbers = range(len(self._sources))
        return [
            DuplicatesIn(tuple(self._name(n) for n in numbers if mask >> n & 1), ids, int(times))
            for mask, ids, times in rows
        ]

    def by_worker(self) -> list[DuplicatesByWorker]:
        """Return the repeated ids by source and worker id, the most first."""
        rows = self._query.rows(
            "SELECT source, datacenter, worker, count(*) FROM decoded GROUP BY ALL ORDER BY 4 DESC, 1, 2, 3 "
            f"LIMIT {MAX_WORKERS}"
        )
        return [DuplicatesByWorker(self._name(number), *rest) for number, *rest in rows]

    def by_time(self) -> tuple[int, list[DuplicatesByTime]]:
        """Return the length of a period, and how many ids are repeated in each."""
        first, last = self._query.rows("SELECT min(time_ms), max(time_ms) FROM decoded")[0]
        if first is None:
            return _PERIODS_MS[0], []
        period_ms = _PERIODS_MS[-1]
        for candidate in _PERIODS_MS:
            if last // candidate - first // candidate < _MAX_PERIODS:
                period_ms = candidate
                break
        rows = self._query.rows(
            f"SELECT time_ms // {period_ms} * {period_ms}, count(DISTINCT id) FROM decoded WHERE time_ms IS NOT NULL "
            "GROUP BY 1 ORDER BY 1"
        )
        return period_ms, [DuplicatesByTime(*row) for row in rows]

    def examples(self) -> list[Example]:
        """Return the smallest repeated ids, and where they are."""
        rows = self._query.rows(
            "SELECT id, source, times, datacenter, worker, time_ms FROM decoded WHERE id IN "
            f"(SELECT DISTINCT id FROM duplicates ORDER BY id LIMIT {MAX_EXAMPLES}) ORDER BY id, source"
        )
        examples: dict[int, Example] = {}
        for an_id, number, *rest in rows:
            occurrence = Occurrence(self._name(number), *rest)
            examples.setdefault(an_id, Example(an_id, [])).occurrences.append(occurrence)
        return list(examples.values())

    # --- clashes to come ---------------------------------------------------------------------------

    def shared_workers(self) -> list[SharedWorkers]:
        """Return the pairs of sources in which the same worker ids made ids, under the same layout."""
        self._query.rows(
            "CREATE OR REPLACE TEMP TABLE shared AS SELECT one.source AS one, other.source AS other, "
            "datacenter, worker, "
            "one.first_ms <= other.last_ms AND other.first_ms <= one.last_ms AS at_once FROM workers one "
            "JOIN workers other USING (layout, datacenter, worker) WHERE one.source < other.source"
        )
        pairs = self._query.rows(
            "SELECT one, other, count(*), count(*) FILTER (at_once) FROM shared GROUP BY ALL ORDER BY 1, 2"
        )
        return [
            SharedWorkers((self._name(one), self._name(other)), workers, at_once, self._ranges(one, other))
            for one, other, workers, at_once in pairs
        ]

    def _ranges(self, one: int, other: int) -> list[WorkerRange]:
        rows: list[tuple[Any, ...]] = self._query.rows(
            "SELECT datacenter, min(worker), max(worker) FROM (SELECT datacenter, worker, worker - row_number() OVER "
            "(PARTITION BY datacenter ORDER BY worker) AS island FROM shared WHERE one = ? AND other = ?) "
            f"GROUP BY datacenter, island ORDER BY 1, 2 LIMIT {MAX_RANGES}",
            one,
            other,
        )
        return [WorkerRange(*row) for row in rows]
