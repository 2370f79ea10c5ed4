"""Text for people: styled lines, tables, numbers, and untrusted text with its control characters escaped.

A line is a list of (text, style) segments. It becomes plain text, or text with ANSI colors.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TextIO

from snowredis.core.values import duration, utc_text

Segment = tuple[str, str]
Line = list[Segment]
Cell = str | Segment
# a name and its value
Pair = tuple[str, str | Line]

# style -> SGR codes; styles are named after what they mean, so that a color means the same everywhere
_SGR = {"strong": "1", "dim": "2", "good": "32", "note": "36", "warn": "33", "bad": "31"}
# columns for a name that another program may have chosen
MAX_FOREIGN = 40
# a narrower column shows nothing useful; a line that is too long then loses its end
_MIN_WIDTH = 12


def printable(text: str, limit: int | None = None) -> str:
    r"""Return untrusted text for a terminal: control characters as \x1b, cut to *limit* columns.

    Format characters (bidi overrides, zero-width ones) and lone surrogates are escaped, too.
    """
    # cut before escaping, too: the text may have megabytes
    shortened = text if limit is None else text[: 4 * limit]
    # as nearly every text is
    shown = shortened
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else _escaped(char) for char in shown)
    return shown if limit is None else fitted(shown, limit)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def width_of(text: str) -> int:
    """Return how many columns of a terminal *text* takes."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


