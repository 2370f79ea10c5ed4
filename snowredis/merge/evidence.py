"""Evidence in the values of two databases: which columns hold ids, of which tables, and which only look so.

Each table is read once, as a stream; of a greater one SAMPLED rows are kept, by a hash of their key, so that rows with
equal keys are kept of both databases. A second look reads only that many. The names of tables and columns count, too.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from operator import itemgetter
from typing import Any
from zlib import crc32

from snowredis.merge.catalog import ROWID, Catalog, Table, TableColumn
from snowredis.merge.databases import Progress, Session
from snowredis.merge.dialects import dialect_of

SAMPLED = 20_000
# texts of a column that are looked into, numbers of each, and characters
_TEXTS, _PARTS, _CHARS = 4000, 6, 400
# values of a column that are tried first
_TRIED = 50
# how much of a column's values must be ids
_MOST = 0.95
# fewer ids than this say nothing
_FEW = 5
# ids that begin above this are no amounts
_LARGE = 10_000
_ID_NAME = re.compile(
    r"(id|guid|uid|oid|owner|leader|master|sender|receiver|author|creator|creature_guid|parent|child|father|mother|partner|"
    r"spouse|friend|target|by|bidder|seller|buyer|captain|sponsor|apprentice|recruiter|invitee|inviter|editor|user|"
    r"player|char|character|account|guild|clan|party|team|assignee|member|winner|loser|killer|victim)s?_?\d*$",
    re.IGNORECASE,
)
_AMOUNT_NAME = re.compile(
    r"((^|_)([xyz]|sp|hp|mp|str|int|dex|agi|vit|luk|map|pos)|time|date|stamp|exp|level|count|amount|price|money|gold|"
    r"cost|points?|score|rank|rating|state|status|flags?|mask|type|kind|slot|size|zone|index|order|position|value|total|"
    r"duration|expires?|enabled|active|percent|color|version|day|month|year|hour|quantity|stack|energy|power|wins?|"
    r"games?|kills?|deaths?|honou?r|race|class|mmr)_?\d*$",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"(?<![0-9A-Za-z])[1-9][0-9]{0,17}(?![0-9A-Za-z])")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass
class Ids:
    """Positive whole numbers of a column in one database.

    Attributes:
        low, high, count: of all rows; *values* may be fewer.
    """

    values: set[int]
    low: int = 0
    high: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        if self.values:
            self.low, self.high = self.low or min(self.values), self.high or max(self.values)
        self.count = self.count or len(self.values)
        # any number in the range may be an id of a large table
        self._all_in_range = self.count > len(self.values)

    @property
    def are_of_a_layout(self) -> bool:
        """True for ids of a layout, with a time in them, and no numbers of a counter."""
        return self.low > 1 << 40 and self.high - self.low > 1000 * self.count

    def share(self, numbers: Iterable[int]) -> float:
        """Return which part of some numbers are among these."""
        tried = list(numbers)
        if self._all_in_range:
            return sum(self.low <= number <= self.high for number in tried) / len(tried)
        return sum(number in self.values for number in tried) / len(tried)


@dataclass
class Sample:
    """Rows of a table of one database; *at* says where a column is in them."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    at: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def values(self, column: str) -> list[Any]:
        """Return the values of a column."""
        return [row[self.at[column]] for row in self.rows] if column in self.at else []


class _Kept:
    """SAMPLED of all rows that are added: those with the least hashes of their keys; *key*: where it is in a row."""

    def __init__(self, key: Sequence[int]) -> None:
        self.count, self._key, self._limit = 0, key, 1 << 32
        self._rows: list[tuple[int, Sequence[Any]]] = []

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.count += 1
            hashed = crc32(repr([row[at] for at in self._key] or row).encode())
            if hashed <= self._limit:
                self._rows.append((hashed, row))
        if len(self._rows) > 2 * SAMPLED:
            self.rows()

    def rows(self) -> list[Sequence[Any]]:
        """Return the rows, in the order of their hashes if there were more."""
        if len(self._rows) > SAMPLED:
            self._rows.sort(key=itemgetter(0))
            del self._rows[SAMPLED:]
            self._limit = self._rows[-1][0]
        return [row for _, row in self._rows]


Two = tuple[set[int], set[int]]


