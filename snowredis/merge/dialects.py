"""SQL that the three kinds of databases write in different ways: moved ids, looked up values, hashes of rows, counters.

A hash of rows is the count of rows and sums of the hashes of each, so it does not depend on their order. In a SELECT
of the second database, its table is called y.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from snowredis.merge.catalog import Catalog, Counter, Table, TableColumn
from snowredis.merge.databases import PAIRS, Session, text_literal


class MergeSql:
    """SQL of MariaDB and MySQL; the others differ from it.

    Attributes:
        number: the type that a number is cast to.
        positive: condition that a text is a positive number.
        drop_keys: statement that removes the table of keys_table().
        raises_after: counters are raised, and the mark's table is made, outside of the transaction.
        indexes_keys: each foreign key has an index.
    """

    number = "SIGNED"
    positive = "{0} REGEXP '^[1-9][0-9]{{0,17}}$'"
    drop_keys = "DROP TEMPORARY TABLE IF EXISTS snowredis_keys"
    # ALTER TABLE would end the transaction
    raises_after = indexes_keys = True

    def __init__(self, catalog: Catalog) -> None:
        self.quote = catalog.quote

    def names(self, columns: Sequence[str], prefix: str = "") -> str:
        """Return quoted names, divided by commas."""
        return ", ".join(prefix + self.quote(name) for name in columns)

    # --- values ------------------------------------------------------------------------------------

    def literal(self, text: str) -> str:
        return text_literal(text.replace("\\", "\\\\"))

    def text(self, value: str) -> str:
        """Return a value as a text, with every byte of it."""
        return f"CONVERT(CAST({value} AS CHAR) USING utf8mb4) COLLATE utf8mb4_bin"

    def as_number(self, value: str) -> str:
        return f"CAST({value} AS {self.number})"

    def digits(self, column: TableColumn, value: str) -> str:
        """Return the positive number that a value is, or NULL."""
        if column.kind == "int":
            return f"CASE WHEN {value} > 0 THEN {value} END"
        return f"CASE WHEN {self.positive.format(value)} THEN {self.as_number(value)} END"

    def moved(self, column: TableColumn, value: str, offset: int) -> str:
        """Return an id plus the offset if it is a positive number, also as a text; else as it is."""
        if column.kind == "int":
            return f"CASE WHEN {value} > 0 THEN {value} + {offset} ELSE {value} END"
        moved = self.text(f"{self.as_number(value)} + {offset}")
        return f"CASE WHEN {self.positive.format(value)} THEN {moved} ELSE {value} END"

    def looked_up(self, rule: int, value: str, pairs: Mapping[str, str]) -> str:
        """Return what a value becomes by these pairs, as a text, or NULL."""
        return f"(SELECT {PAIRS}.new_ FROM {PAIRS} WHERE rule_ = {rule} AND old_ = {self.text(value)})"

    def store_pairs(self, session: Session, rule: int, pairs: Mapping[str, str]) -> None:
        """Make pairs known to a session."""
        session.run(f"DELETE FROM {PAIRS} WHERE rule_ = {rule}")
        session.insert(f"INSERT INTO {PAIRS}", 3, [(rule, old, new) for old, new in pairs.items()]) if pairs else None

    # --- hashes ------------------------------------------------------------------------------------

    def _bytes(self, column: TableColumn, value: str) -> str:
        """Return a value as the bytes that its column has."""
        if column.kind == "float":
            value = f"CAST({value} AS DOUBLE)"
        elif column.collation:
            charset = column.collation.partition("_")[0]
            is_plain = value in (f"{row}.{self.quote(column.name)}" for row in "ty")
            value = f"BINARY {value if is_plain else f'CONVERT({value} USING {charset})'}"
        return f"IFNULL({value}, '\\\\N')"

    def row_hash(self, columns: Sequence[TableColumn], values: Sequence[str]) -> str:
        """Return a number that depends on all values of a row."""
        return f"CRC32(CONCAT_WS(0x1F, {', '.join(map(self._bytes, columns, values))}))"

    def rows_hash(self, columns: Sequence[TableColumn], values: Sequence[str], rows: str, came: str = "") -> str:
        """Return the query for how many rows there are, how many *came*, and the hash of those.

        Args:
            rows: FROM and WHERE.
            came: a condition; empty: all.
        """
        each = self.hash_sum(columns, values, came)
        return f"SELECT COUNT(*), COUNT({f'CASE WHEN {came} THEN 1 END' if came else '*'}), {each} {rows}"

    def hash_sum(self, columns: Sequence[TableColumn], values: Sequence[str], came: str) -> str:
        hashed = self.row_hash(columns, values)
        return f"COALESCE(SUM({f'CASE WHEN {came} THEN {hashed} END' if came else hashed}), 0)"

    # --- tables ------------------------------------------------------------------------------------

    def keys_table(self, table: Table, columns: Sequence[str]) -> list[str]:
        """Return the statements that make an empty temporary table: a text, a hash, and columns as *table* has them."""
        names = self.names(columns)
        return [
            "CREATE TEMPORARY TABLE snowredis_keys AS SELECT CAST('' AS CHAR(700)) AS key_, "
            f"CAST(9223372036854775807 AS SIGNED) AS hash_, {names} FROM {table.sql} LIMIT 0"
        ]

    def same_keys(self, columns: Sequence[str]) -> str:
        """Return the condition that a row t of the first database has the key of a row n of that table."""
        return " AND ".join(f"t.{self.quote(name)} = n.{self.quote(name)}" for name in columns)

    def quiet(self, tables: Sequence[Table], late: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return statements that switch triggers off and let foreign keys wait, and those that end it."""
        return [], []

    def moved_back(self, catalog: Catalog, names: Sequence[str]) -> list[str]:
        """Return the statements after a rollback that give counters their numbers again: they are in no transaction."""
        given = [(each.table, each.last) for each in catalog.counters if each.table in names]
        return [f"ALTER TABLE {catalog.tables[name].sql} AUTO_INCREMENT = {last + 1}" for name, last in given if name]

    def raised(self, counter: Counter, above: int, table: Table | None) -> str:
        """Return the statement that moves a counter above *above*, and never back; empty: the database has done it."""
        # it never goes below the greatest number that is there
        return f"ALTER TABLE {table.sql} AUTO_INCREMENT = {above + 1}" if table and above > counter.last else ""


