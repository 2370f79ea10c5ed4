"""Findings of a check: repeated ids, values that cannot be right, worker ids that are shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from snowredis.core.as_json import IdNumber, NowMs, TimeMs
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.values import utc_text
from snowredis.merge.id_sql import Bounds, FieldSql
from snowredis.merge.sources import Source

__all__ = [
    "CheckResult",
    "DuplicatesIn",
    "Example",
    "Findings",
    "Problem",
    "ProblemKind",
    "SharedWorkers",
    "WorkerRange",
]

MAX_EXAMPLES = 20
MAX_RANGES = 20


class ProblemKind(StrEnum):
    """Kinds of values of a column that are wrong."""

    MISSING = "missing"  # NULL, or an empty text
    DECIMAL = "decimal"
    TEXT = "text"
    TOO_LARGE = "too-large"  # does not fit into 64 bits with a sign
    NEGATIVE = "negative"
    TOO_WIDE = "too-wide"  # has bits above those of the layout
    FUTURE = "future"
    COUNTER = "counter"  # of the layout's first hour, as the numbers of a counter are
    NO_IDS = "no-ids"
    LAYOUTS_DIFFER = "layouts-differ"


@dataclass(frozen=True, slots=True)
class Problem:
    """Values of one source that are not ids, or whose fields cannot be right.

    Attributes:
        source: name of the source.
        count: how many values.
        examples: some of them, as text that is not trusted.
        text: what is wrong, and what to do.
        is_error: whether the values cannot be right; else they are only unusual.
    """

    source: str
    kind: ProblemKind
    count: int
    examples: list[str]
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """Summary of a source.

    Attributes:
        location: file or table, without a password.
        layout: the full text form.
        rows: how many values, NULL included.
        ids: how many of them are whole numbers of 64 bits.
        first_ms, last_ms: time of the first and last plausible id, Unix ms; None if there is none.
        workers: how many pairs of datacenter and worker made its plausible ids.
    """

    name: str
    kind: str
    location: str
    layout: str
    rows: int
    ids: int
    first_ms: TimeMs | None
    last_ms: TimeMs | None
    workers: int


@dataclass(frozen=True, slots=True)
class DuplicatesIn:
    """Ids that exactly these sources have more than once between them."""

    sources: tuple[str, ...]
    ids: int
    rows: int


@dataclass(frozen=True, slots=True)
class Example:
    """One source of a repeated id, and what the layout of that source says of the id."""

    an_id: IdNumber
    source: str
    times: int
    datacenter: int | None
    worker: int | None
    time_ms: TimeMs | None


@dataclass(frozen=True, slots=True)
class WorkerRange:
    """Consecutive worker ids of one datacenter, both ends included."""

    datacenter: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SharedWorkers:
    """Worker ids that made ids in two sources, so that their next ids can be equal.

    Attributes:
        workers: how many pairs of datacenter and worker.
        at_once: how many of them were in use in both sources at the same time.
        ranges: which, MAX_RANGES at most.
    """

    sources: tuple[str, str]
    workers: int
    at_once: int
    ranges: list[WorkerRange]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check.

    Attributes:
        sources: what was read.
        ids: how many ids were compared.
        repeated_ids: how many different ids are used by more than one row.
        repeated_rows: how many rows they are in.
        duplicates: repeated ids by the sources that have them, the most first.
        examples: the smallest repeated ids, each in all of its sources.
        problems: values that are not ids, or that cannot be right.
        shared_workers: pairs of sources whose next ids can clash.
        now_ms: when the check was made, Unix ms: later times are in the future.
        read_s, compare_s: how long this run took for reading and for everything else.
    """

    sources: list[SourceSummary]
    ids: int
    repeated_ids: int
    repeated_rows: int
    duplicates: list[DuplicatesIn]
    examples: list[Example]
    problems: list[Problem]
    shared_workers: list[SharedWorkers]
    now_ms: NowMs
    read_s: float = 0.0
    compare_s: float = 0.0

    @property
    def errors(self) -> list[Problem]:
        """Problems of values that cannot be right."""
        return [problem for problem in self.problems if problem.is_error]