class Evidence:
    """Samples of two databases.

    Args:
        reads_all: whether to read all rows, or the first ones of each table.

    Attributes:
        samples: of each table, of the first and of the second database.
        ids: of each column that numbers the rows of its table.
    """

    def __init__(
        self,
        sessions: tuple[Session, Session],
        catalogs: tuple[Catalog, Catalog],
        progress: Progress,
        *,
        reads_all: bool = True,
    ) -> None:
        self.sessions, self.catalogs, self.reads_all = sessions, catalogs, reads_all
        self.samples: dict[str, tuple[Sample, Sample]] = {}
        self.ids: dict[tuple[str, str], tuple[Ids, Ids]] = {}
        progress.start("looking at values", len(catalogs[0].tables))
        for name in catalogs[0].tables:
            self.samples[name] = (self._read(0, name), self._read(1, name))
            progress.add(1)
        for name, table in catalogs[0].tables.items():
            for column in table.columns.values():
                if self.numbers_rows(table, column):
                    found = self._ids(0, name, column.name), self._ids(1, name, column.name)
                    if any(each.values for each in found):
                        self.ids[name, column.name] = found
        self._every = self._union(None)

    def _read(self, side: int, name: str) -> Sample:
        table = self.catalogs[side].tables.get(name)
        if table is None:
            return Sample()
        columns = [column for column in table.columns.values() if not column.is_generated]
        names = dialect_of(self.catalogs[side]).names([column.name for column in columns])
        query = f"SELECT {names} FROM {table.sql}{'' if self.reads_all else f' LIMIT {SAMPLED + 1}'}"
        at = {column.name: number for number, column in enumerate(columns)}
        kept = _Kept([at[column] for column in table.primary])
        for page in self.sessions[side].pages(query):
            kept.add(page)
        rows = [tuple(map(_plain, columns, row)) for row in kept.rows()]
        count = kept.count
        if count > SAMPLED and not self.reads_all:
            (count,) = self.sessions[side].one(f"SELECT COUNT(*) FROM {table.sql}")
        return Sample(rows, at, int(count))

    def _ids(self, side: int, name: str, column: str) -> Ids:
        sample = self.samples[name][side]
        values = whole(sample.values(column))
        if sample.count <= SAMPLED:
            return Ids(values)
        quoted = self.catalogs[side].quote(column)
        low, high = self.sessions[side].one(
            f"SELECT MIN({quoted}), MAX({quoted}) FROM {self.catalogs[side].tables[name].sql} WHERE {quoted} > 0"
        )
        return Ids(values, int(low or 0), int(high or 0), sample.count)

    def numbers_rows(self, table: Table, column: TableColumn) -> bool:
        """Return whether a column numbers the rows of its table."""
        if column.kind != "int":
            return False
        if column.is_counter or table.primary == [column.name]:
            return True
        if column.name == ROWID:
            return not table.primary
        # a table without a key, whose first column is called an id, with another number in each row
        sample = self.samples[table.name][1]
        values = sample.values(column.name)
        is_first = not table.uniques and sample.at.get(column.name) == 0 and column.name.lower().endswith("id")
        return is_first and len(values) > 1 and len(set(values)) == len(values)

    def numbers(self, table: str, column: str) -> Two:
        """Return the positive whole numbers of a column in both databases."""
        first, second = (whole(sample.values(column)) for sample in self.samples[table])
        return first, second

    # --- where numbers lead ------------------------------------------------------------------------

    def lead(
        self,
        sets: Two,
        prefer: str = "",
        but: tuple[str, str] | None = None,
        tables: Collection[str] = (),
        limit: int = 0,
    ) -> tuple[int, tuple[str, str] | None]:
        """Return how well numbers are ids, and of which column.

        Args:
            prefer: name of the column that has the numbers.
            but: a column, and the rowid of its table, that are left out; so are *tables*.
            limit: the greatest number that the column holds; wider ids are left out. 0: none are.

        Returns:
            3: they end where its ids end in both databases; 2: they fill most of the range of its ids; 1: they are
            among them; 0: there is no such column.
        """
        found: list[tuple[tuple[bool, bool, int, float], int, tuple[str, str]]] = []
        count = max(map(len, sets))
        for where, ids in self.ids.items():
            if where == but or not count or (but and where == (but[0], ROWID)) or where[0] in tables:
                continue
            if limit and self.catalogs[0].tables[where[0]].columns[where[1]].limit > limit:
                continue
            reach = 1.0
            for numbers, its in zip(sets, ids, strict=True):
                if not numbers:
                    continue
                some = list(numbers)[:_TRIED]
                if not its.count or its.share(some) < _MOST - 0.15 or its.share(numbers) < _MOST:
                    reach = 0.0
                    break
                reach = min(reach, (max(numbers) - its.low + 1) / (its.high - its.low + 1))
            if reach <= 0:
                continue
            is_large = min(its.low for its in ids if its.count) > _LARGE
            score = 2 if all(sets) and ((reach > 0.5 and count >= 8) or is_large) else 1
            pairs = list(zip(sets, ids, strict=True))
            if score == 2 and all(max(mine) == its.high and len(mine) * 2 >= its.count >= 8 for mine, its in pairs):
                score = 3
            rank = (where[1] != ROWID, is_near(prefer, where))
            found.append(((*rank, score, reach), score, where))
        best = max(found, default=None)
        return (best[1], best[2]) if best else (0, None)

    def _union(self, but: tuple[str, str] | None) -> Two:
        first, second = (
            set[int]().union(*(ids[side].values for where, ids in self.ids.items() if where != but)) for side in (0, 1)
        )
        return first, second

    def orphans(self, side: int, where: tuple[str, str], target: tuple[str, str]) -> int:
        """Return how many rows of a database have a number that is no id of the target."""
        catalog = self.catalogs[side]
        if not {where[0], target[0]} <= catalog.tables.keys():
            return 0
        value, its = (catalog.quote(column) for column in (where[1], target[1]))
        known = f"SELECT {its} FROM {catalog.tables[target[0]].sql} WHERE {its} IS NOT NULL"
        rows = f"{catalog.tables[where[0]].sql} WHERE {value} > 0 AND {value} NOT IN ({known})"
        return int(self.sessions[side].one(f"SELECT COUNT(*) FROM {rows}")[0])

    def generators(self) -> list[list[tuple[str, str]]]:
        """Return columns of ids that one generator may number: their ranges touch, and no number is in two of them."""
        groups: list[dict[tuple[str, str], tuple[Ids, Ids]]] = []
        for where, ids in self.ids.items():
            if where[1] == ROWID or min(each.count for each in ids) < _FEW or ids[0].are_of_a_layout:
                continue
            for group in groups:
                if all(_are_apart(mine, its) for other in group.values() for mine, its in zip(ids, other, strict=True)):
                    sides = zip(ids, zip(*group.values(), strict=True), strict=True)
                    if all(any(_touch(mine, its) for its in others) for mine, others in sides):
                        group[where] = ids
                        break
            else:
                groups.append({where: ids})
        return [list(group) for group in groups if len(group) > 1]

    def share_of_any(self, sets: Two, but: tuple[str, str]) -> float:
        """Return which part of the numbers are ids of any table."""
        unions = self._union(but) if but in self.ids else self._every
        return min((len(mine & its) / len(mine) for mine, its in zip(sets, unions, strict=True) if mine), default=0.0)

    def by_chance(self, sets: Two, but: tuple[str, str]) -> float:
        """Return which part of the numbers would be ids of any table if they were amounts of that size."""
        unions = self._union(but) if but in self.ids else self._every
        pairs = [(max(mine), its) for mine, its in zip(sets, unions, strict=True) if mine]
        return max((sum(each <= high for each in its) / high for high, its in pairs), default=0.0)

    @property
    def all_large(self) -> bool:
        """True if all ids are so large that an amount is none by chance."""
        return min((its.low for ids in self.ids.values() for its in ids if its.count), default=0) > _LARGE

    def parts(self, table: str, column: str) -> tuple[str, tuple[str, str], str] | None:
        """Return where in the texts of a column ids are: (place, whose, example)."""
        found: tuple[dict[str, set[int]], dict[str, set[int]]] = (defaultdict(set), defaultdict(set))
        example: dict[str, str] = {}
        for sample, places in zip(self.samples[table], found, strict=True):
            for value in sample.values(column)[:_TEXTS]:
                for place, number in _numbers_in(value):
                    places[place].add(number)
                    example.setdefault(place, _shown(value))
        for place in sorted({*found[0], *found[1]}):
            sets = (found[0][place], found[1][place])
            is_balanced = all(len(one) * 8 > len(other) for one, other in (sets, sets[::-1]))
            if max(map(len, sets)) >= 5 and is_balanced:
                score, where = self.lead(sets, but=(table, column))
                if score >= 2 and where:
                    return place, where, example[place]
        return None

    def by_kind(self, table: str, column: str) -> tuple[str, list[Any]] | None:
        """Return the column that says in which rows another one has ids, and its values there."""
        samples = self.samples[table]
        every = self._every
        highest = max(max(ids, default=0) for ids in every)
        for kind in samples[1].at:
            values = {value for sample in samples for value in sample.values(kind)[:3000]}
            if kind == column or not 2 <= len(values) <= 12:
                continue
            share: dict[Any, list[tuple[bool, int]]] = defaultdict(list)
            for side, sample in enumerate(samples):
                for value, number in zip(sample.values(kind), sample.values(column), strict=True):
                    if numbers := whole([number]):
                        (each,) = numbers
                        share[value].append((each in every[side], each))
            good = [value for value, pairs in share.items() if _are_ids(pairs, highest)]
            if good and any(
                len(pairs) >= 6 and sum(is_id for is_id, _ in pairs) < 0.5 * len(pairs) for pairs in share.values()
            ):
                return kind, good
        return None

    def halves(self, table: str, low: str, high: str) -> tuple[str, str] | None:
        """Return whose ids two columns hold together: the low and the high 16 bits."""
        sets: list[set[int]] = []
        for sample in self.samples[table]:
            pairs = zip(sample.values(low), sample.values(high), strict=True)
            small = ((one, other) for one, other in pairs if isinstance(one, int) and isinstance(other, int))
            sets.append({one | other << 16 for one, other in small if 0 <= one < 1 << 16 and 0 < other < 1 << 16})
        for where, ids in self.ids.items():
            found = [mine & its.values for mine, its in zip(sets, ids, strict=True)]
            if max(map(len, found)) >= 3 and all(its.high >= 1 << 16 for its in ids if its.count):
                return where
        return None


