"""The result of a check as one HTML page that needs nothing else: no script, no font, no request.

Names of sources and values of columns are untrusted text: everything that is not written here goes through `_text()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import metadata

from snowredis.core.layout import utc_text
from snowredis.merge.check.picture import Picture
from snowredis.merge.check.result import CheckResult, Problem
from snowredis.merge.report.chart import STYLE as CHART_STYLE
from snowredis.merge.report.chart import chart, legend
from snowredis.merge.report.words import (
    ADVICE_DUPLICATES,
    ADVICE_SHARED,
    problem_text,
    shared_text,
    verdict,
    where,
)

__all__ = ["as_page"]

_STYLE = """
:root { color-scheme: light dark; --text: #1d2433; --dim: #5b6475; --back: #ffffff; --line: #d8dde6; --soft: #f4f6f9;
  --bad: #c62828; --warn: #9a6700; --good: #1a7f37 }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ef; --dim: #9aa4b5; --back: #12161d; --line: #2c3442;
  --soft: #1a202a; --bad: #ff7b72; --warn: #e3b341; --good: #57c26c } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 24px 20px 60px; max-width: 1080px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 22px; margin: 0 } h2 { font-size: 17px; margin: 36px 0 8px } h3 { font-size: 15px; margin: 22px 0 6px }
.dim, caption { color: var(--dim) } p { margin: 6px 0; max-width: 80ch }
.verdict { margin: 16px 0; padding: 12px 16px; border-left: 5px solid; background: var(--soft); font-weight: 600 }
.error { border-color: var(--bad) } .warning { border-color: var(--warn) } .ok { border-color: var(--good) }
.verdict span, li b { text-transform: uppercase; font-size: 12px; letter-spacing: .05em; margin-right: 8px }
.error span, .error b { color: var(--bad) }
.warning span, .warning b { color: var(--warn) } .ok span { color: var(--good) }
ul { list-style: none; padding: 0; margin: 0 } li { border-left: 5px solid; padding: 4px 14px; margin: 8px 0;
  background: var(--soft); overflow-wrap: anywhere }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 500; color: var(--dim) } th, td { padding: 3px 18px 3px 0; vertical-align: top;
  border-bottom: 1px solid var(--line); white-space: nowrap }