_EXAMPLES = 3
# the kind of a value that is no 64-bit integer, in the column ``rejected``
_KIND_OF_REJECTED = rf"""CASE
    WHEN lower(trim(rejected)) IN ('', 'null', '\n', 'none', 'na', 'nan') THEN '{ProblemKind.MISSING}'
    WHEN regexp_full_match(trim(rejected), '[+-]?[0-9]+') THEN CASE
        WHEN trim(rejected)[1] = '-' AND length(trim(rejected)) < 20 THEN '{ProblemKind.NEGATIVE}'
        WHEN length(trim(rejected)) < 19 THEN '{ProblemKind.TEXT}'
        ELSE '{ProblemKind.TOO_LARGE}' END
    WHEN regexp_full_match(trim(rejected), '[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)(e[+-]?[0-9]+)?', 'i')
        THEN '{ProblemKind.DECIMAL}'
    ELSE '{ProblemKind.TEXT}' END"""

_LEFT_OUT = "Not compared"
_TEXTS = {
    ProblemKind.MISSING: f"without a number (NULL or empty). {_LEFT_OUT}; rows without an id cannot be merged, so give "
    "them one",
    ProblemKind.DECIMAL: f"with a decimal point or an exponent. {_LEFT_OUT}; a spreadsheet or JavaScript has rounded "
    "them: export the column again as text or as 64-bit integers",
    ProblemKind.TEXT: f"of text. {_LEFT_OUT}; see whether this is the right column",
    ProblemKind.TOO_LARGE: f"beyond 64 bits with a sign, as ids have. {_LEFT_OUT}; the greatest id is 2**63 - 1",
    ProblemKind.NEGATIVE: "below 0, before the epoch of every layout. An overflow makes such numbers, or "
    "a column without "
    "a sign that was read with one",
}


