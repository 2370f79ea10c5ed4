"""The plan of a merge as a file: an SQLite database with the facts that were found, and old and new id of each row."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from snowredis.errors import MergeError, shown

__all__ = ["Conflict", "DomainPlan", "Plan", "PlanFile", "TablePlan"]

VERSION = 1
_TABLES = """
CREATE TABLE about (plan TEXT NOT NULL);
CREATE TABLE mapping (domain INTEGER, old INTEGER, new INTEGER, PRIMARY KEY (domain, old)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class DomainPlan:
    """Ids of one set of columns.

    Attributes:
        number: of the domain in this plan and in the mapping table.
        columns: all columns as text, those that define the ids last.
        keys: how many columns define the ids.
        kind: "shared" (its ids mean the same in both), "counter", or "layout".
        kept, changed: how many ids each database has.
        clashes: how many of them both have.
        renamed: how many get a new id.
        offset: of a counter.
        lanes: of a layout: what the new ids have in common, as ids of tick 0 and sequence 0.
    """

    number: int
    columns: tuple[str, ...]
    keys: int
    kind: str
    kept: int
    changed: int
    clashes: int
    renamed: int = 0
    offset: int = 0
    lanes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.columns[-self.keys]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table of the database that changes.

    Attributes:
        rows: in the database that changes.
        kept_rows: in the other; None if the table does not exist there.
        rewritten: estimate of how many values change, in all of its columns.
        shared: whether rows that are equal in both databases are one row.
    """

    name: str
    rows: int
    kept_rows: int | None
    rewritten: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """Reasons that keep the rows from being copied.

    Attributes:
        text: what it is, and what to do.
    """

    table: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a plan says, besides the ids.

    Attributes:
        id: of the plan: 16 hexadecimal digits.
        kept, changed: URLs without passwords, of the database whose ids stay, and of the one whose ids change.
        layout: of the ids, as the command line takes it; None: no column needs one.
        options: what read_schema() was told.
        warnings: what a person should know before the plan is applied.
    """

    id: str
    created_ms: int
    kept: str
    changed: str
    layout: str | None
    options: dict[str, list[str]]
    domains: list[DomainPlan]
    tables: list[TablePlan]
    conflicts: list[Conflict] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def renamed(self) -> int:
        """Number of ids that change."""
        return sum(domain.renamed for domain in self.domains)


class PlanFile:
    """A plan file. A context manager."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path, self._database = path, database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    @classmethod
    def create(cls, path: Path) -> PlanFile:
        """Start a file under another name; finish() gives it its own.

        Raises:
            MergeError: it exists already, or cannot be written.
        """
        if path.exists():
            raise MergeError(
                f"{path} already exists. Nothing was planned; remove it, or give --out another name."
            )
        part = _part(path)
        try:
            part.unlink(missing_ok=True)
            database = sqlite3.connect(part, isolation_level=None)
            database.executescript(f"PRAGMA journal_mode = off; PRAGMA synchronous = off; {_TABLES}")
        except (OSError, sqlite3.Error) as error:
            raise MergeError(f"{path} cannot be written: {error}. Nothing was planned.") from error
        return cls(path, database)

    def add(self, domain: int, pairs: Iterable[tuple[int, int]]) -> int:
        """Store old and new ids of a domain; return how many there are."""
        before = self._database.total_changes
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO mapping VALUES (?, ?, ?)", ((domain, old, new) for old, new in pairs)
        )
        self._database.execute("COMMIT")
        return self._database.total_changes - before

    def finish(self, plan: Plan) -> None:
        """Store *plan* and give the file its name."""
        text = json.dumps({"version": VERSION, **asdict(plan)})
        self._database.execute("INSERT INTO about VALUES (?)", (text,))
        self._database.close()
        os.replace(_part(self.path), self.path)

    def discard(self) -> None:
        """Remove an unfinished file."""
        self._database.close()
        _part(self.path).unlink(missing_ok=True)

    @classmethod
    def open(cls, path: Path) -> tuple[Plan, PlanFile]:
        """Open a finished plan.

        Raises:
            MergeError: there is no such file, or it is no whole plan.
        """
        if not path.is_file():
            raise MergeError(
                f"there is no plan {path}. Nothing was changed; make one with: snowredis merge plan"
            )
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        try:
            (text,) = database.execute("SELECT plan FROM about").fetchone()
            plan = _plan(json.loads(text))
            rows = dict(database.execute("SELECT domain, count(*) FROM mapping GROUP BY domain"))
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            database.close()
            raise MergeError(
                f"{path} is not a plan of this version of snowredis ({shown(str(error))}). Nothing was changed; make "
                "one with: snowredis merge plan"
            ) from error
        for domain in plan.domains:
            if rows.get(domain.number, 0) != domain.renamed:
                database.close()
                raise MergeError(
                    f"{path} is damaged: it has {rows.get(domain.number, 0):,} new ids of {domain.name}, and says "
                    f"{domain.renamed:,}. Nothing was changed; make a new plan."
                )
        return plan, cls(path, database)

    def pairs(self, domain: int, after: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield old and new ids of a domain in the order of the old ones, from the first above *after*."""
        cursor = self._database.execute(
            "SELECT old, new FROM mapping WHERE domain = ? AND (? IS NULL OR old > ?) ORDER BY old",
            (domain, after, after),
        )
        # through map(): `yield from` alone closes the cursor, even after its database was closed
        yield from map(tuple, cursor)

    def new_ids(self, domain: int) -> Iterator[int]:
        """Yield the new ids of a domain, sorted."""
        cursor = self._database.execute("SELECT new FROM mapping WHERE domain = ? ORDER BY new", (domain,))
        for (new,) in cursor:
            yield new


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _plan(data: dict[str, Any]) -> Plan:
    if data.pop("version") != VERSION:
        raise ValueError("another version")
    data["domains"] = [
        DomainPlan(**{**domain, "columns": tuple(domain["columns"]), "lanes": tuple(domain["lanes"])})
        for domain in data["domains"]
    ]
    data["tables"] = [TablePlan(**table) for table in data["tables"]]
    data["conflicts"] = [Conflict(**conflict) for conflict in data["conflicts"]]
    return Plan(**data)