def _are_apart(mine: Ids, its: Ids) -> bool:
    return mine.values.isdisjoint(its.values)


def _touch(mine: Ids, its: Ids) -> bool:
    gap = _LARGE // 10 if min(mine.low, its.low) > _LARGE else 1
    return mine.low <= its.high + gap and its.low <= mine.high + gap


def _are_ids(pairs: Sequence[tuple[bool, int]], highest: int) -> bool:
    numbers = {number for _, number in pairs}
    return len(pairs) >= 6 and all(is_id for is_id, _ in pairs) and len(numbers) > 5 and max(numbers) > 0.3 * highest


def _plain(column: TableColumn, value: Any) -> Any:
    """Return a value as it is compared: the same for every driver."""
    if value is None or isinstance(value, bytes | int):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, dict | list):
        return json.dumps(value, default=str)
    text = str(value)
    is_number = column.kind == "int" and text.removeprefix("-").isdigit()
    return int(text) if is_number else text


def whole(values: Iterable[Any]) -> set[int]:
    """Return the positive whole numbers among values, those in texts included."""
    found = set()
    for value in values:
        if isinstance(value, int):
            number = value
        elif isinstance(value, str | bytes):
            number = int(value) if value.isdigit() and len(value) < 19 else 0
        else:
            number = int(value) if isinstance(value, Decimal) and value == int(value) else 0
        if number > 0:
            found.add(number)
    return found


