"""Differences between the kinds of databases while ids change: foreign keys, triggers, types, checksums, counters.

PostgreSQL: in each transaction foreign keys are made deferrable, and triggers and generated keys are switched off. DDL
is part of the transaction there, so a process that is killed leaves the catalog as it was. MariaDB and MySQL: foreign
keys are not checked by the session; triggers cannot be switched off, and DDL ends a transaction: nothing is altered.
SQLite: foreign keys are not checked; triggers are dropped and made again in the same transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from snowredis.merge.databases import catalog_query, text_literal
from snowredis.merge.schema import ColumnName, Schema, TableName, type_of

# types of integers as catalogs name them; others have 32 bits
_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "BIGINT": 64}
Statements = list[str]


class Counter(NamedTuple):
    """A counter of the database: a sequence, an identity, AUTO_INCREMENT.

    Attributes:
        columns: that it numbers; none: a sequence that no column uses.
        next: the number that it gives next.
        highest: of these columns; 0 if there is none.
        statement: moves it above them, and never back.
    """

    name: str
    columns: tuple[ColumnName, ...]
    next: int
    highest: int
    statement: str

    @property
    def is_behind(self) -> bool:
        return self.next <= self.highest if self.next > 0 else self.next >= self.highest


class Support:
    """Statements of one kind of database.

    Attributes:
        kind: name of its dialect.
        analyze: statement that updates the statistics of the table behind it.
    """

    analyze = "ANALYZE"

    def __init__(self, dialect: sa.Dialect) -> None:
        self.kind = dialect.name
        self._preparer = dialect.identifier_preparer
        self._doubles_percent = dialect.paramstyle in ("format", "pyformat")

    def quote(self, name: str) -> str:
        """Return the quoted name of a table, column or trigger, for run()."""
        text = self._preparer.quote(name)
        return text.replace("%%", "%") if self._doubles_percent else text

    def name(self, table: TableName) -> str:
        """Return the quoted name of a table."""
        return ".".join(self.quote(part) for part in table if part is not None)

    def run(self, connection: sa.Connection, statement: str) -> None:
        """Execute a statement without parameters; names in it may have any characters."""
        connection.execute(sa.text(statement.replace(":", "\\:"))).close()

    def relaxing(
        self, connection: sa.Connection, tables: Sequence[TableName], late: Sequence[TableName] | None = None
    ) -> tuple[Statements, Statements]:
        """Return statements that let rows of *tables* change in any order, and those that end it.

        Both are run in one transaction, without triggers if possible. Foreign keys hold again after the second, or
        else it fails; nothing of it outlasts the transaction.

        Args:
            late: tables of which rows are inserted before what they refer to; None: rows are not inserted, their
                ids change.
        """
        raise NotImplementedError

    @contextlib.contextmanager
    def relaxed(self, connection: sa.Connection, tables: Sequence[TableName]) -> Iterator[None]:
        """Do so while this is entered."""
        before, after = self.relaxing(connection, tables)
        for statement in before:
            self.run(connection, statement)
        yield
        for statement in after:
            self.run(connection, statement)

    def limit(self, column: sa.Column[Any]) -> int:
        """Return the greatest number that fits *column*; texts hold any."""
        of = type_of(column)
        bits = _BITS.get(type(of).__name__.upper(), 32) if isinstance(of, sa.Integer) else 64
        # ids are signed everywhere else: of BIGINT UNSIGNED only the lower half is used
        is_unsigned = bits < 64 and getattr(of, "unsigned", False)
        return (1 << (bits if is_unsigned else bits - 1)) - 1

    def self_updated_columns(self, connection: sa.Connection, table: TableName) -> list[str]:
        """Return the columns that the database would change by itself at each update."""
        return []

    def row_hash(self, columns: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[Any]:
        """Return a number of 64 bits for what is in *columns*, computed by the server."""
        raise NotImplementedError

    def checksum(self, columns: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[Any]:
        """Return the sum of the hashes of rows, which does not depend on their order."""
        return sa.func.sum(self.row_hash(columns))

    def counters(self, connection: sa.Connection, schema: Schema) -> list[Counter]:
        """Return the counters of the tables of *schema*, and sequences that no column uses."""
        raise NotImplementedError


def support_of(engine: sa.Engine) -> Support:
    """Return what the kind of database of *engine* needs."""
    kinds: dict[str, type[Support]] = {"sqlite": SQLite, "postgresql": PostgreSQL}
    return kinds.get(engine.dialect.name, MySQL)(engine.dialect)


# --- PostgreSQL ------------------------------------------------------------------------------------------


class PostgreSQL(Support):
    """PostgreSQL 12 or later."""

    def relaxing(
        self, connection: sa.Connection, tables: Sequence[TableName], late: Sequence[TableName] | None = None
    ) -> tuple[Statements, Statements]:
        def oids_of(tables: Sequence[TableName]) -> dict[str, list[int]]:
            names = {"names": [self.name(table) for table in tables]}
            return {"oids": list(connection.scalars(catalog_query(self.kind, "with_partitions"), names))}

        oids = oids_of(tables)
        # checks the foreign keys now: a table with checks that are due cannot be altered
        before, after = Statements(), ["SET CONSTRAINTS ALL IMMEDIATE"]
        for row in connection.execute(catalog_query(self.kind, "constraints"), oids if late is None else oids_of(late)):
            alter = f"ALTER TABLE {row.relation} ALTER CONSTRAINT {self.quote(row.name)}"
            before.append(f"{alter} DEFERRABLE")
            after.append(f"{alter} NOT DEFERRABLE")
        for row in connection.execute(catalog_query(self.kind, "triggers"), oids):
            alter, name = f"ALTER TABLE {row.relation}", self.quote(row.name)
            before.append(f"{alter} DISABLE TRIGGER {name}")
            always = row.mode in ("A", b"A")
            after.append(f"{alter} ENABLE {'ALWAYS ' if always else ''}TRIGGER {name}")
        # COPY takes the values of such columns as they are
        for row in connection.execute(catalog_query(self.kind, "identities"), oids) if late is None else ():
            alter = f"ALTER TABLE {row.relation} ALTER COLUMN {self.quote(row.name)} SET GENERATED"
            before.append(f"{alter} BY DEFAULT")
            after.append(f"{alter} ALWAYS")
        return [*before, "SET CONSTRAINTS ALL DEFERRED"], after

    def row_hash(self, columns: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[Any]:
        # a fifth of the time of md5
        return sa.func.hashtextextended(sa.cast(sa.func.row(*columns), sa.Text), 0)

    def counters(self, connection: sa.Connection, schema: Schema) -> list[Counter]:
        found: dict[str, list[Any]] = {}
        for row in connection.execute(catalog_query(self.kind, "sequences")):
            if row.tab is None or TableName(row.schema, row.tab) in schema.tables:
                found.setdefault(row.seq, []).append(row)
        counters = []
        for sequence, rows in found.items():
            end, choose = ("max", "greatest") if rows[0].step > 0 else ("min", "least")
            columns = tuple(ColumnName(row.schema, row.tab, row.col) for row in rows if row.tab is not None)
            values = [f"(SELECT {end}({self.quote(c.column)}) FROM {self.name(c.table_name)})" for c in columns]
            ends = ", ".join(values) or "NULL"
            # a sequence that was never used stays unused if its table is empty
            statement = (
                f"SELECT setval({text_literal(sequence)}, {choose}(last_value, {ends}), "
                f"is_called OR coalesce({ends}) IS NOT NULL) FROM {sequence}"
            )
            after = f"last_value + CASE WHEN is_called THEN {rows[0].step} ELSE 0 END"
            query = f"SELECT {after}, {choose}({ends}) FROM {sequence}".replace(":", "\\:")
            following, highest = connection.execute(sa.text(query)).one()
            counters.append(Counter(sequence, columns, following, highest or 0, statement))
        return counters


# --- MariaDB and MySQL -----------------------------------------------------------------------------------


class MySQL(Support):
    """MariaDB 10.5 or later; MySQL 8 was not tested."""

    analyze = "ANALYZE TABLE"

    def relaxing(
        self, connection: sa.Connection, tables: Sequence[TableName], late: Sequence[TableName] | None = None
    ) -> tuple[Statements, Statements]:
        return ["SET SESSION foreign_key_checks = 0"], ["SET SESSION foreign_key_checks = 1"]

    def self_updated_columns(self, connection: sa.Connection, table: TableName) -> list[str]:
        query = catalog_query(self.kind, "on_update")
        return list(connection.scalars(query, {"schema": table.schema, "table": table.table}))

    def row_hash(self, columns: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[Any]:
        def part(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
            if isinstance(column.type, sa.Float):
                # as text, a FLOAT has six digits
                return column + sa.literal_column("0e0")
            # numbers are not hashed one by one; texts may have any characters and any length
            is_number = isinstance(column.type, sa.Integer)
            return column if is_number else sa.func.crc32(sa.cast(column, sa.LargeBinary))

        parts = [sa.func.ifnull(part(column), "n") for column in columns]
        # CRC32 takes a tenth of the time of MD5. It is linear: without a weight of each row, two rows that exchange a
        # value may have the same sum as before
        return sa.func.crc32(sa.func.concat_ws("|", *parts)) * (sa.func.crc32(parts[0]) % 65521 + 1)

    def counters(self, connection: sa.Connection, schema: Schema) -> list[Counter]:
        counters = []
        for name in {table.schema for table in schema.tables}:
            for row in connection.execute(catalog_query(self.kind, "counters"), {"schema": name}):
                table = TableName(name, row.tab)
                columns = schema.tables[table].c if table in schema.tables else ()
                for column in (column for column in columns if column.autoincrement is True):
                    highest = connection.scalar(sa.select(sa.func.max(column))) or 0
                    # InnoDB does not go below the greatest number that is there
                    above = max(int(row.next), int(highest) + 1)
                    statement = f"ALTER TABLE {self.name(table)} AUTO_INCREMENT = {above:d}"
                    name_of_it = ColumnName(*table, column.name)
                    counters.append(Counter(str(name_of_it), (name_of_it,), int(row.next), int(highest), statement))
        return counters


# --- SQLite ----------------------------------------------------------------------------------------------


class SQLite(Support):
    """SQLite 3.37 or later."""

    def limit(self, column: sa.Column[Any]) -> int:
        # a column's type says nothing of its size
        return (1 << 63) - 1

    def relaxing(
        self, connection: sa.Connection, tables: Sequence[TableName], late: Sequence[TableName] | None = None
    ) -> tuple[Statements, Statements]:
        names = {table.table.lower() for table in tables}
        query = sa.text("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
        triggers = [row for row in connection.execute(query) if row.tbl_name.lower() in names]
        return [f"DROP TRIGGER {self.quote(row.name)}" for row in triggers], [row.sql for row in triggers]

    def row_hash(self, columns: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[Any]:
        return sa.func.snowredis_hash(*(sa.type_coerce(column, sa.types.NULLTYPE) for column in columns))

    def checksum(self, columns: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[Any]:
        return sa.func.snowredis_sum(self.row_hash(columns))

    def counters(self, connection: sa.Connection, schema: Schema) -> list[Counter]:
        if not connection.scalar(sa.text("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'")):
            return []
        counters = []
        # only tables with AUTOINCREMENT are in it; the others number from their greatest row
        for table, last in connection.execute(sa.text("SELECT name, seq FROM sqlite_sequence ORDER BY name")).all():
            name = TableName(None, table)
            if name in schema.tables and schema.tables[name].primary_key.columns:
                key = next(iter(schema.tables[name].primary_key.columns))
                highest = connection.scalar(sa.select(sa.func.max(key))) or 0
                statement = (
                    f"UPDATE sqlite_sequence SET seq = max(seq, (SELECT coalesce(max({self.quote(key.name)}), 0) "
                    f"FROM {self.quote(table)})) WHERE name = {text_literal(table)}"
                )
                counters.append(Counter(table, (ColumnName(*name, key.name),), last + 1, highest, statement))
        return counters