class Findings:
    """Makes the tables ``groups`` and ``workers`` and the view ``decoded``; ``duplicates`` is there already.

    Args:
        bounds: of each source: ids outside are not attributed to a worker.
    """

    def __init__(
        self, rows: Callable[..., list[tuple[Any, ...]]], sources: Sequence[Source], bounds: Sequence[Bounds]
    ) -> None:
        self._rows, self._sources, self._bounds = rows, sources, bounds
        columns = "source USMALLINT, {} UTINYINT, datacenter BIGINT, worker BIGINT, ids BIGINT, {} BIGINT, {} BIGINT"
        self._rows(f"CREATE OR REPLACE TEMP TABLE groups ({columns.format('kind', 'lowest', 'highest')})")
        self._rows(f"CREATE OR REPLACE TEMP TABLE workers ({columns.format('layout', 'first_ms', 'last_ms')})")
        layouts = [source.layout for source in sources]
        # one at a time: DuckDB reads only the blocks of that source
        for number, layout in enumerate(layouts):
            rows(f"INSERT INTO groups SELECT {number}, * FROM ({_grouped(number, layout, bounds[number])})")
            first, last = (FieldSql(layout, an_id).time_ms for an_id in ("lowest", "highest"))
            self._rows(
                f"INSERT INTO workers SELECT source, {layouts.index(layout)}, datacenter, worker, ids, {first}, {last} "
                f"FROM groups WHERE source = {number} AND kind = {_PLAUSIBLE}"
            )
        parts = " UNION ALL ".join(self._decoded(number) for number in range(len(sources)))
        self._rows(f"CREATE OR REPLACE TEMP VIEW decoded AS {parts}")

    def _decoded(self, number: int) -> str:
        fields, limit = FieldSql(self._sources[number].layout), self._bounds[number].limit - 1
        values = {"datacenter": fields.datacenter, "worker": fields.worker, "time_ms": fields.time_ms}
        columns = ", ".join(
            f"CASE WHEN id BETWEEN 0 AND {limit} THEN {value} END AS {name}" for name, value in values.items()
        )
        return f"SELECT source, id, times, {columns} FROM duplicates WHERE source = {number}"

    def result(self, now_ms: int, read_s: float, began_s: float) -> CheckResult:
        """Return everything; *began_s*: when comparing began, on the monotonic clock."""
        sources = self._summaries()
        repeated_ids, repeated_rows = self._rows("SELECT count(DISTINCT id), coalesce(sum(times), 0) FROM duplicates")[
            0
        ]
        return CheckResult(
            sources=sources,
            ids=sum(source.ids for source in sources),
            repeated_ids=int(repeated_ids),
            repeated_rows=int(repeated_rows),
            duplicates=self._duplicates(),
            examples=self._examples(),
            problems=self._problems(),
            shared_workers=self._shared_workers(),
            now_ms=now_ms,
            read_s=round(read_s, 3),
            compare_s=round(time.monotonic() - began_s, 3),
        )

    def _name(self, number: int) -> str:
        return self._sources[number].name

    def _summaries(self) -> list[SourceSummary]:
        rows = self._rows(
            "SELECT source, sum(ids), coalesce(sum(ids) FILTER (kind > 0), 0) FROM groups GROUP BY source"
        )
        counts = {number: (int(rows), int(ids)) for number, rows, ids in rows}
        query = "SELECT source, min(first_ms), max(last_ms), count(*) FROM workers GROUP BY source"
        workers = {number: row for number, *row in self._rows(query)}
        return [
            SourceSummary(
                *(source.name, source.kind, source.shown, layout_spec(source.layout)),
                *counts.get(number, (0, 0)),
                *workers.get(number, (None, None, 0)),
            )
            for number, source in enumerate(self._sources)
        ]

    # --- repeated ids ------------------------------------------------------------------------------

    def _duplicates(self) -> list[DuplicatesIn]:
        """Return the repeated ids by the set of sources that have them, the most first."""
        rows = self._rows(
            "SELECT mask, count(*), sum(times) FROM (SELECT bit_or(1::HUGEINT << source) AS mask, sum(times) AS times "
            "FROM duplicates GROUP BY id) GROUP BY mask ORDER BY 2 DESC, mask"
        )
        numbers = range(len(self._sources))
        return [
            DuplicatesIn(tuple(self._name(n) for n in numbers if mask >> n & 1), ids, int(times))
            for mask, ids, times in rows
        ]

    def _examples(self) -> list[Example]:
        """Return the smallest repeated ids, and where they are."""
        rows = self._rows(
            "SELECT id, source, times, datacenter, worker, time_ms FROM decoded WHERE id IN "
            f"(SELECT DISTINCT id FROM duplicates ORDER BY id LIMIT {MAX_EXAMPLES}) ORDER BY id, source"
        )
        return [Example(an_id, self._name(number), *rest) for an_id, number, *rest in rows]

    # --- clashes to come ---------------------------------------------------------------------------

    def _shared_workers(self) -> list[SharedWorkers]:
        """Return the pairs of sources in which the same worker ids made ids, under the same layout."""
        self._rows(
            "CREATE OR REPLACE TEMP TABLE shared AS SELECT one.source AS one, other.source AS other, datacenter, "
            "worker, one.first_ms <= other.last_ms AND other.first_ms <= one.last_ms AS at_once FROM workers one "
            "JOIN workers other USING (layout, datacenter, worker) WHERE one.source < other.source"
        )
        pairs = self._rows(
            "SELECT one, other, count(*), count(*) FILTER (at_once) FROM shared GROUP BY ALL ORDER BY 1, 2"
        )
        return [
            SharedWorkers((self._name(one), self._name(other)), workers, at_once, self._ranges(one, other))
            for one, other, workers, at_once in pairs
        ]

    def _ranges(self, *pair: int) -> list[WorkerRange]:
        rows = self._rows(
            "SELECT datacenter, min(worker), max(worker) FROM (SELECT datacenter, worker, worker - row_number() OVER "
            "(PARTITION BY datacenter ORDER BY worker) AS island FROM shared WHERE one = ? AND other = ?) "
            f"GROUP BY datacenter, island ORDER BY 1, 2 LIMIT {MAX_RANGES}",
            *pair,
        )
        return [WorkerRange(*row) for row in rows]

    # --- values that cannot be right ---------------------------------------------------------------

    def _problems(self) -> list[Problem]:
        """Return the problems of all sources, in their order."""
        found = [problem for number in range(len(self._sources)) for problem in self._of_source(number)]
        if len({source.layout for source in self._sources}) > 1:
            text = (
                "the sources have different layouts, so their worker ids mean different bits: whether ids of different "
                "layouts can be equal later is not said here"
            )
            found.append(Problem("", ProblemKind.LAYOUTS_DIFFER, 0, [], text, is_error=False))
        return found

    def _of_source(self, number: int) -> Iterator[Problem]:
        source = self._sources[number]
        rejected = {
            ProblemKind(kind): (count, examples)
            for kind, count, examples in self._rows(
                f"SELECT {_KIND_OF_REJECTED} AS kind, count(*), list(DISTINCT rejected)[:{_EXAMPLES}] FROM stored "
                "WHERE source = ? AND rejected IS NOT NULL GROUP BY 1",
                number,
            )
        }
        groups = "SELECT kind, sum(ids)::BIGINT, min(lowest), max(highest) FROM groups WHERE source = ? GROUP BY kind"
        found = {_GROUPS[kind]: (count, ends) for kind, count, *ends in self._rows(groups, number)}
        outside = {kind: (count, list(map(str, sorted(set(ends))))) for kind, (count, ends) in found.items()}
        if not found:
            text = "there are no ids in it. See whether it is the right one"
            yield Problem(source.name, ProblemKind.NO_IDS, 0, [], text, is_error=False)
        # the others are NULLs of columns that were not stored
        missing = found.get(ProblemKind.MISSING, (0, []))[0] - sum(count for count, _ in rejected.values())
        outside[ProblemKind.MISSING] = missing, []
        for kind in ProblemKind:
            parts = [part[kind] for part in (rejected, outside) if kind in part]
            if not (count := sum(number for number, _ in parts)):
                continue
            examples = [text for _, texts in parts for text in texts if kind is not ProblemKind.MISSING]
            text = _TEXTS.get(kind) or _text(kind, source.layout)
            # counters are usual in a table that had ids before it had snowredis'
            yield Problem(source.name, kind, count, examples[:_EXAMPLES], text, kind is not ProblemKind.COUNTER)


