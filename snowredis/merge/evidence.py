"""Evidence in the values of two databases: which columns hold ids, of which tables, and which only look so.

The draft reads each table once, as a stream; of a greater one SAMPLED rows are kept, by a hash of their key, so that
rows with equal keys are kept of both databases. The second look of a run reads at most LOOKED rows of a table, at
PLACES of its key, and says of which tables it did not read all. The names of tables and columns count, too.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from itertools import count, islice
from typing import Any, NamedTuple
from zlib import crc32

from snowredis.merge.databases import ROWID, Progress, Table, TableColumn, nearness, plain, stem, whole, without_prefix
from snowredis.merge.dialects import Database

SAMPLED = 20_000
# rows of a table that the second look reads; of a larger one, the places of its key, and the rows at each
LOOKED, PLACES, AT_ONE = 5_000, 50, 40
# texts of a column that are looked into, numbers of each, and characters; and how many of bytes
_TEXTS, _PARTS, _CHARS, _BYTES = 4000, 12, 400, 500
# rows of a table of counters
_COUNTERS = 200
# values of a column that are tried first
_TRIED = 50
# how much of a column's values must be ids
_MOST = 0.95
# fewer ids than this say nothing
_FEW = 5
# ids that begin above this are no amounts
LARGE = 10_000
# a number behind any separator, or behind a word, with a sign between or without
_TOKEN = re.compile(r"(?<![0-9A-Za-z])(?:([A-Za-z]+)([^0-9A-Za-z])?)?0*([1-9][0-9]{0,18})(?![0-9A-Za-z])")
# words and hashes in small letters are none
_BASE64 = re.compile(r"(?=.*[A-Z])[0-9A-Za-z_/+-]{2,400}={0,2}")
_NO_TEXT = re.compile("numeric|decimal|interval|money|inet|cidr|macaddr|time|tsvector")
_OCTET = r"(1?\d?\d|2[0-4]\d|25[0-5])"
# times and addresses
_NO_IDS = re.compile(
    r"(?<!\d)\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d+)?)?|^\d\d:\d\d:\d\d(\.\d+)?|"
    rf"(?<![\d.]){_OCTET}(\.{_OCTET}){{3}}(?!\.?\d)"
)

# a table and a column
Where = tuple[str, str]
# numbers of the first and of the second database
Two = Sequence[set[int]]


@dataclass
class Ids:
    """Positive whole numbers of a column in one database.

    Attributes:
        low, high, count: of all rows; *values* may be fewer.
    """

    values: set[int]
    low: int
    high: int
    count: int

    @property
    def rule(self) -> str:
        """Rule of a map: flake, for ids of a layout, with a time in them; sql: a counter is behind a mark; else id."""
        behind = self.low ^ (1 << self.low.bit_length() >> 1)
        if behind >> 40 > 0 and self.high - self.low > 1000 * self.count:
            return "flake"
        return "sql" if self.low >> 40 else "id"

    def share(self, numbers: Iterable[int]) -> float:
        """Return which part of some numbers are among these; any number in the range of a large table may be."""
        tried, is_whole = list(numbers), self.count <= len(self.values)
        known = self.values if is_whole else range(self.low, self.high + 1)
        return sum(number in known for number in tried) / len(tried)


class Lead(NamedTuple):
    """A column of ids among which the numbers of another column are.

    Attributes:
        near: how much the other column is named after its table, or after it; see nearness().
        ends: the numbers end where the ids end, in both databases.
        fills: they fill most of the range of the ids.
        reach: how much of it.
    """

    where: Where
    near: int = 0
    ends: bool = False
    fills: bool = False
    reach: float = 0.0

    def __str__(self) -> str:
        return ".".join(self.where)


@dataclass
class Sample:
    """Rows of a table of one database; *at* says where a column is in them."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    at: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def values(self, column: str) -> list[Any]:
        """Return the values of a column."""
        return [row[self.at[column]] for row in self.rows] if column in self.at else []


