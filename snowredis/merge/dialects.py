"""One transaction of a database, and the SQL that the three kinds of databases write in different ways.

Statements are run as they stand, without parameters. A hash of rows is the count of rows and sums of the hashes of
each, so it does not depend on their order. In a SELECT of the second database, its table is called y.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.databases import (
    OLD_MAP,
    Counter,
    Table,
    TableColumn,
    Tables,
    database_errors,
    open_database,
    read_counters,
    read_tables,
    text_literal,
    url_of,
)

# how long a statement waits for a lock of another session before it gives up
LOCK_WAIT_S = 15
# rows that are fetched at once
PAGE = 2000
# pairs of an old value and a new one, which statements look up; PostgreSQL has them in the statement
PAIRS = "snowredis_pairs"
# keys of the second database, in the first one
KEYS = "snowredis_keys"
# the same text of a time or a float on every server, no hidden rows, no time limits of the server's. They are those of
# a transaction: behind a pooler, the session is the application's, too
_LOCAL_SETTINGS = (
    *("SET LOCAL TimeZone = 'UTC'", "SET LOCAL DateStyle = 'ISO, YMD'", "SET LOCAL row_security = off"),
    *("SET LOCAL IntervalStyle = 'postgres'", "SET LOCAL extra_float_digits = 1", "SET LOCAL bytea_output = 'hex'"),
    *("SET LOCAL statement_timeout = 0", "SET LOCAL idle_in_transaction_session_timeout = 0"),
    f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'",
)
# types whose values are read as texts: Python has no infinite times, and none before the year 1 or after 9999
_TIMES = ("date", "time", "timetz", "timestamp", "timestamptz", "interval")
_MYSQL_SETTINGS = (
    "SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO', sql_safe_updates = 0, "
    f"innodb_lock_wait_timeout = {LOCK_WAIT_S}, lock_wait_timeout = {LOCK_WAIT_S}, group_concat_max_len = {1 << 24}, "
    "net_write_timeout = 3600, net_read_timeout = 3600, tx_isolation = 'REPEATABLE-READ' "
    # MariaDB alone reads this: tables without an index are joined by hashes, and those of 32 MiB of keys in one pass
    f"/*M! , join_cache_level = 8, join_buffer_size = {1 << 25}, join_buffer_space_limit = {1 << 28} */"
)
# a text that is a number of at most 63 bits
_POSITIVE = "^([1-9][0-9]{{0,17}}|[1-8][0-9]{{18}})$"
_TEXT = "VARCHAR(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"


class Database:
    """One transaction of a database of MariaDB or MySQL; the other kinds differ from it.

    Attributes:
        kind: of the database; sql/KIND.sql has the queries of its catalog.
        as_text, as_hex, from_hex, backslash: a value as a text, bytes as a text, and back; one in a literal.
        number: the type that a number is cast to.
        positive, a_digit: conditions that a text is a positive number, and that it has a digit.
        ends_by_ddl: a statement that changes a table would end the transaction.
    """

    kind, mark, parameter = "mysql", "`", "%s"
    as_text, backslash = "CONVERT(CAST({} AS CHAR) USING utf8mb4) COLLATE utf8mb4_bin", "\\\\"
    as_hex, from_hex, a_digit = "HEX({})", "UNHEX({})", "{} REGEXP '[0-9]'"
    number, positive = "SIGNED", f"{{0}} REGEXP '{_POSITIVE}'"
    ends_by_ddl = True

    def __init__(self, engine: sa.Engine, driver: Any) -> None:
        self.engine, self.driver = engine, driver

    def begin(self, *, writes: bool, pairs: bool) -> None:
        self.run(_MYSQL_SETTINGS)
        if writes:
            self.run("SET SESSION foreign_key_checks = 0")
        if pairs:
            # a transaction that only reads cannot make it
            columns = f"rule_ INT NOT NULL, old_ {_TEXT}, new_ {_TEXT}, PRIMARY KEY (rule_, old_)"
            self.run(f"CREATE TEMPORARY TABLE {PAIRS} ({columns}) ENGINE = InnoDB")
        self.run(f"START TRANSACTION WITH CONSISTENT SNAPSHOT{'' if writes else ', READ ONLY'}")

    # --- statements --------------------------------------------------------------------------------

    def run(self, sql: str) -> None:
        """Run a statement without a result."""
        with contextlib.closing(self.driver.cursor()) as cursor:
            cursor.execute(sql)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with contextlib.closing(self.driver.cursor()) as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def one(self, sql: str) -> tuple[Any, ...]:
        """Return the only row of a query."""
        (row,) = self.rows(sql)
        return row

    def count(self, rows: str) -> int:
        """Return how many rows there are; *rows* is what stands after FROM."""
        return int(self.one(f"SELECT COUNT(*) FROM {rows}")[0])

    def insert(self, start: str, width: int, rows: Sequence[Sequence[Any]]) -> None:
        """Run INSERT INTO … VALUES for *rows* of *width* values."""
        if self.parameter == "%s":
            start = start.replace("%", "%%")
        with contextlib.closing(self.driver.cursor()) as cursor:
            cursor.executemany(f"{start} VALUES ({', '.join([self.parameter] * width)})", rows)

    def pages(self, sql: str) -> Iterator[Sequence[Any]]:
        """Yield the rows of a query in pages, as the driver reads them. No other query may run meanwhile."""
        with contextlib.closing(self._reader(sql)) as cursor:
            while page := cursor.fetchmany(PAGE):
                yield page

    def _reader(self, sql: str) -> Any:
        """Return a cursor that reads the rows of a query one after another."""
        from pymysql.cursors import SSCursor

        cursor, decoders = self.driver.cursor(SSCursor), self.driver.decoders
        # pymysql would make of each value what Python takes it for: rows pass as the server sent them
        self.driver.decoders = {}
        cursor.execute(sql)
        self.driver.decoders = decoders
        return cursor

    def take_lock(self, name: str, wait_s: int = LOCK_WAIT_S) -> bool:
        """Return whether the advisory lock *name* of the database was taken; this transaction has it to its end."""
        return bool(self.one(f"SELECT GET_LOCK(CONCAT('{name}.', MD5(DATABASE())), {wait_s})")[0])

    def is_same(self, other: Database) -> bool:
        """Return whether two transactions are of one database: a lock of one is seen from the other."""
        name = f"snowredis_{secrets.token_hex(8)}"
        if not self.take_lock(name, 0):
            raise MergeError(f"{url_of(self.engine)} grants no advisory lock. Nothing was changed; connect directly.")
        return not other.take_lock(name, 0)

    def lock(self, tables: Sequence[str]) -> None:
        """Keep writers out of tables, where the database can."""

    def query(self, name: str) -> list[Any]:
        """Return the rows of a query of the catalog; each stands behind a line with its name."""
        text = files("snowredis.merge").joinpath(f"sql/{self.kind}.sql").read_text(encoding="utf-8")
        (sql,) = re.findall(rf"^-- {name}: .*\n([^;]+);", text, re.MULTILINE)
        with contextlib.closing(self.driver.cursor()) as cursor:
            cursor.execute(sql)
            names = [each[0].lower() for each in cursor.description]
            return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()]

    @functools.cached_property
    def tables(self) -> Tables:
        """The tables, read once."""
        return read_tables(self.query)

    @functools.cached_property
    def counters(self) -> list[Counter]:
        """The counters, read once."""
        return read_counters(self.query, self.tables)

    def has(self, table: str) -> bool:
        """Return whether there is a table of this name in the default schema."""
        return any(row.tab == table and not row.schema_name for row in self.query("tables"))

    def quote(self, name: str) -> str:
        """Return a quoted name."""
        return f"{self.mark}{name.replace(self.mark, self.mark * 2)}{self.mark}"

    def names(self, columns: Sequence[str]) -> str:
        """Return quoted names, divided by commas."""
        return ", ".join(map(self.quote, columns))

    def same(self, one: str, columns: Sequence[str], other: str, others: Sequence[str]) -> str:
        """Return the condition that columns of two rows are equal."""
        pairs = zip(map(self.quote, columns), map(self.quote, others), strict=True)
        return " AND ".join(f"{one}.{mine} = {other}.{its}" for mine, its in pairs)

    def ends(self, table: Table, column: str) -> tuple[int, int]:
        """Return the least and the greatest positive number of a column; 0, 0: there is none."""
        value = self.quote(column)
        low, high = self.one(f"SELECT MIN({value}), MAX({value}) FROM {table.sql} WHERE {value} > 0")
        are_numbers = all(isinstance(each, int | Decimal) and math.isfinite(each) for each in (low, high))
        return (int(low), int(high)) if are_numbers else (0, 0)

    def at_places(self, table: Table, query: str, places: int, at_one: int) -> str:
        """Return the query of some rows of a table: *at_one* at each of *places* of its key, or the first rows."""
        low, high = 0, 0
        if table.primary and table.columns[table.primary[0]].kind == "int":
            low, high = self.ends(table, table.primary[0])
        if high - low < places:
            return f"{query} LIMIT {places * at_one}"
        key, step = self.quote(table.primary[0]), (high - low) // places + 1
        return " UNION ALL ".join(
            f"SELECT * FROM ({query} WHERE {key} >= {start} AND {key} < {start + step} ORDER BY {key} "
            f"LIMIT {at_one}) p{number}"
            for number, start in enumerate(range(low, high + 1, step))
        )

    # --- values ------------------------------------------------------------------------------------

    def literal(self, text: str) -> str:
        return text_literal(text.replace("\\", self.backslash))

    def text(self, value: str) -> str:
        """Return a value as a text, with every byte of it."""
        return self.as_text.format(value)

    def plain(self, column: TableColumn, value: str) -> str:
        """Return a value as the text by which pairs know it."""
        return self.as_hex.format(value) if column.kind == "bytes" else self.text(value)

    def typed(self, column: TableColumn, text: str) -> str:
        """Return the value of a column that such a text is."""
        if column.kind == "bytes":
            return self.from_hex.format(text)
        type_ = column.type if column.type == "uuid" else self.number
        return text if column.kind == "text" else f"CAST({text} AS {type_})"

    def joined(self, texts: Sequence[str]) -> str:
        """Return texts as one, divided by bars."""
        return f"CONCAT_WS('|', {', '.join(texts)})"

    def digits(self, column: TableColumn, value: str) -> str:
        """Return the positive number that a value is, or NULL."""
        if column.kind == "int" and not column.type.startswith("numeric"):
            return f"CASE WHEN {value} > 0 THEN {value} END"
        return f"CASE WHEN {self.positive.format(value)} THEN CAST({self.text(value)} AS {self.number}) END"

    def moved(self, column: TableColumn, value: str, offset: int) -> str:
        """Return an id plus the offset if it is a positive number, also as a text; else as it is."""
        if column.kind == "int":
            return f"{value} + CASE WHEN {value} > 0 THEN {offset} ELSE 0 END"
        return f"COALESCE({self.text(f'{self.digits(column, value)} + {offset}')}, {value})"

    def unmoved(self, column: TableColumn, value: str) -> str:
        """Return the condition that a value has digits, but is no number that moves, nor 0 or negative."""
        text = self.text(value)
        is_other = f"{text} <> '0' AND {text} NOT LIKE '-%' AND {self.a_digit.format(text)}"
        return f"{self.digits(column, value)} IS NULL AND {is_other}"

    def looked_up(self, rule: int, text: str, pairs: Mapping[str, str]) -> str:
        """Return what a text becomes by these pairs, or NULL."""
        return f"(SELECT {PAIRS}.new_ FROM {PAIRS} WHERE rule_ = {rule} AND old_ = {text})"

    def store_pairs(self, rule: int, pairs: Mapping[str, str]) -> None:
        """Make pairs known to this transaction."""
        self.run(f"DELETE FROM {PAIRS} WHERE rule_ = {rule}")
        if pairs:
            self.insert(f"INSERT INTO {PAIRS}", 3, [(rule, old, new) for old, new in pairs.items()])

    def row_hash(self, columns: Sequence[TableColumn], values: Sequence[str]) -> str:
        """Return a number that depends on all values of a row."""
        # the bytes of texts of any character set, since what divides them has none
        return f"CRC32(CONCAT_WS(BINARY 0x1F, {', '.join(map(self._stored, columns, values))}))"

    def _stored(self, column: TableColumn, value: str) -> str:
        """Return a value as its column stores it."""
        if column.kind == "float" or "zerofill" in column.type:
            value = f"CAST({value} AS {'DOUBLE' if column.kind == 'float' else self.number})"
        elif column.collation and value not in (f"{row}.{self.quote(column.name)}" for row in "ty"):
            value = f"CONVERT({value} USING {column.collation.partition('_')[0]})"
        return value if "NOT NULL" in column.description else f"IFNULL({value}, '\\\\N')"

    # --- what is not a row -------------------------------------------------------------------------

    def quiet(self, tables: Sequence[Table], late: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return statements that switch triggers off and let foreign keys wait, and those that end it."""
        return [], []

    def raised(self, counter: Counter, above: int) -> str:
        """Return the statement that moves a counter above a number and all rows; empty: the database has done it."""
        table = self.tables[counter.table].sql if counter.table else ""
        return f"ALTER TABLE {table} AUTO_INCREMENT = {above + 1}" if table and above >= counter.last else ""


