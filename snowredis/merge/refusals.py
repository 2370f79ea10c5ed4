"""Reasons to refuse a merge, found before the first row and all at once, each with what to write or to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from snowredis.errors import shown
from snowredis.merge.catalog import ROWID, Table, difference
from snowredis.merge.dialects import Database
from snowredis.merge.translation import MANY, Translation

_NAMED = 8


def obstacles(translation: Translation) -> Iterator[str]:
    """Yield tables that cannot be copied, and those that differ between the databases."""
    first, second = translation.first, translation.second
    for name in translation.names:
        mine, its = first.tables.get(name), second.tables.get(name)
        if text := difference(mine, its):
            yield f'[{name}] {text}: make them the same, or rows = "skip"'
        if mine and its and not text:
            for text in dict.fromkeys(mine.refusals + mine.refusals_as_first + its.refusals):
                yield f'[{name}] {text}, or rows = "skip"'
            for trigger, _, _ in mine.triggers if first.ends_by_ddl else ():
                yield (
                    f"[{name}] the trigger {trigger} would run at each row, and cannot be switched off: "
                    f"DROP TRIGGER {first.quote(trigger)}; and create it again afterwards (SHOW CREATE TRIGGER)"
                )


# --- offsets ---------------------------------------------------------------------------------------------


class Greatest(NamedTuple):
    """The greatest number of a column, or of a counter, in one database.

    Attributes:
        room: the greatest offset that fits its column; None: it is not moved.
    """

    number: int
    name: str
    type: str = ""
    room: int | None = None


def choose_offsets(translation: Translation) -> Iterator[str]:
    """Choose an offset for each group, greater than all of its numbers; yield the columns that it does not fit."""
    for group, found in _greatest(translation).items():
        top = max((each.number for each in found), default=0)
        moved = [(each.room, each) for each in found if each.room is not None]
        offset = _offset(top, min((room for room, _ in moved), default=(1 << 63) - 1 - top))
        translation.offsets[group] = offset
        if tight := sorted((room, each) for room, each in moved if room < offset):
            high = sorted(found, reverse=True, key=lambda each: each.number)[:3]
            columns = ", ".join(f"{each.name} ({each.type})" for _, each in tight[:_NAMED])
            yield (
                f"the offset {offset:,} does not fit into {columns}{', …' * (len(tight) > _NAMED)}; the greatest "
                f"numbers are {', '.join(f'{each.name} {each.number:,}' for each in high)}. Is such a number a mark "
                "(write sql), or no id (keep)? Else widen these columns in both databases, or, if these ids are few, "
                'give them an offset of their own: own.COLUMN = "NAME", in the table and in all that refer to it'
            )
        for room, each in moved:
            left = _merges(each.number, room, max(top, offset + each.number)), each.name
            translation.merges_left = min(translation.merges_left, left)


def _greatest(translation: Translation) -> dict[str, list[Greatest]]:
    """Return the greatest number of every column that moves, and of every counter, by the group of its offset."""
    found: dict[str, list[Greatest]] = defaultdict(list, {"": []})
    tables = translation.map.tables
    for database in (translation.first, translation.second):
        for name in translation.names:
            columns = [column for column, rule in tables[name].rules.items() if rule in ("id", "of", "top")]
            row = database.one(_maxima(database, database.tables[name], columns)) if columns else ()
            for column, value in zip(columns, row, strict=True):
                number, about = int(value or 0), database.tables[name].columns[column]
                room = about.limit - number if number and database is translation.second else None
                each = Greatest(number, f"{name}.{column}", about.type, room)
                found[tables[name].text("own", column)].append(each)
        for counter in database.counters:
            said = tables[counter.table] if counter.table else None
            column = counter.column or ""
            if said is None or (said.rows != "skip" and said.rule(column) in ("id", "of")):
                each = Greatest(counter.last, f"{counter.table or counter.name}.(counter)")
                found[said.text("own", column) if said else ""].append(each)
    return found


def _maxima(database: Database, table: Table, columns: list[str]) -> str:
    """Return the query of the greatest numbers of some columns: from an index if there is one, else in one pass."""
    keys = [table.primary, *table.uniques]
    if database.indexes_keys:
        keys += [key.columns for key in table.foreign_keys]
    indexed, found = {key[0] for key in keys if key}, list[str]()
    for column in columns:
        value = database.quote(column)
        if table.columns[column].kind != "int":
            found.append(f"MAX({database.digits(table.columns[column], value)})")
        else:
            found.append(f"(SELECT MAX({value}) FROM {table.sql})" if column in indexed else f"MAX({value})")
    is_pass = any(each.startswith("MAX") for each in found)
    return f"SELECT {', '.join(found)}{f' FROM {table.sql}' if is_pass else ''}"


def _offset(top: int, room: int) -> int:
    """Return the roundest number above *top* that is at most *room*; if there is none, the next one above it."""
    steps = (10 ** len(str(top)), 1000, 10)
    found = ((top // step + 1) * step for step in steps)
    return next((number for number in found if number <= room), (top // 10 + 1) * 10)


def _merges(number: int, room: int, highest: int) -> int:
    """Return how many more databases with such a greatest number fit into a column."""
    count = 0
    for step in (1000, 10):
        while count < MANY and (following := (highest // step + 1) * step) <= room:
            highest, count = following + number, count + 1
    return count


# --- values ----------------------------------------------------------------------------------------------


def values_of_none(translation: Translation) -> Iterator[str]:
    """Yield columns of the second database that had no values when the map was made, and have some now."""
    second = translation.second
    for name in translation.names:
        table = second.tables[name]
        for column in translation.map.tables[name].lists.get("none", []):
            value, is_number = second.quote(column), table.columns[column].kind == "int"
            filled = f"{value} <> 0" if is_number else f"{second.text(value)} NOT IN ('', '0')"
            if count := second.count(f"{table.sql} WHERE {filled}"):
                yield f"[{name}] {column} had no values when the map was made, and has {count:,} now: id or keep?"


def clashes(translation: Translation) -> Iterator[str]:
    """Yield unique keys that a row that comes would have with a row that is there."""
    for name in translation.names:
        said, table = translation.map.tables[name], translation.first.tables[name]
        for key in table.uniques:
            if any(column not in translation.columns(name) for column in key):
                continue
            if said.rows == "first" and key == translation.first_key(name):
                continue
            # a moved id is greater than all of the first database
            moved = [c for c in key if translation.map.move(name, c).rule == "id" and table.columns[c].kind == "int"]
            stay = [f"({value} IS NULL OR {value} <= 0)" for value in map(translation.column, moved)]
            if found := translation.shared_keys(name, key, conditions=stay):
                what = f"{len(found):,} rows that would come have the {', '.join(key)} of a row that is there"
                yield f"[{name}] {what}, such as {shown(found[0][2])}. {_remedies(table, key)}"


def _remedies(table: Table, key: list[str]) -> str:
    kinds = {column: table.columns[column].kind for column in key if column != ROWID}
    text = next((column for column, kind in kinds.items() if kind == "text" and len(key) == 1), None)
    remedies = [f"taken.{text} = \"CONCAT({text}, '-2')\" gives them another name"] if text else []
    remedies += [
        'rows = "first": these rows stay away',
        f"match = {key}: they are one row under two ids".replace("'", '"'),
        *(f"{column} is an id: move it to id" for column in [c for c, kind in kinds.items() if kind == "int"][:1]),
    ]
    return "; ".join(remedies)
