"""`snowredis merge check`: which ids of several files and tables are repeated, and which cannot be right.

sources.py says where ids are, and reads them into the workspace, where this file finds those that are there twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from snowredis.cli.output import printable, wrapped
from snowredis.core.as_json import IdNumber, NowMs, TimeMs, in_json
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.values import time_text
from snowredis.errors import count
from snowredis.merge.databases import Progress, text_literal
from snowredis.merge.sources import Source, Workspace, ingest


class ProblemKind(StrEnum):
    """Kinds of values of a column that are wrong."""

    NO_NUMBER = "no-number"  # no whole number of 64 bits
    OTHER_LAYOUT = "other-layout"  # the layout cannot have made it until now
    COUNTER = "counter"  # its time is in the layout's first hour, as with numbers of a counter
    NO_IDS = "no-ids"


@dataclass(frozen=True, slots=True)
class Problem:
    """Values of one source that are not ids, or whose fields cannot be right.

    Attributes:
        source: name of the source.
        count: how many values.
        examples: the first and the last of them, as text that is not trusted.
        text: what is wrong, and what to do.
    """

    source: str
    kind: ProblemKind
    count: int
    examples: list[str]
    text: str

    @property
    @in_json
    def is_error(self) -> bool:
        """True if the values cannot be right; else they are only unusual."""
        return self.kind in (ProblemKind.NO_NUMBER, ProblemKind.OTHER_LAYOUT)


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """Summary of a source.

    Attributes:
        location: file or table, without a password.
        rows: how many values, NULL included.
        ids: how many of them are whole numbers of 64 bits.
        first_ms, last_ms: time of the first and last plausible id, Unix ms; None if there is none.
    """

    name: str
    location: str
    rows: int
    ids: int
    first_ms: TimeMs | None
    last_ms: TimeMs | None


@dataclass(frozen=True, slots=True)
class DuplicatesIn:
    """Ids that exactly these sources have more than once between them, in how many rows, and the smallest of them."""

    sources: tuple[str, ...]
    ids: int
    rows: int
    smallest: IdNumber


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check.

    Attributes:
        layout: of all ids, the full text form.
        sources: what was read.
        duplicates: repeated ids by the sources that have them, the most first.
        problems: values that are not ids, or that cannot be right.
        now_ms: when the check was made, Unix ms: later times are in the future.
    """

    layout: str
    sources: list[SourceSummary]
    duplicates: list[DuplicatesIn]
    problems: list[Problem]
    now_ms: NowMs

    @property
    @in_json
    def ids(self) -> int:
        """Number of ids that were compared."""
        return sum(source.ids for source in self.sources)

    @property
    @in_json
    def repeated_ids(self) -> int:
        """Number of different ids that more than one row uses."""
        return sum(part.ids for part in self.duplicates)

    @property
    @in_json
    def repeated_rows(self) -> int:
        """Number of rows that these are in."""
        return sum(part.rows for part in self.duplicates)

    @property
    def has_errors(self) -> bool:
        """True if there are values that cannot be right."""
        return any(problem.is_error for problem in self.problems)


# a layout's first hour holds no id of a generator that was started later, but every counter that starts at 1
_COUNTER_MS = 3_600_000
# ids whose time is less than this ahead are not from the future: clocks differ
_CLOCKS_DIFFER_MS = 60_000
_TWICE = "SELECT id FROM ids WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1"
# repeated ids are few, so one more pass over all sources counts them
_DUPLICATES = f"SELECT id, source, count(*) AS times FROM ids SEMI JOIN ({_TWICE}) USING (id) GROUP BY ALL"


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
    ingest(workspace, sources, progress)
    progress.start("comparing")
    with workspace.errors("the ids cannot be compared"):
        workspace.rows(f"CREATE TABLE duplicates AS {_DUPLICATES}")
        _make_groups(workspace, layout, now_ms)
        return CheckResult(
            layout_spec(layout),
            _summaries(workspace, sources, layout),
            _duplicates(workspace, sources),
            list(_problems(workspace, sources, layout)),
            now_ms,
        )


def _make_groups(workspace: Workspace, layout: Layout, now_ms: int) -> None:
    """Make the table ``groups``: ids by source and kind of problem; a plausible id has no kind."""
    earliest_ms = layout.epoch_ms + _COUNTER_MS
    first, future = layout.id_range(earliest_ms, max(now_ms + _CLOCKS_DIFFER_MS, earliest_ms))
    kind = (
        f"CASE WHEN id IS NULL THEN '{ProblemKind.NO_NUMBER}' WHEN id < 0 OR id >= {future} THEN "
        f"'{ProblemKind.OTHER_LAYOUT}' WHEN id < {first} THEN '{ProblemKind.COUNTER}' ELSE '' END AS kind"
    )
    ends = "min(id) AS lowest, max(id) AS highest, min(rejected) AS one_text, max(rejected) AS other_text"
    workspace.rows(
        f"CREATE TABLE groups AS SELECT source, {kind}, count(*)::BIGINT AS ids, {ends} FROM ids GROUP BY ALL"
    )


