"""Obstacles to new ids, found before the first change: each is refused, with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.databases import catalog_query, database_errors, row_text
from snowredis.merge.pair import Work
from snowredis.merge.schema import ColumnName, Domain, ForeignKey, Schema, TableName
from snowredis.merge.support import support_of

# rows and obstacles that a message names
_NAMED = 10
# rows from which a column without an index is worth a note
SMALL_TABLE = 10_000
# a check that greater numbers pass, too: new ids are never below 1
_LOWER_BOUND = re.compile(
    r"[\s(]*[\"`]?(\w+)[\"`]?[\s)]*(?:>=?\s*\(?'?[01]'?\)?(::\w+)?|IS NOT NULL)[\s)]*", re.IGNORECASE
)


def orphans(connection: sa.Connection, schema: Schema) -> Iterator[tuple[ForeignKey, list[str]]]:
    """Yield the foreign keys with values that refer to no row, and some of these values."""
    for key in schema.foreign_keys:
        if rows := connection.execute(_without_parent(schema, key).limit(3)).all():
            yield key, [row_text(row) for row in rows]


def _without_parent(schema: Schema, key: ForeignKey) -> sa.Select[tuple[object, ...]]:
    child = schema.tables[key.child].alias("child")
    parent = schema.tables[key.parent].alias("parent")
    pairs = list(zip(key.columns, key.parents, strict=True))
    found = sa.exists().where(*(parent.c[one.column] == child.c[other.column] for other, one in pairs))
    columns = [child.c[column.column] for column in key.columns]
    # without a constraint, 0 and -1 often stand for no row
    is_given = [column.is_not(None) if key.name else column > 0 for column in columns]
    return sa.select(*columns).where(*is_given, ~found)


def check_no_orphans(connection: sa.Connection, schema: Schema, which: str) -> None:
    """Refuse a database with rows that refer to a row that does not exist: a merge would give them a parent.

    Raises:
        MergeError: there are some.
    """
    for key, values in orphans(connection, schema):
        raise MergeError(
            f"the database {which} has rows of {key.child} whose {', '.join(c.column for c in key.columns)} leads to "
            f"no row of {key.parent}, such as {', '.join(values)}. Nothing was planned, since a row of the other "
            "database may have that id; delete those rows, or set the column to NULL."
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
    tables = {table for domain in domains for table in domain.tables}
    found = list(_in_catalog(connection, tables, with_triggers))
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


def _in_catalog(connection: sa.Connection, tables: set[TableName], with_triggers: bool) -> Iterator[str]:
    kind = connection.dialect.name
    if kind == "sqlite":
        problems = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if problems != "ok":
            yield f"the file is damaged: {problems}: repair it, with .recover of sqlite3"
    elif kind != "postgresql":
        for schema in {table.schema for table in tables}:
            for row in connection.execute(catalog_query(kind, "references_from_outside"), {"schema": schema}):
                if TableName(row.other, row.tab) not in tables:
                    yield (
                        f"the foreign key {row.name} of the database {row.other} leads here: name all databases with "
                        "--schema"
                    )
            yield from [] if with_triggers else triggers(connection, schema, tables, "UPDATE")


def triggers(connection: sa.Connection, schema: str | None, tables: Iterable[TableName], event: str) -> Iterator[str]:
    """Yield the triggers of MariaDB and MySQL, where none can be switched off, that run at each UPDATE or INSERT."""
    for row in connection.execute(catalog_query("mysql", "triggers"), {"schema": schema, "event": event}):
        if TableName(schema, row.tab) in tables:
            yield (
                f"the trigger {row.name} of {row.tab} would run at each {event}: drop it, and create it again "
                "afterwards, or, if it does no harm, go on --with-triggers"
            )


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
    tables = list(dict.fromkeys(table for domain in domains for table in domain.tables))
    with (
        database_errors(engine, "Nothing was changed"),
        engine.connect().execution_options(snowredis_writes=True) as connection,
        connection.begin() as transaction,
    ):
        with support.relaxed(connection, tables):
            for domain in domains:
                for name in domain.all_columns:
                    table, column = schema.tables[name.table_name], schema.column(name)
                    connection.execute(sa.update(table).values({column: column}).where(sa.literal(1) == 0))
        transaction.rollback()


def without_index(engine: sa.Engine, schema: Schema, domain: Domain) -> list[ColumnName]:
    """Return the columns of a domain whose table is read as a whole by each batch."""
    inspector, found = sa.inspect(engine), []
    for name in domain.columns:
        table = name.table_name
        keys = [[column.name for column in schema.tables[table].primary_key.columns]]
        keys += [list(map(str, index["column_names"])) for index in inspector.get_indexes(table.table, table.schema)]
        keys += [list(key["column_names"]) for key in inspector.get_unique_constraints(table.table, table.schema)]
        if not any(key[:1] == [name.column] for key in keys):
            found.append(name)
    return found
