"""Two kinds of plots, drawn by matplotlib as SVG: legible on light and dark pages, and the same at every run."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# each color on a light page, and what it becomes on a dark one
BACKGROUND, TEXT, DIM, GRID = "#ffffff", "#1f2328", "#59636e", "#d1d9e0"
OURS, OTHERS, ORANGE, GREEN = "#0969da", "#818b98", "#bc4c00", "#1a7f37"
DARK = {
    BACKGROUND: "#0d1117",
    TEXT: "#f0f6fc",
    DIM: "#9198a1",
    GRID: "#3d444d",
    OURS: "#4493f8",
    OTHERS: "#9198a0",
    ORANGE: "#f0883e",
    GREEN: "#3fb950",
}
# 1 px is 1 point at 72 dots an inch
WIDTH_PX, LINES_HEIGHT_PX, ROW_PX, FONT_PX = 780, 380, 24, 13
SETTINGS: Any = {
    "font.size": FONT_PX,
    # measured by; a browser takes its own
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": TEXT,
    "axes.edgecolor": GRID,
    "axes.labelcolor": DIM,
    "grid.color": GRID,
    "xtick.color": DIM,
    "ytick.color": DIM,
    "xtick.labelcolor": DIM,
    "ytick.labelcolor": DIM,
    # text stays text, and names of elements do not change from run to run
    "svg.fonttype": "none",
    "svg.hashsalt": "snowredis",
}
# low, median, high
Quartiles = Sequence[float]


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
    color: str
    dashed: bool = False
    markers: bool = True


def dots(title: str, subtitle: str, rows: Sequence[Dot]) -> str:
    """Return a dot plot with a logarithmic axis, as SVG; the whiskers are quartiles."""
    height_px = 100 + ROW_PX * len(rows)
    figure, axes = _figure(title, subtitle, height_px, left_px=250, right_px=60, top_px=80, bottom_px=20)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set(color=TEXT, weight="bold" if row.ours else "normal")
    for y, row in enumerate(rows):
        color = OURS if row.ours else OTHERS
        for figures, size, face in ((row.ring, 12, "none"), (row.filled, 8, color)):
            if figures is not None:
                low, median, high = figures
                axes.plot([low, high], [y, y], color=color, linewidth=1.4)
                axes.plot(median, y, "o", color=color, markersize=size, markerfacecolor=face, markeredgewidth=1.6)
        end = max(figures[2] for figures in (row.filled, row.ring) if figures is not None)
        median = row.filled[1]
        shown = f"{median:.2f}" if median < 10 else f"{median:,.0f}"
        _note(axes, shown, (end, y), (11, 0), DIM)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.xaxis.tick_top()
    axes.grid(axis="x")
    return _svg(figure, title)


def lines(title: str, subtitle: str, series: Sequence[Series], *, x_name: str, percent: bool = False) -> str:
    """Return lines on two logarithmic axes, each named where it ends, as SVG."""
    figure, axes = _figure(title, subtitle, LINES_HEIGHT_PX, left_px=62, right_px=220, top_px=76, bottom_px=52)
    for one in series:
        style: dict[str, Any] = {
            "marker": "o" if one.markers else "",
            "markersize": 7,
            "linestyle": "--" if one.dashed else "-",
        }
        axes.plot(*zip(*one.points, strict=True), color=one.color, linewidth=1.8, **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ys = [y for one in series for _, y in one.points]
    ticks = [step * 10.0**exponent for exponent in range(-4, 6) for step in _steps(ys)]
    low, high = max(tick for tick in ticks if tick <= min(ys)), min(tick for tick in ticks if tick >= max(ys))
    axes.set_ylim(low, high)
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])
    axes.set_yticks([], minor=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %" if percent else f"{value:,g}")
    axes.set_xlabel(x_name)
    axes.grid(axis="y")
    _name_ends(axes, series)
    return _svg(figure, title)


def _steps(values: Sequence[float]) -> Sequence[int]:
    """Return the ticks of each power of ten: fewer where the values differ much."""
    return (1,) if max(values) / min(values) > 50 else (1, 2, 5)


def _name_ends(axes: Axes, series: Sequence[Series]) -> None:
    """Write each line's name beside its last point, below one another where they would overlap."""
    ends = [(one, axes.transData.transform(one.points[-1])) for one in series]
    last_x, lowest_y = -1.0, 0.0
    for one, (x, y) in sorted(ends, key=lambda end: (end[1][0], -end[1][1])):
        lowest_y = min(y, lowest_y - 17) if x == last_x else y
        last_x = x
        _note(axes, one.name, one.points[-1], (12, lowest_y - y), one.color)


def _note(axes: Axes, text: str, point: tuple[float, float], offset_px: tuple[float, float], color: str) -> None:
    style: dict[str, Any] = {"color": color, "fontsize": FONT_PX, "va": "center_baseline"}
    axes.annotate(text, point, offset_px, textcoords="offset points", **style)


def _figure(
    title: str, subtitle: str, height_px: int, *, left_px: int, right_px: int, top_px: int, bottom_px: int
) -> tuple[Figure, Axes]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        figure = Figure((WIDTH_PX / 72, height_px / 72), dpi=72, facecolor=BACKGROUND)
        figure.text(16 / WIDTH_PX, 1 - 28 / height_px, title, weight="bold")
        figure.text(16 / WIDTH_PX, 1 - 48 / height_px, subtitle, color=DIM)
        axes = figure.add_axes(
            (
                left_px / WIDTH_PX,
                bottom_px / height_px,
                1 - (left_px + right_px) / WIDTH_PX,
                1 - (top_px + bottom_px) / height_px,
            )
        )
        axes.patch.set_visible(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(which="both", length=0)
        axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure, title: str) -> str:
    from matplotlib import rc_context

    written = io.StringIO()
    # without date and version, which would change with every run
    unchanging: Any = {"Title": title, "Date": None, "Creator": None, "Format": None, "Type": None}
    with rc_context(SETTINGS):
        figure.savefig(written, format="svg", metadata=unchanging)
    dark = "\n".join(
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    style = (
        "<style>\ntext { font-family: system-ui, sans-serif !important }\n"
        f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n</style>\n"
    )
    # as wide as the page
    text = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', ' role="img"', written.getvalue(), count=1)
    head, tag, rest = text.partition("</title>\n")
    return re.sub(r" +\n", "\n", f"{head}{tag}{style}{rest}")