class PostgreSQL(MergeSql):
    number = "bigint"
    raises_after = indexes_keys = False
    positive = "{0} ~ '^[1-9][0-9]{{0,17}}$'"
    drop_keys = "DROP TABLE IF EXISTS snowredis_keys"

    def literal(self, text: str) -> str:
        return text_literal(text)

    def text(self, value: str) -> str:
        return f"CAST({value} AS text)"

    def looked_up(self, rule: int, value: str, pairs: Mapping[str, str]) -> str:
        # a constant, and no table: it works on a standby, too
        return f"(CAST({text_literal(json.dumps(pairs))} AS jsonb) ->> {self.text(value)})"

    def store_pairs(self, session: Session, rule: int, pairs: Mapping[str, str]) -> None:
        return

    def moved_back(self, catalog: Catalog, names: Sequence[str]) -> list[str]:
        return []

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

    def keys_table(self, table: Table, columns: Sequence[str]) -> list[str]:
        names = self.names(columns)
        return [
            "CREATE TEMPORARY TABLE snowredis_keys ON COMMIT DROP AS SELECT "
            f"CAST('' AS text) AS key_, CAST(0 AS bigint) AS hash_, {names} FROM {table.sql} LIMIT 0"
        ]

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

    def raised(self, counter: Counter, above: int, table: Table | None) -> str:
        if counter.name is None:
            return ""
        highest = str(above)
        if table is not None and counter.column:
            highest = f"greatest({above}, (SELECT max({self.quote(counter.column)}) FROM {table.sql}))"
        return (
            f"SELECT setval({text_literal(counter.name)}, least(seqmax, greatest({highest}, {counter.last}, 1)), "
            f"{highest} > 0 OR {counter.last} > 0) FROM pg_sequence "
            f"WHERE seqrelid = {text_literal(counter.name)}::regclass AND seqincrement > 0"
        )


class SQLite(MergeSql):
    number = "INTEGER"
    raises_after = indexes_keys = False
    positive = "({0} <> '' AND {0} NOT GLOB '*[^0-9]*' AND {0} NOT GLOB '0*' AND length({0}) < 19)"
    drop_keys = "DROP TABLE IF EXISTS temp.snowredis_keys"

    def literal(self, text: str) -> str:
        return text_literal(text)

    def text(self, value: str) -> str:
        return f"CAST({value} AS TEXT)"

    def digits(self, column: TableColumn, value: str) -> str:
        text = f"WHEN {self.positive.format(value)} THEN {self.as_number(value)} END"
        return f"CASE WHEN typeof({value}) = 'integer' AND {value} > 0 THEN {value} {text}"

    def moved(self, column: TableColumn, value: str, offset: int) -> str:
        number = f"WHEN typeof({value}) = 'integer' AND {value} > 0 THEN {value} + {offset}"
        text = self.text(f"{self.as_number(value)} + {offset}")
        return (
            f"CASE {number} WHEN typeof({value}) = 'text' AND {self.positive.format(value)} THEN {text} "
            f"ELSE {value} END"
        )

    def converted(self, column: TableColumn, value: str) -> str:
        """Return a value as a column of texts stores it."""
        if column.kind != "text":
            return value
        return f"CASE WHEN typeof({value}) IN ('integer', 'real') THEN CAST({value} AS TEXT) ELSE {value} END"

    def moved_back(self, catalog: Catalog, names: Sequence[str]) -> list[str]:
        return []

    def row_hash(self, columns: Sequence[TableColumn], values: Sequence[str]) -> str:
        return f"snowredis_hash({', '.join(map(self.converted, columns, values))})"

    def hash_sum(self, columns: Sequence[TableColumn], values: Sequence[str], came: str) -> str:
        parts = ", ".join(map(self.converted, columns, values))
        return f"coalesce(snowredis_sum({parts}){f' FILTER (WHERE {came})' if came else ''}, '0')"

    def keys_table(self, table: Table, columns: Sequence[str]) -> list[str]:
        names = self.names(columns)
        return [
            f"CREATE TEMP TABLE snowredis_keys AS SELECT '' AS key_, 0 AS hash_, {names} FROM main.{table.sql} LIMIT 0"
        ]

    def quiet(self, tables: Sequence[Table], late: Sequence[str]) -> tuple[list[str], list[str]]:
        triggers = [(name, sql) for table in tables for name, _, sql in table.triggers]
        return [f"DROP TRIGGER {self.quote(name)}" for name, _ in triggers], [sql for _, sql in triggers]

    def raised(self, counter: Counter, above: int, table: Table | None) -> str:
        name = text_literal(table.name.removeprefix(".") if table else "")
        return f"UPDATE sqlite_sequence SET seq = max(seq, {above}) WHERE name = {name}"


def dialect_of(catalog: Catalog) -> MergeSql:
    """Return the SQL of the kind of a database."""
    kinds: dict[str, type[MergeSql]] = {"sqlite": SQLite, "postgresql": PostgreSQL}
    return kinds.get(catalog.dialect.name, MergeSql)(catalog)
