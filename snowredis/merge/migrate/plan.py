"""Plan of one migration: which columns, indexes and foreign keys get a second one, and how new values are made.

Pure: made by reflect.py, written to the database by journal.py as JSON, and read by every later step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["ColumnChange", "IndexChange", "MigrationPlan", "ReferenceChange", "TableChange", "short_name"]

# PostgreSQL cuts names after 63 bytes; MariaDB refuses more than 64 characters
MAX_NAME = 60

State = Literal[
    "starting", "started", "filled", "switching", "switched", "rolling back", "finishing", "finished"
]


def short_name(name: str, suffix: str) -> str:
    """Return *name* with *suffix*, shortened with a hash where a database would cut it."""
    if len((name + suffix).encode()) <= MAX_NAME:
        return name + suffix
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    kept = name.encode()[: MAX_NAME - len(suffix) - 9].decode(errors="ignore")
    return f"{kept}_{digest}{suffix}"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that holds the ids, with the second column beside it.

    Attributes:
        name: of the column that applications use, before and after the switch.
        new: the second column before the switch: new values.
        old: the second column after the switch: old values.
        type: of the old values, as the database writes it.
        wide: whether that type has 64 bits.
        parent_table, parent_column: what it refers to; None for the ids themselves.
    """

    name: str
    new: str
    old: str
    type: str
    wide: bool
    nullable: bool
    parent_schema: str | None = None
    parent_table: str | None = None
    parent_column: str | None = None


@dataclass(frozen=True, slots=True)
class IndexChange:
    """An index with at least one of the columns that change.

    Attributes:
        columns: names, in order; *orders* has what follows each, such as " DESC".
        constraint: whether it belongs to a constraint.
        including: further columns that it stores.
        condition: of a partial index.
    """

    name: str
    columns: tuple[str, ...]
    unique: bool
    constraint: Literal["primary", "unique"] | None = None
    orders: tuple[str, ...] = ()
    including: tuple[str, ...] = ()
    method: str | None = None
    condition: str | None = None

    @property
    def new(self) -> str:
        return short_name(self.name, "_new")

    @property
    def old(self) -> str:
        return short_name(self.name, "_old")


@dataclass(frozen=True, slots=True)
class ReferenceChange:
    """A foreign key with at least one of the columns that change; *options* is what follows REFERENCES … (…)."""

    name: str
    columns: tuple[str, ...]
    parent_schema: str | None
    parent_table: str
    parent_columns: tuple[str, ...]
    options: str = ""

    @property
    def new(self) -> str:
        return short_name(self.name, "_new")


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table with columns that change.

    Attributes:
        key: columns of the primary key, in order; empty if there is none.
    """

    schema: str | None
    name: str
    key: tuple[str, ...]
    columns: tuple[ColumnChange, ...]
    indexes: tuple[IndexChange, ...] = ()
    references: tuple[ReferenceChange, ...] = ()

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"

    def as_new(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return *names* with those of columns that change as they are before the switch."""
        new = {column.name: column.new for column in self.columns}
        return tuple(new.get(name, name) for name in names)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """Everything that the steps of one migration need to know.

    Attributes:
        schema, table, column: the ids.
        tables: that of the ids first. Without tables no column changes: all have 64 bits, and all ids are kept.
        offset: new value minus old value; 0: ids are kept.
        counted: whether the database counts the old ids: a sequence, identity or AUTO_INCREMENT.
        first_old, last_old: between them are all old ids, with those that are made until the switch.
        old_layout: spec; None: old ids were counted.
        layout: spec of the new ids' layout; start_ms: Unix ms of the earliest new id.
    """

    schema: str | None
    table: str
    column: str
    tables: tuple[TableChange, ...]
    offset: int
    counted: bool
    first_old: int
    last_old: int
    old_layout: str | None
    layout: str
    start_ms: int

    @property
    def name(self) -> str:
        """Name of the migration: the column of the ids."""
        return ".".join(part for part in (self.schema, self.table, self.column) if part is not None)

    @property
    def root(self) -> TableChange:
        """The table of the ids."""
        return self.tables[0]

    @property
    def ids(self) -> ColumnChange:
        """The column of the ids."""
        return next(column for column in self.root.columns if column.parent_table is None)

    def table_called(self, schema: str | None, name: str) -> TableChange | None:
        """Return a table of the plan, or None."""
        return next((table for table in self.tables if (table.schema, table.name) == (schema, name)), None)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MigrationPlan:
        fields: dict[str, Any] = json.loads(text)
        fields["tables"] = tuple(_table(table) for table in fields["tables"])
        return cls(**fields)


def _table(fields: dict[str, Any]) -> TableChange:
    kinds = {"columns": ColumnChange, "indexes": IndexChange, "references": ReferenceChange}
    for name, kind in kinds.items():
        fields[name] = tuple(kind(**_tuples(item)) for item in fields[name])
    return TableChange(**_tuples(fields))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
