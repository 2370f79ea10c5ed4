"""References that the catalog does not have: those of some rows, which are found, and those that a person must decide.

A column that refers to ids without a constraint would keep its old values, and its rows would lead to nobody. So each
column that looks like one is named, with all that it may refer to, each held against the values in both databases.
Nothing is planned before --reference or --independent says what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import sqlalchemy as sa

from snowredis.errors import shown
from snowredis.merge import MergeError
from snowredis.merge.pair import Work
from snowredis.merge.schema import ColumnName, Domain, Partial, Schema, TableName, is_integer

CONTENT_TYPES = "django_content_type"
# kinds of one reference; each is a statement of its own
_MAX_KINDS = 500
# how many values of a column are compared with the ids of a table
_HELD = 10_000
# up to this many ids that count from 1 say nothing about another table
_FEW = 20
# names of columns that hold ids of several tables
_OBJECT = re.compile(r"(^|_)(id|pk|object|obj|target)(_|$)")
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
            decided = referring | independent | {part.column for part, _ in schema.partials}
            for other in schema.tables[column.table_name].c:
                asked = ColumnName(*column.table_name, other.name)
                # most columns of this type say the kind of their own row, and of no other
                if _OBJECT.search(other.name) and is_integer(other) and asked not in decided:
                    findings.append(
                        f"{asked} may be of the table that {kind} says: --reference '{asked}=TABLE.id WHERE "
                        f"{kind}=VALUE' or --independent {asked}"
                    )
            continue
        if column in independent or column in referring:
            continue
        for value, candidates in targets.items():
            table = next((name for name in candidates if name in schema.tables), None)
            if (column, kind, value) in known:
                continue
            if table is None:
                if not _has_numbers(connection, schema.column(column)):
                    continue
                findings.append(
                    f"{column} where {kind} is {shown(value)}: there is no table {candidates[0]}: "
                    f"--reference '{column}=TABLE.id WHERE {kind}={value}' or --independent {column}"
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
        if any(key.table_name == types for key in domain.keys)
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


def _has_numbers(connection: sa.Connection, column: sa.Column[object]) -> bool:
    query = sa.select(column).where(column.is_not(None)).distinct().limit(_MAX_KINDS)
    return any(str(value).isdigit() for value in connection.scalars(query))


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


def check_asked(work: Work) -> None:
    """Refuse --independent for a column that is neither a reference nor an id; MergeError."""
    schema = work.changed_schema
    kinds = {column for column, _, _ in _pairs(work.changed, schema)}
    matched = {ColumnName(*name, column) for name, columns in work.matched.items() for column in columns}
    for name in sorted(work.independent - kinds - matched, key=str):
        if not is_integer(schema.column(name)):
            raise MergeError(
                f"--independent {name}: it is {schema.column(name).type}, neither an id nor a reference, so this would "
                "change nothing. Nothing was planned; leave it out. Rows that both databases have are named with "
                f"--match {name.table_name}={name.column}."
            )


def undecided(work: Work) -> list[str]:
    """Return findings about columns that look like references, with what to write for each."""
    return [*_called_like_a_table(work), *_with_values_of_a_table(work)]


def _called_like_a_table(work: Work) -> Iterator[str]:
    """Yield integer columns that are called as if they referred to a table, and have no foreign key."""
    schema = work.changed_schema
    decided = work.independent | {column for domain in schema.domains for column in domain.references}
    decided |= {partial.column for domain in schema.domains for partial in domain.partials}
    decided |= {parent for key in schema.foreign_keys for parent in key.parents}
    for table_name, table in schema.tables.items():
        for column in table.c:
            name = ColumnName(*table_name, column.name)
            if name in decided or not is_integer(column):
                continue
            stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", column.name).lower().removesuffix("id").removesuffix("_")
            others = [domain for domain in schema.domains if domain.table_name != table_name]
            meant = {domain.name: _means(stem, domain.keys[0].table.lower()) for domain in others}
            candidates = [domain for domain in others if meant[domain.name] is not None]
            held = {domain.name: _held(work, name, domain) for domain in candidates}
            # exact names come first, then those with the most values
            ordered = sorted(candidates, key=lambda d: (meant[d.name], -min(held[d.name], default=1)))
            # a similar name alone is no reason, if no value is there
            texts = [
                f"{_percent(held[d.name])}--reference {name}={d.name}"
                for d in ordered
                if meant[d.name] == 0 or min(held[d.name], default=column.name.lower().endswith("id")) > 0
            ]
            if texts:
                yield f"{name} is called like {ordered[0].table_name}: {' or '.join(texts)} or --independent {name}"


def _percent(held: Sequence[float]) -> str:
    return f"({min(held):.0%} of its values are there) " if held else ""


def _held(work: Work, name: ColumnName, domain: Domain) -> list[float]:
    """Return which part of the values of a column are ids of a domain, for each database in which it has values."""
    parts = []
    for side, (connection, schema) in zip(("kept", "changed"), work.sides, strict=True):
        if schema.has(name):
            query = sa.select(schema.column(name)).where(schema.column(name).is_not(None)).distinct().limit(_HELD)
            values = [int(str(value)) for value in connection.scalars(query)]
            if values:
                there = work.store.count_of(side, work.numbers[domain.name], values)
                parts.append(there / len(values))
    return parts


def _means(stem: str, table: str) -> int | None:
    """Return whether a column STEM or STEM_id may refer to *table*: 0 by its name, 1 by a similar one, None: not.

    old_order_id may refer to orders, order_id to shop_order.
    """
    singulars = {table, table.removesuffix("s"), table.removesuffix("es"), re.sub("ies$", "y", table)} - {""}
    if not stem or stem in singulars:
        return 0 if stem else None
    return 1 if any(stem.endswith(f"_{name}") or name.endswith(f"_{stem}") for name in singulars) else None


def _with_values_of_a_table(work: Work) -> Iterator[str]:
    """Yield keys that the database does not number itself, and whose values are all ids of another table."""
    schema, store = work.changed_schema, work.store
    counted = {name for counter in work.support.counters(work.changed, schema) for name in counter.columns}
    counted |= work.independent | {parent for key in schema.foreign_keys for parent in key.parents}
    domains = [domain for domain in schema.domains if not work.is_matched(domain)]
    for domain in domains:
        scan, number = work.scans[domain.name], work.numbers[domain.name]
        if set(domain.keys) & counted or _is_row_number(work.changed, schema, domain):
            continue
        # 1, 2, 3 are ids of every table
        if scan.lowest >= 0 and scan.changed_highest - scan.lowest < scan.changed <= _FEW and scan.lowest <= 1:
            continue
        sides = [side for side, ids in (("kept", scan.kept), ("changed", scan.changed)) if ids]
        parents = [
            other
            for other in domains
            if other is not domain
            and scan.changed
            and all(store.is_subset(side, number, work.numbers[other.name]) for side in sides)
        ]
        # the smallest table that has all of them is the likeliest
        parents.sort(key=lambda other: work.scans[other.name].changed)
        if parents:
            texts = " or ".join(f"--reference {domain.name}={other.name}" for other in parents)
            yield f"all values of {domain.name} are also in {parents[0].name}: {texts} or --independent {domain.name}"


def _is_row_number(connection: sa.Connection, schema: Schema, domain: Domain) -> bool:
    """Return whether SQLite numbers the rows by itself, and the column is called like a key of its own table."""
    (key, *_) = domain.keys
    is_key = [column.name for column in schema.tables[key.table_name].primary_key.columns] == [key.column]
    names = {"id", f"{key.table}_id".lower(), f"{key.table.removesuffix('s')}_id".lower()}
    return connection.dialect.name == "sqlite" and is_key and key.column.lower() in names