def _kept(pages: Iterable[Sequence[Sequence[Any]]], key: Sequence[int]) -> tuple[list[Sequence[Any]], int]:
    """Return SAMPLED of all rows, those with the least hashes of their keys, and how many there are."""
    numbers = count(1)
    rows = (
        (crc32(repr([row[at] for at in key] or row).encode()), next(numbers), row) for page in pages for row in page
    )
    return [row for *_, row in nsmallest(SAMPLED, rows)], next(numbers) - 1


class Evidence:
    """Samples of two databases.

    Args:
        reads_all: whether to read all rows, or at most LOOKED of each table.

    Attributes:
        samples: of each table, of the first and of the second database.
        numbers: positive whole numbers of each column.
        ids: of each column that numbers the rows of its table.
        called: each table's name without a prefix.
        partly: tables of which not all rows were read.
    """

    def __init__(self, databases: tuple[Database, Database], progress: Progress, *, reads_all: bool = True) -> None:
        self.databases, self.reads_all, self.tables = databases, reads_all, databases[0].tables
        self.called = without_prefix(self.tables)
        self.samples: dict[str, tuple[Sample, Sample]] = {}
        self.ids: dict[Where, tuple[Ids, Ids]] = {}
        self.numbers: dict[Where, Two] = {}
        progress.start("looking at values", len(self.tables))
        for name in self.tables:
            self.samples[name] = (self._read(0, name), self._read(1, name))
            progress.add(1)
        self.partly = [name for name, both in self.samples.items() if any(len(each.rows) < each.count for each in both)]
        for table, column in ((each, column) for each in self.tables.values() for column in each.columns.values()):
            first, second = (whole(sample.values(column.name)) for sample in self.samples[table.name])
            self.numbers[table.name, column.name] = first, second
            if self.numbers_rows(table, column) and (first or second):
                self.ids[table.name, column.name] = self._ids(0, table, column), self._ids(1, table, column)

    # --- reading -----------------------------------------------------------------------------------

    def _read(self, side: int, name: str) -> Sample:
        database = self.databases[side]
        table = database.tables.get(name)
        if table is None:
            return Sample()
        columns = [column for column in table.columns.values() if not column.is_generated]
        query = f"SELECT {database.names([column.name for column in columns])} FROM {table.sql}"
        at = {column.name: number for number, column in enumerate(columns)}
        key = [at[column] for column in table.primary]
        if self.reads_all:
            rows, size = _kept(database.pages(query), key)
        else:
            size = database.count(table.sql)
            some = database.at_places(table, query, PLACES, AT_ONE) if size > LOOKED else query
            rows = [row for page in database.pages(some) for row in page]
        return Sample([tuple(map(plain, columns, row)) for row in rows], at, size)

    def _ids(self, side: int, table: Table, column: TableColumn) -> Ids:
        sample, values = self.samples[table.name][side], self.numbers[table.name, column.name][side]
        if sample.count > len(sample.rows):
            return Ids(values, *self.databases[side].ends(table, column.name), sample.count)
        return Ids(values, min(values, default=0), max(values, default=0), len(values))

    def numbers_rows(self, table: Table, column: TableColumn) -> bool:
        """Return whether a column numbers the rows of its table."""
        if column.kind != "int":
            return False
        if column.is_counter or [column.name] in table.uniques:
            return True
        if column.type == ROWID:
            return not table.primary or self._names_a_rowid
        sample = self.samples[table.name][1]
        values = sample.values(column.name)
        if len(values) < 2 or len(set(values)) < len(values):
            return False
        # each row has another number: in a key, it is the id if it is called so and counted, else in the first column
        name, is_first = column.name.lower(), sample.at[column.name] == 0
        if not table.uniques:
            return is_first and name.endswith("id")
        is_own = name == "id" or stem(name) == stem(self.called[table.name])
        are_numbers = all(isinstance(each, int) for each in values)
        return is_own and are_numbers and max(values) - min(values) < 2 * len(values)

    @cached_property
    def _names_a_rowid(self) -> bool:
        """True if a column is called as the rowid of a table."""
        return any(column.name.lower().endswith("rowid") for table in self.tables.values() for column in table.written)

    # --- where numbers lead ------------------------------------------------------------------------

    def leads(self, sets: Two, name: str = "", but: Where | None = None) -> list[Lead]:
        """Return the columns of ids among which nearly all of these numbers are, the likeliest first.

        Args:
            name: of the column that has the numbers.
            but: that column; it is left out, and so is the rowid of its table.
        """
        found = []
        for where, ids in self.ids.items() if any(sets) else ():
            is_other = but is None or where not in (but, (but[0], ROWID))
            if is_other and (reach := min(map(_reach, sets, ids))) > 0:
                near = nearness(name, self.called[where[0]], where[1])
                found.append(Lead(where, near, *_fit(sets, ids, reach), reach))
        return sorted(found, key=lambda lead: (lead.near, lead.where[1] != ROWID, *lead[3:]), reverse=True)

    @cached_property
    def leads_of(self) -> dict[Where, list[Lead]]:
        """Leads of the numbers of each column, the likeliest first."""
        return {where: self._fitting(self.leads(sets, where[1], where), where) for where, sets in self.numbers.items()}

    def _fitting(self, leads: list[Lead], where: Where) -> list[Lead]:
        """Return those that a column can mean: of no wider type, or else of an unsigned one, or named as it is."""
        known = {lead: self.tables[lead.where[0]].columns[lead.where[1]].limit for lead in leads}
        limit = self.tables[where[0]].columns[where[1]].limit
        found = ([lead for lead in leads if lead.near > 1 or known[lead] <= most] for most in (limit, limit * 2 + 1))
        return next(filter(None, found), [])

    def is_named_after(self, column: str, table: str) -> bool:
        """Return whether a column is called as the id of a table: alliance_id or allianceid, of alliances."""
        return column.lower().endswith("id") and nearness(column, self.called[table]) == 3

    def counted_by(self, table: Table, column: str) -> Where | None:
        """Return whose next numbers a column has: in the only row of its table, or in rows that name the other one."""
        both, clean = self.samples[table.name], re.compile("[^a-z]").sub
        if any(sample.count > _COUNTERS for sample in both):
            return None
        rows = [[(clean("", "".join(map(str, row)).lower()), row[one.at[column]]) for row in one.rows] for one in both]
        for where, ids in self.ids.items():
            name = stem(self.called[where[0]])
            tops = [[top for text, top in side if not side[1:] or (len(name) > 2 and name in text)] for side in rows]
            pairs = [(its.high * (its.count > 1), top) for its, some in zip(ids, tops, strict=True) for top in some]
            are_next = (isinstance(top, int) and 0 < high <= top <= high * 2 for high, top in pairs)
            if where[0] != table.name and all(tops) and all(are_next):
                return where
        return None

    def orphans(self, side: int, where: Where, target: Where) -> int:
        """Return how many rows of a database have a number that is no id of the target."""
        database = self.databases[side]
        if not {where[0], target[0]} <= database.tables.keys():
            return 0
        value, its = database.quote(where[1]), database.quote(target[1])
        known = f"SELECT {its} FROM {database.tables[target[0]].sql} WHERE {its} IS NOT NULL"
        return database.count(f"{database.tables[where[0]].sql} WHERE {value} > 0 AND {value} NOT IN ({known})")

    def generators(self) -> list[list[Where]]:
        """Return columns of ids that one generator may number: their ranges touch, and no number is in two of them."""
        groups: list[dict[Where, tuple[Ids, Ids]]] = []
        for where, ids in self.ids.items():
            if where[1] != ROWID and min(each.count for each in ids) >= _FEW and ids[0].rule != "flake":
                found = (each for each in groups if all(map(_continue, ids, zip(*each.values(), strict=True))))
                group = next(found, {})
                groups += [group] * (not group)
                group[where] = ids
        return [list(group) for group in groups if len(group) > 1]

    # --- ids in a part of the values ---------------------------------------------------------------

    @cached_property
    def every(self) -> Two:
        """The ids of all tables."""
        return [set[int]().union(*(ids[side].values for ids in self.ids.values())) for side in (0, 1)]

    def share_of_any(self, sets: Two) -> float:
        """Return which part of the numbers are ids of any table; 0 if as many would be by chance."""
        pairs = [(mine, its) for mine, its in zip(sets, self.every, strict=True) if mine]
        share = min((len(mine & its) / len(mine) for mine, its in pairs), default=0.0)
        chance = max((sum(each <= max(mine) for each in its) / max(mine) for mine, its in pairs), default=0.0)
        return share if share > 1.5 * chance else 0.0

    def parts(self, table: str, column: str) -> tuple[str, Lead, str] | None:
        """Return where in the texts of a column ids are: (place, whose, example)."""
        known = self.tables[table].columns[column]
        if _NO_TEXT.match(known.type):
            return None
        found: tuple[dict[str, set[int]], dict[str, set[int]]] = (defaultdict(set), defaultdict(set))
        example: dict[str, str] = {}
        for sample, places in zip(self.samples[table], found, strict=True):
            for value in sample.values(column)[: _BYTES if known.kind == "bytes" else _TEXTS]:
                for place, number in _numbers_in(value):
                    places[place].add(number)
                    example.setdefault(place, repr(value)[:40])
        for place in sorted({*found[0], *found[1]}):
            sets = (found[0][place], found[1][place])
            is_balanced = all(len(one) * 8 > len(other) for one, other in (sets, sets[::-1]))
            if max(map(len, sets)) >= _FEW and is_balanced:
                leads = [lead for lead in self.leads(sets, column, (table, column)) if lead.fills]
                # the word beside the number may say whose it is: player in player.17, or in $.player_id
                word = re.split(r"\W+", place.removesuffix("[]"))[-1]
                if not leads and word != column:
                    leads = [lead for lead in self.leads(sets, word, (table, column)) if lead.near == 3]
                if leads:
                    return place, leads[0], example[place]
        return None

    def named_tables(self, table: str, column: str) -> tuple[str, set[str], bool] | None:
        """Return the column that says of which tables ids of another one are, the tables, and if it names no others."""
        start = re.escape(re.sub("_?id$", "", column.lower()))
        for kind in (each.name for each in self.tables[table].written if each.kind == "text"):
            if match := re.fullmatch(f"({start}_?)?(type|kind|class|model|table)", kind.lower()):
                values = {str(each) for sample in self.samples[table] for each in sample.values(kind) if each}
                words = (re.split(r"[^A-Za-z0-9_]", value)[-1] for value in values)
                names = {stem(self.called.get(word, word)) for word in words}
                found = {name for name, called in self.called.items() if stem(called) in names}
                are_all = len({stem(self.called[name]) for name in found}) == len(names)
                if found and (match[1] or (are_all and len(found) > 1)):
                    return kind, found, are_all
        return None

    def by_kind(self, table: str, column: str) -> tuple[str, list[Any]] | None:
        """Return the column that says in which rows another one has ids, and its values there."""
        samples, every = self.samples[table], self.every
        counted = (its for ids in self.ids.values() for its in ids if its.rule != "flake")
        highest = max((its.high for its in counted), default=0)
        for kind in samples[1].at:
            values = {value for sample in samples for value in sample.values(kind)[:3000]}
            if kind == column or not 2 <= len(values) <= 12:
                continue
            share: dict[Any, list[tuple[bool, int]]] = defaultdict(list)
            for side, sample in enumerate(samples):
                for value, number in zip(sample.values(kind), sample.values(column), strict=True):
                    share[value] += [(each in every[side], each) for each in whole([number])]
            good = [value for value, pairs in share.items() if _are_ids(pairs, highest)]
            if good and any(
                len(pairs) >= 6 and sum(is_id for is_id, _ in pairs) < 0.5 * len(pairs) for pairs in share.values()
            ):
                return kind, good
        return None

    def halves(self, table: str, low: str, high: str) -> Where | None:
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