# what _grouped() tells apart: the position is the column ``kind``
_GROUPS = (
    *(ProblemKind.MISSING, ProblemKind.NEGATIVE, ProblemKind.COUNTER, None),
    *(ProblemKind.FUTURE, ProblemKind.TOO_WIDE),
)
_PLAUSIBLE = _GROUPS.index(None)


def _grouped(number: int, layout: Layout, bounds: Bounds) -> str:
    """Return a query for the ids of one source by kind, and, if they are plausible, by worker id."""
    ends = (bounds.first, bounds.future, bounds.limit)
    kinds = " ".join(f"WHEN id <= {end - 1} THEN {kind}" for kind, end in enumerate(ends, 2))
    fields = FieldSql(layout)
    datacenter, worker = (
        f"CASE WHEN id BETWEEN {bounds.first} AND {bounds.future - 1} THEN {field} ELSE 0 END"
        for field in (fields.datacenter, fields.worker)
    )
    return (
        f"SELECT CASE WHEN id IS NULL THEN 0 WHEN id < 0 THEN 1 {kinds} ELSE 5 END AS a, {datacenter} AS b, "
        f"{worker} AS c, count(*) AS d, coalesce(min(id), 0) AS e, coalesce(max(id), 0) AS f FROM ids "
        f"WHERE source = {number} GROUP BY 1, 2, 3"
    )


def _text(kind: ProblemKind, layout: Layout) -> str:
    if kind is ProblemKind.TOO_WIDE:
        return (
            f"of more than the {layout.total_bits} bits of the layout {layout}. Probably made with "
            "another one; name it "
            "with --layout"
        )
    if kind is ProblemKind.FUTURE:
        return (
            "with a time in the future. Probably made with another layout, or on a host whose clock was ahead; see "
            "whether --layout is right"
        )
    return (
        f"with a time in the first hour of the layout, from {utc_text(layout.epoch_ms)} on. Probably numbers of a "
        "counter, such as an auto-increment, or of another layout"
    )