td.wrap { white-space: normal; overflow-wrap: anywhere; min-width: 12ch } .n { text-align: right }
code { font-family: ui-monospace, monospace; font-size: 13px }
"""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
# rows of a table; the JSON has more
_MAX_ROWS = 25


def as_page(result: CheckResult, picture: Picture) -> str:
    """Return the page."""
    severity, text = verdict(result)
    names = [source.name for source in result.sources]
    body = [
        "<h1>Do the ids clash?</h1>",
        f'<p class="dim">snowredis merge check {_text(metadata.version("snowredis"))}, {_time(result.now_ms)}</p>',
        f'<div class="verdict {severity}"><span>{severity}</span>{_text(text)}</div>',
        f"<p>{_text(ADVICE_DUPLICATES)}</p>" if result.repeated_ids else "",
        "<h2>Sources</h2>",
        _sources(result),
        "<h2>Who made what when</h2>",
        '<p class="dim">Each row is a worker id, or several; each column a period. Darker means more ids. A cell in '
        "two colors has ids of both sources: from there, ids can clash. Red marks cells with repeated ids.</p>",
        legend(names),
        chart(picture, names),
    ]
    if result.repeated_ids:
        body += ["<h2>Repeated ids</h2>", *_duplicates(result)]
    if result.problems or result.shared_workers:
        body += ["<h2>Problems</h2>", _problems(result)]
    return _PAGE.format(
        title="Do the ids clash?", style=_STYLE + CHART_STYLE, body="\n".join(filter(None, body))
    )


def _sources(result: CheckResult) -> str:
    rows = [
        [
            _text(source.name),
            _number(source.ids),
            _number(source.workers),
            _time(source.first_ms),
            _time(source.last_ms),
            _text(source.location),
            f"<code>{_text(source.layout.partition(';')[0])}</code>",
        ]
        for source in result.sources
    ]
    heads = ["source", "ids", "worker ids", "first", "last", "read from", "layout"]
    return _table(heads, rows, numbers={1, 2}, wrap={0, 5})


def _duplicates(result: CheckResult) -> Iterable[str]:
    rows = [
        [_text(where(part)), _number(part.ids), _number(part.rows)] for part in result.duplicates[:_MAX_ROWS]
    ]
    yield _table(["in", "ids", "rows"], rows, numbers={1, 2}, wrap={0}, of=len(result.duplicates))
    rows = [
        [
            _text(part.source),
            "" if part.datacenter is None else str(part.datacenter),
            "" if part.worker is None else str(part.worker),
            _number(part.ids),
        ]
        for part in result.by_worker[:_MAX_ROWS]
    ]
    heads = ["in", "datacenter", "worker id", "repeated ids"]
    yield "<h3>By worker id</h3>"
    yield _table(heads, rows, numbers={1, 2, 3}, wrap={0}, of=len(result.by_worker))
    most = sorted(result.by_time, key=lambda part: -part.ids)[:_MAX_ROWS]
    rows = [
        [_time(part.start_ms), _number(part.ids)] for part in sorted(most, key=lambda part: part.start_ms)
    ]
    yield "<h3>By time</h3>"
    yield _table(["from", "repeated ids"], rows, numbers={1}, of=len(result.by_time))
    rows = [
        [
            f"<code>{example.an_id}</code>" if not at else "",
            _text(place.source),
            "" if place.worker is None else str(place.worker),
            _time(place.time_ms),
            _number(place.times),
        ]
        for example in result.examples
        for at, place in enumerate(example.occurrences)
    ]
    yield "<h3>The smallest of them</h3>"
    yield _table(["id", "in", "worker id", "made at", "times"], rows, numbers={2, 4}, wrap={1})


def _problems(result: CheckResult) -> str:
    items = [
        _item("error" if problem.is_error else "warning", _problem(problem)) for problem in result.problems
    ]
    items += [
        _item("warning", f"{_text(shared_text(shared))} {_text(ADVICE_SHARED)}")
        for shared in result.shared_workers
    ]
    return f"<ul>{''.join(items)}</ul>"


def _problem(problem: Problem) -> str:
    examples = ", ".join(f"<code>{_text(example[:60])}</code>" for example in problem.examples)
    return _text(problem_text(problem)) + (f" For example {examples}." if examples else "")


def _item(severity: str, content: str) -> str:
    return f'<li class="{severity}"><b>{severity}</b>{content}</li>'


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: set[int] = frozenset(),  # type: ignore[assignment]
    wrap: set[int] = frozenset(),  # type: ignore[assignment]
    of: int = 0,
) -> str:
    """Return a table; the cells are HTML already. *of*: how many rows there would be without a limit."""

    def cell(tag: str, at: int, content: str) -> str:
        kind = "n" if at in numbers else "wrap" if at in wrap else ""
        return f'<{tag} class="{kind}">{content}</{tag}>' if kind else f"<{tag}>{content}</{tag}>"

    lines = ["".join(cell("th", at, head) for at, head in enumerate(heads))]
    lines += ["".join(cell("td", at, content) for at, content in enumerate(row)) for row in rows]
    more = f'<p class="dim">and {of - len(rows):,} more, see --json</p>' if of > len(rows) else ""
    return f'<div class="scroll"><table>{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>{more}'


def _text(text: str) -> str:
    """Return untrusted text as HTML, with control and format characters made visible."""
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return escape(shown)


def _number(number: int) -> str:
    return f"{number:,}"


def _time(time_ms: int | None) -> str:
    return "" if time_ms is None else _text(utc_text(time_ms) or "past the year 9999")
