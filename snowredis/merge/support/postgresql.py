"""PostgreSQL: in each transaction foreign keys are made deferrable, and triggers and generated keys switched off.

DDL is part of the transaction there, so whoever is killed leaves the catalog as it was. No superuser is needed, only
the owner of the tables.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from snowredis.merge.id_domains import ColumnName, Schema, TableName
from snowredis.merge.support.base import Support

__all__ = ["PostgreSQL"]

_WITH_PARTITIONS = sa.text(
    "SELECT oid FROM pg_class WHERE oid IN (SELECT to_regclass(n) FROM unnest(CAST(:names AS text[])) n) "
    "OR relispartition AND pg_partition_root(oid) IN (SELECT to_regclass(n) FROM unnest(CAST(:names AS text[])) n)"
)
# those of partitions follow those of the partitioned table, unless they are a partition's own
_CONSTRAINTS = sa.text(
    "SELECT conrelid::regclass::text AS relation, conname AS name, condeferred FROM pg_constraint "
    "WHERE contype = 'f' AND conparentid = 0 AND NOT condeferrable "
    "AND (conrelid = ANY(:oids) OR confrelid = ANY(:oids)) ORDER BY 1, 2"
)
_TRIGGERS = sa.text(
    "SELECT tgrelid::regclass::text AS relation, tgname AS name, tgenabled = 'A' AS always FROM pg_trigger "
    "WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') AND tgrelid = ANY(:oids) ORDER BY 1, 2"
)
_IDENTITIES = sa.text(
    "SELECT attrelid::regclass::text AS relation, attname AS name FROM pg_attribute "
    "WHERE attidentity = 'a' AND NOT attisdropped AND attrelid = ANY(:oids) ORDER BY 1, 2"
)
# old-style inheritance: rows of the heir are also seen in the table that it inherits from
_HEIRS = sa.text(
    "SELECT p.oid::regclass::text AS parent, c.oid::regclass::text AS heir FROM pg_inherits "
    "JOIN pg_class p ON p.oid = inhparent JOIN pg_class c ON c.oid = inhrelid "
    "WHERE NOT c.relispartition AND p.oid IN (SELECT to_regclass(n) FROM unnest(CAST(:names AS text[])) n)"
)
_NEXTVAL = re.compile(r"nextval\('([^']+)'(?:::regclass)?\)")


class PostgreSQL(Support):
    """PostgreSQL 12 or later."""

    locks = "each batch locks the tables whose foreign keys or triggers it switches off (ACCESS EXCLUSIVE)"

    @contextlib.contextmanager
    def relaxed(
        self, connection: sa.Connection, tables: Sequence[TableName], *, keys: bool = True
    ) -> Iterator[None]:
        names = [self.name(table) for table in tables]
        oids = {"oids": list(connection.scalars(_WITH_PARTITIONS, {"names": names}))}
        before, after = [], []
        for row in connection.execute(_CONSTRAINTS, oids) if keys else ():
            alter = f"ALTER TABLE {row.relation} ALTER CONSTRAINT {self.quote(row.name)}"
            before.append(f"{alter} DEFERRABLE")
            after.append(f"{alter} NOT DEFERRABLE")
        for row in connection.execute(_TRIGGERS, oids):
            alter, name = f"ALTER TABLE {row.relation}", self.quote(row.name)
            before.append(f"{alter} DISABLE TRIGGER {name}")
            after.append(f"{alter} ENABLE {'ALWAYS ' if row.always else ''}TRIGGER {name}")
        for row in connection.execute(_IDENTITIES, oids):
            alter = f"ALTER TABLE {row.relation} ALTER COLUMN {self.quote(row.name)} SET GENERATED"
            before.append(f"{alter} BY DEFAULT")
            after.append(f"{alter} ALWAYS")
        for statement in [*before, *(["SET CONSTRAINTS ALL DEFERRED"] if keys else [])]:
            self.run(connection, statement)
        yield
        # checks the foreign keys now: a table with checks that are due cannot be altered
        for statement in ["SET CONSTRAINTS ALL IMMEDIATE", *after]:
            self.run(connection, statement)

    def raw(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        # every type reads its own text back without loss: intervals of months, infinity, JSON, types of the user
        return sa.cast(column, sa.Text)

    def copy_obstacles(self, engine: sa.Engine, schema: Schema) -> list[tuple[TableName, str]]:
        names = {self.name(name): name for name in schema.tables}
        with engine.connect() as connection:
            rows = connection.execute(_HEIRS, {"names": list(names)}).all()
        text = "the table {} inherits from it (INHERITS): copy the rows of both by hand, after the ids were changed"
        return [(names.get(row.parent, TableName(None, row.parent)), text.format(row.heir)) for row in rows]

    def move_counter(
        self, connection: sa.Connection, column: sa.Column[Any], name: ColumnName, above: int
    ) -> None:
        owned = sa.text("SELECT pg_get_serial_sequence(:table, :column)")
        sequence = connection.scalar(owned, {"table": self.name(name.of), "column": name.column})
        if sequence is None and isinstance(column.server_default, sa.DefaultClause):
            # a sequence that the column uses but does not own
            match = _NEXTVAL.search(str(column.server_default.arg))
            sequence = match[1] if match else None
        if sequence is not None:
            move = sa.text(
                "SELECT setval(CAST(:sequence AS regclass), greatest(nextval(CAST(:sequence AS regclass)), :above))"
            )
            connection.execute(move, {"sequence": sequence, "above": above})
