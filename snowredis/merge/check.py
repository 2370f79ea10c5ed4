"""`snowredis merge check`: which ids of several files and tables are repeated, which cannot be right, which will clash.

The path of an id: sources.py says where it is and reads it into the workspace, where this file finds those that are
there twice. Findings says what that means, and as_lines() shows it in a terminal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import duckdb

from snowredis.cli.output import Column, Line, advised, printable, table, time_of
from snowredis.core.as_json import IdNumber, NowMs, TimeMs
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.values import utc_text
from snowredis.errors import ConfigError
from snowredis.merge import unreadable
from snowredis.merge.databases import Progress, text_literal
from snowredis.merge.sources import MIB, Source, Workspace, ingest

MAX_EXAMPLES = 20
# endings by which DuckDB knows the format
_EXPORTS = (".csv", ".parquet")


class ProblemKind(StrEnum):
    """Kinds of values of a column that are wrong."""

    MISSING = "missing"  # NULL, or an empty text
    DECIMAL = "decimal"
    TEXT = "text"
    TOO_LARGE = "too-large"  # does not fit into 64 bits with a sign
    NEGATIVE = "negative"
    TOO_WIDE = "too-wide"  # has bits above those of the layout
    FUTURE = "future"
    COUNTER = "counter"  # its time is in the layout's first hour, as with numbers of a counter
    NO_IDS = "no-ids"


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
        rows: how many values, NULL included.
        ids: how many of them are whole numbers of 64 bits.
        first_ms, last_ms: time of the first and last plausible id, Unix ms; None if there is none.
        workers: how many pairs of datacenter and worker made its plausible ids.
    """

    name: str
    kind: str
    location: str
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
    """A repeated id in one of its sources."""

    an_id: IdNumber
    source: str
    times: int


