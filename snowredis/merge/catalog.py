"""What a database says of its tables: columns, keys, foreign keys, triggers and counters. Reads no row of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.databases import Session, catalog_query

Kind = Literal["int", "text", "bytes", "float", "json", "array", "other"]
# the one table that a merge adds to the first database, and that of an older form of this tool
MARK, OLD_MAP = "snowredis_merge", "snowredis_merge_map"
# words at the top of a map; a table of such a name has a dot before it there
HEAD = ("application", "reviewed", "schema")
# the column that a table of SQLite without an INTEGER PRIMARY KEY has, too
ROWID = "rowid"
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
_DIGITS = re.compile(r"(?:decimal|numeric)(?:\((\d+)(?:,0)?\))?")
_KINDS: tuple[tuple[Kind, str], ...] = (
    ("array", r".*\[\]"),
    ("json", "jsonb?"),
    ("float", "float.*|double.*|real"),
    ("text", ".*char.*|.*text.*|enum.*|set.*|clob"),
    ("bytes", ".*blob|.*binary.*|bytea|bit.*"),
)
_WIDTH = re.compile(r"\b((?:tiny|small|medium|big)?int)\(\d+\)", re.IGNORECASE)
_MAX = (1 << 63) - 1


@dataclass
class TableColumn:
    """A column.

    Attributes:
        type: as the database writes it.
        description: type, NOT NULL, collation and more: what must be the same in both databases.
        kind: what its values are to a merge.
        limit: the greatest number that fits, of integers.
        is_generated: the database computes it.
        is_counter: the database numbers it.
    """

    name: str
    type: str
    description: str
    kind: Kind
    limit: int
    is_generated: bool = False
    is_counter: bool = False
    collation: str | None = None


@dataclass
class ForeignKey:
    """A foreign key between two tables, which are named as in a map.

    Attributes:
        timing: PostgreSQL: its table and name, and when it is checked, divided by a bar.
    """

    columns: list[str]
    parent: str
    parents: list[str]
    timing: str = ""


@dataclass
class Table:
    """A table.

    Attributes:
        name: as a map names it: with its schema, unless that is the default one.
        sql: its quoted name.
        refusals: why its rows cannot be copied, each with what to do.
        primary: columns of its primary key.
        uniques: columns of each of its unique keys.
        triggers: their names, with PostgreSQL's mode and table, or the SQL that makes them again.
    """

    name: str
    sql: str
    columns: dict[str, TableColumn] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    primary: list[str] = field(default_factory=list)
    uniques: list[list[str]] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    triggers: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def written(self) -> list[TableColumn]:
        """The columns that a map declares: all but those that the database computes, and the rowid."""
        return [column for column in self.columns.values() if not column.is_generated and column.name != ROWID]


@dataclass(frozen=True)
class Counter:
    """A sequence, an AUTO_INCREMENT or an AUTOINCREMENT.

    Attributes:
        table, column: that it numbers; None: a sequence that no column uses.
        name: of a sequence.
        last: the greatest number that it gave.
    """

    table: str | None
    column: str | None
    name: str | None
    last: int


class Catalog:
    """The tables of one database, and its counters."""

    def __init__(self, session: Session, *, is_first: bool) -> None:
        self.dialect = session.engine.dialect
        self._session, self._default = session, sa.inspect(session.connection).default_schema_name
        self.tables: dict[str, Table] = {}
        for row in self._query("tables"):
            if not row.tab.startswith(MARK):
                table = self.tables.setdefault(self._name(row), Table(self._name(row), self._sql(row)))
                table.refusals += [text for text in (row.refused, row.first and is_first and row.refusal) if text]
        self._read_columns()
        self._read_keys()
        for row in self._query("triggers"):
            if found := self.tables.get(self._name(row)):
                found.triggers.append((row.name, _text(row.mode), row.definition))
        self.counters = list(self._counters())

    def quote(self, name: str) -> str:
        """Return the quoted name of a column."""
        mark = "`" if self.dialect.name in ("mysql", "mariadb") else '"'
        return f"{mark}{name.replace(mark, mark * 2)}{mark}"

    def has(self, table: str) -> bool:
        """Return whether there is a table of this name."""
        return sa.inspect(self._session.connection).has_table(table)

    def _query(self, name: str) -> list[Any]:
        query = catalog_query(self.dialect.name, name)
        if name == "counters" and self.dialect.name == "sqlite" and not self.has("sqlite_sequence"):
            return []
        return list(self._session.connection.execute(query))

    def _name(self, row: Any, tab: str = "tab", schema: str = "schema_name") -> str:
        name, of = getattr(row, tab), getattr(row, schema)
        return f"{of}.{name}" if of else f".{name}" if name in HEAD else str(name)

    def _sql(self, row: Any) -> str:
        schema = row.schema_name or (self._default if self.dialect.name == "postgresql" else None)
        return ".".join(self.quote(part) for part in (schema, row.tab) if part)

    def _read_columns(self) -> None:
        is_sqlite = self.dialect.name == "sqlite"
        for row in self._query("columns"):
            table = self.tables.get(self._name(row))
            if table is None:
                continue
            if row.refusal:
                table.refusals.append(f"{row.col} {row.refusal}")
            kind, limit = _affinity(row.type.lower()) if is_sqlite else _kind_of(row.type.lower())
            # the width at which a client shows a number says nothing, and not every version has it
            type_, description = (_WIDTH.sub(r"\1", text) for text in (row.type, row.description))
            table.columns[row.col] = TableColumn(
                *(row.col, type_, description, kind, limit),
                *(bool(row.is_generated), bool(row.is_counter), row.collation),
            )
        if is_sqlite:
            query = "SELECT name FROM pragma_table_list WHERE wr AND schema = 'main'"
            without = {name for (name,) in self._session.rows(query)}
            for table in self.tables.values():
                counts = any(column.is_counter for column in table.columns.values())
                if not counts and table.name not in without and ROWID not in {name.lower() for name in table.columns}:
                    table.columns[ROWID] = TableColumn(ROWID, "INTEGER", "", "int", _MAX)

    def _read_keys(self) -> None:
        keys: dict[tuple[str, str], list[str]] = {}
        for row in self._query("keys"):
            if (name := self._name(row)) in self.tables:
                keys.setdefault((name, row.name), []).append(row.col)
                if row.is_primary:
                    self.tables[name].primary.append(row.col)
        for (table, _), columns in keys.items():
            if columns not in self.tables[table].uniques:
                self.tables[table].uniques.append(columns)
        found: dict[tuple[str, str], ForeignKey] = {}
        for row in self._query("foreign_keys"):
            parent = self._name(row, "parent", "parent_schema")
            if self._name(row) not in self.tables or parent not in self.tables:
                continue
            key = found.get((self._name(row), row.name))
            if key is None:
                key = found[self._name(row), row.name] = ForeignKey([], parent, [], row.timing)
                self.tables[self._name(row)].foreign_keys.append(key)
            # SQLite: REFERENCES parent leads to its primary key
            target = row.parent_col or self.tables[parent].primary[len(key.parents)]
            names = {name.lower(): name for name in self.tables[parent].columns}
            key.columns.append(row.col)
            key.parents.append(names.get(target.lower(), target))

    def _counters(self) -> Iterator[Counter]:
        for row in self._query("counters"):
            table = self.tables.get(self._name(row)) if row.tab else None
            if row.tab and table is None:
                continue
            column = row.col
            if table is not None and column is None:
                column = next((name for name, each in table.columns.items() if each.is_counter), None)
            yield Counter(table.name if table else None, column, row.name, int(row.last or 0))

    # --- comparing ---------------------------------------------------------------------------------

    def checksum(self) -> str:
        """Return a hash of the names and types of all columns."""
        described = {name: [(c.name, c.type) for c in table.written] for name, table in self.tables.items()}
        return hashlib.blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=8).hexdigest()

    def differences(self, other: Catalog, name: str) -> str:
        """Return how a table differs in another database; empty: it does not."""
        mine, its = (
            {c.name: c.description for c in each.tables[name].columns.values()} if name in each.tables else None
            for each in (self, other)
        )
        if mine is None or its is None:
            return f"is only in the {'second' if mine is None else 'first'} database"
        names = [each for each in {**mine, **its} if mine.get(each) != its.get(each)]
        shown = (f"{each} is {mine.get(each, 'missing')} and {its.get(each, 'missing')}" for each in names[:5])
        return f"differs between the first and the second database: {', '.join(shown)}" if names else ""


def _text(mode: object) -> str:
    # the type "char" of PostgreSQL
    return mode.decode() if isinstance(mode, bytes) else str(mode)


def _kind_of(type_: str) -> tuple[Kind, int]:
    """Return what values of a type are to a merge, and the greatest number that fits."""
    base = re.sub(r"\(\d+\)|unsigned|zerofill|signed", "", type_).strip()
    if base in _BITS:
        return "int", min(_MAX, (1 << (_BITS[base] - ("unsigned" not in type_))) - 1)
    if match := _DIGITS.fullmatch(type_.replace(" unsigned", "")):
        return "int", min(_MAX, 10 ** int(match[1]) - 1) if match[1] else _MAX
    length = re.search(r"\((\d+)\)", type_)
    limit = min(_MAX, 10 ** min(int(length[1]), 20) - 1) if length else _MAX
    return next((kind for kind, pattern in _KINDS if re.fullmatch(pattern, type_)), "other"), limit


def _affinity(type_: str) -> tuple[Kind, int]:
    """Return the same for SQLite, where a type only says what a value is converted to."""
    rules: tuple[tuple[str, Kind], ...] = (("int", "int"), ("char|clob|text", "text"), ("blob|^$", "bytes"))
    found = (kind for pattern, kind in (*rules, ("real|floa|doub", "float")) if re.search(pattern, type_))
    return next(found, "other"), _MAX


def check_no_old_map(catalog: Catalog) -> None:
    """Refuse a database in which an older form of this tool has begun a merge.

    Raises:
        MergeError: its map table is there.
    """
    if catalog.has(OLD_MAP):
        raise MergeError(
            f"the second database has a table {OLD_MAP}: snowredis 0.1 has changed ids there by a plan. Nothing was "
            "changed; finish that merge with snowredis 0.1 (merge copy), or take it back (merge undo, merge abandon), "
            "then drop the tables snowredis_merge_*."
        )
