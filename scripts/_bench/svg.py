"""Two kinds of plots as SVG, written by hand: small, and readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

# a background of its own: a page may be dark where the reader's system is light
_STYLE = """
svg { font: 13px system-ui, sans-serif }
.back { fill: #ffffff } text { fill: #1f2328 } .dim { fill: #59636e } .grid { stroke: #d1d9e0 }
.s0 { fill: #0969da; stroke: #0969da } .s1 { fill: #818b98; stroke: #818b98 }
.s2 { fill: #bc4c00; stroke: #bc4c00 } .s3 { fill: #1a7f37; stroke: #1a7f37 }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } text { fill: #f0f6fc } .dim { fill: #9198a1 } .grid { stroke: #3d444d }
.s0 { fill: #4493f8; stroke: #4493f8 } .s1 { fill: #9198a1; stroke: #9198a1 }
.s2 { fill: #f0883e; stroke: #f0883e } .s3 { fill: #3fb950; stroke: #3fb950 }
}
text { stroke: none } .ring { fill: none; stroke-width: 1.6 } .line { fill: none; stroke-width: 1.8 }
.dashed { stroke-dasharray: 5 4 } .spread { stroke-width: 1.4 } text.s0, text.s1, text.s2, text.s3 { stroke: none }
"""
# quartiles: low, median, high
Quartiles = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Dot:
    """A row of a dot plot: a filled dot, and a ring for a second figure."""

    label: str
    filled: Quartiles
    ring: Quartiles | None = None
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """A line through points (x, y), named at its end."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False
    marks: bool = True


def dots(title: str, subtitle: str, rows: Sequence[Dot]) -> str:
    """A dot plot with a logarithmic axis; the whiskers are quartiles."""
    left, width, step, top = 250, 780, 24, 74
    figures = [figure for row in rows for figure in (*row.filled, *(row.ring or ()))]
    low, high = min(figures) / 1.25, max(figures) * 1.25
    across = _log_scale(low, high, left, width - 70)
    height = top + step * len(rows) + 22
    parts = [_text(16, 28, title, weight=600), _text(16, 48, subtitle, "dim")]
    for tick in _ticks(low, high, (1,)):
        x = across(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top - 6}" x2="{x:.1f}" y2="{height - 14}"/>')
        parts.append(_text(x, top - 11, f"{tick:g}×", "dim", "middle"))
    for number, row in enumerate(rows):
        y, colour = top + step * (number + 0.5), "s0" if row.ours else "s1"
        parts.append(_text(left - 12, y + 4, row.label, anchor="end", weight=600 if row.ours else 400))
        for figure, ring in ((row.ring, True), (row.filled, False)):
            if figure is None:
                continue
            ends = f'x1="{across(figure[0]):.1f}" x2="{across(figure[2]):.1f}"'
            parts.append(f'<line class="{colour} spread" {ends} y1="{y}" y2="{y}"/>')
            kind = f"{colour} ring" if ring else colour
            parts.append(
                f'<circle class="{kind}" cx="{across(figure[1]):.1f}" cy="{y}" r="{6 if ring else 4}"/>'
            )
        end = max(across(figure[2]) for figure in (row.filled, row.ring) if figure is not None)
        parts.append(_text(end + 11, y + 4, _short(row.filled[1]), "dim"))
    return _document(width, height, title, parts)


def lines(title: str, subtitle: str, series: Sequence[Series], *, x_name: str, percent: bool = False) -> str:
    """Lines on two logarithmic axes, each named where it ends."""
    left, right, top, width, height = 62, 560, 76, 780, 380
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    wide = max(ys) / min(ys) > 50
    steps = (1,) if wide else (1, 2, 5)
    around = list(_ticks(min(ys) / 11, max(ys) * 11, steps))
    y_low = max(tick for tick in around if tick <= min(ys))
    y_high = min(tick for tick in around if tick >= max(ys))
    across = _log_scale(min(xs), max(xs), left + 8, right)
    up = _log_scale(y_low, y_high, height - 52, top)
    parts = [_text(16, 28, title, weight=600), _text(16, 48, subtitle, "dim")]
    for tick in _ticks(y_low, y_high, steps):
        y = up(tick)
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        shown = f"{tick * 100:g} %" if percent else f"{tick:,g}"
        parts.append(_text(left - 8, y + 4, shown, "dim", "end"))
    parts += [
        _text(across(tick), height - 32, f"{int(tick):,}", "dim", "middle")
        for tick in _ticks(min(xs), max(xs), (1,))
    ]
    parts.append(_text((left + right) / 2, height - 12, x_name, "dim", "middle"))
    ends: list[tuple[float, float, str]] = []
    for one in series:
        places = [(across(x), up(y)) for x, y in one.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        if len(places) > 1:
            parts.append(
                f'<polyline class="s{one.colour} line{" dashed" if one.dashed else ""}" points="{path}"/>'
            )
        if one.marks:
            parts += [f'<circle class="s{one.colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in places]
        ends.append((*places[-1], f'class="s{one.colour}">{escape(one.name)}'))
    # names that would lie upon one another are moved down
    last_x, taken = -1.0, -1e9
    for x, y, rest in sorted(ends):
        taken = y + 4 if x != last_x else max(y + 4, taken + 16)
        last_x = x
        parts.append(f'<text x="{x + 12:.1f}" y="{taken:.1f}" {rest}</text>')
    return _document(width, height, title, parts)


def _log_scale(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    span = math.log(high / low) or 1.0
    return lambda value: first + (last - first) * math.log(max(value, low) / low) / span


def _ticks(low: float, high: float, steps: Sequence[int]) -> Iterable[float]:
    """Powers of ten, times each of *steps*, within a range."""
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for step in steps:
            if low * (1 - 1e-9) <= step * 10**exponent <= high * (1 + 1e-9):
                yield step * 10**exponent


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start", *, weight: int = 400) -> str:
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}{bold}>{escape(text)}</text>'


def _document(width: int, height: float, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" role="img">'
    back = f'<rect class="back" width="{width}" height="{height:g}" rx="6"/>'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>", back, *parts, "</svg>", ""]
    )
