"""Run a merge by a map: one transaction of the first database, which copies, proves and marks; the second is only read.

The second database is read in one snapshot. Before the first row, everything that stands in the way is found. After
the last row, the rows that came are compared, by hashes, with the rules applied to the second database, and the number
of rows of every table with what it was. The mark in the first database is part of the same transaction: after a kill at
COMMIT a second run is refused, or nothing has come.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from snowredis.core.values import iso_text
from snowredis.errors import shown
from snowredis.merge import MergeError
from snowredis.merge.catalog import MARK, Catalog, ForeignKey, check_no_old_map
from snowredis.merge.databases import (
    Progress,
    Session,
    database_errors,
    is_same_database,
    open_database,
    take_lock,
    text_literal,
    transaction,
    url_of,
)
from snowredis.merge.dialects import dialect_of
from snowredis.merge.draft import Doubt, doubts
from snowredis.merge.evidence import Evidence
from snowredis.merge.map_file import Map, load_map, problems_of, refusal
from snowredis.merge.refusals import (
    Numbers,
    can_lock,
    choose_offsets,
    clashes,
    numbers_of,
    obstacles,
    values_of_none,
)
from snowredis.merge.translation import Translation, Transport

_MARK_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {MARK} (second VARCHAR(32) PRIMARY KEY, merged_at VARCHAR(32), ids_plus BIGINT, "
    "offsets TEXT, map VARCHAR(32), rows_seen TEXT)"
)
# rows of each table by which a second database is known again
_SEEN = 50


@dataclass
class MergeResult:
    """Result of a merge.

    Attributes:
        tables, rows: that came.
        offsets: of each group of columns; of all others under an empty name.
        merges_left: how many more databases of this size fit, and the column that ends it.
        away: of each table: how many rows of the second stayed away, and how many of these differ in other columns.
        doubts: where the evidence speaks against the map.
        partly: tables of which not all rows were looked at for that.
        changed: how many values changed by more than an offset.
    """

    tables: int = 0
    rows: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    merges_left: tuple[int, str] = (0, "")
    away: dict[str, tuple[int, int]] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    partly: list[str] = field(default_factory=list)
    changed: int = 0

    @property
    def offset(self) -> int:
        """Offset of every id that is in no group of its own."""
        return self.offsets.get("", 0)


def merge(
    path: Path,
    urls: tuple[str, str],
    progress: Progress,
    *,
    commits: bool = True,
    pairs: Path | None = None,
    pause: Callable[[str], None] = lambda _: None,
) -> MergeResult:
    """Merge the second database into the first.

    Args:
        commits: False: do everything, and roll it back.
        pairs: file for values that changed by more than an offset.
        pause: called at each step, for tests that end the process there.

    Raises:
        MergeError: refused, or rolled back.
    """
    the_map, (first, second) = load_map(path), open_two(*urls)
    moved_back = list[str]()
    try:
        with transaction(second) as reads, transaction(first, writes=True) as writes:
            take_lock(writes, MARK)
            progress.start("reading tables and foreign keys")
            catalogs = Catalog(writes, is_first=True), Catalog(reads, is_first=False)
            check_no_old_map(catalogs[1])
            if problems := list(problems_of(the_map, *catalogs)):
                raise refusal(problems)
            translation = Translation(the_map, *catalogs, Transport(writes, reads, catalogs, progress))
            run = _Run(translation, progress, pause)
            verdict = run.prepare()
            moved_back += run.sql.moved_back(catalogs[0], run.names)
            run.copy()
            verdict.rows = run.prove()
            verdict.changed = _write_pairs(translation, pairs if commits else None)
            pause("proved")
            if commits:
                run.mark(first)
                run.raise_counters(after=False)
                pause("COMMIT")
                writes.run("COMMIT")
                moved_back.clear()
                pause("committed")
                run.raise_counters(after=True)
    finally:
        if moved_back:
            with database_errors(first), first.connect() as connection:
                for statement in moved_back:
                    connection.exec_driver_sql(statement)
    return verdict


def open_two(first: str, second: str) -> tuple[sa.Engine, sa.Engine]:
    """Open both databases.

    Raises:
        MergeError: they are of different kinds, or one database.
    """
    engines = open_database(first), open_database(second)
    kinds = {{"mariadb": "mysql"}.get(engine.dialect.name, engine.dialect.name) for engine in engines}
    if len(kinds) > 1:
        raise MergeError(f"{' and '.join(sorted(kinds))} cannot be merged: both databases must be of one kind.")
    if is_same_database(*engines):
        raise MergeError(f"{url_of(engines[0])} and {url_of(engines[1])} are one database. Nothing was written.")
    return engines


class _Run:
    """The steps of one merge."""

    def __init__(self, translation: Translation, progress: Progress, pause: Callable[[str], None]) -> None:
        self.translation, self.progress, self.pause = translation, progress, pause
        self.map: Map = translation.map
        self.first: Session = translation.transport.first
        self.second: Session = translation.transport.second
        self.catalog, self.sql = translation.first, dialect_of(translation.first)
        self.names = self.map.of("copy", "first")
        self.seen = _rows_seen(translation)
        self.before: dict[str, list[int]] = {}
        self.orphans: dict[tuple[str, int], int] = {}
        self.moved: dict[str, str] = {}

    # --- before the first row ----------------------------------------------------------------------

    def prepare(self) -> MergeResult:
        """Find offsets and pairs.

        Raises:
            MergeError: with everything that stands in the way.
        """
        self._check_mark()
        translation = self.translation
        problems = list(obstacles(translation))
        if problems:
            raise refusal(problems)
        if can_lock(self.sql) and self.names:
            tables = ", ".join(self.catalog.tables[name].sql for name in self.names)
            self.first.run(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")
        self.progress.start("comparing ids")
        numbers = numbers_of(translation)
        problems += choose_offsets(translation, numbers)
        problems += values_of_none(translation)
        problems += self._strange_groups(numbers)
        if not problems:
            problems += translation.find_pairs()
        if not problems:
            problems += clashes(translation)
        evidence = Evidence(
            (self.first, self.second), (translation.first, translation.second), self.progress, reads_all=False
        )
        found = list(doubts(self.map, evidence))
        problems += [f"[{doubt.table}] {doubt.text}" for doubt in found if doubt.is_strong]
        if problems:
            raise refusal(problems)
        return MergeResult(
            tables=len(self.names),
            offsets=translation.offsets,
            merges_left=numbers.merges_left,
            away={name: away for name, away in translation.away.items() if away[0]},
            doubts=found,
            partly=evidence.partly,
        )

    def _strange_groups(self, numbers: Numbers) -> Iterator[str]:
        for name in self.names:
            for column, group in self.map.tables[name].texts.get("own", {}).items():
                if self.map.tables[name].rule(column) not in ("id", "of", "top"):
                    yield f'[{name}] own.{column} = "{group}": the column does not move. Move it to id, or take own out'

    def _check_mark(self) -> None:
        if not self.catalog.has(MARK):
            return
        for second, at, plus, seen in self.first.rows(f"SELECT second, merged_at, ids_plus, rows_seen FROM {MARK}"):
            there = json.loads(seen)
            both = there.keys() & self.seen.keys()
            same = sum(there[name] == self.seen[name] for name in both)
            if same and same * 2 >= len(both):
                raise MergeError(
                    f"this second database was merged at {at}, its ids + {plus:,}: the first rows of {same} of "
                    f"{len(both)} tables are the same. Nothing was written, since a second run would bring every row "
                    f"again. If it is another database: DELETE FROM {MARK} WHERE second = '{second}'"
                )

    # --- rows --------------------------------------------------------------------------------------

    def copy(self) -> None:
        """Copy all rows that come, with triggers off and foreign keys that wait."""
        translation, tables = self.translation, self.catalog.tables
        self._count_before()
        ordered, late = parents_first(self.catalog, self.names)
        before, after = self.sql.quiet([tables[name] for name in self.names], late)
        for statement in before:
            self.first.run(statement)
        sizes = {name: self.before[name][0] for name in ordered}
        self.progress.start("copying", sum(sizes.values()))
        for name in ordered:
            self.pause(name)
            translation.copy(name, tables[name].sql, translation.columns(name), [])
        for name in self.names:
            self._raise_tops(name)
        for statement in after:
            self.first.run(statement)

    def _count_before(self) -> None:
        for name, table in self.catalog.tables.items():
            (count,) = self.first.one(f"SELECT COUNT(*) FROM {table.sql}")
            self.before[name] = [int(count), 0]
        for name in self.names:
            self.moved[name] = self._moved_column(name)
            if not self.moved[name]:
                self.before[name] = self._hash(name)[1:]
            for at, key in enumerate(self._unsure_keys(name)):
                self.orphans[name, at] = 0 if self.moved[name] else self._orphans(self.first, self.catalog, name, key)

    def _unsure_keys(self, name: str) -> list[ForeignKey]:
        """Return the foreign keys that neither the database checks, nor the rules of the map.

        If all rows of the parent come, and both ends move alike, a row leads where it led in the second database.
        """
        if self.first.engine.dialect.name == "postgresql":
            return []

        def is_sure(key: ForeignKey) -> bool:
            its = self.map.tables[key.parent]
            ends = [*map(self.map.tables[name].rule, key.columns), *map(its.rule, key.parents)]
            named = any(its.text("taken", column) for column in key.parents)
            return its.rows == "copy" and not its.match and not named and not {"sql", "of"} & {*ends}

        return [key for key in self.catalog.tables[name].foreign_keys if not is_sure(key)]

    def _moved_column(self, name: str) -> str:
        """Return a column whose values say which rows came: it moved in each of them; empty: there is none."""
        table, said = self.catalog.tables[name], self.map.tables[name]
        for column, rule in said.rules.items():
            known = table.columns[column]
            in_key = known.is_counter or column == "rowid" or column in table.primary[:1]
            if rule == "id" and known.kind == "int" and in_key:
                if self.first.engine.dialect.name == "sqlite" and not (known.is_counter or column == "rowid"):
                    continue
                value = f"y.{self.sql.quote(column)}"
                (count,) = self.second.one(
                    f"SELECT COUNT(*) {self.translation.rows(name, f'({value} IS NULL OR {value} <= 0)')}"
                )
                if not int(count):
                    return column
        return ""

    def _came(self, name: str, row: str = "y") -> str:
        column = self.moved[name]
        if not column:
            return ""
        offset = self.translation.offsets[self.map.tables[name].text("own", column)]
        return f"{row}.{self.sql.quote(column)} > {offset}"

    # --- proof -------------------------------------------------------------------------------------

    def prove(self) -> int:
        """Compare what is there now with the rules and with what was there; return how many rows came.

        Raises:
            MergeError: it is not that.
        """
        wrong, total = list[str](), 0
        self.progress.start("comparing rows", len(self.names))
        for name, table in self.catalog.tables.items():
            if name not in self.names:
                (count,), came = self.first.one(f"SELECT COUNT(*) FROM {table.sql}"), [0, 0]
            else:
                came = self._rules_hash(name)
                count, *now = self._hash(name, self._came(name))
                before = [0, 0] if self.moved[name] else self.before[name]
                if now != [one + other for one, other in zip(before, came, strict=True)]:
                    wrong.append(
                        f"[{name}] the rows that came are not those that the rules make of the second database"
                    )
                wrong += self._lost(name)
                self.progress.add(1)
            total += came[0]
            if int(count) != self.before[name][0] + came[0]:
                wrong.append(f"[{name}] has {int(count):,} rows instead of {self.before[name][0]:,} + {came[0]:,}")
        if wrong:
            raise MergeError("the proof failed, and everything was rolled back", wrong)
        return total

    def _hashed(self, name: str) -> list[str]:
        tops = self.map.tables[name].lists.get("top", [])
        return [column for column in self.translation.columns(name) if column not in tops]

    def _hash(self, name: str, came: str = "") -> list[int]:
        """Return how many rows the first database has, how many *came*, and the hash of those."""
        table, names = self.catalog.tables[name], self._hashed(name)
        columns = [table.columns[column] for column in names]
        values = [f"y.{self.sql.quote(column)}" for column in names]
        return list(map(int, self.first.one(self.sql.rows_hash(columns, values, f"FROM {table.sql} y", came))))

    def _rules_hash(self, name: str) -> list[int]:
        names = self._hashed(name)
        columns = [self.catalog.tables[name].columns[column] for column in names]
        values, rows = self.translation.values(name, names), self.translation.rows(name)
        return list(map(int, self.second.one(self.sql.rows_hash(columns, values, rows))))[1:]

    def _lost(self, name: str) -> Iterator[str]:
        for at, key in enumerate(self._unsure_keys(name)):
            now = self._orphans(self.first, self.catalog, name, key, self._came(name, "c"))
            new = now - self.orphans[name, at]
            if new and new > self._orphans(self.second, self.translation.second, name, key):
                columns = ", ".join(key.columns)
                yield f"[{name}] {new:,} rows came whose {columns} leads to no row of {key.parent}"

    def _orphans(self, session: Session, catalog: Catalog, name: str, key: ForeignKey, where: str = "") -> int:
        quote = catalog.quote
        given = [f"c.{quote(column)} IS NOT NULL" for column in key.columns]
        same = " AND ".join(
            f"p.{quote(target)} = c.{quote(column)}" for column, target in zip(key.columns, key.parents, strict=True)
        )
        none = f"NOT EXISTS (SELECT 1 FROM {catalog.tables[key.parent].sql} p WHERE {same})"
        found = " AND ".join([*given, none, where] if where else [*given, none])
        (count,) = session.one(f"SELECT COUNT(*) FROM {catalog.tables[name].sql} c WHERE {found}")
        return int(count)

    # --- counters and mark -------------------------------------------------------------------------

    def _raise_tops(self, name: str) -> None:
        """Raise the counters that rows of the first database hold above those of the second."""
        said, table = self.map.tables[name], self.catalog.tables[name]
        tops = said.lists.get("top", [])
        if not tops:
            return
        key, quote = self.translation.first_key(name), self.sql.quote
        values = [self.translation.value(name, column) for column in tops]
        keys = [self.sql.text(self.translation.value(name, column)) for column in key]
        query = f"SELECT {', '.join([*values, *keys])} FROM {self.translation.second.tables[name].sql} y"
        for row in self.second.rows(query):
            same = [
                f"{self.sql.text(quote(column))} = {self.sql.literal(str(value))}"
                for column, value in zip(key, row[len(tops) :], strict=True)
            ]
            for column, value in zip(tops, row, strict=False):
                if value is not None:
                    where = " AND ".join([*same, f"{quote(column)} < {int(value)}"])
                    self.first.run(f"UPDATE {table.sql} SET {quote(column)} = {int(value)} WHERE {where}")

    def raise_counters(self, *, after: bool) -> None:
        """Move counters above the numbers that came, and above those that the second database has given."""
        if after != self.sql.raises_after:
            return
        last = {(each.table, each.column, each.name): each.last for each in self.translation.second.counters}
        with database_errors(self.first.engine, "The merge is complete; only a counter was not raised"):
            for counter in self.catalog.counters:
                said = self.map.tables.get(counter.table or "")
                if said is not None and said.rows == "skip":
                    continue
                above, column = last.get((counter.table, counter.column, counter.name), 0), counter.column or ""
                group = said.text("own", column) if said is not None else ""
                moves = said is None or said.rule(column) == "id"
                above = above + self.translation.offsets[group] if above and moves else 0
                table = self.catalog.tables[counter.table] if counter.table else None
                if statement := self.sql.raised(counter, above, table):
                    self.first.run(statement)

    def mark(self, engine: sa.Engine) -> None:
        """Write, as a part of the transaction, that this second database was merged."""
        if self.sql.raises_after:
            # a CREATE TABLE would end the transaction
            with engine.connect() as other:
                other.exec_driver_sql(_MARK_TABLE)
                other.commit()
        else:
            self.first.run(_MARK_TABLE)
        offsets, seen = json.dumps(self.translation.offsets), json.dumps(self.seen)
        second = hashlib.blake2b(seen.encode(), digest_size=8).hexdigest()
        now = iso_text(time.time_ns() // 1_000_000)
        texts = ", ".join(self.sql.literal(text) for text in (offsets, self.map.checksum, seen))
        plus = self.translation.offsets[""]
        self.first.run(f"INSERT INTO {MARK} VALUES ({text_literal(second)}, {text_literal(now)}, {plus}, {texts})")


def _rows_seen(translation: Translation) -> dict[str, str]:
    """Return a hash of the first rows of each table of the second database, by which it is known again."""
    found: dict[str, str] = {}
    # a table without such ids counts only if there is no other: its rows are sorted by all columns
    names = translation.map.of("copy")
    for name, is_last in [(name, False) for name in names] + [(name, True) for name in names]:
        table, rules = translation.second.tables.get(name), translation.map.tables[name].rules
        key = next((c for c in table.primary if rules.get(c) in ("id", "flake")), None) if table else None
        if table is not None and (key is not None or (is_last and not found)):
            every = [translation.sql.quote(column.name) for column in table.written]
            columns = ", ".join(every)
            order = translation.sql.quote(key) if key else ", ".join(map(translation.sql.text, every))
            rows = translation.transport.second.rows(
                f"SELECT {columns} FROM {table.sql} ORDER BY {order} LIMIT {_SEEN}"
            )
            if rows:
                found[name] = hashlib.blake2b(repr(rows).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return found


def parents_first(catalog: Catalog, names: list[str]) -> tuple[list[str], list[str]]:
    """Return tables in an order in which parents come first, and how the foreign keys of circles are named."""
    left, ordered, late = list(names), list[str](), list[str]()
    while left:

        def missing(name: str) -> list[ForeignKey]:
            return [k for k in catalog.tables[name].foreign_keys if k.parent in left and k.parent != name]  # noqa: B023

        free = [name for name in left if not missing(name)] or [min(left, key=lambda name: len(missing(name)))]
        for name in free:
            late += [key.timing for key in missing(name) if key.timing]
        ordered += free
        left = [name for name in left if name not in free]
    return ordered, late


def _write_pairs(translation: Translation, path: Path | None) -> int:
    """Write the values that changed by more than an offset, if there is a *path*; return how many."""
    rows = list(translation.changed_values())
    if path is None or not rows:
        return len(rows)
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("where", "old", "new"), *rows])
    except OSError as error:
        raise MergeError(
            f"{shown(str(path))} cannot be written: {error.strerror}. Everything was rolled back. Copy the "
            "map to a folder that can be written."
        ) from error
    return len(rows)