@dataclass(frozen=True, slots=True)
class SharedWorkers:
    """Worker ids of one datacenter that made ids in two sources, so that their next ids can be equal.

    Attributes:
        workers: how many, from *first* to *last*.
        at_once: how many of them were in use in both sources at the same time.
    """

    sources: tuple[str, str]
    datacenter: int
    workers: int
    first: int
    last: int
    at_once: int


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check.

    Attributes:
        layout: of all ids, the full text form.
        sources: what was read.
        ids: how many ids were compared.
        repeated_ids: how many different ids are used by more than one row.
        repeated_rows: how many rows they are in.
        duplicates: repeated ids by the sources that have them, the most first.
        examples: the smallest repeated ids, each in all of its sources.
        problems: values that are not ids, or that cannot be right.
        shared_workers: pairs of sources whose next ids can clash.
        now_ms: when the check was made, Unix ms: later times are in the future.
    """

    layout: str
    sources: list[SourceSummary]
    ids: int
    repeated_ids: int
    repeated_rows: int
    duplicates: list[DuplicatesIn]
    examples: list[Example]
    problems: list[Problem]
    shared_workers: list[SharedWorkers]
    now_ms: NowMs

    @property
    def errors(self) -> list[Problem]:
        """Problems of values that cannot be right."""
        return [problem for problem in self.problems if problem.is_error]


_EXAMPLES = 3
# a layout's first hour holds no id of a generator that was started later, but every counter that starts at 1
_COUNTER_MS = 3_600_000
# ids whose time is less than this ahead are not from the future: clocks differ
_CLOCKS_DIFFER_MS = 60_000
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


class Findings:
    """Makes the tables ``groups`` and ``workers``; ``ids`` and ``duplicates`` are there already.

    Args:
        layout: of all ids.
        now_ms: ids of later times are from the future; Unix ms.
    """

    def __init__(
        self, rows: Callable[..., list[tuple[Any, ...]]], sources: Sequence[Source], layout: Layout, now_ms: int
    ) -> None:
        self._rows, self._sources, self._layout, self._now_ms = rows, sources, layout, now_ms
        earliest_ms = layout.epoch_ms + _COUNTER_MS
        first, future = layout.id_range(earliest_ms, max(now_ms + _CLOCKS_DIFFER_MS, earliest_ms))
        ends = {"counter": first, "plausible": future, "future": 1 << layout.total_bits}
        kinds = " ".join(f"WHEN id <= {end - 1} THEN '{kind}'" for kind, end in ends.items())
        # an id that is not plausible is counted for no worker
        datacenter, worker = (
            f"CASE WHEN id BETWEEN {first} AND {future - 1} THEN {self._field(name)} ELSE 0 END"
            for name in ("datacenter", "worker")
        )
        self._rows(
            "CREATE OR REPLACE TEMP TABLE groups AS SELECT source, CASE WHEN id IS NULL THEN 'rejected' "
            f"WHEN id < 0 THEN 'negative' {kinds} ELSE 'too-wide' END AS kind, {datacenter} AS datacenter, "
            f"{worker} AS worker, count(*) AS ids, min(id) AS lowest, max(id) AS highest FROM ids GROUP BY ALL"
        )
        first_ms, last_ms = (
            f"{self._field('timestamp', column)} * {layout.tick_ms} + {layout.epoch_ms}"
            for column in ("lowest", "highest")
        )
        self._rows(
            f"CREATE OR REPLACE TEMP TABLE workers AS SELECT source, datacenter, worker, {first_ms} AS first_ms, "
            f"{last_ms} AS last_ms FROM groups WHERE kind = 'plausible'"
        )

    def _field(self, name: str, an_id: str = "id") -> str:
        """Return the expression for a field of the ids in a column."""
        bits = getattr(self._layout, f"{name}_bits")
        return f"({an_id} >> {getattr(self._layout, f'{name}_shift')} & {(1 << bits) - 1})" if bits else "0"

    def result(self) -> CheckResult:
        """Return everything."""
        sources = self._summaries()
        query = "SELECT count(DISTINCT id), coalesce(sum(times), 0) FROM duplicates"
        repeated_ids, repeated_rows = self._rows(query)[0]
        return CheckResult(
            layout=layout_spec(self._layout),
            sources=sources,
            ids=sum(source.ids for source in sources),
            repeated_ids=int(repeated_ids),
            repeated_rows=int(repeated_rows),
            duplicates=self._duplicates(),
            examples=self._examples(),
            problems=list(self._problems()),
            shared_workers=self._shared_workers(),
            now_ms=self._now_ms,
        )

    def _name(self, number: int) -> str:
        return self._sources[number].name

    def _summaries(self) -> list[SourceSummary]:
        rows = self._rows(
            "SELECT source, sum(ids), coalesce(sum(ids) FILTER (kind <> 'rejected'), 0) FROM groups GROUP BY source"
        )
        counts = {number: (int(rows), int(ids)) for number, rows, ids in rows}
        query = "SELECT source, min(first_ms), max(last_ms), count(*) FROM workers GROUP BY source"
        workers = {number: row for number, *row in self._rows(query)}
        return [
            SourceSummary(
                *(source.name, source.kind, source.shown),
                *counts.get(number, (0, 0)),
                *workers.get(number, (None, None, 0)),
            )
            for number, source in enumerate(self._sources)
        ]

    # --- repeated ids ------------------------------------------------------------------------------

    def _duplicates(self) -> list[DuplicatesIn]:
        """Return the repeated ids by the set of sources that have them, the most first."""
        rows = self._rows(
            "SELECT sources, count(*), sum(times) FROM (SELECT list(source ORDER BY source) AS sources, "
            "sum(times) AS times FROM duplicates GROUP BY id) GROUP BY sources ORDER BY 2 DESC, sources"
        )
        return [DuplicatesIn(tuple(map(self._name, numbers)), ids, int(times)) for numbers, ids, times in rows]

    def _examples(self) -> list[Example]:
        """Return the smallest repeated ids, and where they are."""
        rows = self._rows(
            "SELECT id, source, times FROM duplicates WHERE id IN "
            f"(SELECT DISTINCT id FROM duplicates ORDER BY id LIMIT {MAX_EXAMPLES}) ORDER BY id, source"
        )
        return [Example(an_id, self._name(number), times) for an_id, number, times in rows]

    # --- clashes to come ---------------------------------------------------------------------------

    def _shared_workers(self) -> list[SharedWorkers]:
        """Return the pairs of sources in which the same worker ids made ids, by datacenter."""
        rows = self._rows(
            "SELECT one.source, other.source, datacenter, count(*), min(worker), max(worker), "
            "count(*) FILTER (one.first_ms <= other.last_ms AND other.first_ms <= one.last_ms) FROM workers one "
            "JOIN workers other USING (datacenter, worker) WHERE one.source < other.source "
            "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        return [SharedWorkers((self._name(one), self._name(other)), *rest) for one, other, *rest in rows]

    # --- values that cannot be right ---------------------------------------------------------------

    def _problems(self) -> Iterator[Problem]:
        """Yield the problems of all sources, in their order."""
        texts = _texts(self._layout)
        for number, source in enumerate(self._sources):
            rejected = self._rows(
                f"SELECT {_KIND_OF_REJECTED} AS kind, count(*), list(DISTINCT rejected)[:{_EXAMPLES}] FROM ids "
                "WHERE source = ? AND id IS NULL GROUP BY 1",
                number,
            )
            unlikely = self._rows(
                "SELECT kind, sum(ids)::BIGINT, list_distinct([min(lowest), max(highest)]::VARCHAR[]) FROM groups "
                "WHERE source = ? AND kind NOT IN ('rejected', 'plausible') GROUP BY kind",
                number,
            )
            found = {kind: (count, examples) for kind, count, examples in [*rejected, *unlikely]}
            if not self._rows("SELECT 1 FROM groups WHERE source = ? LIMIT 1", number):
                yield Problem(source.name, ProblemKind.NO_IDS, 0, [], texts[ProblemKind.NO_IDS], is_error=False)
            for kind in ProblemKind:
                if kind in found:
                    count, examples = found[kind]
                    shown = [] if kind is ProblemKind.MISSING else sorted(examples)
                    yield Problem(source.name, kind, count, shown, texts[kind], kind is not ProblemKind.COUNTER)


def _texts(layout: Layout) -> dict[ProblemKind, str]:
    """Return what is wrong with values of each kind, and what to do."""
    return {
        ProblemKind.MISSING: f"without a number (NULL or empty). {_LEFT_OUT}; rows without an id cannot be merged, so "
        "give them one",
        ProblemKind.DECIMAL: f"with a decimal point or an exponent. {_LEFT_OUT}; a spreadsheet or JavaScript has "
        "rounded them: export the column again as text or as 64-bit integers",
        ProblemKind.TEXT: f"of text. {_LEFT_OUT}; see whether this is the right column",
        ProblemKind.TOO_LARGE: f"beyond 64 bits with a sign, as ids have. {_LEFT_OUT}; the greatest id is 2**63 - 1",
        ProblemKind.NEGATIVE: "below 0, before the epoch of every layout. An overflow makes such numbers, or a column "
        "without a sign that was read with one",
        ProblemKind.TOO_WIDE: f"of more than the {layout.total_bits} bits of the layout {layout}. Probably made with "
        "another one; name it with --layout",
        ProblemKind.FUTURE: "with a time in the future. Probably made with another layout, or on a host whose clock "
        "was ahead; see whether --layout is right",
        ProblemKind.COUNTER: f"with a time in the first hour of the layout, from {utc_text(layout.epoch_ms)} on. "
        "Probably numbers of a counter, such as an auto-increment, or of another layout",
        ProblemKind.NO_IDS: "there are no ids in it. See whether it is the right one",
    }


def check_sources(
    workspace: Workspace, sources: Sequence[Source], layout: Layout, progress: Progress, *, now_ms: int | None = None
) -> CheckResult:
    """Read and compare all ids of all sources.

    Args:
        workspace: stores the ids.
        sources: columns of ids, from parse_sources().
        layout: of all ids.
        now_ms: ids of later times are from the future; None: the clock of this host.

    Raises:
        MergeError: one that cannot be read, or the disk or the memory is too small.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    with _errors(workspace):
        ingest(workspace, sources, progress)
        progress.start("comparing")
        _find_repeated(workspace)
        return Findings(workspace.rows, sources, layout, now_ms).result()


