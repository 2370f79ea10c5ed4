"""`snowredis merge check`: which ids of several files and tables are repeated, and which cannot be right.

sources.py says where ids are, and reads them into the workspace, where this file finds those that are there twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from snowredis.core.as_json import IdNumber, NowMs, TimeMs
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.values import time_text
from snowredis.errors import count
from snowredis.merge.databases import Progress, text_literal
from snowredis.merge.sources import Source, Workspace, file_errors, ingest

# values that are no whole numbers of 64 bits; ids that the layout cannot have made until now; those whose time is in
# the layout's first hour, as of numbers of a counter; a source without ids
ProblemKind = Literal["no-number", "other-layout", "counter", "no-ids"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Values of one source that are not ids, or whose fields cannot be right.

    Attributes:
        source: name of the source.
        count: how many values.
        examples: the first and the last of them, as text that is not trusted.
        text: what is wrong, and what to do.
        is_error: the values cannot be right; else they are only unusual.
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
    """

    name: str
    location: str
    rows: int
    ids: int
    first_ms: TimeMs | None = None
    last_ms: TimeMs | None = None


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
        ids: how many were compared.
        repeated_ids, repeated_rows: how many different ids more than one row uses, and how many rows these are.
    """

    layout: str
    sources: list[SourceSummary]
    duplicates: list[DuplicatesIn]
    problems: list[Problem]
    now_ms: NowMs
    ids: int
    repeated_ids: int
    repeated_rows: int

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
_BY_SOURCES = (
    "SELECT sources, count(*), sum(times), min(id) FROM (SELECT id, list(source ORDER BY source) AS sources, "
    "sum(times) AS times FROM duplicates GROUP BY id) GROUP BY sources ORDER BY 2 DESC, sources"
)
# values by source and kind of problem; a plausible id has no kind
_GROUPS = """SELECT source, CASE WHEN id IS NULL THEN 'no-number' WHEN id < 0 OR id >= {future} THEN 'other-layout'
WHEN id < {first} THEN 'counter' ELSE '' END AS kind, count(*), coalesce(min(rejected), min(id)::VARCHAR),
coalesce(max(rejected), max(id)::VARCHAR) FROM ids GROUP BY ALL"""


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
    earliest_ms = layout.epoch_ms + _COUNTER_MS
    first, future = layout.id_range(earliest_ms, max(now_ms + _CLOCKS_DIFFER_MS, earliest_ms))
    with file_errors("the ids cannot be compared"):
        workspace.rows(f"CREATE TABLE duplicates AS {_DUPLICATES}")
        duplicates = [DuplicatesIn(tuple(names), *values) for names, *values in workspace.rows(_BY_SOURCES)]
        groups: dict[str, _Groups] = {source.name: {} for source in sources}
        for name, kind, *values in workspace.rows(_GROUPS.format(first=first, future=future)):
            groups[name][kind] = values
    summaries = [_summary(source, groups[source.name], layout) for source in sources]
    problems = [problem for source in sources for problem in _problems(source, groups[source.name], layout)]
    ids, repeated_ids = sum(source.ids for source in summaries), sum(part.ids for part in duplicates)
    repeated_rows = sum(part.rows for part in duplicates)
    return CheckResult(layout_spec(layout), summaries, duplicates, problems, now_ms, ids, repeated_ids, repeated_rows)


# how many values, and the lowest and the highest of them as text, by the kind of problem
_Groups = dict[str, list[Any]]


def _summary(source: Source, groups: _Groups, layout: Layout) -> SourceSummary:
    rows = sum(values for values, *_ in groups.values())
    times = [layout.decode(int(an_id)).timestamp_ms for an_id in groups.get("", [])[1:]]
    return SourceSummary(source.name, source.shown, rows, rows - groups.get("no-number", [0])[0], *times)


def _problems(source: Source, groups: _Groups, layout: Layout) -> Iterator[Problem]:
    texts: dict[ProblemKind, str] = {
        "counter": f"with a time in the first hour of the layout, from {time_text(layout.epoch_ms)} on. "
        "Probably numbers of a counter, such as an auto-increment, or of another layout",
        "no-ids": "there are no ids in it. See whether it is the right one",
        "no-number": "without a whole number of 64 bits. Not compared; rows without an id cannot be "
        "merged, so give them one. A spreadsheet or JavaScript has rounded numbers with a decimal point or an "
        "exponent: export them again as text",
        "other-layout": f"that the layout {layout} cannot have made until now: below 0, too large, or with a "
        "time in the future. Probably made with another one, which --layout names, or on a host whose clock was ahead",
    }
    for kind, text in texts.items():
        if values := (groups or {"no-ids": [0]}).get(kind):
            examples, is_error = sorted({*values[1:]} - {""}), kind in ("no-number", "other-layout")
            yield Problem(source.name, kind, values[0], examples, text, is_error)


_HEAD = b"id,source,times"


def unfit_for_duplicates(path: Path) -> str:
    """Return why *path* is not for export_duplicates(); empty: it is. A list that it wrote before is replaced."""
    if not path.absolute().parent.is_dir():
        return f"there is no directory for {path}"
    if path.is_file():
        with path.open("rb") as file:
            # another file may be a source after a forgotten FILE
            is_list = file.read(len(_HEAD)) in (b"", _HEAD)
    else:
        is_list = not path.is_dir()
    return "" if is_list else f"{path} is there, and is no list of repeated ids"


def export_duplicates(workspace: Workspace, path: Path) -> None:
    """Write all repeated ids as CSV: id, source, times; after check_sources()."""
    query = "SELECT id, source, times FROM duplicates ORDER BY id, source"
    with file_errors(f"{path} cannot be written", "Nothing was reported; name another file with --duplicates"):
        workspace.rows(f"COPY ({query}) TO {text_literal(str(path))} (FORMAT csv)")


# --- the result in a terminal: names of sources and values of columns are untrusted -------------------------

# sets of sources that are shown
_MAX_ROWS = 10
_ADVICE = (
    "Copy no rows by hand: snowredis merge draft and run give those of one database new ids. --duplicates writes all "
    "of these ids to a file."
)


def report(result: CheckResult) -> Iterator[tuple[str, str]]:
    """Yield the whole report: each text with the word before it."""
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
