"""The result of a check as lines for a terminal.

Names of sources and values of columns are untrusted text, here and in the tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from snowredis.cli.output import Column, Line, duration, printable, table, terminal_width, time_of, wrapped
from snowredis.merge.findings import CheckResult, SharedWorkers

__all__ = ["as_lines"]

# rows of a table in a terminal
_MAX_ROWS = 10
_MAX_CELL = 80
_MAX_EXAMPLE = 60


def _sources(result: CheckResult) -> list[Line]:
    """Return the table of what was read."""
    columns = [Column("SOURCE", shrinks=True), _number("IDS"), _number("WORKERS"), Column("FIRST"), Column("LAST")]
    rows = [
        [source.name, f"{source.ids:,}", f"{source.workers:,}", _time(source.first_ms), _time(source.last_ms)]
        + [source.location]
        for source in result.sources
    ]
    return _lines([*columns, Column("READ FROM", shrinks=True, optional=True)], rows)


def _repeated(result: CheckResult) -> list[Line]:
    """Return the tables of the repeated ids."""
    rows = [
        [" and ".join(part.sources) if part.sources[1:] else f"{part.sources[0]} alone"]
        + [f"{part.ids:,}", f"{part.rows:,}"]
        for part in result.duplicates
    ]
    lines = [[], *_lines([Column("REPEATED IN", shrinks=True), _number("IDS"), _number("ROWS")], rows)]
    rows = [[str(place.an_id), place.source, f"{place.times:,}"] for place in result.examples]
    return [*lines, [], *_lines([Column("ID"), Column("IN", shrinks=True), _number("TIMES")], rows)]


def _number(title: str) -> Column:
    return Column(title, right=True)


def _time(time_ms: int | None) -> str:
    return "-" if time_ms is None else time_of(time_ms)


# --- lines ---------------------------------------------------------------------------------------------


def as_lines(result: CheckResult) -> list[Line]:
    """Return the whole report."""
    severity, text = verdict(result)
    style = {"error": "bad", "warning": "warn", "ok": "good"}[severity]
    lines: list[Line] = [*_sources(result), [], *wrapped([(f"{severity:<8}", style)], text, "strong")]
    if result.repeated_ids:
        lines += wrapped([(" " * 8 + "→ ", "dim")], ADVICE_DUPLICATES, "note")
        lines += _repeated(result)
    for severity, text, advice in notices(result):
        style = "bad" if severity == "error" else "warn"
        lines += [[], *wrapped([(f"{severity:<8}", style)], printable(text))]
        lines += wrapped([(" " * 8 + "→ ", "dim")], advice, "note") if advice else []
    text = f"read in {duration(result.read_s * 1000)}, compared in {duration(result.compare_s * 1000)}"
    return [*lines, [], [(text, "dim")]]


def _lines(columns: list[Column], rows: list[list[str]]) -> list[Line]:
    """Return a table of the most important rows, which come first."""
    shown = [[printable(cell, _MAX_CELL) for cell in row] for row in rows[:_MAX_ROWS]]
    lines = table(columns, shown, terminal_width())
    if len(rows) > _MAX_ROWS:
        lines.append([(f"and {len(rows) - _MAX_ROWS:,} more, see --json", "dim")])
    return lines


# --- sentences -------------------------------------------------------------------------------------------

ADVICE_DUPLICATES = (
    "Merge nothing yet: give the rows of one side new ids first (snowredis merge plan), and write all of "
    "these ids to a "
    "file with --duplicates."
)
ADVICE_SHARED = (
    "If both go on making ids, give each its own datacenter or its own pool before they are merged, or let one of them "
    "end."
)


def verdict(result: CheckResult) -> tuple[str, str]:
    """Return the severity, ``error``, ``warning`` or ``ok``, and one sentence."""
    compared = f"among {result.ids:,} in {_count(len(result.sources), 'source')}"
    if result.repeated_ids:
        rows = f"{result.repeated_rows:,} rows, {compared}"
        return "error", f"{_ids(result.repeated_ids)} used by more than one row: {rows}."
    none = f"No id is used by more than one row {compared}"
    if result.errors:
        return "error", f"{none}, but some values cannot be right."
    if result.shared_workers:
        return "warning", f"{none}, but worker ids are used on both sides: ids can clash later."
    if result.problems:
        return "warning", f"{none}; see the warnings."
    return "ok", f"{none}."


def notices(result: CheckResult) -> Iterator[tuple[str, str, str]]:
    """Yield severity, text and advice for values that cannot be right, and for worker ids that are shared."""
    for problem in result.problems:
        count = f"{_count(problem.count, 'value')} " if problem.count else ""
        text = f"{problem.source}: {count}{problem.text}." if problem.source else f"{problem.text}."
        if problem.examples:
            text += f" For example {', '.join(example[:_MAX_EXAMPLE] for example in problem.examples)}."
        yield "error" if problem.is_error else "warning", text, ""
    for shared in result.shared_workers:
        yield "warning", _shared_text(shared), ADVICE_SHARED


def _shared_text(shared: SharedWorkers) -> str:
    """Return what is wrong with worker ids that two sources share."""
    one, other = shared.sources
    at_once = "none of them at the same time"
    if shared.at_once:
        at_once = f"{'all' if shared.at_once == shared.workers else f'{shared.at_once:,}'} of them at the same time"
    ranges = f"{shared.first}" if shared.workers == 1 else f"from {shared.first} to {shared.last}"
    where = f" in datacenter {shared.datacenter}" if shared.datacenter else ""
    noun = "worker id is" if shared.workers == 1 else "worker ids are"
    return (
        f"{one} and {other}: {shared.workers:,} {noun} used by both{where}, {at_once}: {ranges}. "
        "Their next ids can be equal."
    )


def _ids(count: int) -> str:
    return "1 id is" if count == 1 else f"{count:,} ids are"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
