"""Obstacles to new ids and to the copy, found before the first change: each is refused, with what to do.

For the copy, the catalog of each database is read into facts. A fact is refused if it is not on the list of what a copy
carries over without a loss, or if it differs between the two databases. Data is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.databases import catalog_query, count_rows, database_errors, is_mysql, row_text
from snowredis.merge.pair import Sides, Work
from snowredis.merge.schema import ColumnName, Domain, ForeignKey, Schema, TableName, tables_of
from snowredis.merge.support import support_of

# rows, obstacles and facts that a message names
_NAMED = 10
# rows from which a column without an index is worth a note
SMALL_TABLE = 10_000
# a check that greater numbers pass, too: new ids are never below 1
_LOWER_BOUND = re.compile(
    r"[\s(]*[\"`]?(\w+)[\"`]?[\s)]*(?:>=?\s*\(?'?[01]'?\)?(::\w+)?|IS NOT NULL)[\s)]*", re.IGNORECASE
)
_ON_CONFLICT = re.compile(r"\bON\s+CONFLICT\s+(?!ABORT\b)\w+", re.IGNORECASE)


def orphans(connection: sa.Connection, schema: Schema) -> Iterator[tuple[ForeignKey, list[str]]]:
    """Yield the foreign keys with values that refer to no row, and some of these values."""
    for key in schema.foreign_keys:
        child, parent = schema.tables[key.child].alias("child"), schema.tables[key.parent].alias("parent")
        columns = [child.c[name.column] for name in key.columns]
        pairs = zip(columns, key.parents, strict=True)
        found = sa.exists().where(*(parent.c[name.column] == column for column, name in pairs))
        # without a constraint, 0 and -1 often stand for no row
        is_given = [column.is_not(None) if key.name else column > 0 for column in columns]
        if rows := connection.execute(sa.select(*columns).where(*is_given, ~found).limit(3)).all():
            yield key, [row_text(row) for row in rows]


def check_no_orphans(sides: Sides) -> None:
    """Refuse a database with rows that refer to a row that does not exist: a merge would give them a parent.

    Raises:
        MergeError: there are some.
    """
    for which, side in zip(("is kept", "changes"), sides, strict=True):
        for key, values in orphans(*side):
            raise MergeError(
                f"the database that {which} has rows of {key.child} whose {', '.join(c.column for c in key.columns)} "
                f"leads to no row of {key.parent}, such as {', '.join(values)}. Nothing was planned, since a row of "
                "the other database may have that id; delete those rows, or set the column to NULL."
            )


def check_columns(work: Work, domain: Domain, highest: int) -> None:
    """Refuse new ids that do not fit all columns of a domain, whose types are the same in both databases.

    Raises:
        MergeError: with the column.
    """
    for name in domain.all_columns:
        column = work.changed_schema.column(name)
        if highest > (limit := work.support.limit(column)):
            raise MergeError(
                f"{name}: the new ids reach {highest:,}, and {column.type} holds at most {limit:,}. Nothing was "
                "planned; widen the column to 64 bits (BIGINT), with all foreign keys to it, in both databases."
            )


def check_obstacles(
    connection: sa.Connection, schema: Schema, domains: Sequence[Domain], *, with_triggers: bool
) -> None:
    """Refuse tables whose ids cannot be changed safely.

    Args:
        domains: those whose ids change.
        with_triggers: triggers that run at each change do no harm, says a person.

    Raises:
        MergeError: with everything that was found.
    """
    tables = set(tables_of(domains))
    found = list(_in_catalog(connection, tables))
    found += [] if with_triggers else triggers(connection, tables, "UPDATE")
    names = {table: {c.column for d in domains for c in d.columns if c.table_name == table} for table in tables}
    inspector = sa.inspect(connection)
    for table, ids in names.items():
        for column in schema.tables[table].c:
            if column.computed is not None and _names_any(str(column.computed.sqltext), ids):
                text = f"{table}.{column.name} is computed from an id"
                found.append(f"{text}: drop the column, and add it again afterwards")
        for check in inspector.get_check_constraints(table.table, table.schema):
            text = str(check["sqltext"])
            if _names_any(text, ids) and _LOWER_BOUND.fullmatch(text) is None:
                found.append(
                    f"the check {check['name']} of {table} is about an id: drop it, and add it again afterwards"
                )
    found += _views(connection, inspector, set[str]().union(*names.values()), tables)
    if found:
        raise MergeError(
            f"{len(found)} obstacles: {'; '.join(found[:_NAMED])}. Nothing was changed; remove them first, with a "
            "backup."
        )


def _names_any(text: str, names: set[str]) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names)


def _in_catalog(connection: sa.Connection, tables: set[TableName]) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        problems = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if problems != "ok":
            yield f"the file is damaged: {problems}: repair it, with .recover of sqlite3"
    elif is_mysql(connection):
        for schema in {table.schema for table in tables}:
            for row in connection.execute(catalog_query("mysql", "references_from_outside"), {"schema": schema}):
                if TableName(row.other, row.tab) not in tables:
                    what = f"the foreign key {row.name} of the database {row.other} leads here"
                    yield f"{what}: name all databases with --schema"


def triggers(connection: sa.Connection, tables: Iterable[TableName], event: str) -> Iterator[str]:
    """Yield the triggers of MariaDB and MySQL, where none can be switched off, that run at each UPDATE or INSERT."""
    for schema in {table.schema for table in tables} if is_mysql(connection) else ():
        for row in connection.execute(catalog_query("mysql", "triggers"), {"schema": schema, "event": event}):
            if TableName(schema, row.tab) in tables:
                what = f"the trigger {row.name} of {row.tab} would run at each {event}"
                yield f"{what}: drop it, and create it again afterwards, or, if it does no harm, go on --with-triggers"


def _views(connection: sa.Connection, inspector: sa.Inspector, ids: set[str], tables: set[TableName]) -> Iterator[str]:
    """Yield views that compare an id with a number, which would show other rows afterwards."""
    names = "|".join(map(re.escape, sorted(ids)))
    # PostgreSQL writes IN (1, 2) as = ANY (ARRAY[1, 2])
    number = r"(=|<>|!=|<|>|\bIN\b|\bBETWEEN\b)[\s=(]*(ANY[\s(]*ARRAY\[|')?[\s(]*\d"
    compared = re.compile(rf"[\"`]?\b({names})\b[\"`]?[\s)]*(::\w+)?[\s)]*{number}", re.IGNORECASE)
    for schema in {table.schema for table in tables}:
        views = inspector.get_view_names(schema)
        if connection.dialect.name == "postgresql":
            views += inspector.get_materialized_view_names(schema)
        for view in views:
            definition = inspector.get_view_definition(view, schema) or ""
            if compared.search(definition):
                yield f"the view {view} compares an id with a number: drop it, and create it again with the new id"


def rehearse(engine: sa.Engine, domains: Sequence[Domain], schema: Schema) -> None:
    """Do everything that needs a right, on no row, in a transaction that is rolled back.

    Raises:
        MergeError: a right lacks.
    """
    support = support_of(engine)
    with (
        database_errors(engine, "Nothing was changed"),
        engine.connect().execution_options(snowredis_writes=True) as connection,
        connection.begin() as transaction,
    ):
        with support.relaxed(connection, tables_of(domains)):
            for domain in domains:
                for name in domain.all_columns:
                    table, column = schema.tables[name.table_name], schema.column(name)
                    connection.execute(sa.update(table).values({column: column}).where(sa.literal(1) == 0))
        transaction.rollback()


def without_index(connection: sa.Connection, schema: Schema, domain: Domain) -> Iterator[ColumnName]:
    """Yield the columns of a domain whose table is large, and is read as a whole by each batch."""
    inspector = sa.inspect(connection)
    for name in domain.columns:
        table = schema.tables[name.table_name]
        indexes = inspector.get_indexes(table.name, table.schema, include_auto_indexes=True)
        firsts = [*table.primary_key.columns.keys()[:1], *(index["column_names"][0] for index in indexes)]
        if name.column not in firsts and count_rows(connection, table) > SMALL_TABLE:
            yield name


# --- the list of what a copy carries over ----------------------------------------------------------------------


class Fact(NamedTuple):
    """Fact of the catalog about a table.

    Attributes:
        what: such as a column; empty: the table itself.
        value: must be the same in both databases.
        refusal: why it is not on the list, and what to do; empty: it is.
    """

    table: TableName
    what: str
    value: str
    refusal: str


def _facts(connection: sa.Connection, schema: Schema) -> Iterator[Fact]:
    """Yield the facts of all tables of a database that are not excluded."""
    facts = list[Fact]()
    # on PostgreSQL, one query has all schemas
    for name in schema.names if is_mysql(connection) else [None]:
        for query in ("tables", "columns"):
            for row in connection.execute(catalog_query(connection.dialect.name, query), {"schema": name}):
                refusal = row.refusal
                if clause := _ON_CONFLICT.search(getattr(row, "sql", None) or ""):
                    refusal = f"has a key with {clause[0].upper()}, which replaces or skips rows: make it again without"
                facts.append(Fact(TableName(getattr(row, "schema", name), row.tab), row.what, row.value, refusal))
    yield from (fact for fact in facts if schema.names_table(fact.table))
    inspector = sa.inspect(connection)
    for name in schema.names:
        for (_, table), checks in inspector.get_multi_check_constraints(schema=name).items():
            if TableName(name, table) in schema.tables:
                yield from (Fact(TableName(name, table), f"CHECK ({check['sqltext']})", "", "") for check in checks)


def check_copyable(sides: Sides) -> None:
    """Refuse tables of which the list does not say that a copy loses nothing.

    Raises:
        MergeError: with the first facts that are not on the list, or that differ.
    """
    kept, changed = ([*_facts(*side)] for side in sides)
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
