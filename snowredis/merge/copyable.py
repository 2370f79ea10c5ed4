"""What a copy is known to carry over without a loss: the one list, for both databases and all of their tables.

The catalog of each database is read into facts. A fact that is not on the list is refused, with what to do, and so is
one that differs between the two databases. Data is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.schema import Schema, TableName
from snowredis.merge.support import Support, support_of

# refused facts that a message names
_NAMED = 10


class Fact(NamedTuple):
    """What the catalog says of a table.

    Attributes:
        what: such as a column; empty: the table itself.
        value: must be the same in both databases.
        refusal: why it is not on the list, and what to do; empty: it is.
    """

    table: TableName
    what: str
    value: str
    refusal: str


# --- PostgreSQL ------------------------------------------------------------------------------------------

_POSTGRESQL_TYPES = (
    *("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "char", "bytea"),
    *(
        "date",
        "time",
        "timetz",
        "timestamp",
        "timestamptz",
        "interval",
        "uuid",
        "json",
        "jsonb",
        "xml",
        "bit",
        "varbit",
    ),
    *("inet", "cidr", "macaddr", "macaddr8", "point", "line", "lseg", "box", "path", "polygon", "circle"),
    *("tsvector", "tsquery", "citext", "hstore", "ltree"),
    *(f"{name}{kind}range" for name in ("int4", "int8", "num", "ts", "tstz", "date") for kind in ("", "multi")),
)
_POSTGRESQL_TABLES = sa.text(
    "SELECT NULLIF(n.nspname, current_schema()) AS schema, c.relname AS tab, '' AS what, c.relkind::text AS value, "
    "CASE WHEN c.relkind = 'f' THEN 'is a foreign table: --exclude it' WHEN EXISTS (SELECT FROM pg_class p WHERE "
    "p.relispartition AND p.relkind = 'f' AND pg_partition_root(p.oid) = c.oid) THEN 'has a partition that is a "
    "foreign table: detach it' WHEN EXISTS (SELECT FROM pg_inherits JOIN pg_class h ON h.oid = inhrelid WHERE NOT "
    "h.relispartition AND c.oid IN (inhparent, inhrelid)) THEN 'is part of an inheritance (INHERITS), so its rows are "
    "in two tables: make it a table of its own' WHEN EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) THEN 'has "
    "a rule, which may change what an UPDATE or an INSERT does: drop the rule, and create it again afterwards' WHEN "
    "EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e') THEN "
    "'belongs to an extension: --exclude it' END AS refusal FROM pg_class c JOIN pg_namespace n ON n.oid = "
    "c.relnamespace WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND n.nspname !~ "
    "'^pg_|^information_schema$'"
)
# a domain or an array is of a type, which may be a domain or an array again
_POSTGRESQL_COLUMNS = sa.text(
    "WITH RECURSIVE deep AS (SELECT a.attrelid, a.attnum, a.atttypid AS type, 0 AS level FROM pg_attribute a JOIN "
    "pg_class c ON c.oid = a.attrelid WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT "
    "a.attisdropped UNION ALL SELECT attrelid, attnum, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END, "
    "level + 1 FROM deep JOIN pg_type t ON t.oid = type WHERE t.typtype = 'd' OR t.typlen = -1 AND t.typelem <> 0), "
    "types AS (SELECT attrelid, attnum, string_agg(concat_ws(' ', t.typname, CASE WHEN t.typnotnull THEN 'NOT NULL' "
    "END, (SELECT string_agg(pg_get_constraintdef(k.oid), ' ' ORDER BY 1) FROM pg_constraint k WHERE k.contypid = "
    "t.oid), (SELECT string_agg(enumlabel, ', ' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid)), ' of ' "
    "ORDER BY level) FILTER (WHERE t.typtype <> 'b' OR level > 0) AS details, (array_agg(t.typname ORDER BY level "
    "DESC))[1]::text AS base, bool_or(t.typtype = 'e' OR t.typname = ANY(:types)) AS is_known FROM deep JOIN pg_type t "
    "ON t.oid = type GROUP BY 1, 2) SELECT NULLIF(n.nspname, current_schema()) AS schema, c.relname AS tab, "
    "a.attname::text AS what, concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT "
    "NULL' END, NULLIF(l.collname, 'default'), CASE WHEN a.attgenerated <> '' THEN 'AS ' || pg_get_expr(d.adbin, "
    "d.adrelid) END, details) AS value, CASE WHEN base IN ('oid', 'regclass', 'lo') THEN 'is an oid, such as of a "
    "large object, which is not in the table: copy what it leads to, and make it a column of bytea or text' WHEN NOT "
    "is_known THEN 'is of the type ' || base || ', which was never tried: --exclude the table, or change the type' "
    "WHEN a.attgenerated = '' AND (pg_get_expr(d.adbin, d.adrelid) ~* 'nextval' AND NOT EXISTS (SELECT FROM pg_depend "
    "p JOIN pg_class s ON s.oid = p.refobjid WHERE p.refclassid = 'pg_class'::regclass AND p.objid = d.oid AND "
    "s.relkind = 'S') OR EXISTS (SELECT FROM pg_depend p JOIN pg_proc f ON f.oid = p.refobjid WHERE p.refclassid = "
    "'pg_proc'::regclass AND p.objid = d.oid AND p.classid = 'pg_attrdef'::regclass AND f.prosrc ~* 'nextval')) THEN "
    "'takes numbers of a sequence in a way that the catalog does not tell: drop the default, and set it again "
    "afterwards, with the sequence above all numbers' END AS refusal FROM types JOIN pg_attribute a USING (attrelid, "
    "attnum) JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_collation "
    "l ON l.oid = a.attcollation LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = a.attnum WHERE n.nspname "
    "!~ '^pg_|^information_schema$'"
)

# --- MariaDB and MySQL -----------------------------------------------------------------------------------

_MYSQL_TYPES = (
    *("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "bit", "year", "date", "time"),
    *("datetime", "timestamp", "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json"),
    *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "uuid", "inet4", "inet6"),
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
)
_MYSQL_TABLES = sa.text(
    "SELECT table_name AS tab, '' AS what, CONCAT_WS(' ', table_type, engine) AS value, CASE WHEN table_type = 'SYSTEM "
    "VERSIONED' THEN 'is system-versioned, and its history cannot be copied: DROP SYSTEM VERSIONING in both, or "
    "--exclude it' WHEN table_type <> 'BASE TABLE' THEN CONCAT('is a ', table_type, ': --exclude it') WHEN engine <> "
    "'InnoDB' THEN CONCAT('is of the engine ', engine, ', which has no transactions: ALTER TABLE ', :quote, "
    "table_name, :quote, ' ENGINE=InnoDB') END AS refusal FROM information_schema.tables WHERE table_schema = "
    "COALESCE(:schema, DATABASE()) AND table_type NOT IN ('VIEW', 'SYSTEM VIEW', 'SEQUENCE')"
)
_MYSQL_COLUMNS = sa.text(
    "SELECT table_name AS tab, column_name AS what, CONCAT_WS(' ', column_type, IF(is_nullable = 'NO', 'NOT NULL', "
    "NULL), collation_name, NULLIF(generation_expression, '')) AS value, CASE WHEN data_type = 'float' THEN 'is a "
    "FLOAT, which mariadb-dump writes with six digits: MODIFY it to DOUBLE in both, which changes no value' WHEN "
    "data_type NOT IN :types THEN CONCAT('is of the type ', data_type, ', which was never tried: --exclude the table, "
    "or change the type') WHEN column_default LIKE '%nextval(%' THEN 'takes numbers of a sequence, which are not "
    "counted here: drop the default, and set it again afterwards, with the sequence above all numbers' WHEN extra LIKE "
    "'%INVISIBLE%' THEN 'is invisible: make it visible' END AS refusal FROM information_schema.columns WHERE "
    "table_schema = COALESCE(:schema, DATABASE())"
).bindparams(sa.bindparam("types", expanding=True))

# --- SQLite ----------------------------------------------------------------------------------------------

_SQLITE_TABLES = sa.text(
    "SELECT l.name AS tab, '' AS what, l.type || CASE WHEN l.strict THEN ' STRICT' ELSE '' END AS value, m.sql, CASE "
    "WHEN l.type <> 'table' THEN 'is a ' || l.type || ' table: drop it, with its triggers, and make it again "
    "afterwards' END AS refusal FROM pragma_table_list l JOIN sqlite_master m ON m.name = l.name WHERE l.schema = "
    "'main' AND l.type <> 'view' AND l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)
_SQLITE_COLUMNS = sa.text(
    "SELECT m.name AS tab, x.name AS what, x.type || CASE WHEN x.\"notnull\" THEN ' NOT NULL' ELSE '' END || "
    "CASE WHEN x.hidden THEN ' generated' ELSE '' END AS value, NULL AS refusal FROM sqlite_master m "
    "JOIN pragma_table_xinfo(m.name) x WHERE m.type = 'table'"
)
_ON_CONFLICT = re.compile(r"\bON\s+CONFLICT\s+(?!ABORT\b)\w+", re.IGNORECASE)


def _facts(connection: sa.Connection, schema: Schema, support: Support) -> Iterator[Fact]:
    """Yield the facts of all tables of a database that are not excluded."""
    if support.kind == "postgresql":
        found = [*connection.execute(_POSTGRESQL_TABLES)]
        found += connection.execute(_POSTGRESQL_COLUMNS, {"types": list(_POSTGRESQL_TYPES)})
        facts = [Fact(TableName(row.schema, row.tab), row.what, row.value, row.refusal or "") for row in found]
    elif support.kind == "sqlite":
        rows = [*connection.execute(_SQLITE_TABLES)]
        facts = [Fact(TableName(None, row.tab), row.what, row.value, row.refusal or _conflict(row.sql)) for row in rows]
        facts += (
            Fact(TableName(None, row.tab), row.what, row.value, "") for row in connection.execute(_SQLITE_COLUMNS)
        )
    else:
        facts = []
        for name in schema.names:
            values = {"schema": name, "types": _MYSQL_TYPES, "quote": "`"}
            for query in (_MYSQL_TABLES, _MYSQL_COLUMNS):
                rows = [*connection.execute(query, {key: values[key] for key in query.compile().params})]
                facts += (Fact(TableName(name, row.tab), row.what, row.value, row.refusal or "") for row in rows)
    yield from (fact for fact in facts if schema.names_table(fact.table))
    inspector = sa.inspect(connection)
    for name in schema.names:
        for (_, table), checks in inspector.get_multi_check_constraints(schema=name).items():
            if TableName(name, table) in schema.tables:
                yield from (Fact(TableName(name, table), f"CHECK ({check['sqltext']})", "", "") for check in checks)


def _conflict(sql: str) -> str:
    clause = _ON_CONFLICT.search(sql)
    return (
        f"has a key with {clause[0].upper()}, which replaces or skips rows: make the table again without"
        if clause
        else ""
    )


def check_copyable(sides: Iterable[tuple[sa.Connection, Schema]]) -> None:
    """Refuse tables of which the list does not say that a copy loses nothing.

    Args:
        sides: both databases, the one whose ids stay first.

    Raises:
        MergeError: with the first facts that are not on the list, or that differ.
    """
    kept, changed = ([*_facts(*side, support_of(side[0].engine))] for side in sides)
    tables = {fact.table for fact in changed}
    kept = [fact for fact in kept if fact.table in tables]
    refused = dict[str, list[str]]()
    for which, facts in (("first", kept), ("second", changed)):
        for fact in facts:
            if fact.refusal:
                refused.setdefault(f"{_named(fact)} {fact.refusal}", []).append(which)
    found = [f"{text} (in the {' and the '.join(where)} database)" for text, where in refused.items()]
    found += _differences(kept, changed)
    if found:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise MergeError(
            f"not known to be safe: {'; '.join(found[:_NAMED])}{more}. Nothing was changed; correct that, or "
            "--exclude a table."
        )


def _named(fact: Fact) -> str:
    if not fact.what:
        return f"the table {fact.table}"
    return f"{fact.table}.{fact.what}" if not fact.what.startswith("CHECK ") else f"the {fact.what} of {fact.table}"


def _differences(kept: list[Fact], changed: list[Fact]) -> Iterator[str]:
    one, other = ({fact[:2]: fact for fact in facts} for facts in (kept, changed))
    tables = {fact.table for fact in kept}
    for key in dict.fromkeys([*other, *one]):
        fact = other.get(key) or one[key]
        # what is in a table that one database lacks needs no line of its own
        if key in one and key in other:
            if (mine := one[key].value) != (theirs := other[key].value):
                yield f"{_named(fact)} is {mine} in one, and {theirs} in the other"
        elif fact.table in tables or not fact.what:
            yield f"{_named(fact)} is only in the database that {'changes' if key in other else 'is kept'}"