# a fleet's texts have few characters, many times each
@functools.cache
def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fitted(text: str, width: int) -> str:
    """Return *text*, cut to *width* columns with an ellipsis if it is wider."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    if text.isascii():
        return f"{text[: width - 1]}…"
    ends = itertools.accumulate(map(_char_width, text))
    return f"{text[: sum(1 for _ in itertools.takewhile(lambda end: end < width, ends))]}…"


def cropped(line: Line, width: int) -> Line:
    """Return *line*, cut to *width* columns."""
    kept: Line = []
    for text, style in line:
        part = fitted(text, width)
        kept.append((part, style))
        width -= width_of(part)
        if part != text:
            break
    return kept


# --- tables ----------------------------------------------------------------------------------------


class Column(NamedTuple):
    """Column of a table.

    Attributes:
        title: text of its head.
        right: whether cells are aligned right, as numbers are; others may be cut to fit the terminal.
    """

    title: str
    right: bool = False


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]], width: int | None = None, gap: int = 2
) -> list[Line]:
    """Lay out a table; the first line is its head.

    Args:
        width: columns of the terminal that it may take: texts are cut, the widest first; None: those of the terminal,
            and without one no limit.
        gap: spaces between columns.
    """
    width = terminal_width() if width is None else width
    # column by column: thousands of rows are shown
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    cells = [
        [(column.title, "dim"), *(cell if isinstance(cell, tuple) else (cell, "") for cell in column_cells)]
        for column, column_cells in zip(columns, by_column, strict=True)
    ]
    widths = [_widest(each) for each in cells]
    texts = [at for at, column in enumerate(columns) if not column.right]
    while width is not None and texts and sum(widths) + gap * (len(widths) - 1) > width:
        widest = max(texts, key=lambda at: widths[at])
        if widths[widest] <= _MIN_WIDTH:
            break
        widths[widest] -= 1
    padded = [_padded(cells[at], column, widths[at], gap if at else 0) for at, column in enumerate(columns)]
    return list(map(list, zip(*padded, strict=True)))


def _widest(cells: Sequence[Segment]) -> int:
    """Return how many columns of the terminal the widest of *cells* takes."""
    texts = [text for text, _ in cells]
    return max(map(len if "".join(texts).isascii() else width_of, texts))


def _padded(cells: Sequence[Segment], column: Column, width: int, gap: int) -> list[Segment]:
    """Return *cells* of one column, each in exactly *width* columns of the terminal, after a *gap*."""
    before, texts = " " * gap, [text for text, _ in cells]
    if "".join(texts).isascii() and max(map(len, texts)) <= width:
        if column.right:
            return [(text.rjust(gap + width), style) for text, style in cells]
        return [(before + text.ljust(width), style) for text, style in cells]
    texts = [fitted(text, width) for text in texts]
    spaces = [" " * (width - width_of(text)) for text in texts]
    both = zip(texts, spaces, cells, strict=True)
    return [(before + (space + text if column.right else text + space), style) for text, space, (_, style) in both]


def pairs(items: Sequence[Pair], indent: int = 2, *, wrap: bool = False) -> list[Line]:
    """Return names and values with the values aligned, one pair per line; with *wrap*, long text takes several."""
    widest = max(len(name) for name, _ in items)
    lines: list[Line] = []
    for name, value in items:
        head: Line = [(" " * indent + name.ljust(widest + 2), "dim")]
        if wrap and isinstance(value, str):
            lines += wrapped(head, value)
        else:
            lines.append([*head, *([(value, "")] if isinstance(value, str) else value)])
    return lines


def wrapped(head: Line, text: str, style: str = "") -> list[Line]:
    """Return *text* after *head* in lines that fit into the terminal, or 120 columns; all begin in the same column."""
    import textwrap

    indent = width_of(plain(head))
    first, *others = textwrap.wrap(text, max(20, (terminal_width() or 120) - indent)) or [""]
    return [[*head, (first, style)], *([(" " * indent, ""), (other, style)] for other in others)]


def advised(head: Line, text: str, advice: str, style: str = "") -> list[Line]:
    """Return *text* after *head* as wrapped() does, and below it what to do, if there is anything."""
    arrow: Line = [(f"{' ' * width_of(plain(head))}→ ", "dim")]
    return [*wrapped(head, text, style), *(wrapped(arrow, advice, "note") if advice else [])]


# --- times and numbers -----------------------------------------------------------------------------


def time_of(time_ms: int) -> str:
    """Return a time in ms since 1970 as text, in UTC."""
    return utc_text(time_ms) or "past the year 9999"


def ago(ms: float) -> str:
    """Return how long ago a moment is; *ms* is negative for a moment in the future."""
    return f"{duration(ms)} ago" if ms >= 0 else f"in {duration(-ms)}"


def offset(ms: int) -> str:
    """Return the offset of a clock, with its sign."""
    return f"{ms:+d} ms" if abs(ms) < 10_000 else f"{'+' if ms > 0 else ''}{duration(ms)}"


# --- writing ---------------------------------------------------------------------------------------


def plain(line: Line) -> str:
    """Return *line* without its styles."""
    return "".join(text for text, _ in line)


def colored(line: Line) -> str:
    """Return *line* with its styles as ANSI escape sequences."""
    return "".join(f"\x1b[{_SGR[style]}m{text}\x1b[0m" if style else text for text, style in line)


def is_terminal(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal that understands cursor movements and colors."""
    return stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def wants_color(stream: TextIO) -> bool:
    """Return whether to write colors to *stream*: not if NO_COLOR is set (see no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def terminal_width() -> int | None:
    """Return the columns of the terminal on standard output; None for a file or a pipe, which have no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def write(lines: Iterable[Line]) -> bool:
    """Print lines, in color on a terminal, cut to its width. Return whether somebody reads them."""
    paint = colored if wants_color(sys.stdout) else plain
    width = terminal_width()
    # at once: thousands of rows are shown
    return emit("".join(f"{paint(line if width is None else cropped(line, width))}\n" for line in lines))


def emit(text: str) -> bool:
    """Print *text*; return False if nobody reads it any more, as in `doctor | head -1`: its exit code counts."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
        return False
    return True


def discard_stdout() -> None:
    """Point stdout at /dev/null, since the interpreter reports buffered output that it cannot write at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # in tests stdout may have no file descriptor
        return


def print_json(value: Any) -> None:
    """Print *value* as JSON in one line; core/as_json.py says how dataclasses are shown."""
    from snowredis.core.as_json import to_json

    emit(f"{json.dumps(to_json(value))}\n")