def _reach(numbers: set[int], ids: Ids) -> float:
    """Return how much of the range of ids some numbers fill; 0 if too many are none of them."""
    if not numbers:
        return 1.0
    some = list(islice(numbers, _TRIED))
    if not ids.count or ids.share(some) < _MOST - 0.15 or ids.share(numbers) < _MOST:
        return 0.0
    reach = (max(numbers) - ids.low + 1) / (ids.high - ids.low + 1)
    # if some are beyond the ids, those of another column are likelier
    return max(0.0, reach) if reach <= 1 else 0.99


def _fit(sets: Two, ids: tuple[Ids, Ids], reach: float) -> tuple[bool, bool]:
    """Return whether numbers end where ids end, and whether they fill most of their range."""
    count, is_large = max(map(len, sets)), min(its.low for its in ids if its.count) > LARGE
    fills = all(sets) and ((reach > 0.5 and count >= 8) or is_large)
    pairs = zip(sets, ids, strict=True)
    return fills and all(max(mine) == its.high and len(mine) * 2 >= its.count >= 8 for mine, its in pairs), fills


def share_of(sets: Two, ids: tuple[Ids, Ids]) -> float:
    """Return which part of some numbers of each database are among ids of it: the lesser part."""
    return min((its.share(mine) for mine, its in zip(sets, ids, strict=True) if mine), default=0.0)


