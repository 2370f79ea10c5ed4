"""Read tables and foreign keys of a database by reflection, and understand those that a person names by hand.

Reads the catalog only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from snowredis.errors import MergeError, shown
from snowredis.merge.id_domains import ColumnName, ForeignKey, Schema, TableName, is_integer

__all__ = ["columns_called", "read_schema", "tables_called"]

# of migration tools: each database has its own
NOT_MERGED = frozenset(
    (
        "alembic_version",
        "django_migrations",
        "schema_migrations",
        "ar_internal_metadata",
        "flyway_schema_history",
    )
)
OWN_TABLES = "snowredis_merge_"
_SYSTEM_SCHEMAS = {"information_schema", "pg_catalog", "pg_toast"}


def read_schema(
    engine: sa.Engine,
    *,
    schemas: Sequence[str] = (),
    references: Sequence[str] = (),
    ids: Sequence[str] = (),
    excluded: Sequence[str] = (),
    also: Iterable[ForeignKey] = (),
) -> Schema:
    """Read tables and foreign keys of a database.

    Args:
        schemas: names; none: the default one, and on PostgreSQL all of the database.
        references: foreign keys without a constraint, as child.column=parent.column.
        ids: columns that hold ids, besides primary keys of one integer column.
        excluded: tables that do not take part.
        also: foreign keys of the other database, which count here, too.

    Raises:
        MergeError: a table or column that does not exist, or a foreign key from or to a table that takes no part.
    """
    inspector = sa.inspect(engine)
    metadata = sa.MetaData()
    partitions = _partitions(engine)
    default = inspector.default_schema_name
    for schema in schemas or _all_schemas(engine, inspector):
        metadata.reflect(engine, schema=None if schema == default else schema, resolve_fks=False)
    reflected = {
        TableName(table.schema, table.name): table
        for table in metadata.tables.values()
        if not table.name.startswith(OWN_TABLES)
    }
    left_out = {name for text in excluded for name in _tables_called(text, reflected, "--exclude")}
    left_out |= {name for name in reflected if name.table in NOT_MERGED}
    tables = {
        name: table
        for name, table in reflected.items()
        if name not in left_out and partitions.get(name, name) not in left_out and name not in partitions
    }
    whole = {name: partitions.get(name, name) for name in reflected}
    keys = {_of_whole_tables(key, whole) for name in reflected for key in _foreign_keys(inspector, name)}
    keys = {key for key in keys if key.child in tables or key.parent in tables}
    for key in sorted(keys, key=str):
        if key.parent not in tables or key.child not in tables:
            outside = key.child if key.parent in tables else key.parent
            raise MergeError(
                f"foreign key {key}: the table {outside} does not take part. Nothing was planned; name its schema with "
                "--schema, or exclude both tables."
            )
    columns = _by_name(tables)
    keys |= {_by_hand(text, columns, tables) for text in references}
    known = {(key.columns, key.parents) for key in keys}
    keys |= {
        key
        for key in also
        if (key.columns, key.parents) not in known
        and all(str(column) in columns for column in key.columns + key.parents)
    }
    by_hand = [_column_called(text, columns, "--id") for text in ids]
    for name in by_hand:
        _check_integer(name, tables)
    return Schema(tables, keys, by_hand)


def _all_schemas(engine: sa.Engine, inspector: sa.Inspector) -> list[str | None]:
    if engine.dialect.name != "postgresql":
        return [inspector.default_schema_name]
    names = inspector.get_schema_names()
    return [name for name in names if name not in _SYSTEM_SCHEMAS and not name.startswith("pg_")]


def _partitions(engine: sa.Engine) -> dict[TableName, TableName]:
    """Return the partitioned table, the outermost one, of every partition."""
    if engine.dialect.name != "postgresql":
        return {}
    query = sa.text(
        "SELECT n.nspname, c.relname, rn.nspname, r.relname FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_class r ON r.oid = pg_partition_root(c.oid) "
        "JOIN pg_namespace rn ON rn.oid = r.relnamespace WHERE c.relispartition AND c.relkind IN ('r', 'p')"
    )
    with engine.connect() as connection:
        default = connection.scalar(sa.text("SELECT current_schema()"))
        rows = connection.execute(query).all()

    def name(schema: str, table: str) -> TableName:
        return TableName(None if schema == default else schema, table)

    return {name(*row[:2]): name(*row[2:]) for row in rows}


def _foreign_keys(inspector: sa.Inspector, name: TableName) -> Iterable[ForeignKey]:
    for key in inspector.get_foreign_keys(name.table, schema=name.schema):
        parent = TableName(key["referred_schema"], key["referred_table"])
        # SQLite: REFERENCES parent, without columns, means its primary key
        referred = (
            key["referred_columns"]
            or inspector.get_pk_constraint(parent.table, parent.schema)["constrained_columns"]
        )
        yield ForeignKey(
            key["name"] or f"of {', '.join(key['constrained_columns'])}",
            tuple(ColumnName(*name, column) for column in key["constrained_columns"]),
            tuple(ColumnName(*parent, column) for column in referred),
        )


def _of_whole_tables(key: ForeignKey, whole: Mapping[TableName, TableName]) -> ForeignKey:
    def moved(column: ColumnName) -> ColumnName:
        return ColumnName(*whole.get(column.of, column.of), column.column)

    if key.child == whole[key.child] and key.parent == whole.get(key.parent, key.parent):
        return key
    # every partition may have a constraint of its own
    return ForeignKey("of partitions", tuple(map(moved, key.columns)), tuple(map(moved, key.parents)))


# --- names that a person wrote -------------------------------------------------------------------------


def _by_name(tables: Mapping[TableName, sa.Table]) -> dict[str, list[ColumnName]]:
    names: dict[str, list[ColumnName]] = {}
    for table_name, table in tables.items():
        for column in table.columns:
            name = ColumnName(*table_name, column.name)
            for text in {str(name), f"{name.table}.{name.column}"}:
                names.setdefault(text, []).append(name)
    return names


def _column_called(text: str, columns: Mapping[str, list[ColumnName]], option: str) -> ColumnName:
    found = columns.get(text, [])
    if len(found) == 1:
        return found[0]
    why = f"is in {len(found)} schemas" if found else "does not exist, or its table does not take part"
    raise MergeError(
        f"{option}: column {shown(text)} {why}. Nothing was planned; write table.column or schema.table.column as it "
        "is in the database."
    )


def _tables_called(text: str, tables: Mapping[TableName, object], option: str) -> list[TableName]:
    found = [name for name in tables if text in (str(name), name.table)]
    if not found:
        raise MergeError(
            f"{option}: there is no table {shown(text)}. Nothing was planned; write table or schema.table."
        )
    return found


def tables_called(texts: Iterable[str], schema: Schema, option: str) -> set[TableName]:
    """Return the tables that *texts* name; MergeError if one does not exist."""
    return {name for text in texts for name in _tables_called(text, schema.tables, option)}


def columns_called(texts: Iterable[str], schema: Schema, option: str) -> set[ColumnName]:
    """Return the columns that *texts* name; MergeError if one does not exist."""
    columns = _by_name(schema.tables)
    return {_column_called(text, columns, option) for text in texts}


def _by_hand(
    text: str, columns: Mapping[str, list[ColumnName]], tables: Mapping[TableName, sa.Table]
) -> ForeignKey:
    left, equals, right = text.partition("=")
    if not equals:
        raise MergeError(
            f"--reference {shown(text)} has no '='. Nothing was planned; write child.column=parent.column."
        )
    child, parent = (_column_called(side.strip(), columns, "--reference") for side in (left, right))
    if child == parent:
        raise MergeError(f"--reference {shown(text)}: a column cannot refer to itself. Nothing was planned.")
    for name in (child, parent):
        _check_integer(name, tables)
    return ForeignKey(None, (child,), (parent,))


def _check_integer(name: ColumnName, tables: Mapping[TableName, sa.Table]) -> None:
    column = tables[name.of].c[name.column]
    if not is_integer(column):
        raise MergeError(
            f"column {name} is {column.type}, not an integer: only integer ids get new values. Nothing was planned; "
            "leave it out."
        )
