"""The rules of a map as expressions of SQL over the second database, the pairs that they look up, and the offsets.

A value that changes by more than an offset is looked up: matched rows, names that are taken, ids of a layout that both
databases made, keys of rows that stay away. Which keys both databases have is decided by the first one, as its unique
keys compare: the second's keys are brought into a temporary table there. Reasons to refuse a merge are found before the
first row and all at once, each with what to write or to do.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from snowredis.errors import shown
from snowredis.merge.databases import ROWID, Progress, Table, TableColumn
from snowredis.merge.dialects import KEYS, Database
from snowredis.merge.map_file import OF, OFFSET, Map, TableMap

# rows that are sent at once
_BLOCK = 1000
_SERVER = "SELECT CONCAT_WS('|', @@hostname, @@port, @@datadir, @@socket, @@pid_file)"
_LAYOUT = "layout ids"
# more merges than this are not counted
MANY = 99
# columns that a refusal names
_NAMED = 8
# ids that it names
_FEW = 3


class Translation:
    """A map, with offsets and pairs, as SQL.

    Args:
        first, second: open transactions.

    Attributes:
        offsets: of each group of columns; of all others under an empty name.
        pairs: what values become, by what they are looked up as.
        away: of each table: how many rows stay away, and how many of them differ in other columns.
        merges_left: how many more databases of the second's size fit, and the column that ends it.
        prefix: of tables of the second database in statements of the first; empty: another server.
    """

    def __init__(self, the_map: Map, first: Database, second: Database, progress: Progress) -> None:
        self.map, self.first, self.second, self.progress = the_map, first, second, progress
        self.offsets: dict[str, int] = {"": 0}
        self.pairs: dict[str, dict[str, str]] = {}
        self.away: dict[str, tuple[int, int]] = {}
        self.merges_left = (MANY, "")
        self.names = the_map.of("copy", "first")
        self.prefix = _database_on_one_server(first, second)

    # --- expressions -------------------------------------------------------------------------------

    def columns(self, name: str) -> list[str]:
        """Return the columns of a table that are written."""
        table, rules = self.first.tables[name], self.map.tables[name].rules
        rowid = [column.name for column in table.columns.values() if column.type == ROWID and column.name in rules]
        return [*rowid, *(column.name for column in table.written)]

    def value(self, name: str, column: str) -> str:
        """Return what a column becomes, as an expression over a row y of the second database."""
        said, plain, about = self.map.tables[name], self.column(column), self.first.tables[name].columns[column]
        move = self.map.move(name, column)
        if move.rule == "of":
            value = self._of(move.by, plain, about)
        elif move.rule == "sql":
            value = f"({self.expression(move.by)})"
        else:
            value = self._moved(move.rule, plain, about, move.by)
        if self.pairs.get(f"{name}.{column}") and (taken := said.text("taken", column)):
            is_free = f"{self._found(f'{name}.{column}', self.text(name, column))} IS NULL"
            value = f"CASE WHEN {is_free} THEN {value} ELSE ({self.expression(taken)}) END"
        return value

    def column(self, name: str) -> str:
        """Return a column of the row y."""
        return f"y.{self.second.quote(name)}"

    def text(self, name: str, column: str) -> str:
        """Return a column of the row y as the text by which pairs know it."""
        return self.second.plain(self.first.tables[name].columns[column], self.column(column))

    def _moved(self, rule: str, value: str, column: TableColumn, group: str) -> str:
        if rule == "flake":
            return self._looked_up(_LAYOUT, value, value, column)
        return self.second.moved(column, value, self.offsets[group]) if rule == "id" else value

    def _of(self, target: str, value: str, column: TableColumn | None = None) -> str:
        """Return the id that a row of *target* has: that of the matched row, or as the ids of that table move."""
        key, its = str(self.map.ids[target]), self.map.tables[target]
        about = self.first.tables[target].columns[key]
        moved = self._moved(its.rule(key), value, column or about, its.text("own", key))
        return self._looked_up(target, value, moved, column if column and column.kind == "text" else about)

    def expression(self, text: str) -> str:
        """Return an expression of a map with its offsets and tables."""
        text = OF.sub(lambda match: self._of(match[1], f"({match[2]})"), text)
        return OFFSET.sub(lambda match: str(self.offsets[match[1] or ""]), text)

    def _looked_up(self, pairs: str, value: str, otherwise: str, column: TableColumn) -> str:
        if not self.pairs.get(pairs):
            return otherwise
        found = self._found(pairs, self.second.plain(column, value))
        return f"COALESCE({self.second.typed(column, found)}, {otherwise})"

    def _found(self, pairs: str, text: str) -> str:
        return self.second.looked_up(list(self.pairs).index(pairs), text, self.pairs[pairs])

    # --- rows --------------------------------------------------------------------------------------

    def rows(self, name: str, *conditions: str, prefix: str = "") -> str:
        """Return FROM and WHERE of the rows that come; *prefix*: the second database, as the first one names it."""
        said, found, key = self.map.tables[name], list(conditions), self.first_key(name)
        if self.pairs.get(name):
            found.append(f"{self._found(name, self.text(name, str(self.map.ids[name])))} IS NULL")
        if said.rows == "first" and self.pairs.get(f"{name} rows"):
            found.append(f"{self._found(f'{name} rows', self._key_text(name, key))} IS NULL")
        if said.rows == "first" and not key:
            found.append("1 = 0")
        where = f" WHERE {' AND '.join(found)}" if found else ""
        return f"FROM {prefix}{self.second.tables[name].sql} y{where}"

    def count(self, name: str, *conditions: str) -> int:
        """Return how many rows come."""
        return self.second.count(self.rows(name, *conditions).removeprefix("FROM "))

    def copy(self, name: str, target: str, columns: Sequence[str], more: Sequence[str], *conditions: str) -> None:
        """Copy rows into a table of the first database: the values of *more*, then those of columns."""
        values = ", ".join([*more, *(self.value(name, column) for column in columns)])
        there, here = (f"SELECT {values} {self.rows(name, *conditions, prefix=each)}" for each in ("", self.prefix))
        names = [*["key_", "hash_"][: len(more)], *columns]
        texts = [self.map.tables[name].text(word, column) for word in ("sql", "taken") for column in columns]
        into = f"{target} ({self.first.names(names)})"
        if self.first.kind == "postgresql":
            self._copy_blocks(there, f"COPY {into} FROM STDIN")
        elif self.prefix and not any(re.search(r"\bselect\b", text, re.IGNORECASE) for text in texts):
            self.first.run(f"INSERT INTO {into} {here}")
        else:
            for page in self.second.pages(there):
                self.first.insert(f"INSERT INTO {into}", len(names), page)
                self.progress.add(len(page))

    def _copy_blocks(self, query: str, target: str) -> None:
        from psycopg import errors, pq

        source = self.second.driver.pgconn
        result = source.exec_(f"COPY ({query}) TO STDOUT".encode())
        if result.status == pq.ExecStatus.COPY_OUT:
            with self.first.driver.cursor().copy(target) as into:
                rows = list[bytes]()
                # a row each; psycopg's own loop takes several times as long
                while (found := source.get_copy_data(0))[0] > 0:
                    rows.append(bytes(found[1]))
                    if len(rows) >= _BLOCK:
                        into.write(b"".join(rows))
                        self.progress.add(len(rows))
                        rows.clear()
                into.write(b"".join(rows))
                result = source.get_result()
                while source.get_result():
                    pass
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise errors.error_from_result(result)

    def first_key(self, name: str) -> list[str]:
        """Return the columns by which a row is one that the first database has; a number that counts on is none."""
        lists = self.map.tables[name].lists
        keys = (key for key in self.first.tables[name].uniques if not {*key} & {*lists.get("top", [])})
        return lists.get("key") or next(keys, [])

    def _key_text(self, name: str, columns: Sequence[str]) -> str:
        """Return the key of a row of the second database as one text."""
        return self.second.joined([f"COALESCE({self.text(name, column)}, '')" for column in columns])

    # --- pairs -------------------------------------------------------------------------------------

    def find_pairs(self) -> Iterator[str]:
        """Find what is looked up; yield what is not clear."""
        self._find_layout_ids()
        yield from self._find_matched()
        for name in self.map.of("first"):
            yield from self._find_first(name)
        for name in self.names:
            for column in self.map.tables[name].texts.get("taken", {}):
                found = self.shared_keys(name, [column], self.text(name, column))
                self._store(f"{name}.{column}", {old: "1" for old, *_ in found})

    def _store(self, name: str, pairs: dict[str, str]) -> None:
        self.pairs[name] = pairs
        for database in (self.first, self.second):
            database.store_pairs(list(self.pairs).index(name), pairs)

    def _find_layout_ids(self) -> None:
        """Give ids that both databases made new ones: the next numbers that neither has."""
        made, own = (set[int](), set[int]()), set[int]()
        for name in self.names:
            for column in self.map.tables[name].lists.get("flake", []):
                for database, side in zip((self.first, self.second), made, strict=True):
                    table = database.tables[name]
                    value = database.digits(table.columns[column], database.quote(column))
                    pages = database.pages(f"SELECT {value} FROM {table.sql}")
                    found = {int(number) for page in pages for (number,) in page if number is not None}
                    side.update(found)
                    if database is self.second and [column] in table.uniques:
                        own |= found
        used, new = made[0] | made[1], dict[str, str]()
        for an_id in sorted(own & made[0]):
            other = next(number for number in count(an_id + 1) if number not in used)
            used.add(other)
            new[str(an_id)] = str(other)
        self._store(_LAYOUT, new)

    def _find_matched(self) -> Iterator[str]:
        """Find which rows are the same in both, tables whose names refer to matched rows after those."""
        waiting = [name for name, said in self.map.tables.items() if said.match]
        while waiting:
            said = [(name, self.map.tables[name]) for name in waiting]
            ready = [name for name, its in said if not {its.text("of", column) for column in its.match} & {*waiting}]
            if not ready:
                yield f"match of {', '.join(waiting)}: by ids of matched rows not known yet: take other columns"
                return
            for name in ready:
                waiting.remove(name)
                key, pairs = str(self.map.ids[name]), dict[str, str]()
                text, match = self.text(name, key), self.map.tables[name].match
                # by a right match a row is one row of the first: of a wrong one, not all pairs are read
                found = self.shared_keys(name, match, text, key, compares=True, most=self.count(name) + 1)
                several = dict.fromkeys(old for old, _, new in found if pairs.setdefault(old, new) != new)
                if several:
                    which = f"such as those with {key} {', '.join(list(several)[:_FEW])}"
                    yield f"[{name}] match: rows of the second are each several of the first, {which}: add a column"
                if len(set(pairs.values())) < len(pairs):
                    yield f"[{name}] match: two rows of the second database are one of the first: add a column"
                self._store(name, pairs)
                self.away[name] = (len(pairs), sum(differs for _, differs, _ in found))

    def matched_in(self, name: str, column: str, target: str) -> int:
        """Return how many rows that come have the id of a row of *target* that stays away, as the first has it."""
        if not self.pairs.get(target):
            return 0
        return self.count(name, f"{self._found(target, self.text(name, column))} IS NOT NULL")

    def _find_first(self, name: str) -> Iterator[str]:
        key = self.first_key(name)
        if not key:
            # a counter, in the only row of its table
            counts = [database.count(database.tables[name].sql) for database in (self.first, self.second)]
            if counts != [1, 1]:
                yield f"[{name}] top: a table of one row has {counts[0]:,} and {counts[1]:,} rows. Write key = […]"
            self.away[name] = (counts[1], 0)
            return
        found = self.shared_keys(name, key, self._key_text(name, key), compares=True)
        pairs = {old: "1" for old, *_ in found}
        self._store(f"{name} rows", pairs)
        self.away[name] = (len(pairs), sum(differs for _, differs, _ in found))

    def shared_keys(
        self,
        name: str,
        key: Sequence[str],
        text: str = "''",
        column: str = "",
        *,
        conditions: Sequence[str] = (),
        compares: bool = False,
        most: int = 1 << 62,
    ) -> list[tuple[str, int, str]]:
        """Return the rows of the second database whose key a row of the first has, without keys that are NULL.

        Args:
            key: columns, compared as the first database compares them.
            text: an expression that names the row of the second.
            column: of the row of the first that is returned; empty: the first of *key*.
            conditions: for rows of the second.
            compares: whether to look at other columns.
            most: how many are returned.

        Returns:
            (text, 1 if the rows differ in values that stay, the column as a text).
        """
        first, table, said = self.first, self.first.tables[name], self.map.tables[name]
        others = [c for c in table.written if said.rule(c.name) in ("keep", "none") and c.name not in key and compares]
        mine, its = (
            first.row_hash(others, [f"{row}.{first.quote(each.name)}" for each in others]) if others else "0"
            for row in "ty"
        )
        values = [self.value(name, each) for each in key]
        if self.prefix and values == list(map(self.column, key)):
            rows = self.rows(name, *conditions, prefix=self.prefix)
            keys = f"(SELECT {', '.join([f'{text} AS key_', f'{its} AS hash_', *values])} {rows})"
        else:
            keys, columns = KEYS, f"{text} AS key_, {its} AS hash_, {first.names(key)}"
            first.run(f"CREATE TEMPORARY TABLE {KEYS} AS SELECT {columns} FROM {table.sql} y LIMIT 0")
            self.copy(name, keys, key, [text, its], *conditions)
        other = first.plain(table.columns[column or key[0]], f"t.{first.quote(column or key[0])}")
        found = first.rows(
            f"SELECT n.key_, CASE WHEN n.hash_ = {mine} THEN 0 ELSE 1 END, {other} "
            f"FROM {table.sql} t JOIN {keys} n ON {first.same('t', key, 'n', key)} LIMIT {most}"
        )
        if keys == KEYS:
            # the only DROP of MariaDB that does not end a transaction
            first.run(f"DROP {'TEMPORARY ' * first.ends_by_ddl}TABLE {KEYS}")
        return [(str(old), int(differs), str(value)) for old, differs, value in found]

    def computed(self) -> Iterator[str]:
        """Yield what each expression of the map does to the values that come."""
        for name in self.names:
            columns = self.map.tables[name].texts.get("sql", {})
            total = self.count(name) if columns else 0
            for column in columns:
                old, new = map(self.second.text, (self.column(column), self.value(name, column)))
                rows = self.rows(name, f"COALESCE({old}, '') <> COALESCE({new}, '')")
                found = self.second.rows(f"SELECT COUNT(*) OVER (), {old}, {new} {rows} LIMIT 1")
                such = "".join(f", such as {shown(one)} to {shown(other)}" for _, one, other in found)
                number = found[0][0] if found else 0
                yield f"{name}.{column}: {number:,} of {total:,} values change{such}"

    def changed_values(self) -> Iterator[tuple[str, str, str]]:
        """Yield (where, old, new) for values that are no old id plus an offset."""
        for name, pairs in self.pairs.items():
            if name == _LAYOUT or name in self.map.tables:
                yield from ((name, old, new) for old, new in pairs.items())
        taken = [(name, column) for name in self.names for column in self.map.tables[name].texts.get("taken", {})]
        for name, column in taken:
            if self.pairs.get(f"{name}.{column}"):
                texts = [self.second.text(each) for each in (self.column(column), self.value(name, column))]
                is_taken = f"{self._found(f'{name}.{column}', self.text(name, column))} IS NOT NULL"
                for page in self.second.pages(f"SELECT {', '.join(texts)} {self.rows(name, is_taken)}"):
                    yield from ((f"{name}.{column}", str(old), str(new)) for old, new in page)


def _database_on_one_server(first: Database, second: Database) -> str:
    """Return the name of the second database as the first server knows it, with a dot; empty: two servers."""
    if first.kind != "mysql" or first.one(_SERVER) != second.one(_SERVER):
        return ""
    name = str(second.engine.url.database)
    seen = first.rows(f"SELECT 1 FROM information_schema.schemata WHERE schema_name = {first.literal(name)}")
    return f"{first.quote(name)}." if seen else ""


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
            table, rules = database.tables[name], tables[name].rules
            for column in (column for column, rule in rules.items() if rule in ("id", "of", "top")):
                about, value = table.columns[column], database.quote(column)
                # from an index if there is one
                is_number = about.kind == "int" and database.kind != "sqlite" and not about.type.startswith("numeric")
                value = value if is_number else database.digits(about, value)
                number = int(database.one(f"SELECT MAX({value}) FROM {table.sql}")[0] or 0)
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


def unfit_values(translation: Translation) -> Iterator[str]:
    """Yield columns of the second database with values that the rule of the column is not for.

    Those of none had no ids when the map was made: as in a draft, 0, -1, NULL and empty texts are no ids, and of
    integers only positive ones are. Those of id may be texts with digits that are no plain number, and would stay.
    """
    second = translation.second
    for name in translation.names:
        table, said = second.tables[name], translation.map.tables[name]
        for column in (c for c in said.lists.get("id", []) if c not in said.lists.get("sure", [])):
            known, value = table.columns[column], second.quote(column)
            # any column of SQLite may hold a text
            if known.kind != "int" or second.kind == "sqlite":
                where = second.unmoved(known, value)
                count, example = second.one(f"SELECT COUNT(*), MIN({value}) FROM {table.sql} WHERE {where}")
                what = f"{count:,} values of {column} have digits, but are no plain numbers, such as {shown(example)}"
                cure = f'and would stay: write sql.{column} = "…", or sure = ["{column}"]'
                yield from [f"[{name}] {what}, {cure}"] * bool(count)
        for column in said.lists.get("none", []):
            known, value = table.columns[column], second.quote(column)
            is_filled = f"{second.text(value)} NOT IN ('', '0', '-1')"
            is_filled = f"{second.digits(known, value)} IS NOT NULL" if known.kind == "int" else is_filled
            if count := second.count(f"{table.sql} WHERE {is_filled}"):
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
                new = f"CONCAT({key[0]}, '-2')" if translation.first.kind == "mysql" else f"{key[0]} || '-2'"
                what = f"{len(found):,} rows that would come have the {', '.join(key)} of a row that is there"
                yield f"[{name}] {what}, such as {shown(found[0][2])}. {_remedies(table, said, key, new)}"


def _remedies(table: Table, said: TableMap, key: list[str], new: str) -> str:
    kinds = {column: table.columns[column].kind for column in key if said.rule(column) == "keep"}
    is_name, columns = kinds == {key[0]: "text"}, json.dumps(key)
    remedies = [f'taken.{key[0]} = "{new}" gives them another name'] * is_name
    remedies += [
        f'rows = "first"{f", key = {columns}" * (key != table.uniques[0])}: these rows stay away',
        f"match = {columns}: they are one row under two ids",
        *(f"{column} is an id: move it to id" for column in [c for c, kind in kinds.items() if kind == "int"][:1]),
    ]
    return "; ".join(remedies)
