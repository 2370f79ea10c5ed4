"""The result of a check as one HTML page that needs nothing else: no script, no font, no request.

Its picture shows worker ids by time, with a color for each source. Names of sources and values of columns are untrusted
text: everything that is not written here goes through `_text()`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata
from importlib.resources import files

from snowredis.cli.output import time_of
from snowredis.merge.findings import CheckResult
from snowredis.merge.id_sql import Bounds, FieldSql
from snowredis.merge.places import Places
from snowredis.merge.report import ADVICE_DUPLICATES, Table, notices, repeated, verdict
from snowredis.merge.report import sources as sources_of
from snowredis.merge.sources import Source

__all__ = ["Picture", "as_page", "draw"]

# rows of a table; the JSON has all
_MAX_ROWS = 25


def as_page(result: CheckResult, picture: Picture) -> str:
    """Return the page."""
    severity, text = verdict(result)
    names = [source.name for source in result.sources]
    body = [
        "<h1>Do the ids clash?</h1>",
        f'<p class="dim">snowredis merge check {_text(metadata.version("snowredis"))}, {time_of(result.now_ms)}</p>',
        f'<div class="verdict {severity}"><span>{severity}</span>{_text(text)}</div>',
        f"<p>{_text(ADVICE_DUPLICATES)}</p>" if result.repeated_ids else "",
        "<h2>Sources</h2>",
        _table(sources_of(result)),
        "<h2>Who made what when</h2>",
        '<p class="dim">Each row is a worker id, or several; each column a period. Darker means more ids. A cell in '
        "two colors has ids of both sources: from there, ids can clash. Red marks cells with repeated ids.</p>",
        _legend(names),
        _chart(picture, names),
    ]
    if result.repeated_ids:
        body += ["<h2>Repeated ids</h2>", *map(_table, repeated(result))]
    if result.problems or result.shared_workers:
        body += ["<h2>Problems</h2>", _notices(result)]
    page = (files("snowredis.merge") / "page.html").read_text("utf-8")
    return page.replace("<!-- body -->", "\n".join(filter(None, body)))


def _notices(result: CheckResult) -> str:
    items = [
        f'<li class="{severity}"><b>{severity}</b>{_text(f"{text} {advice}")}</li>'
        for severity, text, advice in notices(result)
    ]
    return f"<ul>{''.join(items)}</ul>"


def _table(part: Table) -> str:
    kinds = [' class="n"' if c.right else ' class="wrap"' if c.shrinks else "" for c in part.columns]

    def line(tag: str, cells: Iterable[str]) -> str:
        return "".join(f"<{tag}{kind}>{_text(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))

    lines = [line("th", (column.title for column in part.columns))]
    lines += [line("td", row) for row in part.rows[:_MAX_ROWS]]
    left = len(part.rows) - _MAX_ROWS
    title = f"<h3>{part.title}</h3>" if part.title else ""
    more = f'<p class="dim">and {left:,} more, see --json</p>' if left > 0 else ""
    rows = "".join(f"<tr>{each}</tr>" for each in lines)
    return f'{title}<div class="scroll"><table>{rows}</table></div>{more}'


def _text(text: str) -> str:
    """Return untrusted text as HTML, with control and format characters made visible."""
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return escape(shown)


# --- the picture as SVG ----------------------------------------------------------------------------------

# classes of page.html for the sources: colors which people with color blindness can tell apart
_COLORS = 8
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 10, 20, 26
_WIDTH = 1040
_MIN_HEIGHT, _MAX_ROW, _MIN_ROW = 120, 22, 9
_TIME_LABELS = 5


def _legend(names: Sequence[str]) -> str:
    """Return what the colors mean, as HTML."""
    items = [f'<span><i class="{_class_of(at)}"></i>{escape(name)}</span>' for at, name in enumerate(names)]
    return f'<div class="legend">{"".join(items)}</div>'


def _chart(picture: Picture, names: Sequence[str]) -> str:
    """Return the picture as SVG, or a sentence if there is nothing to show."""
    if not picture.cells:
        return "<p>No source has an id of its layout, so there is nothing to show.</p>"
    height = min(_MAX_ROW, max(_MIN_ROW, _MIN_HEIGHT // len(picture.rows)))
    width = (_WIDTH - _LEFT - _RIGHT) / picture.columns
    bottom = _TOP + height * len(picture.rows)
    most = max(max(cell.ids.values()) for cell in picture.cells)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {bottom + _BOTTOM}" role="img" aria-label="ids by worker id and time">',
        *_axes(picture, height, width, bottom),
    ]
    # repeated ids last: their marks lie over the neighbors
    for cell in sorted(picture.cells, key=lambda cell: cell.repeated > 0):
        parts += _cell(picture, cell, names, most, width, height)
    return "".join([*parts, "</svg>"])


def _class_of(source: int) -> str:
    return f"s{source % _COLORS}"


def _axes(picture: Picture, height: int, width: float, bottom: int) -> Iterator[str]:
    yield f'<text x="{_LEFT - 8}" y="{_TOP - 8}" text-anchor="end">worker id</text>'
    # a label needs 13 units
    every = max(1, math.ceil(13 / height))
    for at, row in enumerate(picture.rows):
        if at % every == 0:
            y = _TOP + height * at
            yield f'<text x="{_LEFT - 8}" y="{y + height / 2 + 4:.1f}" text-anchor="end">{_row_text(row)}</text>'
            yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
    yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    count = min(_TIME_LABELS, picture.columns)
    for at in range(count):
        column = picture.columns * at // count
        x = _LEFT + column * width
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom + 5}"/>'
        yield f'<text x="{x + 3:.1f}" y="{bottom + 17}">{_column_time(picture, column)}</text>'


def _row_text(row: Row) -> str:
    (first_datacenter, first), (last_datacenter, last) = row.first, row.last
    start = f"{first_datacenter}/{first}" if last_datacenter else str(first)
    if row.first == row.last:
        return start
    return f"{start} to {f'{last_datacenter}/{last}' if last_datacenter else last}"


def _column_time(picture: Picture, column: int) -> str:
    text = time_of(picture.start_ms + column * picture.column_ms)
    if picture.column_ms >= 3_600_000:
        return text[:16].replace("T", " ")
    return text[:10] + " " + text[11 : 19 if picture.column_ms >= 1000 else 23]


def _cell(picture: Picture, cell: Cell, names: Sequence[str], most: int, width: float, height: int) -> Iterator[str]:
    x, y = _LEFT + cell.column * width, _TOP + cell.row * height
    counts = ", ".join(f"{names[source]}: {count:,} ids" for source, count in sorted(cell.ids.items()))
    repeated = f"; {cell.repeated:,} are repeated" if cell.repeated else ""
    row = picture.rows[cell.row]
    title = f"worker id {_row_text(row)}, from {_column_time(picture, cell.column)}: {counts}{repeated}"
    yield f"<g><title>{escape(title)}</title>"
    stripe = width / len(cell.ids)
    for at, (source, count) in enumerate(sorted(cell.ids.items())):
        # logarithmic: a burst must not make everything else invisible
        opacity = 0.35 + 0.65 * math.log1p(count) / math.log1p(most)
        yield (
            f'<rect class="{_class_of(source)}" x="{x + at * stripe:.2f}" y="{y + 0.5}" width="{stripe:.2f}" '
            f'height="{height - 1}" opacity="{opacity:.2f}"/>'
        )
    if cell.repeated:
        yield f'<rect class="clash" x="{x:.2f}" y="{y + 0.8}" width="{width:.2f}" height="{height - 1.6:.1f}"/>'
        radius = min(width, height) * 0.22
        yield f'<circle class="dot" cx="{x + width / 2:.2f}" cy="{y + height / 2:.1f}" r="{radius:.2f}"/>'
    yield "</g>"


# --- what the picture shows ------------------------------------------------------------------------------

MAX_ROWS = 64
COLUMNS = 96


@dataclass(frozen=True, slots=True)
class Row:
    """Worker ids that share a row of the picture, as (datacenter, worker); both ends included."""

    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cell:
    """One row in one period.

    Attributes:
        ids: how many ids each source has, by its number.
        repeated: how many of them are repeated anywhere.
    """

    row: int
    column: int
    ids: dict[int, int]
    repeated: int


@dataclass(frozen=True, slots=True)
class Picture:
    """A grid of worker ids and periods.

    Attributes:
        start_ms: Unix ms at which the first column starts.
        column_ms: length of a column.
        columns: how many there are.
        cells: those that have ids, in no order.
    """

    start_ms: int
    column_ms: int
    columns: int
    rows: list[Row]
    cells: list[Cell]


def draw(places: Places, sources: Sequence[Source], bounds: Sequence[Bounds]) -> Picture:
    """Count ids by worker and period. Reads the tables ``ids``, ``duplicates`` and ``workers``."""
    rows_of = places.workspace.rows
    first, last = rows_of("SELECT min(first_ms), max(last_ms) FROM workers")[0]
    if first is None:
        return Picture(0, 1, 0, [], [])
    column_ms = max(1, -(-(last - first + 1) // COLUMNS))
    most = max(source.layout.workers for source in sources)
    lanes = [
        lane for (lane,) in rows_of(f"SELECT DISTINCT datacenter * {most} + worker AS lane FROM workers ORDER BY lane")
    ]
    per_row = -(-len(lanes) // MAX_ROWS)
    groups = [lanes[at : at + per_row] for at in range(0, len(lanes), per_row)]
    rows = [Row(divmod(group[0], most), divmod(group[-1], most)) for group in groups]
    rows_of("CREATE OR REPLACE TEMP TABLE picture_rows (number BIGINT, first BIGINT)")
    for number, group in enumerate(groups):
        rows_of("INSERT INTO picture_rows VALUES (?, ?)", number, group[0])
    rows_of("CREATE OR REPLACE TEMP TABLE picture (source USMALLINT, lane BIGINT, col BIGINT, ids BIGINT)")
    rows_of("CREATE OR REPLACE TEMP TABLE repeated AS FROM picture")
    for number, source in enumerate(sources):
        places.insert("picture", str(number), number, _lanes("ids", source, bounds[number], most, first, column_ms))
        repeats = _lanes(f"duplicates WHERE source = {number} AND", source, bounds[number], most, first, column_ms)
        rows_of(f"INSERT INTO repeated SELECT {number}, * FROM ({repeats})")
    counted: dict[tuple[int, int], dict[int, int]] = {}
    for row, column, number, count in rows_of(_by_row("picture")):
        counted.setdefault((row, column), {})[number] = count
    repeated: dict[tuple[int, int], int] = {}
    for row, column, _, count in rows_of(_by_row("repeated")):
        repeated[row, column] = repeated.get((row, column), 0) + count
    cells = [Cell(row, column, ids, repeated.get((row, column), 0)) for (row, column), ids in counted.items()]
    return Picture(first, column_ms, (last - first) // column_ms + 1, rows, cells)


def _lanes(table: str, source: Source, bounds: Bounds, most: int, first: int, column_ms: int) -> str:
    """Return a query for the ids by lane and column: there are far fewer lanes than ids."""
    fields, where = FieldSql(source.layout), "" if table.endswith("AND") else " WHERE"
    return (
        f"SELECT {fields.datacenter} * {most} + {fields.worker} AS a, ({fields.time_ms} - {first}) // {column_ms} AS "
        f"b, count(*) AS c FROM {table}{where} id BETWEEN {bounds.first} AND {bounds.future - 1} GROUP BY 1, 2"
    )


def _by_row(table: str) -> str:
    return (
        f"SELECT picture_rows.number, col, source, sum(ids)::BIGINT FROM {table} "
        "ASOF JOIN picture_rows ON lane >= picture_rows.first GROUP BY ALL"
    )
