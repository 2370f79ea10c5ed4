"""References that the catalog does not have: those of some rows, which are found, and those that a person must decide.

A column that refers to ids without a constraint would keep its old values, and its rows would lead to nobody. So each
column that looks like one is named, and nothing is planned before --reference or --independent says what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import sqlalchemy as sa

from snowredis.errors import shown
from snowredis.merge import MergeError
from snowredis.merge.id_store import IdStore
from snowredis.merge.schema import ColumnName, Domain, Partial, Schema, TableName, is_integer
from snowredis.merge.support import support_of

__all__ = ["CONTENT_TYPES", "check_decided", "find_partials"]

CONTENT_TYPES = "django_content_type"
# kinds of one reference; each is a statement of its own
_MAX_KINDS = 500
# findings that a message names
_NAMED = 25
Found = tuple[list[tuple[Partial, ColumnName]], list[str]]


def find_partials(connection: sa.Connection, schema: Schema, independent: set[ColumnName]) -> Found:
    """Return references of some rows, and findings about those whose table is unknown.

    Found are Django's generic foreign keys (content_type_id and object_id) and Rails' polymorphic associations
    (owner_type and owner_id).
    """
    known = {(partial.column, partial.kind, partial.value) for partial, _ in schema.partials}
    referring = {column for domain in schema.domains for column in domain.columns}
    found: list[tuple[Partial, ColumnName]] = []
    findings: list[str] = []
    for column, kind, targets in _pairs(connection, schema):
        if not column.column:
            # a permission is of a content type, and of no row
            name = column._replace(column=kind)
            decided = {(part.column.of, part.kind) for part, _ in schema.partials}
            if column.table != "auth_permission" and name not in independent and (column.of, kind) not in decided:
                findings.append(f"{name} says the kind of something: --reference 'COLUMN=TABLE.id WHERE {kind}=VALUE'")
            continue
        if column in independent or column in referring:
            continue
        for value, candidates in targets.items():
            table = next((name for name in candidates if name in schema.tables), None)
            if (column, kind, value) in known:
                continue
            if table is None:
                findings.append(
                    f"{column} where {kind} is {shown(value)}: there is no table {candidates[0]}: "
                    f"--reference '{column}=TABLE.id WHERE {kind}={value}'"
                )
                continue
            key = list(schema.tables[table].primary_key.columns)
            if len(key) == 1 and is_integer(key[0]):
                is_text = not is_integer(schema.column(column))
                found.append((Partial(column, kind, value, is_text), ColumnName(*table, key[0].name)))
    return found, findings


def _pairs(
    connection: sa.Connection, schema: Schema
) -> Iterator[tuple[ColumnName, str, Mapping[str, list[TableName]]]]:
    """Yield a column of ids, the column that says their kind, and for each kind the tables that it may mean."""
    types = TableName(None, CONTENT_TYPES)
    models: dict[str, tuple[str, str]] = {}
    if types in schema.tables and {"id", "app_label", "model"} <= set(schema.tables[types].c.keys()):
        table = schema.tables[types]
        rows = connection.execute(sa.select(table.c.id, table.c.app_label, table.c.model))
        models = {str(row[0]): (row[1], row[2]) for row in rows}
    to_types = {
        column
        for domain in schema.domains
        if any(key.of == types for key in domain.keys)
        for column in domain.references
    }
    for name, table in schema.tables.items():
        for kind in table.c:
            prefix = re.sub(r"(content_type|ctype|ct|type)(_id)?$", "", kind.name)
            if ColumnName(*name, kind.name) in to_types:
                names = (f"{prefix}object_id", f"{prefix}object_pk", f"{prefix}id")
                column = next((c for c in names if c in table.c and not table.c[c].primary_key), None)
                django = _kinds(connection, kind) if column else []
                tables = {
                    value: [TableName(name.schema, "_".join(models.get(value, (value, "?"))))] for value in django
                }
            elif kind.name.endswith("_type") and isinstance(kind.type, sa.String) and f"{prefix}id" in table.c:
                column = f"{prefix}id"
                tables = {value: _tables_of_class(name.schema, value) for value in _kinds(connection, kind)}
            else:
                continue
            yield ColumnName(*name, column or ""), kind.name, tables


def _kinds(connection: sa.Connection, column: sa.Column[object]) -> list[str]:
    query = sa.select(column).where(column.is_not(None)).distinct().limit(_MAX_KINDS + 1)
    kinds = sorted(map(str, connection.scalars(query)))
    if len(kinds) > _MAX_KINDS:
        raise MergeError(
            f"{column.table.name}.{column.name} has more than {_MAX_KINDS} kinds of references. Nothing was planned; "
            "--exclude the table."
        )
    return kinds


def _tables_of_class(schema: str | None, name: str) -> list[TableName]:
    """Return the tables that Rails may keep a class in: Admin::BlogEntry is in admin_blog_entries or blog_entries."""
    words = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part).lower() for part in name.split("::")]
    return [
        TableName(schema, plural)
        for stem in ("_".join(words), words[-1])
        for plural in (f"{stem}s", f"{stem[:-1]}ies", f"{stem}es", stem)
    ]


def check_decided(
    connection: sa.Connection,
    schema: Schema,
    store: IdStore,
    numbers: Mapping[str, int],
    independent: set[ColumnName],
    findings: Sequence[str],
) -> None:
    """Refuse to plan while a column may be a reference that nobody has decided about.

    Args:
        numbers: of the domains in *store*, by their names; without those whose rows are the same in both databases.
        findings: others, of find_partials().

    Raises:
        MergeError: with all findings, and what to write for each.
    """
    texts = [
        *findings,
        *_by_name(schema, independent),
        *_by_values(connection, schema, store, numbers, independent),
    ]
    if texts:
        more = f" And {len(texts) - _NAMED} more." if len(texts) > _NAMED else ""
        raise MergeError(
            f"{len(texts)} columns look like references without a foreign key. Nothing was planned; decide each, with "
            f"the option that is named or with --independent COLUMN: {'; '.join(texts[:_NAMED])}.{more}"
        )


def _by_name(schema: Schema, independent: set[ColumnName]) -> Iterator[str]:
    """Yield integer columns that are called as if they referred to a table, and have no foreign key."""
    decided = independent | {column for domain in schema.domains for column in domain.references}
    decided |= {partial.column for domain in schema.domains for partial in domain.partials}
    for table_name, table in schema.tables.items():
        for column in table.c:
            name = ColumnName(*table_name, column.name)
            stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", column.name).lower()
            if name in decided or not is_integer(column):
                continue
            stem = stem.removesuffix("id").removesuffix("_")
            for domain in schema.domains:
                key = domain.keys[0]
                if key.of != table_name and _means(stem, key.table.lower()):
                    yield f"{name} is called like {key.of}: --reference {name}={domain.name}"
                    break


def _means(stem: str, table: str) -> bool:
    """Return whether a column STEM or STEM_id may refer to *table*: old_order_id to orders, order_id to shop_order."""
    singulars = {table, table.removesuffix("s"), table.removesuffix("es"), re.sub("ies$", "y", table)}
    return any(
        stem == name or stem.endswith(f"_{name}") or name.endswith(f"_{stem}") for name in singulars if name and stem
    )


def _by_values(
    connection: sa.Connection,
    schema: Schema,
    store: IdStore,
    numbers: Mapping[str, int],
    independent: set[ColumnName],
) -> Iterator[str]:
    """Yield keys that the database does not number itself, and whose values are all ids of another table."""
    counted = {name for name, _ in support_of(connection.engine).counters(connection, schema)}
    domains = [domain for domain in schema.domains if domain.name in numbers]
    for domain in domains:
        if set(domain.keys) & (counted | independent) or _is_row_number(connection, schema, domain):
            continue
        for other in domains:
            if other is not domain and store.is_subset(numbers[domain.name], numbers[other.name]):
                yield (f"all values of {domain.name} are also in {other.name}: --reference {domain.name}={other.name}")
                break


def _is_row_number(connection: sa.Connection, schema: Schema, domain: Domain) -> bool:
    """Return whether SQLite numbers the rows by itself, and the column is called like a key of its own table."""
    (key, *_) = domain.keys
    is_key = [column.name for column in schema.tables[key.of].primary_key.columns] == [key.column]
    names = {"id", f"{key.table}_id".lower(), f"{key.table.removesuffix('s')}_id".lower()}
    return connection.dialect.name == "sqlite" and is_key and key.column.lower() in names
