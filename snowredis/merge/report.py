"""The result of a check as lines for a terminal and as JSON, and the sentences that the HTML page has, too.

Names of sources and values of columns are untrusted text. Ids in JSON are strings: JavaScript loses digits past 2**53.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

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
from snowredis.merge.findings import CheckResult, DuplicatesIn, Example, Problem, SharedWorkers, WorkerRange

__all__ = [
    "ADVICE_DUPLICATES",
    "ADVICE_SHARED",
    "as_json",
    "as_lines",
    "problem_text",
    "shared_text",
    "verdict",
    "where",
]

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


def as_json(result: CheckResult) -> dict[str, Any]:
    """Return *result* for json.dumps()."""
    return {
        "now_ms": result.now_ms,
        "ids": result.ids,
        "sources": [asdict(source) for source in result.sources],
        "duplicates": {
            "ids": result.repeated_ids,
            "rows": result.repeated_rows,
            "in": [asdict(part) for part in result.duplicates],
            "by_worker": [asdict(part) for part in result.by_worker],
            "by_time": {
                "period_ms": result.period_ms,
                "periods": [asdict(part) for part in result.by_time],
            },
            "examples": [
                {"id": str(example.an_id), "in": [asdict(place) for place in example.occurrences]}
                for example in result.examples
            ],
        },
        "problems": [
            {
                **asdict(problem),
                "kind": str(problem.kind),
                "severity": "error" if problem.is_error else "warning",
            }
            for problem in result.problems
        ],
        "shared_workers": [asdict(shared) for shared in result.shared_workers],
        "read_s": round(result.read_s, 3),
        "compare_s": round(result.compare_s, 3),
    }


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


def where(part: DuplicatesIn) -> str:
    """Return the sources of repeated ids as text."""
    return f"{part.sources[0]} alone" if len(part.sources) == 1 else " and ".join(part.sources)


def problem_text(problem: Problem) -> str:
    """Return what is wrong with values of a source, and what to do, without the examples."""
    count = f"{_count(problem.count, 'value')} " if problem.count else ""
    return f"{problem.source}: {count}{problem.text}." if problem.source else f"{problem.text}."


def shared_text(shared: SharedWorkers) -> str:
    """Return what is wrong with worker ids that two sources share."""
    one, other = shared.sources
    at_once = "none of them at the same time"
    if shared.at_once:
        at_once = (
            f"{'all' if shared.at_once == shared.workers else f'{shared.at_once:,}'} of them at the same time"
        )
    ranges = ", ".join(map(_range_text, shared.ranges))
    listed = sum(part.last - part.first + 1 for part in shared.ranges)
    more = f" and {shared.workers - listed:,} more" if listed < shared.workers else ""
    noun = "worker id is" if shared.workers == 1 else "worker ids are"
    return (
        f"{one} and {other}: {shared.workers:,} {noun} used by both, {at_once}: {ranges}{more}. "
        "Their next ids can be equal."
    )


def _range_text(part: WorkerRange) -> str:
    workers = str(part.first) if part.first == part.last else f"{part.first} to {part.last}"
    return f"{workers} of datacenter {part.datacenter}" if part.datacenter else workers


def _ids(count: int) -> str:
    return "1 id is" if count == 1 else f"{count:,} ids are"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
