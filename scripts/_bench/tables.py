"""Markdown tables and figures as text, for the parts of docs/reference/figures.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# parts of the benchmark, in the order of the page
PARTS = ("first", "ids", "workers", "start")
# part -> what it measured
Results = Mapping[str, Any]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table with aligned columns; the first *left* columns are text, the others numbers."""
    widths = [max(3, *(len(row[at]) for row in [head, *rows])) for at in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * width if at < left else "-" * (width - 1) + ":") for at, width in enumerate(widths)]
    return "\n".join([line(head), line(rule), *map(line, rows)])


def number(value: float) -> str:
    """Return *value* with about three digits: 0.24, 38.4, 1,283."""
    size = abs(value)
    digits = 3 if size < 0.1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:,.{digits}f}"


def spread(figures: Sequence[float]) -> str:
    """Return the median, and the quartiles in parentheses."""
    low, median, high = figures
    return f"{number(median)} ({number(low)}–{number(high)})"


def percent(share: float) -> str:
    return f"{share:.1%}"
