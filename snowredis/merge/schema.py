"""Tables of a database, and the sets of columns that hold the same ids.

Columns that a foreign key connects hold the same ids, column by column of a composite key, over any number of steps
and tables. Such a set of columns is an *id domain*: its ids get new values together. Reads the catalog only.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import sqlalchemy as sa

from snowredis.errors import shown
from snowredis.merge import MergeError
from snowredis.merge.databases import catalog_query

# tables of migration tools: each database has its own
_NOT_MERGED = {
    *("alembic_version", "django_migrations", "schema_migrations", "ar_internal_metadata"),
    "flyway_schema_history",
}
_OWN_TABLES = "snowredis_merge_"
_REFERENCE = re.compile(r"\s*(.+?)\s*=\s*(.+?)\s*(?:\s+WHERE\s+(.+?)\s*=\s*'?(.*?)'?\s*)?", re.IGNORECASE)


class TableName(NamedTuple):
    """Name of a table; *schema* is None for the schema that the URL leads to."""

    schema: str | None
    table: str

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"


class ColumnName(NamedTuple):
    """Name of a column."""

    schema: str | None
    table: str
    column: str

    @property
    def table_name(self) -> TableName:
        """The table."""
        return TableName(self.schema, self.table)

    def __str__(self) -> str:
        return f"{self.table_name}.{self.column}"


class Partial(NamedTuple):
    """A column that refers to a domain in some rows: where the column *kind* of its table has a value.

    Attributes:
        kind: empty: in all rows. So are columns that are no integers.
        value: as text.
        is_text: the column holds ids as texts.
    """

    column: ColumnName
    kind: str
    value: str
    is_text: bool

    @property
    def kind_column(self) -> ColumnName:
        """The column that says the kind; in all rows: the column itself."""
        return ColumnName(*self.column.table_name, self.kind or self.column.column)

    def applies(self, columns: Any) -> sa.ColumnElement[bool]:
        """Return the condition for the rows; *columns*: of the table, by name. NULL is a kind, too: the empty one."""
        # MySQL has no BOOLEAN that is compared
        kind = sa.func.coalesce(sa.cast(columns[self.kind], sa.String(200)), "") if self.kind else sa.literal("")
        return kind == self.value

    @property
    def where(self) -> str:
        """The rows as --reference writes them; empty: all."""
        # quotes around a text that has quotes or spaces at its ends, as SQL has them around each
        quote = "'" if self.value != self.value.strip("' ") else ""
        return f" WHERE {self.kind}={quote}{self.value}{quote}" if self.kind else ""

    def to(self, target: object) -> str:
        """Return the option that says what it refers to, as a person pastes it."""
        return option("reference", f"{self.column}={target}{self.where}")

    def __str__(self) -> str:
        return f"{self.column}{self.where}"


class ForeignKey(NamedTuple):
    """A foreign key, simple or composite.

    Attributes:
        name: of its constraint; empty if it has none here.
        columns, parents: the columns that refer, and what each of them refers to.
        on_update: what the database does at a change of the parent, in capitals; may be empty.
    """

    name: str
    columns: tuple[ColumnName, ...]
    parents: tuple[ColumnName, ...]
    on_update: str = ""

    @property
    def child(self) -> TableName:
        """The table that refers."""
        return self.columns[0].table_name

    @property
    def parent(self) -> TableName:
        """The table that is referred to."""
        return self.parents[0].table_name

    def __str__(self) -> str:
        left, right = (", ".join(column.column for column in columns) for columns in (self.columns, self.parents))
        return f"{self.child}({left}) -> {self.parent}({right}){'' if self.name else ' (no constraint)'}"


@dataclass(frozen=True, slots=True)
class Domain:
    """Columns that hold the same ids.

    Attributes:
        keys: columns that define the ids: they refer to no other column.
        references: the other columns, each before the columns that it refers to.
        partials: columns that refer to these ids in some of their rows.
    """

    keys: tuple[ColumnName, ...]
    references: tuple[ColumnName, ...]
    partials: tuple[Partial, ...] = ()

    @property
    def name(self) -> str:
        return str(self.keys[0])

    @property
    def table_name(self) -> TableName:
        """The table of its first key."""
        return self.keys[0].table_name

    @property
    def columns(self) -> tuple[ColumnName, ...]:
        """Columns that hold these ids in all rows, in the order in which they are rewritten: keys last."""
        return self.references + self.keys

    @property
    def wholes(self) -> tuple[Partial, ...]:
        """The same, as references of all rows."""
        return tuple(Partial(column, "", "", is_text=False) for column in self.columns)

    @property
    def all_columns(self) -> tuple[ColumnName, ...]:
        """Columns that hold these ids in some rows, then those that do in all."""
        return (*(part.column for part in self.partials), *self.columns)


def tables_of(domains: Iterable[Domain]) -> list[TableName]:
    """Return the tables of all columns of these ids."""
    return list(dict.fromkeys(name.table_name for domain in domains for name in domain.all_columns))


class Schema:
    """Tables of one database, their foreign keys and id domains.

    Attributes:
        tables: every table that takes part.
        foreign_keys: with those by hand.
        partials: references of some rows, each with a column of the domain that it refers to.
        domains: in the order of their names.
        names: of the schemas that were read; None: the default one.
        excluded: tables that take no part, as a person wrote them.
    """

    def __init__(
        self,
        tables: Mapping[TableName, sa.Table],
        foreign_keys: Iterable[ForeignKey],
        ids: Iterable[ColumnName] = (),
        partials: Iterable[tuple[Partial, ColumnName]] = (),
        names: Sequence[str | None] = (None,),
        excluded: Iterable[str] = (),
    ) -> None:
        self.tables = dict(sorted(tables.items(), key=lambda item: str(item[0])))
        self.foreign_keys = sorted(foreign_keys, key=str)
        self.ids, self.partials = set(ids), list(partials)
        self.names, self.excluded = names, {*excluded, *_NOT_MERGED}
        self.domains = self._domains()

    def names_table(self, name: TableName) -> bool:
        """Return whether a table, of whatever kind, is in these schemas, and not excluded."""
        is_excluded = {str(name), name.table} & self.excluded or name.table.startswith(_OWN_TABLES)
        return name.schema in self.names and not is_excluded

    @property
    def constrained(self) -> set[ColumnName]:
        """Columns whose values the database itself holds to be those of a row."""
        return {column for key in self.foreign_keys if key.name for column in key.columns}

    def column(self, name: ColumnName) -> sa.Column[object]:
        return self.tables[name.table_name].c[name.column]

    def is_code(self, domain: Domain) -> bool:
        """Return whether a domain's numbers are no primary key and no ids by the word of a person."""
        primary = {ColumnName(*name, c.name) for name, table in self.tables.items() for c in table.primary_key.columns}
        return not (primary | self.ids) & set(domain.keys)

    def named(self, text: str, given: str) -> ColumnName:
        """Return the column that table.column or schema.table.column names; MergeError if there is not exactly one."""
        found = [
            ColumnName(*name, column.name)
            for name, table in self.tables.items()
            for column in table.columns
            if text in (f"{name}.{column.name}", f"{name.table}.{column.name}")
        ]
        if len(found) == 1:
            return found[0]
        why = f"is in {len(found)} schemas" if found else "does not exist, or its table does not take part"
        raise MergeError(
            f"{given}: column {shown(text)} {why}. Nothing was planned; write table.column or schema.table.column as "
            "it is in the database."
        )

    def parents_first(self, names: Sequence[TableName]) -> tuple[list[TableName], list[TableName]]:
        """Return tables in an order in which parents come first, and those that come before one of theirs."""
        parents = {
            name: {key.parent for key in self.foreign_keys if key.child == name and key.parent != name} & set(names)
            for name in names
        }
        ordered: list[TableName] = []
        late: list[TableName] = []
        while left := [name for name in names if name not in ordered]:
            # tables in a circle: the one that misses the fewest comes first
            name = min(left, key=lambda name: len(parents[name] - set(ordered)))
            if parents[name] - set(ordered):
                late.append(name)
            ordered.append(name)
        return ordered, late

    def fingerprint(self) -> str:
        """Return a hash of everything that a plan relies on: tables, types of columns, keys."""
        tables = [
            (str(name), [(c.name, str(c.type), c.nullable, c.primary_key) for c in table.columns])
            for name, table in self.tables.items()
        ]
        text = repr((tables, list(map(str, self.foreign_keys))))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def _domains(self) -> list[Domain]:
        same: dict[ColumnName, set[ColumnName]] = {}
        # columns that are ids, not a part of a composite key such as the number of a line
        certain = set(self.ids)
        for table_name, table in self.tables.items():
            key = list(table.primary_key.columns)
            if len(key) == 1 and is_integer(key[0]):
                certain.add(ColumnName(*table_name, key[0].name))
        certain |= {parent for _, parent in self.partials}
        same.update((name, set()) for name in certain)
        refers: dict[ColumnName, set[ColumnName]] = {}
        for key_ in self.foreign_keys:
            for child, parent in zip(key_.columns, key_.parents, strict=True):
                if is_integer(self.column(child)) and is_integer(self.column(parent)):
                    same.setdefault(child, set()).add(parent)
                    same.setdefault(parent, set()).add(child)
                    if child != parent:
                        refers.setdefault(child, set()).add(parent)
                    if len(key_.columns) == 1:
                        certain.add(parent)
        domains = []
        for columns in _connected(same):
            if not certain & set(columns):
                continue
            # columns that refer to each other in a circle: all of them define ids
            keys = [column for column in columns if column not in refers] or columns
            references = [column for column in self._children_first(columns, refers) if column not in keys]
            partials = [partial for partial, parent in self.partials if parent in columns]
            domains.append(Domain(tuple(keys), tuple(references), tuple(partials)))
        return sorted(domains, key=lambda domain: domain.name)

    def _children_first(
        self, columns: Sequence[ColumnName], refers: Mapping[ColumnName, set[ColumnName]]
    ) -> list[ColumnName]:
        """Return *columns* so that each is changed before what it refers to: ON UPDATE then finds nothing to do."""
        try:
            order = list(TopologicalSorter({column: refers.get(column, ()) for column in columns}).static_order())
        except CycleError:
            harmful = {"SET NULL", "SET DEFAULT"}
            for key in self.foreign_keys:
                if key.on_update in harmful and set(key.columns) & set(columns):
                    raise MergeError(
                        f"foreign key {key} is part of a circle of keys, and has ON UPDATE {key.on_update}. Nothing "
                        "was planned; change it to NO ACTION first."
                    ) from None
            return list(columns)
        return order[::-1]


