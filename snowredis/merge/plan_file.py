"""The plan of a merge as a file: an SQLite database with what was found, and with old and new ids.

Ids of counters that all move by one offset are not in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from snowredis.errors import shown
from snowredis.merge import MergeError
from snowredis.merge.schema import ColumnName, Domain, Partial

_VERSION = 8
_TABLES = """
CREATE TABLE about (plan TEXT NOT NULL);
CREATE TABLE mapping (domain INTEGER, old INTEGER, via INTEGER, new INTEGER, PRIMARY KEY (domain, old)) WITHOUT ROWID;
"""
# old id, temporary id, new id; the temporary one is the new one unless that is also an old one
Pair = tuple[int, int, int]
Pairs = Callable[[int], Iterator[Pair]]


@dataclass(frozen=True, slots=True)
class DomainPlan:
    """Ids of one domain.

    Attributes:
        number: order in which domains are rewritten, from 1.
        domain: its columns.
        kind: "unchanged", "match", "counter" or "layout".
        kept, changed: how many ids each database has.
        clashes: how many of them both have.
        renamed: how many get a new id.
        at_once: all ids are rewritten in one transaction.
        offset, lowest: of a counter, and the least number that it moves.
        lanes: of a layout: what the new ids have in common, as ids of tick 0 and sequence 0.
    """

    number: int
    domain: Domain
    kind: str
    kept: int
    changed: int
    clashes: int
    renamed: int = 0
    at_once: bool = False
    offset: int = 0
    lowest: int = 0
    lanes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.domain.name

    @property
    def is_moved(self) -> bool:
        """True if all ids of one column move by the offset: the database makes their map, and no file has it."""
        return self.kind == "counter" and len(self.domain.keys) == 1 and not self.domain.partials

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DomainPlan:
        """Return the plan of json.loads() of asdict()."""
        of = data["domain"]
        keys, references = (tuple(ColumnName(*name) for name in of[part]) for part in ("keys", "references"))
        domain = Domain(
            keys, references, tuple(Partial(ColumnName(*column), *rest) for column, *rest in of["partials"])
        )
        return cls(**{**data, "domain": domain, "lanes": tuple(data["lanes"])})


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a plan says, besides the ids.

    Attributes:
        id: of the plan: 16 hexadecimal digits.
        kept, changed: URLs without passwords, of the database whose ids stay, and of the one whose ids change.
        options: what read_schema() was told.
        fingerprints: of the schemas of both databases.
        rows: how many each table of the database that changes has.
        kept_rows: how many each of these tables has in the other database.
        matched: tables of which both databases have rows, and the columns that name such a row.
        same: how many rows of each matched table both have.
        with_triggers: triggers that cannot be switched off do no harm, says a person.
        ids: by domain, the checksums of the ids of both databases.
        judged: columns of which a person said what they refer to, and no catalog.
        notes: what a person should know before the plan is applied.
    """

    id: str
    kept: str
    changed: str
    layout: str | None
    options: dict[str, list[str]]
    fingerprints: tuple[str, str]
    domains: list[DomainPlan]
    rows: dict[str, int]
    kept_rows: dict[str, int]
    matched: dict[str, list[str]]
    same: dict[str, int]
    with_triggers: bool
    ids: dict[str, list[str]]
    judged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def renamed(self) -> list[DomainPlan]:
        """Domains in which ids change, in their order."""
        return [domain for domain in self.domains if domain.renamed]

    @property
    def verdict(self) -> str:
        """Sentence about the references afterwards."""
        said = "every foreign key of the catalog leads to a row"
        if self.judged:
            said += f"; a person judged {len(self.judged)} columns: {', '.join(self.judged)}"
        return said


def write_plan(path: Path, plan: Plan, pairs: Callable[[int], Iterable[Pair]]) -> None:
    """Write a plan under another name, and give the file its own at the end.

    Args:
        pairs: returns old and new ids of a domain.

    Raises:
        MergeError: it cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(part)) as database:
            database.executescript(f"PRAGMA journal_mode = off; PRAGMA synchronous = off; {_TABLES}")
            for domain in plan.domains:
                rows = ((domain.number, *pair) for pair in (() if domain.is_moved else pairs(domain.number)))
                database.executemany("INSERT INTO mapping VALUES (?, ?, ?, ?)", rows)
            database.execute("INSERT INTO about VALUES (?)", [json.dumps({"version": _VERSION, **asdict(plan)})])
            database.commit()
        os.replace(part, path)
    except (OSError, sqlite3.Error) as error:
        raise MergeError(f"{path} cannot be written: {error}. Nothing was planned.") from error
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def open_plan(path: Path) -> Iterator[tuple[Plan, Pairs]]:
    """Open a finished plan; yield it, and a function that returns the pairs of a domain.

    Raises:
        MergeError: there is no such file, or it is no whole plan.
    """
    if not path.is_file():
        raise MergeError(f"there is no plan {path}. Nothing was changed; make one with: snowredis merge plan")
    url = f"{path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(url, uri=True, check_same_thread=False)) as database:
        try:
            (text,) = database.execute("SELECT plan FROM about").fetchone()
            plan = _plan(json.loads(text))
            rows = dict(database.execute("SELECT domain, count(*) FROM mapping GROUP BY domain"))
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise MergeError(
                f"{path} is not a plan of this version of snowredis ({shown(str(error))}). Nothing was changed; make "
                "one with: snowredis merge plan"
            ) from error
        if any(rows.get(each.number, 0) != each.renamed for each in plan.domains if not each.is_moved):
            raise MergeError(f"{path} is damaged: not all new ids are there. Nothing was changed; make a new plan.")

        def pairs(domain: int) -> Iterator[Pair]:
            query = "SELECT old, via, new FROM mapping WHERE domain = ? ORDER BY old"
            return map(tuple, database.execute(query, (domain,)))

        yield plan, pairs


def _plan(data: dict[str, Any]) -> Plan:
    if data.pop("version") != _VERSION:
        raise ValueError("another version")
    domains = [DomainPlan.from_json(domain) for domain in data["domains"]]
    return Plan(**{**data, "domains": domains, "fingerprints": tuple(data["fingerprints"])})
