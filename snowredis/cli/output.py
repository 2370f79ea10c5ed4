"""What people read: styled lines, tables, numbers, and foreign text made harmless.

A line is a list of (text, style) segments. It becomes plain text, text with ANSI colours, or, in
live.py, text of rich; so one layout serves terminals, pipes and machines without rich. Imports no
rich itself.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from snowredis.cli.exit_codes import ExitCode, code_of
from snowredis.errors import SnowredisError

Segment = tuple[str, str]
Line = list[Segment]
Cell = str | Segment

# style -> SGR codes; the names say what a thing means, so that colours stay calm and the same everywhere
_SGR = {"strong": "1", "dim": "2", "good": "32", "note": "36", "warn": "33", "bad": "31"}
# hosts and labels in tables; what is longer would push everything else off the screen
MAX_FOREIGN = 40
# narrower than this a column that can shrink says nothing any more
_LEAST_WIDTH = 4


def printable(text: str, limit: int | None = None) -> str:
    r"""Text that came from elsewhere, for a terminal: control characters as \x1b, cut to *limit* columns.

    Format characters (bidi overrides, zero-width ones) and lone surrogates are escaped, too.
    """
    # cut before, too: it may be megabytes
    cut = text if limit is None else text[: 4 * limit]
    shown = "".join(char if _harmless(char) else _escaped(char) for char in cut)
    return shown if limit is None else fitted(shown, limit)


def _harmless(char: str) -> bool:
    return char == " " or unicodedata.category(char)[0] not in "CZ"


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def width_of(text: str) -> int:
    """How many columns of a terminal *text* takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fitted(text: str, width: int) -> str:
    """*text*, cut to *width* columns with an ellipsis if it is wider."""
    if width_of(text) <= width:
        return text
    kept, left = [], width - 1
    for char in text:
        left -= _char_width(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + "…" if width > 0 else ""


def cropped(line: Line, width: int) -> Line:
    """*line*, cut to *width* columns."""
    kept: Line = []
    for text, style in line:
        part = fitted(text, width)
        kept.append((part, style))
        width -= width_of(part)
        if part != text:
            break
    return kept


# --- tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table: its title, whether its cells stand at the right, whether it may be cut to fit.

    least: columns of the terminal that it takes at least, so that a live table does not move from side to side.
    """

    title: str
    right: bool = False
    shrinks: bool = False
    least: int = 0


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]], width: int | None = None, gap: int = 2
) -> list[Line]:
    """Lay out a table; the first line is its head.

    Args:
        width: columns of the terminal: columns that shrink are cut, the widest first; None: no limit.
        gap: spaces between columns.
    """
    cells = [[cell if isinstance(cell, tuple) else (cell, "") for cell in row] for row in rows]
    widths = [
        max([width_of(column.title), column.least, *(width_of(row[at][0]) for row in cells)])
        for at, column in enumerate(columns)
    ]
    if width is not None:
        _shrink(columns, widths, width - gap * (len(columns) - 1))
    head = [(column.title, "dim") for column in columns]
    return [_row(columns, row, widths, gap) for row in [head, *cells]]


def _shrink(columns: Sequence[Column], widths: list[int], room: int) -> None:
    while sum(widths) > room:
        able = [at for at, column in enumerate(columns) if column.shrinks and widths[at] > _LEAST_WIDTH]
        if not able:
            return
        widths[max(able, key=lambda at: widths[at])] -= 1


def _row(columns: Sequence[Column], row: Sequence[Segment], widths: Sequence[int], gap: int) -> Line:
    line: Line = []
    for at, ((text, style), column, width) in enumerate(zip(row, columns, widths, strict=True)):
        shown = fitted(text, width)
        space = " " * (width - width_of(shown))
        before, after = (space, "") if column.right else ("", space)
        # nothing at the end of a line but what it says
        after = after + " " * gap if at < len(columns) - 1 else ""
        line += [(before, ""), (shown, style), (after, "")]
    return [segment for segment in line if segment[0]]


def pairs(items: Iterable[tuple[str, str | Line]], indent: int = 2) -> list[Line]:
    """Names and values, one a line, the values one below the other."""
    known = list(items)
    widest = max(len(name) for name, _ in known)
    return [
        [
            (" " * indent + name.ljust(widest + 2), "dim"),
            *([(value, "")] if isinstance(value, str) else value),
        ]
        for name, value in known
    ]


# --- numbers ---------------------------------------------------------------------------------------


def duration(ms: float) -> str:
    """A span of time, short: 3.4 s, 12.0 min, 5.2 h, 3.0 days."""
    for unit, unit_ms in (("s", 1000), ("min", 60_000), ("h", 3_600_000)):
        if abs(ms) < 60 * unit_ms and (unit != "h" or abs(ms) < 48 * unit_ms):
            return f"{ms / unit_ms:.1f} {unit}"
    days = ms / 86_400_000
    return f"{days:,.1f} days" if abs(days) < 730 else f"{days / 365.25:,.1f} years"


def ago(ms: float) -> str:
    """How long something is past; what is to come has a negative *ms*."""
    return f"{duration(ms)} ago" if ms >= 0 else f"in {duration(-ms)}"


def offset(ms: int) -> str:
    """How far a clock is off, with its sign."""
    return f"{ms:+d} ms" if abs(ms) < 10_000 else f"{'+' if ms > 0 else ''}{duration(ms)}"


def compact(number: float) -> str:
    """A count in at most six characters: 999, 12.3 k, 4.50 M."""
    for unit, size in (("", 1), (" k", 1e3), (" M", 1e6), (" G", 1e9)):
        value = number / size
        # 999.95 would be shown as 1000.0
        if value < 999.5 or unit == " G":
            digits = 0 if not unit or value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:.{digits}f}{unit}"
    raise AssertionError


# --- writing ---------------------------------------------------------------------------------------


def plain(line: Line) -> str:
    return "".join(text for text, _ in line)


def coloured(line: Line) -> str:
    return "".join(f"\x1b[{_SGR[style]}m{text}\x1b[0m" if style else text for text, style in line)


def is_terminal(stream: TextIO) -> bool:
    """Whether lines can be drawn over and colours are understood."""
    return stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def wants_colour(stream: TextIO) -> bool:
    # no-color.org
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def encodable(text: str) -> bool:
    """Whether standard output can show *text*; lines and bars have plainer stand-ins."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def terminal_width() -> int | None:
    """Columns of the terminal that is written to; None for a file or a pipe, which take any."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def write(lines: Iterable[Line]) -> None:
    """Print lines, in colour on a terminal, cut to its width."""
    paint = coloured if wants_colour(sys.stdout) else plain
    width = terminal_width()
    for line in lines:
        print(paint(line if width is None else cropped(line, width)))
    sys.stdout.flush()


def complain(error: Exception) -> None:
    """Say *error* in one paragraph on stderr. It may hold text from Redis, so nothing in it is trusted."""
    text = str(error)
    if code_of(error) is ExitCode.ERROR and not isinstance(error, SnowredisError):
        text = f"unexpected {type(error).__name__}: {text} (python -X dev -m snowredis.cli … shows where)"
    print(f"snowredis: error: {printable(text.replace(chr(10), ' '), 4000)}", file=sys.stderr)
