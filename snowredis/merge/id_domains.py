"""Columns that hold the same ids, as a graph: what foreign keys connect, and the order in which tables depend.

Columns that a foreign key connects hold the same ids, column by column of a composite key, over any number of steps
and tables. Such a set of columns is an *id domain*: its ids get new values together. Pure: no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

__all__ = ["ColumnName", "Domain", "ForeignKey", "Schema", "TableName", "is_integer"]


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
    def of(self) -> TableName:
        """The table."""
        return TableName(self.schema, self.table)

    def __str__(self) -> str:
        return f"{self.of}.{self.column}"


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key, simple or composite.

    Attributes:
        name: of its constraint; None if it has none and was named by hand.
        columns, parents: the columns that refer, and what each of them refers to.
    """

    name: str | None
    columns: tuple[ColumnName, ...]
    parents: tuple[ColumnName, ...]

    @property
    def child(self) -> TableName:
        """The table that refers."""
        return self.columns[0].of

    @property
    def parent(self) -> TableName:
        """The table that is referred to."""
        return self.parents[0].of

    def __str__(self) -> str:
        left, right = (
            ", ".join(column.column for column in columns) for columns in (self.columns, self.parents)
        )
        by_hand = "" if self.name else " (by hand)"
        return f"{self.child}({left}) -> {self.parent}({right}){by_hand}"


@dataclass(frozen=True, slots=True)
class Domain:
    """Columns that hold the same ids.

    Attributes:
        keys: columns that define the ids: they refer to no other column.
        references: the other columns.
    """

    keys: tuple[ColumnName, ...]
    references: tuple[ColumnName, ...]

    @property
    def name(self) -> str:
        return str(self.keys[0])

    @property
    def columns(self) -> tuple[ColumnName, ...]:
        """Columns in the order in which they are rewritten: keys last."""
        return self.references + self.keys


class Schema:
    """Tables of one database, their foreign keys and id domains.

    Attributes:
        tables: every table that takes part.
        foreign_keys: with those by hand.
        domains: in the order of their names.
    """

    def __init__(
        self,
        tables: Mapping[TableName, sa.Table],
        foreign_keys: Iterable[ForeignKey],
        ids: Iterable[ColumnName],
    ) -> None:
        self.tables = dict(sorted(tables.items(), key=lambda item: str(item[0])))
        self.foreign_keys = sorted(foreign_keys, key=str)
        self.domains = self._domains(ids)

    def column(self, name: ColumnName) -> sa.Column[object]:
        return self.tables[name.of].c[name.column]

    def _domains(self, ids: Iterable[ColumnName]) -> list[Domain]:
        sets = _DisjointSets()
        # columns that are ids, not a part of a composite key such as the number of a line
        certain = set(ids)
        for table_name, table in self.tables.items():
            key = list(table.primary_key.columns)
            if len(key) == 1 and is_integer(key[0]):
                certain.add(ColumnName(*table_name, key[0].name))
        for name in certain:
            sets.add(name)
        refers: set[ColumnName] = set()
        for key_ in self.foreign_keys:
            for child, parent in zip(key_.columns, key_.parents, strict=True):
                if is_integer(self.column(child)) and is_integer(self.column(parent)):
                    sets.join(child, parent)
                    if child != parent:
                        refers.add(child)
                    if len(key_.columns) == 1:
                        certain.add(parent)
        domains = []
        for columns in sets.sets():
            if not certain & set(columns):
                continue
            # columns that refer to each other in a circle: all of them define ids
            keys = [column for column in columns if column not in refers] or columns
            references = [column for column in columns if column not in keys]
            domains.append(Domain(tuple(keys), tuple(references)))
        return sorted(domains, key=lambda domain: domain.name)

    def parents_first(self) -> list[list[TableName]]:
        """Return the tables so that each comes after those that it refers to; tables of a circle are in one list."""
        arrows: dict[TableName, set[TableName]] = {name: set() for name in self.tables}
        for key in self.foreign_keys:
            arrows[key.child].add(key.parent)
        return _components(arrows)

    def refers_in_a_circle(self, tables: Sequence[TableName]) -> bool:
        """Return True if one of the rows of *tables*, a list of parents_first(), may refer to a later one."""
        return len(tables) > 1 or any(key.child == key.parent == tables[0] for key in self.foreign_keys)


def is_integer(column: sa.Column[object]) -> bool:
    # of a DOMAIN of PostgreSQL, the type that it is made of
    return isinstance(getattr(column.type, "data_type", column.type), sa.Integer)


# --- sets and circles ----------------------------------------------------------------------------------


class _DisjointSets:
    """Sets of columns that can be joined (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[ColumnName, ColumnName] = {}

    def add(self, column: ColumnName) -> None:
        self._parent.setdefault(column, column)

    def find(self, column: ColumnName) -> ColumnName:
        self.add(column)
        while self._parent[column] != column:
            column = self._parent[column]
        return column

    def join(self, first: ColumnName, second: ColumnName) -> None:
        self._parent[self.find(first)] = self.find(second)

    def sets(self) -> list[list[ColumnName]]:
        found: dict[ColumnName, list[ColumnName]] = {}
        for column in sorted(self._parent, key=str):
            found.setdefault(self.find(column), []).append(column)
        return list(found.values())


def _components(arrows: Mapping[TableName, set[TableName]]) -> list[list[TableName]]:
    """Return the strongly connected components, those that arrows lead to first (Tarjan's algorithm)."""
    numbers: dict[TableName, int] = {}
    lowest: dict[TableName, int] = {}
    stack: list[TableName] = []
    found: list[list[TableName]] = []

    def visit(name: TableName) -> None:
        numbers[name] = lowest[name] = len(numbers)
        stack.append(name)
        for other in sorted(arrows[name], key=str):
            if other not in numbers:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], numbers[other])
        if lowest[name] == numbers[name]:
            at = stack.index(name)
            found.append(stack[at:])
            del stack[at:]

    for name in arrows:
        if name not in numbers:
            visit(name)
    return found
