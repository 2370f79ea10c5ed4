"""The result of `merge check` as lines for a terminal. Names of sources and values of columns are untrusted text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snowredis.cli.output import (
    MAX_FOREIGN,
    Cell,
    Column,
    Line,
    duration,
    printable,
    table,
    terminal_width,
    time_of,
    wrapped,
)
from snowredis.merge.report.words import (
    ADVICE_DUPLICATES,
    ADVICE_SHARED,
    problem_text,
    shared_text,
    verdict,
    where,
)

if TYPE_CHECKING:
    from snowredis.merge.check.result import CheckResult, Example

# rows of a table; the JSON has more
_MAX_ROWS = 10


def as_lines(result: CheckResult) -> list[Line]:
    """Return the whole report."""
    severity, text = verdict(result)
    style = {"error": "bad", "warning": "warn", "ok": "good"}[severity]
    lines: list[Line] = [*_sources(result), [], *wrapped([(f"{severity:<8}", style)], text, "strong")]
    if result.repeated_ids:
        lines += _duplicates(result)
    for problem in result.problems:
        head, style = ("error", "bad") if problem.is_error else ("warning", "warn")
        examples = ", ".join(printable(example, 30) for example in problem.examples)
        text = printable(problem_text(problem)) + (f" For example {examples}." if examples else "")
        lines += [[], *wrapped([(f"{head:<8}", style)], text)]
    for shared in result.shared_workers:
        lines += [[], *wrapped([("warning ", "warn")], printable(shared_text(shared)))]
        lines += wrapped([(" " * 8 + "→ ", "dim")], ADVICE_SHARED, "note")
    rate = result.ids / result.read_s / 1e6 if result.read_s > 0.05 else 0.0
    speed = f" ({rate:.1f} M ids/s)" if rate and result.ids > 100_000 else ""
    text = f"read in {duration(result.read_s * 1000)}{speed}, compared in {duration(result.compare_s * 1000)}"
    return [*lines, [], [(text, "dim")]]


def _sources(result: CheckResult) -> list[Line]:
    columns = [
        Column("SOURCE", shrinks=True),
        Column("IDS", right=True),
        Column("WORKERS", right=True),
        Column("FIRST"),
        Column("LAST"),
        Column("READ FROM", shrinks=True, optional=True),
    ]
    rows: list[list[Cell]] = [
        [
            (printable(source.name, MAX_FOREIGN), "strong"),
            f"{source.ids:,}",
            f"{source.workers:,}",
            "-" if source.first_ms is None else time_of(source.first_ms),
            "-" if source.last_ms is None else time_of(source.last_ms),
            (printable(source.location, 80), "dim"),
        ]
        for source in result.sources
    ]
    return table(columns, rows, terminal_width())


def _duplicates(result: CheckResult) -> list[Line]:
    lines: list[Line] = [*wrapped([(" " * 8 + "→ ", "dim")], ADVICE_DUPLICATES, "note"), []]
    rows: list[list[Cell]] = [
        [printable(where(part), 80), f"{part.ids:,}", f"{part.rows:,}"]
        for part in result.duplicates[:_MAX_ROWS]
    ]
    lines += table(
        [Column("REPEATED IN", shrinks=True), Column("IDS", right=True), Column("ROWS", right=True)],
        rows,
        terminal_width(),
    )
    lines += _more(len(result.duplicates))
    shown = result.by_worker[:_MAX_ROWS]
    rows = [
        [
            printable(part.source, MAX_FOREIGN),
            *(("-", "-") if part.worker is None else (str(part.datacenter), str(part.worker))),
            f"{part.ids:,}",
        ]
        for part in shown
    ]
    columns = [Column("IN", shrinks=True), Column("DATACENTER", right=True), Column("WORKER", right=True)]
    lines += [[], *table([*columns, Column("REPEATED IDS", right=True)], rows, terminal_width())]
    lines += _more(len(result.by_worker))
    by_time = sorted(result.by_time, key=lambda part: -part.ids)[:_MAX_ROWS]
    rows = [
        [time_of(part.start_ms), f"{part.ids:,}"] for part in sorted(by_time, key=lambda part: part.start_ms)
    ]
    if rows:
        head = f"IN THE {duration(result.period_ms).upper()} FROM"
        lines += [[], *table([Column(head), Column("REPEATED IDS", right=True)], rows)]
        lines += _more(len(result.by_time))
    lines += [[], [("the smallest of them:", "dim")]]
    for example in result.examples[:_MAX_ROWS]:
        lines += _example(example)
    return lines


def _example(example: Example) -> list[Line]:
    lines: list[Line] = []
    for place in example.occurrences:
        made = "no id of its layout"
        if place.worker is not None and place.time_ms is not None:
            datacenter = f"datacenter {place.datacenter}, " if place.datacenter else ""
            made = f"{datacenter}worker {place.worker}, {time_of(place.time_ms)}"
        times = f", {place.times:,} times" if place.times > 1 else ""
        head = str(example.an_id) if not lines else ""
        lines.append(
            [
                (f"  {head:<20}", "strong"),
                (f"{printable(place.source, MAX_FOREIGN)}: ", ""),
                (made + times, "dim"),
            ]
        )
    return lines


def _more(count: int) -> list[Line]:
    return [[(f"and {count - _MAX_ROWS:,} more, see --json", "dim")]] if count > _MAX_ROWS else []