def _continue(mine: Ids, others: Sequence[Ids]) -> bool:
    """Return whether ids are none of others, and touch the range of some."""
    gaps = ((its, LARGE // 10 if min(mine.low, its.low) > LARGE else 1) for its in others)
    is_near = any(mine.low <= its.high + gap and its.low <= mine.high + gap for its, gap in gaps)
    return is_near and all(mine.values.isdisjoint(its.values) for its in others)


def _are_ids(pairs: Sequence[tuple[bool, int]], highest: int) -> bool:
    numbers = {number for _, number in pairs}
    return len(pairs) >= 6 and all(is_id for is_id, _ in pairs) and len(numbers) > 5 and max(numbers) > 0.3 * highest


# --- values ----------------------------------------------------------------------------------------------


def _numbers_in(value: Any) -> Iterator[tuple[str, int]]:
    """Yield the numbers in a text, in JSON or in bytes, with their places."""
    if isinstance(value, bytes):
        yield from _numbers_in_bytes(value)
        value = value.decode("latin-1") if all(31 < byte < 127 or byte in b"\t\r\n" for byte in value) else ""
    value = _NO_IDS.sub("", value) if isinstance(value, str) else ""
    if not value:
        return
    if len(value) % 4 == 0 and _BASE64.fullmatch(value):
        yield from ((f"base64 {place}", number) for place, number in _numbers_in(base64.b64decode(value, b"-_")))
    if value[0] in "{[":
        with contextlib.suppress(ValueError, RecursionError):
            yield from _numbers_in_json(json.loads(value), "$")
            return
    for at, (word, sign, number) in enumerate(_TOKEN.findall(value[:_CHARS])[:_PARTS], 1):
        if sign or not word:
            yield f"number {at}", int(number)
        if word:
            yield f"number {at} after {word}", int(number)


def _numbers_in_bytes(value: bytes) -> Iterator[tuple[str, int]]:
    words = [(at, size) for size in (4, 8) for at in range(len(value) - size + 1)]
    for at, size in words if len(value) <= 64 else ():
        place = f"bytes {at + 1} to {at + size}"
        yield f"{place}, the lowest first", int.from_bytes(value[at : at + size], "little")
        yield f"{place}, the highest first", int.from_bytes(value[at : at + size], "big")


def _numbers_in_json(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from ((f"{path}, keys", number) for number in whole([key]))
            yield from _numbers_in_json(each, f"{path}.*" if key.isdigit() else f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from _numbers_in_json(each, f"{path}[]")
    elif isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and value % 1 == 0:
        yield path, int(value)
    elif isinstance(value, str):
        yield from ((f"{path} {place}", number) for place, number in _numbers_in(value))