class PostgreSQL(Database):
    kind, mark = "postgresql", '"'
    as_text, backslash = "CAST({} AS text)", "\\"
    as_hex, from_hex = "encode({}, 'hex')", "decode({}, 'hex')"
    # a text of fixed length has spaces at its end
    number, positive, a_digit = "bigint", f"CAST({{0}} AS text) ~ '{_POSITIVE}'", "{} ~ '[0-9]'"
    ends_by_ddl = False

    def begin(self, *, writes: bool, pairs: bool) -> None:
        access = "READ WRITE" if writes else "READ ONLY"
        for statement in (f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, {access}", *_LOCAL_SETTINGS):
            self.run(statement)
        if self.engine.driver == "psycopg":
            from psycopg.types.string import TextLoader

            for type_ in _TIMES:
                self.driver.adapters.register_loader(type_, TextLoader)

    def _reader(self, sql: str) -> Any:
        cursor = self.driver.cursor(name="snowredis_pages")
        cursor.execute(sql)
        return cursor

    def take_lock(self, name: str, wait_s: int = LOCK_WAIT_S) -> bool:
        key = int.from_bytes(blake2b(name.encode(), digest_size=7).digest())
        if not wait_s:
            return bool(self.one(f"SELECT pg_try_advisory_xact_lock({key})")[0])
        try:
            self.run(f"SELECT pg_advisory_xact_lock({key})")
        except self.engine.dialect.loaded_dbapi.Error:
            return False
        return True

    def lock(self, tables: Sequence[str]) -> None:
        self.run(f"LOCK TABLE {', '.join(tables)} IN SHARE ROW EXCLUSIVE MODE")

    def looked_up(self, rule: int, text: str, pairs: Mapping[str, str]) -> str:
        # a constant, and no table: it works on a standby, too
        return f"(CAST({text_literal(json.dumps(pairs))} AS jsonb) ->> {text})"

    def store_pairs(self, rule: int, pairs: Mapping[str, str]) -> None:
        return

    def row_hash(self, columns: Sequence[TableColumn], values: Sequence[str]) -> str:
        # the hash of each value begins with that of the values before
        hashed = "0"
        for column, value in zip(columns, values, strict=True):
            if column.type in ("smallint", "integer", "bigint"):
                hashed = f"hashint8extended(COALESCE(CAST({value} AS bigint), {-(1 << 63) + 1}), {hashed})"
            else:
                text = f"COALESCE(CAST(CAST({value} AS {column.type}) AS text), '\\N') COLLATE \"C\""
                hashed = f"hashtextextended({text}, {hashed})"
        return hashed

    def quiet(self, tables: Sequence[Table], late: Sequence[str]) -> tuple[list[str], list[str]]:
        before, after = list[str](), list[str]()
        for name, mode, relation in (trigger for table in tables for trigger in table.triggers):
            before.append(f"ALTER TABLE {relation} DISABLE TRIGGER {self.quote(name)}")
            after.append(f"ALTER TABLE {relation} ENABLE {'ALWAYS ' if mode == 'A' else ''}TRIGGER {self.quote(name)}")
        for key, _, timing in (each.rpartition("|") for each in late):
            before.append(f"ALTER TABLE {key} DEFERRABLE INITIALLY DEFERRED")
            after.append(f"ALTER TABLE {key} {timing}")
        # a table with checks that are due cannot be altered
        return before, ["SET CONSTRAINTS ALL IMMEDIATE", *after]

    def raised(self, counter: Counter, above: int) -> str:
        name, highest = text_literal(counter.name or ""), str(above)
        if counter.table and counter.column:
            rows = f"SELECT max({self.quote(counter.column)}) FROM {self.tables[counter.table].sql}"
            highest = f"greatest({above}, ({rows}))"
        return (
            f"SELECT setval({name}, least(seqmax, greatest({highest}, {counter.last}, 1)), {highest} > 0 OR "
            f"{counter.last} > 0) FROM pg_sequence WHERE seqrelid = {name}::regclass AND seqincrement > 0"
        )


class SQLite(Database):
    kind, mark, parameter = "sqlite", '"', "?"
    as_text, backslash = "CAST({} AS TEXT)", "\\"
    as_hex = "CASE typeof({0}) WHEN 'blob' THEN hex({0}) ELSE CAST({0} AS TEXT) END"
    number, from_hex = "INTEGER", "snowredis_bytes({})"
    positive = (
        "({0} <> '' AND {0} NOT GLOB '*[^0-9]*' AND {0} NOT GLOB '0*' AND "
        "(length({0}) < 19 OR length({0}) = 19 AND {0} < '9'))"
    )
    a_digit = "{} GLOB '*[0-9]*'"
    ends_by_ddl = False

    def begin(self, *, writes: bool, pairs: bool) -> None:
        # transactions begin here, not at the first change
        self.driver.isolation_level = None
        self.driver.create_function("snowredis_hash", -1, _hash, deterministic=True)
        self.driver.create_function("snowredis_bytes", 1, lambda text: text and bytes.fromhex(text))
        self.run(f"PRAGMA busy_timeout = {LOCK_WAIT_S * 1000}")
        # This has no effect inside a transaction. It is off for changes: foreign keys are compared before the COMMIT
        self.run(f"PRAGMA foreign_keys = {'OFF' if writes else 'ON'}")
        self.run("BEGIN IMMEDIATE" if writes else "BEGIN")
        if pairs:
            self.run(f"CREATE TEMP TABLE {PAIRS} (rule_ INT, old_ TEXT, new_ TEXT, PRIMARY KEY (rule_, old_))")

    def _reader(self, sql: str) -> Any:
        return self.driver.execute(sql)

    def take_lock(self, name: str, wait_s: int = LOCK_WAIT_S) -> bool:
        # BEGIN IMMEDIATE keeps other writers out
        return True

    def is_same(self, other: Database) -> bool:
        return Path(self.engine.url.database or "").samefile(other.engine.url.database or "")

    def query(self, name: str) -> list[Any]:
        # it is made with the first AUTOINCREMENT
        is_missing = name == "counters" and not self.count("sqlite_master WHERE name = 'sqlite_sequence'")
        return [] if is_missing else super().query(name)

    def joined(self, texts: Sequence[str]) -> str:
        return " || '|' || ".join(texts)

    def digits(self, column: TableColumn, value: str) -> str:
        text = f"WHEN {self.positive.format(value)} THEN CAST({value} AS INTEGER) END"
        return f"CASE WHEN typeof({value}) = 'integer' AND {value} > 0 THEN {value} {text}"

    def moved(self, column: TableColumn, value: str, offset: int) -> str:
        moved = f"{self.digits(column, value)} + {offset}"
        text = self.text(moved)
        kinds = f"WHEN 'integer' THEN {moved} WHEN 'text' THEN {text} WHEN 'blob' THEN CAST({text} AS BLOB)"
        return f"COALESCE(CASE typeof({value}) {kinds} END, {value})"

    def row_hash(self, columns: Sequence[TableColumn], values: Sequence[str]) -> str:
        # a column of texts stores a number as a text
        as_text = "CASE WHEN typeof({0}) IN ('integer', 'real') THEN CAST({0} AS TEXT) ELSE {0} END"
        stored = [
            as_text.format(value) if column.kind == "text" else value
            for column, value in zip(columns, values, strict=True)
        ]
        # SQLite gives a function 127 arguments at most, and a table 2,000 columns
        parts = [f"snowredis_hash({', '.join(stored[at : at + 99])})" for at in range(0, len(stored), 99)]
        return parts[0] if len(parts) == 1 else f"snowredis_hash({', '.join(parts)})"

    def quiet(self, tables: Sequence[Table], late: Sequence[str]) -> tuple[list[str], list[str]]:
        triggers = [(name, sql) for table in tables for name, _, sql in table.triggers]
        return [f"DROP TRIGGER {self.quote(name)}" for name, _ in triggers], [sql for _, sql in triggers]

    def raised(self, counter: Counter, above: int) -> str:
        name = text_literal((counter.table or "").removeprefix("."))
        return f"UPDATE sqlite_sequence SET seq = max(seq, {above}) WHERE name = {name}"


def _hash(*values: object) -> int:
    # 32 bits: a sum of some 10^9 of them is a number of SQLite's
    return int.from_bytes(blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=4).digest())


