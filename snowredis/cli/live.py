"""A display that is drawn again and again in its place, by rich; and whether there can be one.

Gets lines as output.py makes them. Text is never read as markup: rich gets Text objects only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence

from snowredis.cli.output import Line, cropped, is_terminal

_STYLES = {
    "": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "note": "cyan",
    "warn": "yellow",
    "bad": "red",
}

# takes a function that makes the lines for so many columns and rows
Draw = Callable[[Callable[[int, int], Sequence[Line]]], None]


def can_be_live() -> bool:
    """Whether standard output is a terminal that can be drawn over, and rich is there to do it; says it if only
    rich is missing."""
    if not is_terminal(sys.stdout):
        return False
    if importlib.util.find_spec("rich") is None:
        print("snowredis: pip install 'snowredis[cli]' makes this a live display", file=sys.stderr)
        return False
    return True


@contextlib.contextmanager
def display() -> Iterator[Draw]:
    """Own the terminal's other screen for a while; what was on the first one comes back after it.

    That screen is written over without being cleared, so nothing flickers, and nothing wraps or scrolls.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)

    def as_text(lines: Sequence[Line], width: int) -> Text:
        segments = []
        for line in lines:
            segments += [(text, _STYLES[style]) for text, style in cropped(line, width)]
            segments.append(("\n", ""))
        return Text.assemble(*segments[:-1], no_wrap=True, overflow="crop")

    # nothing is printed meanwhile but warnings, and a redirected stdout would not tell its encoding any more
    with Live(Text(""), console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:

        def draw(make: Callable[[int, int], Sequence[Line]]) -> None:
            width, height = console.size
            live.update(as_text(make(width, height)[:height], width), refresh=True)

        yield draw
