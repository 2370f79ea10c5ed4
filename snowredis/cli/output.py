"""Text for people: tables, names with values, numbers, and untrusted text with its control characters escaped."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from snowredis.core.values import duration, utc_text

# characters of a name that another program may have chosen
MAX_FOREIGN = 40


def printable(text: str, limit: int | None = None) -> str:
    r"""Return untrusted text for a terminal: control characters as \x1b, cut to *limit* characters.

    Format characters (bidi overrides, zero-width ones) and lone surrogates are escaped, too.
    """
    # cut before escaping, too: the text may have megabytes
    shown = text if limit is None else text[: limit + 1]
    # as nearly every text is
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else _escaped(char) for char in shown)
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def width_of(text: str) -> int:
    """Return how many columns of a terminal *text* takes."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


# a fleet's texts have few characters, many times each
@functools.cache
def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


class Column(NamedTuple):
    """Column of a table.

    Attributes:
        title: text of its head.
        right: whether cells are aligned right, as numbers are.
    """

    title: str
    right: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay out a table; the first line is its head."""
    cells = zip(*([column.title for column in columns], *rows), strict=True)
    padded = [_padded(texts, column) for texts, column in zip(cells, columns, strict=True)]
    return ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]


def _padded(texts: Sequence[str], column: Column) -> list[str]:
    """Return the *texts* of one column, all of them equally wide."""
    # column by column: thousands of rows are shown
    widths = list(map(len if "".join(texts).isascii() else width_of, texts))
    widest = max(widths)
    spaces = (" " * (widest - width) for width in widths)
    return [space + text if column.right else text + space for text, space in zip(texts, spaces, strict=True)]


def pairs(items: Sequence[tuple[str, str]]) -> list[str]:
    """Return names and values with the values aligned, one pair below the other."""
    widest = max(len(name) for name, _ in items)
    return [line for name, value in items for line in wrapped(f"  {name:<{widest}}  ", value)]


def wrapped(head: str, text: str) -> list[str]:
    """Return *text* after *head* in lines that fit into the terminal, or 120 columns; all begin in the same column."""
    import textwrap

    indent = width_of(head)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    first, *others = textwrap.wrap(text, max(20, columns - indent)) or [""]
    return [head + first, *(" " * indent + other for other in others)]


def advised(head: str, text: str, advice: str) -> list[str]:
    """Return *text* after *head* as wrapped() does, and below it what to do, if there is anything."""
    return [*wrapped(head, text), *(wrapped(f"{' ' * width_of(head)}→ ", advice) if advice else [])]


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


def write(lines: Iterable[str]) -> bool:
    """Print lines. Return whether somebody reads them."""
    # at once: thousands of rows are shown
    return emit("".join(f"{line}\n" for line in lines))


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
