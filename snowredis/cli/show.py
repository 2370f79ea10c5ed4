"""Records of the API as people and programs see them: one way to print all of them.

A command reads a record, or a list of records, and names the fields that people see. Times, durations and numbers are
shown by the type of the field; with --json, the record is what to_json() makes of it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from snowredis.cli import output
from snowredis.cli.output import MAX_FOREIGN, Column, advised, emit, printable, time_of, write
from snowredis.core.as_json import FieldOfJson, field_named, to_json
from snowredis.core.layout import Layout
from snowredis.core.presets import preset_name
from snowredis.core.values import duration
from snowredis.errors import SnowredisError

if TYPE_CHECKING:
    from snowredis.monitor.conditions import Condition, Status

# characters of a text in a cell
_MAX_TEXT = 300


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


def show_each(names: Iterable[str], read: Callable[[str], Any], columns: str, *, as_json: bool, empty: str) -> None:
    """Print a table of what *read* returns for each of *names*, and on stderr what cannot be read.

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


def table_of(records: Sequence[Any], columns: str, now_ms: int | None = None) -> list[str]:
    """Return a table of *records*, all of one type; a column that has no value in any of them is left out."""
    heads: list[Column] = []
    cells: list[list[str]] = []
    # column by column, since thousands of leases are shown
    for name in columns.split():
        field, column = cells_of(records, name, now_ms)
        if any(column):
            is_number = field.kind in (int, float) and not field.is_time
            heads.append(Column(title_of(name), right=is_number))
            cells.append(column)
    return output.table(heads, list(zip(*cells, strict=True)))


def pairs_of(record: Any, columns: str, now_ms: int | None = None) -> list[str]:
    """Return names and values of *record*, without those that have none."""
    found = ((title_of(name), cells_of([record], name, now_ms)[1][0]) for name in columns.split())
    return output.pairs([(title, text) for title, text in found if text])


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
        return output.offset(value) if field.name.endswith("offset_ms") else duration(value)
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
    return time_of(time_ms) if now_ms is None else output.ago(now_ms - time_ms)


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
        lines += advised(f"{each.level:<9}{about}  ", printable(each.text, 1000), printable(each.advice, 1000))
    if counts:
        lines += ["", ", ".join(f"{levels[level]} {level}" for level in ("critical", "warning", "unknown", "ok"))]
    write(lines)