def _numbers_in(value: Any) -> Iterator[tuple[str, int]]:
    """Yield the numbers in a text, in JSON or in bytes, with their places."""
    if isinstance(value, bytes):
        if len(value) in (4, 8):
            yield "bytes, the lowest first", int.from_bytes(value, "little")
            yield "bytes, the highest first", int.from_bytes(value, "big")
        value = value.decode("latin-1") if all(31 < byte < 127 or byte in b"\t\r\n" for byte in value) else ""
    if not isinstance(value, str) or not value or _DATE.match(value):
        return
    if value[0] in "{[":
        try:
            yield from _numbers_in_json(json.loads(value), "$")
        except ValueError:
            pass
        else:
            return
    for at, number in enumerate(_TOKEN.findall(value[:_CHARS])[:_PARTS], 1):
        yield f"number {at}", int(number)


def _numbers_in_json(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key.isdigit() and 0 < len(key) < 19:
                yield f"{path}, keys", int(key)
            yield from _numbers_in_json(each, f"{path}.*" if key.isdigit() else f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from _numbers_in_json(each, f"{path}[]")
    elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
        yield path, value
    elif isinstance(value, str):
        for place, number in _numbers_in(value) if value[:1] not in ("{", "[") else ():
            yield f"{path} {place}", number


def _shown(value: Any) -> str:
    return repr(value)[:40]


def stem(name: str) -> str:
    """Return a name without what says that it is an id."""
    return re.sub(r"(_?id|_?guid|_?no)$", "", name.lower()).rstrip("s").replace("_", "")


def is_near(name: str, where: tuple[str, str]) -> bool:
    """Return whether a column is named after a table or its ids."""
    mine = stem(name)
    if not mine:
        return False
    its = stem(where[1])
    return bool(its and mine.endswith(its)) or mine in where[0].lower().replace("_", "")


def is_named_like_an_id(name: str) -> bool:
    return bool(_ID_NAME.search(name)) and not _AMOUNT_NAME.search(name)


def is_named_like_an_amount(name: str) -> bool:
    return bool(_AMOUNT_NAME.search(name))