def type_of(column: sa.Column[Any]) -> Any:
    """Return the type of a column; of a DOMAIN of PostgreSQL: the type that it is made of."""
    return getattr(column.type, "data_type", column.type)


def is_integer(column: sa.Column[object]) -> bool:
    return isinstance(type_of(column), sa.Integer)


def is_rewritable(column: sa.Column[object]) -> bool:
    """Return whether ids in a column can be changed: in whole numbers, decimals, texts, or without a type."""
    of = type_of(column)
    return isinstance(of, sa.Integer | sa.Numeric | sa.String | sa.types.NullType) and not isinstance(of, sa.Float)


def _connected(neighbors: Mapping[ColumnName, set[ColumnName]]) -> Iterator[list[ColumnName]]:
    """Yield the sets of columns that are connected over any number of steps, each in the order of names."""
    left = dict.fromkeys(sorted(neighbors, key=str))
    while left:
        found, new = set[ColumnName](), {next(iter(left))}
        while new:
            found |= new
            new = {name for column in new for name in neighbors[column]} - found
        for column in found:
            del left[column]
        yield sorted(found, key=str)


# --- the catalog -----------------------------------------------------------------------------------------


def is_there(engine: sa.Engine, text: str) -> bool:
    """Return whether a table with this name, TABLE or SCHEMA.TABLE, exists, of whatever kind."""
    schema, _, name = text.rpartition(".")
    return sa.inspect(engine).has_table(name, schema or None)


