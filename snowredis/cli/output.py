"""Text for people: records of the API, tables, numbers, and untrusted text with its control characters escaped.

A command reads a record, or a list of records, and names the fields that people see: show() is the one way to print all
of them. Times, durations and numbers are shown by the type of the field; with --json, the record is what to_json()
makes of it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from snowredis.core.as_json import FieldOfJson, field_named, to_json
from snowredis.core.layout import Layout
from snowredis.core.presets import preset_name
from snowredis.core.values import duration, time_text
from snowredis.errors import SnowredisError

if TYPE_CHECKING:
    from snowredis.monitor.conditions import Condition, Status

# characters of a name that another program may have chosen, and of a text in a cell
MAX_FOREIGN, _MAX_TEXT = 40, 300


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


# the text of a column's head, and whether its cells are aligned right, as numbers are
Column: TypeAlias = tuple[str, bool]


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay out a table; the first line is its head."""
    cells = zip(*([title for title, _ in columns], *rows), strict=True)
    padded = [_padded(texts, right=right) for texts, (_, right) in zip(cells, columns, strict=True)]
    return ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]


def _padded(texts: Sequence[str], *, right: bool) -> list[str]:
    """Return the *texts* of one column, all of them equally wide."""
    # column by column: thousands of rows are shown
    widths = list(map(len if "".join(texts).isascii() else width_of, texts))
    widest = max(widths)
    spaces = (" " * (widest - width) for width in widths)
    return [space + text if right else text + space for text, space in zip(texts, spaces, strict=True)]


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


# --- times and numbers -----------------------------------------------------------------------------


def ago(ms: float) -> str:
    """Return how long ago a moment is; *ms* is negative for a moment in the future."""
    # a heartbeat may come between two of the commands that read a pool
    return f"{duration(max(0, ms))} ago" if ms > -50 else f"in {duration(-ms)}"


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


# --- records ---------------------------------------------------------------------------------------


def show(records: Any, columns: str, *, as_json: bool = False, now_ms: int | None = None) -> bool:
    """Print a record as names and values, or a list of them as a table. Return whether somebody reads it.

    Args:
        columns: names of fields in JSON, separated by spaces; "maker.host": a field of a record in a field.
        as_json: print each record in one line, as to_json() shows it, instead.
        now_ms: times are shown relative to this one; None: in UTC.
    """
    if as_json:
        rows = records if isinstance(records, list | tuple) and not hasattr(records, "_fields") else [records]
        return emit("".join(f"{json.dumps(to_json(row))}\n" for row in rows))
    return write((table_of if isinstance(records, list) else pairs_of)(records, columns, now_ms))


def show_each(names: Iterable[str], read: Callable[[str], Any], columns: str, *, as_json: bool, empty: str) -> bool:
    """Print a table of what *read* returns for each of *names*; return False if one cannot be read, which stderr says.

    Args:
        read: returns a record; None: it does not exist any more.
        empty: is printed if there is nothing to show.
    """
    found, unreadable = [], []
    for name in names:
        try:
            found += [record] if (record := read(name)) is not None else []
        except SnowredisError as error:
            unreadable.append(f"{printable(name, MAX_FOREIGN)}: {printable(str(error), 300)}")
    if found or as_json:
        show(found, columns, as_json=as_json)
    elif not unreadable:
        print(empty)
    for line in unreadable:
        print(line, file=sys.stderr)
    return not unreadable


def table_of(records: Sequence[Any], columns: str, now_ms: int | None = None) -> list[str]:
    """Return a table of *records*, all of one type; a column that has no value in any of them is left out."""
    heads: list[Column] = []
    cells: list[list[str]] = []
    # column by column, since thousands of leases are shown
    for name in columns.split():
        field, column = cells_of(records, name, now_ms)
        if any(column):
            is_number = field.kind in (int, float) and not field.is_time
            heads.append((title_of(name), is_number))
            cells.append(column)
    return table(heads, list(zip(*cells, strict=True)))


def pairs_of(record: Any, columns: str, now_ms: int | None = None) -> list[str]:
    """Return names and values of *record*, without those that have none."""
    found = ((title_of(name), cells_of([record], name, now_ms)[1][0]) for name in columns.split())
    return pairs([(title, text) for title, text in found if text])


def cells_of(records: Sequence[Any], name: str, now_ms: int | None) -> tuple[FieldOfJson, list[str]]:
    """Return the field *name* of *records*, and its value in each as text; "" if a record on the way to it is None."""
    kind: type = type(records[0])
    field, values = field_named(kind, name), list[Any]()
    get = attrgetter(field.source)
    for record in records:
        try:
            values.append(get(record))
        except AttributeError:
            values.append(None)
    return field, [cell(field, value, now_ms) for value in values]


def title_of(name: str) -> str:
    """Return the title of a column."""
    return name.rpartition(".")[2].removesuffix("_ms").removesuffix("_at").replace("_", " ")


def cell(field: FieldOfJson, value: Any, now_ms: int | None = None) -> str:
    """Return a value as text, by the type of its field."""
    # thousands of cells are shown
    if value is None or value in ("", field.shown.null):
        return ""
    if type(value) is str:
        return printable(value, _MAX_TEXT)
    if field.is_time:
        return _time(value, now_ms)
    if field.name.endswith("_ms"):
        return offset(value) if field.name.endswith("offset_ms") else duration(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return str(value) if field.is_name else f"{value:,}"
    if isinstance(value, Layout):
        return preset_name(value) or str(value)
    if isinstance(value, Mapping):
        return printable(", ".join(f"{name}={item}" for name, item in value.items()), _MAX_TEXT)
    return printable(str(to_json(value)), _MAX_TEXT)


def _time(time_ms: int, now_ms: int | None) -> str:
    if time_ms <= 0:
        return ""
    return time_text(time_ms) if now_ms is None else ago(now_ms - time_ms)


def show_status(status: Status) -> None:
    """Print the verdict about a pool, and its conditions."""
    print(f"status {status.level}: {printable(status.headline, 200)}")
    show_conditions(status.conditions)


def show_conditions(conditions: Iterable[Condition], *, counts: bool = False) -> None:
    """Print conditions, each with its level, what it is about, and what to do. *counts*: and how many of each level."""
    lines: list[str] = []
    levels: Counter[str] = Counter()
    for each in conditions:
        levels[each.level] += 1
        about = f"{printable(each.subject, MAX_FOREIGN)}: {each.code}" if each.subject else each.code
        lines += wrapped(head := f"{each.level:<9}{about}  ", printable(each.text, 1000))
        # what to do, below it
        lines += wrapped(f"{' ' * width_of(head)}→ ", printable(each.advice, 1000)) if each.advice else []
    if counts:
        lines += ["", ", ".join(f"{levels[level]} {level}" for level in ("critical", "warning", "unknown", "ok"))]
    write(lines)