def _find_repeated(workspace: Workspace) -> None:
    """Fill the table ``duplicates``."""
    twice = "SELECT id FROM ids WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1"
    # repeated ids are few, so one more pass over all sources counts them
    workspace.rows(f"CREATE OR REPLACE TEMP TABLE repeated AS {twice}")
    found = "SELECT id, source, count(*) AS times FROM ids SEMI JOIN repeated USING (id) GROUP BY ALL"
    workspace.rows(f"CREATE OR REPLACE TABLE duplicates AS {found}")


def export_duplicates(workspace: Workspace, sources: Sequence[Source], path: Path) -> None:
    """Write all repeated ids to a .csv or .parquet file: id, source, times; after check_sources()."""
    names = " ".join(f"WHEN {number} THEN {text_literal(source.name)}" for number, source in enumerate(sources))
    query = f"SELECT id, CASE source {names} END AS source, times FROM duplicates ORDER BY id, duplicates.source"
    with _errors(workspace):
        workspace.rows(f"COPY ({query}) TO {text_literal(str(path))}")


@contextlib.contextmanager
def _errors(workspace: Workspace) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise unreadable(
            f"DuckDB cannot go on: {str(error).splitlines()[0]}. The check was stopped; if memory is missing, give it "
            f"more with --memory (now {workspace.duckdb_bytes // MIB} MiB for DuckDB); if it is disk space, free some "
            f"at {workspace.directory}, or set TMPDIR to another place."
        ) from error


def check_export_path(path: Path) -> None:
    """Raise ConfigError if *path* is not a file that export_duplicates() can write."""
    if path.suffix not in _EXPORTS or not path.absolute().parent.is_dir():
        raise ConfigError(
            f"{path} cannot be written: it must end in {' or '.join(_EXPORTS)}, in a directory that exists. Nothing "
            "was read; name another file with --duplicates."
        )


# --- the result in a terminal: names of sources and values of columns are untrusted -------------------------

# rows of a table in a terminal
_MAX_ROWS = 10
_MAX_CELL = 80
_MAX_EXAMPLE = 60