def read_schema(
    engine: sa.Engine,
    *,
    schemas: Sequence[str] = (),
    references: Sequence[str] = (),
    ids: Sequence[str] = (),
    excluded: Sequence[str] = (),
    also: Sequence[ForeignKey] = (),
) -> Schema:
    """Read tables and foreign keys of a database.

    Args:
        schemas: names; none: the default one, and on PostgreSQL all of the database.
        references: as child.column=parent.column, or also WHERE kind=value for some rows.
        ids: columns that hold ids, besides primary keys of one integer column.
        excluded: tables that do not take part.
        also: foreign keys of the other database, which count here, too.

    Raises:
        MergeError: a table or column that does not exist, or a foreign key from or to a table that takes no part.
    """
    inspector = sa.inspect(engine)
    metadata, default, found = sa.MetaData(), inspector.default_schema_name, list[ForeignKey]()
    every = inspector.get_schema_names() if engine.dialect.name == "postgresql" else [default]
    names = [None if name == default else name for name in schemas or every if name != "information_schema"]
    for name in names:
        metadata.reflect(engine, schema=name, resolve_fks=False)
        found += _foreign_keys(inspector, name)
    reflected = {TableName(table.schema, table.name): table for table in metadata.tables.values()}
    partitions = _partitions(engine)
    for text in excluded:
        # SQLAlchemy lists no table of another kind, such as a foreign one
        if not is_there(engine, text):
            tables_called(text, reflected, "--exclude")
    plain = Schema({}, (), names=names, excluded=excluded)
    tables = {name: table for name, table in reflected.items() if name not in partitions and plain.names_table(name)}
    keys = {_between_whole_tables(key, partitions) for key in found}
    keys = {key for key in keys if key.child in tables or key.parent in tables}
    for key in sorted(keys, key=str):
        if key.parent not in tables or key.child not in tables:
            outside = key.child if key.parent in tables else key.parent
            raise MergeError(
                f"foreign key {key}: the table {outside} does not take part. Nothing was planned; name its schema with "
                "--schema, or exclude both tables."
            )
    plain = Schema(tables, keys)
    partials: list[tuple[Partial, ColumnName]] = []
    for text in references:
        key_or_partial = _parse_foreign_key(text, plain)
        if isinstance(key_or_partial, ForeignKey):
            keys.add(key_or_partial)
        else:
            partials.append(key_or_partial)
    known = {(key.columns, key.parents) for key in keys}
    there = {ColumnName(*name, column.name) for name, table in tables.items() for column in table.c}
    for key in also:
        if there >= {*key.columns, *key.parents} and (key.columns, key.parents) not in known:
            keys.add(key._replace(name="", on_update=""))
    wholes = {key.columns for key in keys} | {(part.column,) for part, _ in partials if not part.kind}
    for part, _ in partials:
        if part.kind and (part.column,) in wholes:
            text = f"--reference: {part.column} has one of all rows, too. Nothing was planned"
            raise MergeError(f"{text}; say WHERE {part.kind}= in each.")
    given_ids = [_integer(plain.named(text, "--id"), plain) for text in ids]
    return Schema(tables, keys, given_ids, partials, names, excluded)


