"""The picture of a check as SVG: worker ids by time, a color for each source, red where ids are repeated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from snowredis.core.layout import utc_text
from snowredis.merge.check.picture import Cell, Picture, Row

__all__ = ["STYLE", "chart", "legend"]

# Okabe and Ito's colors, which people with color blindness can tell apart; red is for repeated ids
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8b6d00", "#6a5acd", "#7f7f7f")
STYLE = """
svg { display: block; width: 100%; height: auto; margin: 8px 0 } svg text { fill: var(--dim); font: 11px system-ui,
  sans-serif } .grid { stroke: var(--line) } .clash { fill: none; stroke: #e5001f; stroke-width: 1.6 }
.dot { fill: #e5001f } .legend span { display: inline-block; margin: 0 16px 4px 0; overflow-wrap: anywhere }
.legend i { display: inline-block; width: 12px; height: 12px; margin-right: 6px; vertical-align: -1px }
""" + "".join(f".s{at} {{ fill: {color}; background: {color} }}" for at, color in enumerate(_COLORS))
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 10, 20, 26
_WIDTH = 1040
_MIN_HEIGHT, _MAX_ROW, _MIN_ROW = 120, 22, 9
_TIME_LABELS = 5


def legend(names: Sequence[str]) -> str:
    """Return what the colors mean, as HTML."""
    items = [f'<span><i class="{_class_of(at)}"></i>{escape(name)}</span>' for at, name in enumerate(names)]
    return f'<div class="legend">{"".join(items)}</div>'


def chart(picture: Picture, names: Sequence[str]) -> str:
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
    return f"s{source % len(_COLORS)}"


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
        yield f'<text x="{x + 3:.1f}" y="{bottom + 17}">{_time(picture, column)}</text>'


def _row_text(row: Row) -> str:
    (first_datacenter, first), (last_datacenter, last) = row.first, row.last
    start = f"{first_datacenter}/{first}" if last_datacenter else str(first)
    if row.first == row.last:
        return start
    return f"{start} to {f'{last_datacenter}/{last}' if last_datacenter else last}"


def _time(picture: Picture, column: int) -> str:
    text = utc_text(picture.start_ms + column * picture.column_ms) or "past the year 9999"
    if picture.column_ms >= 3_600_000:
        return text[:16].replace("T", " ")
    return text[:10] + " " + text[11 : 19 if picture.column_ms >= 1000 else 23]


def _cell(
    picture: Picture, cell: Cell, names: Sequence[str], most: int, width: float, height: int
) -> Iterator[str]:
    x, y = _LEFT + cell.column * width, _TOP + cell.row * height
    counts = ", ".join(f"{names[source]}: {count:,} ids" for source, count in sorted(cell.ids.items()))
    repeated = f"; {cell.repeated:,} are repeated" if cell.repeated else ""
    row = picture.rows[cell.row]
    title = f"worker id {_row_text(row)}, from {_time(picture, cell.column)}: {counts}{repeated}"
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
