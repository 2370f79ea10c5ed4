"""Make the plan of a migration: read the table, the columns that refer to it, and their indexes from the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from snowredis.core.collisions import Proof
from snowredis.core.layout import MAX_ID, Layout
from snowredis.core.presets import layout_spec
from snowredis.errors import MigrationError
from snowredis.merge.foreign_keys import read_schema
from snowredis.merge.id_domains import ColumnName, ForeignKey, Schema, TableName
from snowredis.merge.migrate.column import end_of_type, read_column
from snowredis.merge.migrate.new_values import Ids, choose_offset, old_ids
from snowredis.merge.migrate.plan import (
    ColumnChange,
    IndexChange,
    MigrationPlan,
    ReferenceChange,
    TableChange,
    short_name,
)

__all__ = ["make_plan"]


def make_plan(
    engine: sa.Engine,
    column: ColumnName,
    *,
    layout: Layout,
    old_layout: Layout | None,
    ids: Ids,
    now_ms: int,
    references: Sequence[str] = (),
) -> tuple[MigrationPlan, Proof]:
    """Return the plan, and the proof that old and new ids are never equal. Changes nothing.

    Args:
        references: foreign keys without a constraint, as child.column=parent.column.

    Raises:
        MigrationError: what the tables have that a migration cannot follow.
    """
    schema = read_schema(engine, references=references, ids=[str(column)] if column.schema else [])
    name = _known(schema, column)
    domain = next((domain for domain in schema.domains if name in domain.columns), None)
    table = schema.tables[name.of]
    if domain is None or [key.name for key in table.primary_key.columns] != [name.column]:
        raise MigrationError(
            f"{name} is not the primary key of its table, alone and an integer. Nothing was changed; name a table's "
            "column of ids."
        )
    if name not in domain.keys or len(domain.keys) > 1:
        others = ", ".join(str(key) for key in domain.keys if key != name)
        raise MigrationError(
            f"{name} refers to {others}, or both hold the same ids, so it cannot change alone. Nothing was changed; "
            "migrate the column that the others refer to."
        )
    inspector = sa.inspect(engine)
    ids_column = read_column(engine, name)
    old = old_ids(ids_column.first, ids_column.last, ids_column.end, old_layout, now_ms)
    offset, proof = choose_offset(old, layout, now_ms, ids)
    wide = {column: end_of_type(schema.column(column).type) >= MAX_ID for column in domain.columns}
    sqlite = engine.dialect.name == "sqlite"
    unchanged = offset == 0 and (sqlite or all(wide.values()))
    changed: set[ColumnName] = set() if unchanged else set(domain.columns)
    tables = [
        _table(inspector, schema, of, [column for column in changed if column.of == of], wide)
        for of in sorted({column.of for column in changed}, key=lambda of: (of != name.of, str(of)))
    ]
    plan = MigrationPlan(
        schema=name.schema,
        table=name.table,
        column=name.column,
        tables=tuple(tables),
        offset=offset,
        counted=ids_column.counted,
        first_old=old.lowest,
        last_old=old.highest,
        old_layout=layout_spec(old_layout) if old_layout else None,
        layout=layout_spec(layout),
        start_ms=now_ms,
    )
    _check_names(plan, schema)
    return plan, proof


def _known(schema: Schema, column: ColumnName) -> ColumnName:
    table = schema.tables.get(column.of)
    if table is None or column.column not in table.c:
        raise MigrationError(
            f"there is no column {column} in the database. Nothing was changed; write table.column as it is there."
        )
    return column


def _table(
    inspector: sa.Inspector,
    schema: Schema,
    of: TableName,
    columns: list[ColumnName],
    wide: dict[ColumnName, bool],
) -> TableChange:
    table = schema.tables[of]
    parents = {
        child: parent
        for key in schema.foreign_keys
        for child, parent in zip(key.columns, key.parents, strict=True)
        if child != parent
    }
    order = list(table.c.keys())
    changes = tuple(
        _column(table.c[column.column], parents.get(column), inspector.dialect, wide[column])
        for column in sorted(columns, key=lambda column: order.index(column.column))
    )
    names = {column.name for column in changes}
    return TableChange(
        schema=of.schema,
        name=of.table,
        key=tuple(column.name for column in table.primary_key.columns),
        columns=changes,
        indexes=tuple(_indexes(inspector, of, names)),
        references=tuple(_references(inspector, schema.foreign_keys, of, names)),
    )


def _column(
    column: sa.Column[Any], parent: ColumnName | None, dialect: sa.Dialect, wide: bool
) -> ColumnChange:
    if column.computed is not None:
        raise MigrationError(f"{column} is a generated column. Nothing was changed; it cannot be migrated.")
    if parent is not None and column.server_default is not None:
        raise MigrationError(
            f"{column} has a default, which would have to become a new value, too. Nothing was changed; drop the "
            "default first, and add it again after the migration."
        )
    return ColumnChange(
        name=column.name,
        new=short_name(column.name, "_new"),
        # on SQLite the columns keep their names, and exchange their values
        old=short_name(column.name, "_new" if dialect.name == "sqlite" else "_old"),
        type=column.type.compile(dialect),
        wide=wide,
        nullable=bool(column.nullable),
        parent_schema=parent.schema if parent else None,
        parent_table=parent.table if parent else None,
        parent_column=parent.column if parent else None,
    )


def _indexes(inspector: sa.Inspector, of: TableName, names: set[str]) -> Iterator[IndexChange]:
    key = inspector.get_pk_constraint(of.table, schema=of.schema)
    if names & set(key["constrained_columns"]):
        yield IndexChange(
            name=key["name"] or f"{of.table}_pkey",
            columns=tuple(key["constrained_columns"]),
            unique=True,
            constraint="primary",
        )
    constraints = {item["name"] for item in inspector.get_unique_constraints(of.table, schema=of.schema)}
    for index in inspector.get_indexes(of.table, schema=of.schema):
        options: dict[str, Any] = index.get("dialect_options", {})
        condition = options.get("postgresql_where")
        texts = " ".join([*index.get("expressions", []), str(condition or "")])
        mentioned = sorted(name for name in names if name in texts and name not in index["column_names"])
        if None in index["column_names"] or (condition and any(name in condition for name in names)):
            if mentioned or any(name in texts for name in names):
                raise MigrationError(
                    f"index {index['name']} of {of} has an expression or a condition with {', '.join(sorted(names))}. "
                    "Nothing was changed; drop the index, and create it again after the migration."
                )
            continue
        columns = [str(name) for name in index["column_names"]]
        including = tuple(options.get("postgresql_include") or ())
        if not names & {*columns, *including}:
            continue
        sorting = index.get("column_sorting", {})
        prefix = options.get(f"{inspector.dialect.name}_length") or {}
        yield IndexChange(
            name=str(index["name"]),
            columns=tuple(name for name in columns if name not in including),
            unique=bool(index["unique"]),
            constraint="unique" if index["name"] in constraints else None,
            orders=tuple(
                (f"({prefix[name]})" if name in prefix else "") + _order(sorting.get(name, ()))
                for name in columns
                if name not in including
            ),
            including=including,
            method=options.get("postgresql_using"),
            condition=str(condition) if condition else None,
        )


def _order(words: Sequence[str]) -> str:
    return "".join(f" {word.replace('_', ' ').upper()}" for word in words)


def _references(
    inspector: sa.Inspector, keys: Sequence[ForeignKey], of: TableName, names: set[str]
) -> Iterator[ReferenceChange]:
    options = {
        item["name"]: item.get("options", {})
        for item in inspector.get_foreign_keys(of.table, schema=of.schema)
    }
    for key in keys:
        if key.child != of or not names & {column.column for column in key.columns}:
            continue
        if key.name is None:
            continue
        yield ReferenceChange(
            name=key.name,
            columns=tuple(column.column for column in key.columns),
            parent_schema=key.parent.schema,
            parent_table=key.parent.table,
            parent_columns=tuple(column.column for column in key.parents),
            options=_options(options.get(key.name, {})),
        )


def _options(given: dict[str, Any]) -> str:
    text = ""
    if given.get("match"):
        text += f" MATCH {given['match']}"
    for name in ("ondelete", "onupdate"):
        if given.get(name):
            text += f" ON {name[2:].upper()} {given[name]}"
    if given.get("deferrable"):
        text += f" DEFERRABLE INITIALLY {given.get('initially') or 'IMMEDIATE'}"
    return text


def _check_names(plan: MigrationPlan, schema: Schema) -> None:
    for table in plan.tables:
        existing = set(schema.tables[TableName(table.schema, table.name)].c.keys())
        for column in table.columns:
            if taken := existing & {column.new, column.old}:
                raise MigrationError(
                    f"{table} already has a column {min(taken)}, a name that the migration needs. Nothing was changed; "
                    "rename that column first."
                )