def _summaries(workspace: Workspace, sources: Sequence[Source], layout: Layout) -> list[SourceSummary]:
    query = (
        f"SELECT source, sum(ids), sum(ids) FILTER (kind <> '{ProblemKind.NO_NUMBER}'), "
        "min(lowest) FILTER (kind = ''), max(highest) FILTER (kind = '') FROM groups GROUP BY source"
    )
    found = {number: values for number, *values in workspace.rows(query)}
    summaries = []
    for number, source in enumerate(sources):
        rows, ids, *ends = found.get(number, (0, 0, None, None))
        times = [None if an_id is None else layout.decode(an_id).timestamp_ms for an_id in ends]
        summaries.append(SourceSummary(source.name, source.shown, int(rows), int(ids or 0), *times))
    return summaries


def _duplicates(workspace: Workspace, sources: Sequence[Source]) -> list[DuplicatesIn]:
    rows = workspace.rows(
        "SELECT sources, count(*), sum(times), min(id) FROM (SELECT id, list(source ORDER BY source) AS sources, "
        "sum(times) AS times FROM duplicates GROUP BY id) GROUP BY sources ORDER BY 2 DESC, sources"
    )
    return [DuplicatesIn(tuple(sources[number].name for number in numbers), *rest) for numbers, *rest in rows]


def _problems(workspace: Workspace, sources: Sequence[Source], layout: Layout) -> Iterator[Problem]:
    """Yield the problems of all sources, in their order."""
    texts = {
        ProblemKind.NO_NUMBER: "without a whole number of 64 bits. Not compared; rows without an id cannot be "
        "merged, so give them one. A spreadsheet or JavaScript has rounded numbers with a decimal point or an "
        "exponent: export them again as text",
        ProblemKind.OTHER_LAYOUT: f"that the layout {layout} cannot have made until now: below 0, too large, or with a "
        "time in the future. Probably made with another one, which --layout names, or on a host whose clock was ahead",
        ProblemKind.COUNTER: f"with a time in the first hour of the layout, from {time_text(layout.epoch_ms)} on. "
        "Probably numbers of a counter, such as an auto-increment, or of another layout",
        ProblemKind.NO_IDS: "there are no ids in it. See whether it is the right one",
    }
    rows = workspace.rows(
        "SELECT source, kind, ids, list_distinct([coalesce(one_text, lowest::VARCHAR), "
        "coalesce(other_text, highest::VARCHAR)]) FROM groups ORDER BY source, kind"
    )
    for number, source in enumerate(sources):
        mine = [row for row in rows if row[0] == number]
        for _, kind, values, examples in mine or [(number, ProblemKind.NO_IDS, 0, [])]:
            if kind:
                texts_of = sorted(filter(None, examples))
                yield Problem(source.name, ProblemKind(kind), values, texts_of, texts[ProblemKind(kind)])


def export_duplicates(workspace: Workspace, sources: Sequence[Source], path: Path) -> None:
    """Write all repeated ids as CSV: id, source, times; after check_sources()."""
    names = " ".join(f"WHEN {number} THEN {text_literal(source.name)}" for number, source in enumerate(sources))
    query = f"SELECT id, CASE source {names} END AS source, times FROM duplicates ORDER BY id, duplicates.source"
    with workspace.errors(f"{path} cannot be written"):
        workspace.rows(f"COPY ({query}) TO {text_literal(str(path))} (FORMAT csv)")


# --- the result in a terminal: names of sources and values of columns are untrusted -------------------------

# sets of sources that are shown
_MAX_ROWS = 10
_ADVICE = (
    "Copy no rows by hand: snowredis merge draft and run give those of one database new ids. --duplicates writes all "
    "of these ids to a file."
)


def as_lines(result: CheckResult) -> Iterator[str]:
    """Yield the whole report."""
    for word, text in _report(result):
        yield from wrapped(f"{word:<8}", printable(text))


def _report(result: CheckResult) -> Iterator[tuple[str, str]]:
    """Yield what was found, each with the word before it."""
    among = f"among {result.ids:,} in {count(len(result.sources), 'source')}"
    if result.repeated_ids:
        ids = "1 id is" if result.repeated_ids == 1 else f"{result.repeated_ids:,} ids are"
        yield "error", f"{ids} used by more than one row: {result.repeated_rows:,} rows, {among}. {_ADVICE}"
    elif result.problems:
        word, which = ("error", "some values cannot be right") if result.has_errors else ("warning", "see below")
        yield word, f"No id is used by more than one row {among}, but {which}."
    else:
        yield "ok", f"No id is used by more than one row {among}."
    for part in result.duplicates[:_MAX_ROWS]:
        where = " and ".join(part.sources) if part.sources[1:] else f"{part.sources[0]} alone"
        yield "twice", f"in {where}: {count(part.ids, 'id')} in {part.rows:,} rows; the smallest is {part.smallest}"
    if more := len(result.duplicates[_MAX_ROWS:]):
        yield "twice", f"in {more:,} more sets of sources, see --json"
    for problem in result.problems:
        values = f"{count(problem.count, 'value')} " if problem.count else ""
        examples = f" For example {', '.join(text[:60] for text in problem.examples)}." if problem.examples else ""
        yield "error" if problem.is_error else "warning", f"{problem.source}: {values}{problem.text}.{examples}"
    for source in result.sources:
        times = [time_text(each) for each in (source.first_ms, source.last_ms) if each is not None]
        made = f", made {' to '.join(times)}" if times else ""
        yield "read", f"{source.name}: {count(source.ids, 'id')}{made}, from {source.location}"