def _partitions(engine: sa.Engine) -> dict[TableName, TableName]:
    """Return the partitioned table, the outermost one, of every partition."""
    if engine.dialect.name != "postgresql":
        return {}
    query = catalog_query("postgresql", "partitions")
    with engine.connect() as connection:
        return {TableName(*row[:2]): TableName(*row[2:]) for row in connection.execute(query).all()}


def _foreign_keys(inspector: sa.Inspector, schema: str | None) -> Iterable[ForeignKey]:
    for (_, table), keys in inspector.get_multi_foreign_keys(schema=schema).items():
        for key in keys:
            parent = TableName(key["referred_schema"], key["referred_table"])
            # SQLite: REFERENCES parent, where there is no parent
            referred = key["referred_columns"] or key["constrained_columns"]
            yield ForeignKey(
                key["name"] or f"of {', '.join(key['constrained_columns'])}",
                tuple(ColumnName(schema, table, column) for column in key["constrained_columns"]),
                tuple(ColumnName(*parent, column) for column in referred),
                str(key.get("options", {}).get("onupdate") or "").upper(),
            )


def _between_whole_tables(key: ForeignKey, partitions: Mapping[TableName, TableName]) -> ForeignKey:
    def moved(column: ColumnName) -> ColumnName:
        return ColumnName(*partitions.get(column.table_name, column.table_name), column.column)

    if key.child not in partitions and key.parent not in partitions:
        return key
    # every partition may have a constraint of its own
    return ForeignKey("of partitions", tuple(map(moved, key.columns)), tuple(map(moved, key.parents)), key.on_update)


# --- names that a person wrote -------------------------------------------------------------------------


def option(name: str, text: object) -> str:
    """Return an option of a plan as a person pastes it."""
    return f"--{name} {shlex.quote(str(text))}"


def tables_called(text: str, tables: Mapping[TableName, object], given: str) -> list[TableName]:
    """Return the tables that table or schema.table names; MergeError if there is none."""
    found = [name for name in tables if text in (str(name), name.table)]
    if not found:
        raise MergeError(f"{given}: there is no table {shown(text)}. Nothing was planned; write table or schema.table.")
    return found


def _parse_foreign_key(text: str, schema: Schema) -> ForeignKey | tuple[Partial, ColumnName]:
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise MergeError(
            f"--reference {shown(text)} cannot be read. Nothing was planned; write child.column=parent.column, or "
            "'child.column=parent.column WHERE kind=value' for a part of the rows."
        )
    child, parent = (schema.named(side, "--reference") for side in (match[1], match[2]))
    if child == _integer(parent, schema):
        raise MergeError(f"--reference {shown(text)}: a column cannot refer to itself. Nothing was planned.")
    is_text = isinstance(schema.column(child).type, sa.String)
    if match[3] is None and is_integer(schema.column(child)):
        return ForeignKey("", (child,), (parent,))
    if not is_rewritable(schema.column(child)):
        _integer(child, schema)
    if match[3] is None:
        return Partial(child, "", "", is_text), parent
    kind = schema.named(f"{child.table_name}.{match[3].rpartition('.')[2]}", "--reference").column
    return Partial(child, kind, match[4], is_text), parent


def _integer(name: ColumnName, schema: Schema) -> ColumnName:
    """Return *name*; MergeError if it is no column of integers."""
    if not is_integer(schema.column(name)):
        text = f"column {name} is {schema.column(name).type}, not an integer: only integer ids get new values"
        raise MergeError(f"{text}. Nothing was planned; leave it out.")
    return name
