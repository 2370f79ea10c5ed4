"""Both databases of a merge: what a person asked for, what is in them, and what was found until now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa

from snowredis.core.layout import Layout
from snowredis.merge import MergeError
from snowredis.merge.databases import database_errors, is_same_database, open_database, reading, url_of
from snowredis.merge.plan_file import DomainPlan
from snowredis.merge.progress import Progress
from snowredis.merge.schema import ColumnName, Domain, Schema, TableName, is_there, read_schema
from snowredis.merge.support import Support
from snowredis.merge.workspace import IdStore, Scan


@dataclass(frozen=True, slots=True)
class Request:
    """Options of a plan; see the options of `snowredis merge plan`.

    Attributes:
        kept: URL of the database whose ids stay.
        changed: URL of the database whose ids change where they clash.
    """

    kept: str
    changed: str
    layout: str | None = None
    schemas: Sequence[str] = ()
    references: Sequence[str] = ()
    independent: Sequence[str] = ()
    ids: Sequence[str] = ()
    excluded: Sequence[str] = ()
    matched: Sequence[str] = ()
    counters: Sequence[str] = ()
    with_triggers: bool = False

    @property
    def options(self) -> dict[str, list[str]]:
        """Return what open_both() needs to find the same columns again."""
        return {name: list(getattr(self, name)) for name in ("schemas", "references", "ids", "excluded")}


Side = tuple[sa.Connection, Schema]
# the database whose ids stay comes first
Sides = tuple[Side, Side]


@dataclass(frozen=True, slots=True)
class Databases:
    """Both databases, and what is in them."""

    kept: sa.Engine
    changed: sa.Engine
    kept_schema: Schema
    changed_schema: Schema

    @contextmanager
    def reading(self) -> Iterator[Sides]:
        """Connect to read: all of it sees each database at one moment."""
        with reading(self.kept) as kept, reading(self.changed) as changed:
            yield (kept, self.kept_schema), (changed, self.changed_schema)


@dataclass(slots=True)
class Work:
    """State of one run: both sides, and what was found."""

    kept: sa.Connection
    kept_schema: Schema
    changed: sa.Connection
    changed_schema: Schema
    request: Request
    layout: Layout | None
    support: Support
    store: IdStore
    progress: Progress
    matched: dict[TableName, tuple[str, ...]]
    counters: set[ColumnName]
    independent: set[ColumnName]
    scans: dict[str, Scan] = field(default_factory=dict)
    lanes: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    # columns of each sequence of the database that changes
    sequences: list[set[ColumnName]] = field(default_factory=list)
    # how many rows of each matched table both have
    same: dict[str, int] = field(default_factory=dict)

    @property
    def sides(self) -> Sides:
        """Each database with what is in it."""
        return (self.kept, self.kept_schema), (self.changed, self.changed_schema)

    @property
    def counted(self) -> set[ColumnName]:
        """Columns of the database that changes whose values it counts itself."""
        return set[ColumnName]().union(*self.sequences)

    def is_matched(self, domain: Domain) -> bool:
        """Return whether the domain has ids of a matched table."""
        return any(key.table_name in self.matched for key in domain.keys)

    def domain_of(self, column: ColumnName) -> Domain | None:
        """Return the domain of the ids in *column*."""
        return next((domain for domain in self.changed_schema.domains if column in domain.columns), None)

    def domain_plan(self, domain: Domain, kind: str) -> DomainPlan:
        """Return the plan of a domain whose new ids are in the store."""
        scan = self.scans[domain.name]
        (renamed,) = self.store.rows(f"SELECT count(*) FROM mapping WHERE domain = {scan.number}")[0]
        return DomainPlan(scan.number, domain, kind, scan.kept, scan.changed, scan.clashes, renamed)


def open_both(kept_url: str, changed_url: str, options: dict[str, list[str]]) -> Databases:
    """Connect to both databases and read their schemas; a foreign key that only the first has counts in the other, too.

    Raises:
        MergeError: they are one database, or of two kinds.
        SourceError: no connection.
    """
    kept, changed = open_database(kept_url), open_database(changed_url)
    if kept.dialect.name != changed.dialect.name:
        raise MergeError(
            f"one database is {kept.dialect.name}, the other {changed.dialect.name}. Nothing was changed; move one to "
            "the other's kind first, with the tools of the databases."
        )
    if is_same_database(kept, changed):
        raise MergeError(
            f"both URLs lead to one database, {url_of(changed)}. Nothing was changed; name two: first the one whose "
            "ids stay."
        )
    with database_errors(kept):
        excluded = [text for text in options["excluded"] if is_there(kept, text)]
        kept_schema = read_schema(kept, schemas=options["schemas"], excluded=excluded)
    with database_errors(changed):
        changed_schema = read_schema(changed, **options, also=kept_schema.foreign_keys)
    if not changed_schema.tables:
        raise MergeError(f"{url_of(changed)} has no tables. Nothing was changed; check the URL and --schema.")
    return Databases(kept, changed, kept_schema, changed_schema)
