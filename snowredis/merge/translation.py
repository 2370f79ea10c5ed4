"""The rules of a map as expressions of SQL over the second database, and the pairs of values that they look up.

A value that changes by more than an offset is looked up: matched rows, names that are taken, ids of a layout that both
databases made, keys of rows that stay away. Which keys both databases have is decided by the first one, as its unique
keys compare: the second's keys are brought into a temporary table there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from snowredis.errors import shown
from snowredis.merge.catalog import ROWID, Catalog
from snowredis.merge.databases import Progress, Session
from snowredis.merge.dialects import MergeSql, dialect_of
from snowredis.merge.map_file import OF, OFFSET, Map

# rows that are sent at once
_BLOCK = 1000
_SERVER = "SELECT CONCAT_WS('|', @@hostname, @@port, @@datadir, @@socket, @@pid_file)"


class Transport:
    """Copies the rows of queries.

    Args:
        first, second: open transactions.

    Attributes:
        prefix: of tables of the second database in statements of the first; empty: another server.
    """

    def __init__(self, first: Session, second: Session, catalogs: tuple[Catalog, Catalog], progress: Progress) -> None:
        self.first, self.second, self.progress = first, second, progress
        self._quote, self._kind = catalogs[0].quote, first.engine.dialect.name
        self.prefix = self._database_of_second()

    def _database_of_second(self) -> str:
        """Return the name of the second database as the first server knows it; empty: two servers."""
        if self._kind not in ("mysql", "mariadb") or self.first.one(_SERVER) != self.second.one(_SERVER):
            return ""
        name = self._quote(str(self.second.engine.url.database))
        seen = f"SELECT 1 FROM information_schema.schemata WHERE schema_name = '{self.second.engine.url.database}'"
        return f"{name}." if self.first.rows(seen) else ""

    def copy(self, query: str, query_here: str, table: str, columns: Sequence[str], *, is_here: bool) -> None:
        """Insert the rows of a query of the second database into a table of the first.

        Args:
            query_here: the same as the first server understands it, where *prefix* is not empty.
            is_here: whether it may be used.
        """
        into = f"INTO {table} ({', '.join(map(self._quote, columns))})"
        if self._kind == "postgresql":
            self._copy_blocks(query, f"COPY {into.removeprefix('INTO ')} FROM STDIN")
        elif self.prefix and is_here:
            self.first.run(f"INSERT {into} {query_here}")
        else:
            for page in self.second.pages(query):
                self.first.insert(f"INSERT {into}", len(columns), page)
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
                self.progress.add(len(rows))
                result = source.get_result()
                while source.get_result():
                    pass
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise errors.error_from_result(result)


_LAYOUT = "layout ids"


class Translation:
    """A map, with offsets and pairs, as SQL.

    Attributes:
        offsets: of each group of columns; of all others under an empty name.
        pairs: what values become, by what they are looked up as.
        away: of each table: how many rows stay away, and how many of them differ in other columns.
    """

    def __init__(self, the_map: Map, first: Catalog, second: Catalog, transport: Transport) -> None:
        self.map, self.first, self.second, self.transport = the_map, first, second, transport
        self.sql: MergeSql = dialect_of(second)
        self.offsets: dict[str, int] = {"": 0}
        self.pairs: dict[str, dict[str, str]] = {}
        self.away: dict[str, tuple[int, int]] = {}

    @property
    def _sides(self) -> tuple[Session, Session]:
        return self.transport.first, self.transport.second

    # --- expressions -------------------------------------------------------------------------------

    def columns(self, name: str) -> list[str]:
        """Return the columns of a table that are written."""
        rowid = [ROWID] if ROWID in self.map.tables[name].rules else []
        return [*rowid, *(column.name for column in self.first.tables[name].written)]

    def values(self, name: str, columns: Sequence[str] | None = None) -> list[str]:
        """Return what each column becomes."""
        return [self.value(name, column) for column in columns or self.columns(name)]

    def value(self, name: str, column: str) -> str:
        """Return what a column becomes, as an expression over a row y of the second database."""
        said, plain = self.map.tables[name], f"y.{self.sql.quote(column)}"
        rule, group = said.rule(column), said.text("own", column)
        value = plain
        if rule == "sql":
            value = f"({self._expression(said.text('sql', column))})"
        elif rule == "flake":
            is_text = self.first.tables[name].columns[column].kind == "text"
            value = self._looked_up(_LAYOUT, plain, plain, is_text=is_text)
        elif rule in ("id", "top"):
            value = self.sql.moved(self.first.tables[name].columns[column], plain, self.offsets[group])
        elif rule == "of":
            value = self._of(said.text("of", column), plain, name, column)
        if said.match and column == self.map.id_of(name, self.first):
            value = self._looked_up(name, plain, value, is_text=self.first.tables[name].columns[column].kind == "text")
        if self.pairs.get(f"{name}.{column}") and (taken := said.text("taken", column)):
            is_free = f"{self._raw(f'{name}.{column}', plain)} IS NULL"
            value = f"CASE WHEN {is_free} THEN {value} ELSE ({self._expression(taken)}) END"
        return value

    def _expression(self, text: str) -> str:
        """Return an expression of a map with its offsets and tables."""

        def of(match: re.Match[str]) -> str:
            return self._of(match[1], f"({match[2]})")

        text = OF.sub(of, text)
        return OFFSET.sub(lambda match: str(self.offsets[match[1] or ""]), text)

    def _of(self, target: str, value: str, name: str | None = None, column: str | None = None) -> str:
        """Return the id that a row of *target* has: that of the matched row, or as the ids of that table move."""
        key = str(self.map.id_of(target, self.first))
        its = self.first.tables[target].columns[key]
        mine = self.first.tables[name].columns[column] if name and column else its
        moved = self.sql.moved(mine, value, self.offsets[self.map.tables[target].text("own", key)])
        if self.map.tables[target].rule(key) == "flake":
            moved = self._looked_up(_LAYOUT, value, value, is_text=mine.kind == "text")
        return self._looked_up(target, value, moved, is_text=mine.kind == "text")

    def _raw(self, pairs: str, value: str) -> str:
        return self.sql.looked_up(self.rule_number(pairs), value, self.pairs[pairs])

    def _looked_up(self, pairs: str, value: str, otherwise: str, *, is_text: bool = False) -> str:
        if not self.pairs.get(pairs):
            return otherwise
        found = self._raw(pairs, value)
        return f"COALESCE({found if is_text else self.sql.as_number(found)}, {otherwise})"

    def rule_number(self, pairs: str) -> int:
        """Return the number of these pairs in the session's table of pairs."""
        return list(self.pairs).index(pairs)

    def rows(self, name: str, *conditions: str, prefix: str = "") -> str:
        """Return FROM and WHERE of the rows that come; *prefix*: the second database, as the first one names it."""
        said, found = self.map.tables[name], list(conditions)
        if self.pairs.get(name):
            key = str(self.map.id_of(name, self.first))
            found.append(f"{self._raw(name, f'y.{self.sql.quote(key)}')} IS NULL")
        if said.rows == "first" and self.pairs.get(f"{name} rows"):
            found.append(f"{self._raw(f'{name} rows', self._key_text(name, self.first_key(name)))} IS NULL")
        if said.rows == "first" and not self.first_key(name):
            found.append("1 = 0")
        where = f" WHERE {' AND '.join(found)}" if found else ""
        return f"FROM {prefix}{self.second.tables[name].sql} y{where}"

    def copy(self, name: str, target: str, columns: Sequence[str], more: Sequence[str], *conditions: str) -> None:
        """Copy rows into a table of the first database: the values of *more*, then those of columns."""
        values = [*more, *self.values(name, columns)]
        reads_others = any(re.search(r"\bselect\b", text, re.IGNORECASE) for text in self._expressions(name, columns))
        there, here = (
            f"SELECT {', '.join(values)} {self.rows(name, *conditions, prefix=prefix)}"
            for prefix in ("", self.transport.prefix)
        )
        added = ["key_", "hash_"][: len(more)]
        self.transport.copy(there, here, target, [*added, *columns], is_here=not reads_others)

    def _expressions(self, name: str, columns: Sequence[str]) -> list[str]:
        said = self.map.tables[name]
        return [said.text(word, column) for word in ("sql", "taken") for column in columns]

    def first_key(self, name: str) -> list[str]:
        """Return the columns by which a row is one that the first database has."""
        table = self.first.tables[name]
        return self.map.tables[name].lists.get("key") or table.primary or next(iter(table.uniques), [])

    def _key_text(self, name: str, columns: Sequence[str]) -> str:
        """Return the key of a row of the second database as one text."""
        texts = (f"COALESCE({self.sql.text(f'y.{self.sql.quote(column)}')}, '')" for column in columns)
        text = next(texts)
        for following in texts:
            joined = f"{text}, '|', {following}"
            text = f"CONCAT({joined})" if type(self.sql) is MergeSql else joined.replace(", '|', ", " || '|' || ")
        return text

    # --- pairs -------------------------------------------------------------------------------------

    def find_pairs(self) -> Iterator[str]:
        """Find what is looked up; yield what is not clear."""
        self._find_layout_ids()
        yield from self._find_matched()
        for name in self.map.of("first"):
            yield from self._find_first(name)
        for name in self.map.of("copy", "first"):
            for column in self.map.tables[name].texts.get("taken", {}):
                key = f"y.{self.sql.quote(column)}"
                found = self.shared_keys(name, [column], self.sql.text(key))
                self._store(f"{name}.{column}", {old: "1" for old, *_ in found})

    def _store(self, name: str, pairs: dict[str, str]) -> None:
        self.pairs[name] = pairs
        for session in self._sides:
            self.sql.store_pairs(session, self.rule_number(name), pairs)

    def _find_layout_ids(self) -> None:
        """Give ids that both databases made new ones: the next numbers that neither has."""
        first, second = self._sides
        made, own = (set[int](), set[int]()), set[int]()
        for name in self.map.of("copy", "first"):
            for column in self.map.tables[name].lists.get("flake", []):
                for at, (session, side) in enumerate(((first, self.first), (second, self.second))):
                    table = side.tables[name]
                    value = self.sql.digits(table.columns[column], self.sql.quote(column))
                    pages = session.pages(f"SELECT {value} FROM {table.sql}")
                    found = {int(number) for page in pages for (number,) in page if number is not None}
                    made[at].update(found)
                    if session is second and [column] in table.uniques:
                        own |= found
        used, new = made[0] | made[1], dict[str, str]()
        for an_id in sorted(own & made[0]):
            other = an_id + 1
            while other in used:
                other += 1
            used.add(other)
            new[str(an_id)] = str(other)
        self._store(_LAYOUT, new)

    def _find_matched(self) -> Iterator[str]:
        """Find which rows are the same in both, tables whose names refer to matched rows after those."""
        waiting = [name for name in self.map.tables if self.map.tables[name].match]
        while waiting:
            ready = [name for name in waiting if not self._referred(name) & set(waiting)]
            if not ready:
                yield f"{', '.join(waiting)} are matched by each other: match one of them by columns of its own"
                return
            for name in ready:
                waiting.remove(name)
                key = str(self.map.id_of(name, self.first))
                text = self.sql.text(f"y.{self.sql.quote(key)}")
                pairs: dict[str, str] = {}
                found = self.shared_keys(name, self.map.tables[name].match, text, key, compares=True)
                for old, _, new in found:
                    if pairs.setdefault(old, str(new)) != str(new):
                        yield f"[{name}] match: two rows of the first database are that of {shown(old)}: add a column"
                if len(set(pairs.values())) < len(pairs):
                    yield f"[{name}] match: two rows of the second database are one of the first: add a column"
                self._store(name, pairs)
                self.away[name] = (len(pairs), sum(differs for _, differs, _ in found))

    def _referred(self, name: str) -> set[str]:
        said = self.map.tables[name]
        return {target for column, target in said.texts.get("of", {}).items() if column in said.match} - {name}

    def _find_first(self, name: str) -> Iterator[str]:
        key = self.first_key(name)
        if not key:
            # a counter, in the only row of its table
            counts = [
                int(session.one(f"SELECT COUNT(*) FROM {side.tables[name].sql}")[0])
                for session, side in zip(self._sides, (self.first, self.second), strict=True)
            ]
            if counts != [1, 1]:
                yield f"[{name}] top: a table of one row has {counts[0]:,} and {counts[1]:,} rows. Write key = […]"
            self.away[name] = (counts[1], 0)
            return
        found = self.shared_keys(name, key, self._key_text(name, key), compares=True)
        self._store(f"{name} rows", {old: "1" for old, *_ in found})
        self.away[name] = (len({old for old, *_ in found}), sum(differs for _, differs, _ in found))

    def shared_keys(
        self,
        name: str,
        key: Sequence[str],
        text: str = "''",
        column: str = "",
        *,
        conditions: Sequence[str] = (),
        compares: bool = False,
    ) -> list[tuple[str, int, Any]]:
        """Return the rows of the second database whose key a row of the first has, without keys that are NULL.

        Args:
            key: columns, compared as the first database compares them.
            text: an expression that names the row of the second.
            column: of the row of the first that is returned; empty: the first of *key*.
            conditions: for rows of the second.
            compares: whether to look at other columns.

        Returns:
            (text, 1 if the rows differ in values that stay, the column).
        """
        first, table, said = self._sides[0], self.first.tables[name], self.map.tables[name]
        sql = dialect_of(self.first)
        others = [c for c in table.written if said.rule(c.name) in ("keep", "none") and c.name not in key and compares]
        mine, its = (
            sql.row_hash(others, [f"{row}.{sql.quote(each.name)}" for each in others]) if others else "0"
            for row in "ty"
        )
        values = dict(zip(key, self.values(name, key), strict=True))
        if self.transport.prefix and all(value == f"y.{sql.quote(each)}" for each, value in values.items()):
            columns = [f"{text} AS key_", f"{its} AS hash_", *values.values()]
            rows = self.rows(name, *conditions, prefix=self.transport.prefix)
            keys = f"(SELECT {', '.join(columns)} {rows})"
        else:
            keys = "snowredis_keys"
            for statement in (sql.drop_keys, *sql.keys_table(table, key)):
                first.run(statement)
            self.copy(name, keys, key, [text, its], *conditions)
        given = " AND ".join(f"n.{sql.quote(each)} IS NOT NULL" for each in key)
        found = first.rows(
            f"SELECT n.key_, CASE WHEN n.hash_ = {mine} THEN 0 ELSE 1 END, t.{sql.quote(column or key[0])} "
            f"FROM {table.sql} t JOIN {keys} n ON {sql.same_keys(key)} WHERE {given}"
        )
        first.run(sql.drop_keys)
        return [(str(old), int(differs), value) for old, differs, value in found]

    def changed_values(self) -> Iterator[tuple[str, str, str]]:
        """Yield (where, old, new) for values that are no old id plus an offset."""
        for name, pairs in self.pairs.items():
            if name == _LAYOUT or name in self.map.tables:
                yield from ((name, old, new) for old, new in pairs.items())
        taken = [(name, column) for name, said in self.map.tables.items() for column in said.texts.get("taken", {})]
        for name, column in taken:
            if self.pairs.get(f"{name}.{column}"):
                plain = f"y.{self.sql.quote(column)}"
                values = f"{self.sql.text(plain)}, {self.sql.text(self.value(name, column))}"
                is_taken = f"{self._raw(f'{name}.{column}', plain)} IS NOT NULL"
                for page in self._sides[1].pages(f"SELECT {values} {self.rows(name, is_taken)}"):
                    yield from ((f"{name}.{column}", str(old), str(new)) for old, new in page)