def _sources(result: CheckResult) -> list[Line]:
    """Return the table of what was read."""
    columns = [Column("SOURCE", shrinks=True), _number("IDS"), _number("WORKERS"), Column("FIRST"), Column("LAST")]
    rows = []
    for source in result.sources:
        times = ("-" if ms is None else time_of(ms) for ms in (source.first_ms, source.last_ms))
        rows.append([source.name, f"{source.ids:,}", f"{source.workers:,}", *times, source.location])
    return _lines([*columns, Column("READ FROM", shrinks=True, optional=True)], rows)


def _repeated(result: CheckResult) -> list[Line]:
    """Return the tables of the repeated ids."""
    rows = [
        [" and ".join(part.sources) if part.sources[1:] else f"{part.sources[0]} alone"]
        + [f"{part.ids:,}", f"{part.rows:,}"]
        for part in result.duplicates
    ]
    lines = [[], *_lines([Column("REPEATED IN", shrinks=True), _number("IDS"), _number("ROWS")], rows)]
    rows = [[str(example.an_id), example.source, f"{example.times:,}"] for example in result.examples]
    return [*lines, [], *_lines([Column("ID"), Column("IN", shrinks=True), _number("TIMES")], rows)]


def _number(title: str) -> Column:
    return Column(title, right=True)


def as_lines(result: CheckResult) -> list[Line]:
    """Return the whole report."""
    severity, text = _verdict(result)
    advice = _ADVICE_REPEATED if result.repeated_ids else ""
    lines: list[Line] = [*_sources(result), [], *advised(_head(severity), text, advice, "strong")]
    lines += _repeated(result) if result.repeated_ids else []
    for severity, text, advice in _notices(result):
        lines += [[], *advised(_head(severity), printable(text), advice)]
    return lines


def _head(severity: str) -> Line:
    return [(f"{severity:<8}", {"error": "bad", "warning": "warn", "ok": "good"}[severity])]


def _lines(columns: list[Column], rows: list[list[str]]) -> list[Line]:
    """Return a table of the most important rows, which come first."""
    shown = [[printable(cell, _MAX_CELL) for cell in row] for row in rows[:_MAX_ROWS]]
    lines = table(columns, shown)
    more: list[Line] = [[(f"and {len(rows) - _MAX_ROWS:,} more, see --json", "dim")]]
    return lines + more * (len(rows) > _MAX_ROWS)


_ADVICE_REPEATED = (
    "Copy no rows by hand: snowredis merge draft and run give those of one database new ids. --duplicates writes all "
    "of these ids to a file."
)
_ADVICE_SHARED = (
    "If both go on making ids, give each its own datacenter or its own pool before they are merged, or let one of them "
    "end."
)


def _verdict(result: CheckResult) -> tuple[str, str]:
    """Return the severity, ``error``, ``warning`` or ``ok``, and one sentence."""
    compared = f"among {result.ids:,} in {_count(len(result.sources), 'source')}"
    if result.repeated_ids:
        ids = "1 id is" if result.repeated_ids == 1 else f"{result.repeated_ids:,} ids are"
        return "error", f"{ids} used by more than one row: {result.repeated_rows:,} rows, {compared}."
    none = f"No id is used by more than one row {compared}"
    if result.errors:
        return "error", f"{none}, but some values cannot be right."
    if result.shared_workers:
        return "warning", f"{none}, but worker ids are used on both sides: ids can clash later."
    if result.problems:
        return "warning", f"{none}; see the warnings."
    return "ok", f"{none}."


def _notices(result: CheckResult) -> Iterator[tuple[str, str, str]]:
    """Yield severity, text and advice for values that cannot be right, and for worker ids that are shared."""
    for problem in result.problems:
        count = f"{_count(problem.count, 'value')} " if problem.count else ""
        text = f"{problem.source}: {count}{problem.text}."
        if problem.examples:
            text += f" For example {', '.join(example[:_MAX_EXAMPLE] for example in problem.examples)}."
        yield "error" if problem.is_error else "warning", text, ""
    for shared in result.shared_workers:
        yield "warning", _shared_text(shared), _ADVICE_SHARED


def _shared_text(shared: SharedWorkers) -> str:
    """Return what is wrong with worker ids that two sources share."""
    one, other = shared.sources
    at_once = {0: "none", shared.workers: "all"}.get(shared.at_once, f"{shared.at_once:,}")
    ranges = f"{shared.first}" if shared.workers == 1 else f"from {shared.first} to {shared.last}"
    where = f" in datacenter {shared.datacenter}" if shared.datacenter else ""
    noun = "worker id is" if shared.workers == 1 else "worker ids are"
    return (
        f"{one} and {other}: {shared.workers:,} {noun} used by both{where}, {at_once} of them at the same time: "
        f"{ranges}. Their next ids can be equal."
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
