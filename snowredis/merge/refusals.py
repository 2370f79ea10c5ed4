"""Reasons to refuse a merge, found before the first row and all at once, each with what to write or to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from snowredis.errors import shown
from snowredis.merge.catalog import ROWID, Table, TableColumn
from snowredis.merge.dialects import MergeSql, PostgreSQL, dialect_of
from snowredis.merge.translation import Translation

# more merges than this are not counted
MANY = 99
_NAMED = 8


class Greatest(NamedTuple):
    """The greatest number of a column or of a counter in one database."""

    number: int
    table: str
    column: TableColumn | None
    is_second: bool

    @property
    def name(self) -> str:
        return f"{self.table}.{self.column.name if self.column else '(counter)'}"

    @property
    def limit(self) -> int:
        return self.column.limit if self.column else 0

    @property
    def room(self) -> int:
        """The greatest offset that fits."""
        return self.limit - self.number


@dataclass
class Numbers:
    """The numbers of each group of columns, and the offsets that fit them.

    Attributes:
        merges_left: how many more databases of the second's size fit, and the column that ends it.
    """

    groups: dict[str, list[Greatest]]
    merges_left: tuple[int, str] = (MANY, "")


def numbers_of(translation: Translation) -> Numbers:
    """Read the greatest number of every column that moves, and of every counter, in both databases."""
    found: dict[str, list[Greatest]] = {"": []}
    for name in translation.map.of("copy", "first"):
        said = translation.map.tables[name]
        columns = [column for column, rule in said.rules.items() if rule in ("id", "of", "top")]
        for is_second, session in enumerate((translation.transport.first, translation.transport.second)):
            catalog = (translation.first, translation.second)[is_second]
            table, sql = catalog.tables[name], dialect_of(catalog)
            row = session.one(_maxima(sql, table, columns)) if columns else ()
            for column, value in zip(columns, row, strict=True):
                each = Greatest(int(value or 0), name, table.columns[column], bool(is_second))
                found.setdefault(said.text("own", column), []).append(each)
    for is_second, catalog in enumerate((translation.first, translation.second)):
        for counter in catalog.counters:
            group = ""
            if counter.table is not None:
                said = translation.map.tables[counter.table]
                if said.rows == "skip" or not counter.column or said.rule(counter.column) not in ("id", "of"):
                    continue
                group = said.text("own", counter.column)
            name = counter.table or counter.name or ""
            found.setdefault(group, []).append(Greatest(counter.last, name, None, bool(is_second)))
    return Numbers(found)


def _maxima(sql: MergeSql, table: Table, columns: list[str]) -> str:
    """Return the query of the greatest numbers of some columns: from an index if there is one, else in one pass."""
    keys = [table.primary, *table.uniques]
    if sql.indexes_keys:
        keys += [key.columns for key in table.foreign_keys]
    indexed, found = {key[0] for key in keys if key}, list[str]()
    for column in columns:
        value = sql.quote(column)
        if table.columns[column].kind != "int":
            found.append(f"MAX({sql.digits(table.columns[column], value)})")
        else:
            found.append(f"(SELECT MAX({value}) FROM {table.sql})" if column in indexed else f"MAX({value})")
    is_pass = any(each.startswith("MAX") for each in found)
    return f"SELECT {', '.join(found)}{f' FROM {table.sql}' if is_pass else ''}"


def choose_offsets(translation: Translation, numbers: Numbers) -> Iterator[str]:
    """Choose an offset for each group, greater than all of its numbers; yield the columns that it does not fit."""
    for group, found in numbers.groups.items():
        top = max((each.number for each in found), default=0)
        moved = [each for each in found if each.is_second and each.number and each.column]
        room = min((each.room for each in moved), default=(1 << 63) - 1 - top)
        offset = _offset(top, room)
        translation.offsets[group] = offset
        if tight := sorted((each for each in moved if each.room < offset), key=lambda each: each.room):
            high = sorted(found, reverse=True, key=lambda each: each.number)[:3]
            columns = ", ".join(f"{each.name} ({each.column.type})" for each in tight[:_NAMED] if each.column)
            yield (
                f"the offset {offset:,} does not fit into {columns}{', …' * (len(tight) > _NAMED)}; the greatest "
                f"numbers are {', '.join(f'{each.name} {each.number:,}' for each in high)}. Is such a number a mark "
                "(write sql), or no id (keep)? Else widen these columns in both databases, or, if these ids are few, "
                'give them an offset of their own: own.COLUMN = "NAME", in the table and in all that refer to it'
            )
        left = min(((_merges(each, top, offset), each.name) for each in moved), default=(MANY, ""))
        numbers.merges_left = min(numbers.merges_left, left)


def _offset(top: int, room: int) -> int:
    """Return the roundest number above *top* that is at most *room*; if there is none, the next one above it."""
    steps = (10 ** len(str(top)), 1000, 10)
    found = ((top // step + 1) * step for step in steps)
    return next((number for number in found if number <= room), (top // 10 + 1) * 10)


def _merges(each: Greatest, top: int, offset: int) -> int:
    """Return how many more databases like the second one fit into a column."""
    highest, count = max(top, offset + each.number), 0
    while count < MANY and (following := (highest // 1000 + 1) * 1000) + each.number <= each.limit:
        highest, count = following + each.number, count + 1
    while count < MANY and (following := (highest // 10 + 1) * 10) + each.number <= each.limit:
        highest, count = following + each.number, count + 1
    return count


def obstacles(translation: Translation) -> Iterator[str]:
    """Yield tables that cannot be copied, and those that differ between the databases."""
    sql = dialect_of(translation.first)
    for name in translation.map.of("copy", "first"):
        if difference := translation.first.differences(translation.second, name):
            yield f'[{name}] {difference}: make them the same, or rows = "skip"'
            continue
        table = translation.first.tables[name]
        for text in dict.fromkeys(table.refusals + translation.second.tables[name].refusals):
            yield f'[{name}] {text}, or rows = "skip"'
        if type(sql) is MergeSql:
            for trigger, _, _ in table.triggers:
                yield (
                    f"[{name}] the trigger {trigger} would run at each row, and cannot be switched off: "
                    f"DROP TRIGGER {sql.quote(trigger)}; and create it again afterwards (SHOW CREATE TRIGGER)"
                )


def values_of_none(translation: Translation) -> Iterator[str]:
    """Yield columns of the second database that had no values when the map was made, and have some now."""
    second, sql = translation.transport.second, translation.sql
    for name in translation.map.of("copy", "first"):
        table = translation.second.tables[name]
        for column in translation.map.tables[name].lists.get("none", []):
            value = f"{sql.quote(column)}"
            filled = f"{value} <> 0" if table.columns[column].kind == "int" else f"{sql.text(value)} NOT IN ('', '0')"
            (count,) = second.one(f"SELECT COUNT(*) FROM {table.sql} WHERE {filled}")
            if int(count):
                yield f"[{name}] {column} had no values when the map was made, and has {int(count):,} now: id or keep?"


def clashes(translation: Translation) -> Iterator[str]:
    """Yield unique keys that a row that comes would have with a row that is there."""
    sql = translation.sql
    for name in translation.map.of("copy", "first"):
        said, table = translation.map.tables[name], translation.first.tables[name]
        for key in table.uniques:
            if any(column not in translation.columns(name) for column in key):
                continue
            if said.rows == "first" and key == translation.first_key(name):
                continue
            ids = [
                c
                for c in key
                if said.rule(c) == "id" and table.columns[c].kind == "int" and _moves(name, c, translation)
            ]
            # a moved id is greater than all of the first database
            stay = [f"(y.{sql.quote(column)} IS NULL OR y.{sql.quote(column)} <= 0)" for column in ids]
            if found := translation.shared_keys(name, key, conditions=stay):
                what = f"{len(found):,} rows that would come have the {', '.join(key)} of a row that is there"
                yield f"[{name}] {what}, such as {shown(found[0][2])}. {_remedies(table, key)}"


def _moves(name: str, column: str, translation: Translation) -> bool:
    # a matched row takes the id of another
    return not (translation.map.tables[name].match and column == translation.map.id_of(name, translation.first))


def _remedies(table: Table, key: list[str]) -> str:
    text = next((column for column in key if table.columns[column].kind == "text"), None)
    remedies = [f"taken.{text} = \"CONCAT({text}, '-2')\" gives them another name"] if text and len(key) == 1 else []
    remedies += [
        'rows = "first": these rows stay away',
        f"match = {key}: they are one row under two ids".replace("'", '"'),
    ]
    if numbers := [column for column in key if table.columns[column].kind == "int" and column != ROWID]:
        remedies.append(f"{numbers[0]} is an id: move it to id")
    return "; ".join(remedies)


def can_lock(sql: MergeSql) -> bool:
    """Return whether the first database can keep writers out of its tables."""
    return isinstance(sql, PostgreSQL)