# --- transactions ----------------------------------------------------------------------------------------

_KINDS: dict[str, type[Database]] = {"sqlite": SQLite, "postgresql": PostgreSQL}


@contextlib.contextmanager
def transaction(engine: sa.Engine, *, writes: bool = False, pairs: bool = False) -> Iterator[Database]:
    """Run one transaction, which sees the database at one moment. It is rolled back unless database.run("COMMIT").

    Args:
        pairs: whether it can look up pairs of values.
    """
    refused = "The transaction was rolled back, and nothing was changed" if writes else ""
    with database_errors(engine, refused):
        connection = engine.raw_connection()
        try:
            database = _KINDS.get(engine.dialect.name, Database)(engine, connection.driver_connection)
            database.begin(writes=writes, pairs=pairs)
            yield database
        finally:
            # without a COMMIT until now there is none; settings of this transaction must not reach the next one
            connection.invalidate()


@contextlib.contextmanager
def two_databases(first: str, second: str, *, writes: bool = False) -> Iterator[tuple[Database, Database]]:
    """Run a transaction of two databases: the second is only read.

    Raises:
        MergeError: they are of different kinds, or one database, or an older form of this tool began a merge.
    """
    engines = open_database(first), open_database(second)
    kinds = [engine.dialect.name.replace("mariadb", "mysql") for engine in engines]
    if len(set(kinds)) > 1:
        raise MergeError(f"{' and '.join(sorted(kinds))} cannot be merged: both databases must be of one kind.")
    with transaction(engines[1], pairs=True) as its, transaction(engines[0], writes=writes, pairs=True) as mine:
        if mine.is_same(its):
            raise MergeError(f"{url_of(engines[0])} and {url_of(engines[1])} are one database. Nothing was written.")
        if its.has(OLD_MAP):
            raise MergeError(
                f"the second database has a table {OLD_MAP}: snowredis 0.1 has changed ids there by a plan. Nothing "
                "was changed; finish that merge with snowredis 0.1 (merge copy), or take it back (merge undo, merge "
                "abandon), then drop the tables snowredis_merge_*."
            )
        yield mine, its
