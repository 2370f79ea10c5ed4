"""Tables that apply keeps in the database that changes: the state of each run, and old and new ids.

They are written in the same transactions as the changes that they describe. They stay: `snowredis_merge_map` says which
id a row had before, and is all that `merge undo` needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import LONGTEXT

from snowredis.merge import MergeError
from snowredis.merge.databases import database_errors, other_process, url_of
from snowredis.merge.plan_file import DomainPlan, Pair, Plan

# name of the advisory lock of a process that changes ids
LOCK = "snowredis_merge"
FINISHED = ("done", "undone")
_METADATA = sa.MetaData()
_RUNS = sa.Table(
    "snowredis_merge_runs",
    _METADATA,
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("plan", sa.String(32), nullable=False),
    # raised by each transaction, so that two processes never work on one run at once
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("domain", sa.Integer, nullable=False),
    sa.Column("done_to", sa.BigInteger),
    sa.Column("changed_values", sa.BigInteger, nullable=False),
    # a plan of a thousand tables is longer than TEXT of MariaDB
    sa.Column("details", sa.Text().with_variant(LONGTEXT, "mysql", "mariadb"), nullable=False),
    sa.Column("started_ms", sa.BigInteger, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
)
_COLUMNS = sa.Table(
    "snowredis_merge_columns",
    _METADATA,
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("domain", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("column_name", sa.String(400), nullable=False),
)
MAP = sa.Table(
    "snowredis_merge_map",
    _METADATA,
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("domain", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("old", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("via", sa.BigInteger, nullable=False),
    sa.Column("new", sa.BigInteger, nullable=False),
    # the other kinds of databases make a hash table of the map to find an id by its new value
    sa.UniqueConstraint("run", "domain", "new", name="snowredis_merge_map_new").ddl_if(
        dialect=("mysql", "mariadb")  # type: ignore[arg-type]
    ),
)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """State of one run.

    Attributes:
        number: of the run in this database, 1 or higher.
        plan: id of its plan.
        state: "rewriting", "done"; then "undoing" and "undone".
        domain: number of the domain under way: lower ones have new ids. Above all of them: all have.
        done_to: the last old id of that domain that has its new value; while undoing, that has its old one again.
        changed: how many values were rewritten.
        domains: whose ids change.
        options: of read_schema().
        sums: rows and checksum of each table, as they must be at the end.
    """

    number: int
    plan: str
    version: int
    state: str
    domain: int
    done_to: int | None
    changed: int
    domains: tuple[DomainPlan, ...]
    options: dict[str, list[str]]
    sums: dict[str, list[Any]]

    @property
    def is_backwards(self) -> bool:
        """Return whether ids get their old values again."""
        return self.state == "undoing"

    @property
    def ids(self) -> int:
        """Number of ids that the plan changes."""
        return sum(domain.renamed for domain in self.domains)

    def details(self) -> str:
        domains = [asdict(domain) for domain in self.domains]
        return json.dumps({"domains": domains, "options": self.options, "sums": self.sums})


class Journal:
    """Journal of the database that changes."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def read(self, plan: str | None = None) -> Run | None:
        """Return the last run, or that of a plan that was not taken back; None if there is none."""
        with database_errors(self._engine), self._engine.connect() as connection:
            if not sa.inspect(connection).has_table(_RUNS.name):
                return None
            query = sa.select(_RUNS).order_by(_RUNS.c.run.desc()).limit(1)
            query = query if plan is None else query.where(_RUNS.c.plan == plan, _RUNS.c.state != "undone")
            row = connection.execute(query).first()
        if row is None:
            return None
        details = json.loads(row.details)
        domains = tuple(map(DomainPlan.from_json, details["domains"]))
        progress = (row.version, row.state, row.domain, row.done_to, row.changed_values)
        return Run(row.run, row.plan, *progress, domains, details["options"], details["sums"])

    def new_run(self, plan: Plan, last: Run | None) -> Run:
        """Make the tables; return the run that follows *last*, which begin() stores."""
        with database_errors(self._engine, "Nothing was changed"):
            _METADATA.create_all(self._engine)
        number = last.number + 1 if last else 1
        return Run(number, plan.id, 0, "rewriting", 0, None, 0, tuple(plan.renamed), plan.options, {})

    def begin(self, connection: sa.Connection, run: Run, last: Run | None) -> None:
        """Store the record of a run, first in the transaction that makes its map.

        Args:
            last: the last run when the plan was checked. SQLite has no other lock, and another process may have
                finished this plan since then.

        Raises:
            MergeError: another run is the last one now, or this run went on.
        """
        newest = sa.select(_RUNS.c.run, _RUNS.c.version).order_by(_RUNS.c.run.desc()).limit(1)
        found = connection.execute(newest).first()
        if found is not None and (last is None or tuple(found) != (last.number, last.version)):
            raise other_process(self._engine)
        values = {"run": run.number, "plan": run.plan, "started_ms": _now_ms(), "details": run.details()}
        connection.execute(sa.insert(_RUNS).values(values | self._values(run)))
        columns = [
            {"run": run.number, "domain": domain.number, "number": at, "column_name": str(name)[:400]}
            for domain in run.domains
            for at, name in enumerate([*domain.domain.keys, *domain.domain.references, *domain.domain.partials])
        ]
        if columns:
            connection.execute(sa.insert(_COLUMNS), columns)

    @staticmethod
    def _values(run: Run) -> dict[str, Any]:
        progress = {"version": run.version, "state": run.state, "domain": run.domain, "done_to": run.done_to}
        return {**progress, "changed_values": run.changed, "updated_ms": _now_ms()}

    def advance(self, connection: sa.Connection, run: Run, **changes: Any) -> Run:
        """Store the next state by compare-and-set, first in the transaction that makes it true.

        Raises:
            MergeError: another process did so.
        """
        after = replace(run, version=run.version + 1, **changes)
        values = self._values(after)
        if after.sums != run.sums:
            # they may be long
            values["details"] = after.details()
        done = connection.execute(
            sa.update(_RUNS).where(_RUNS.c.run == run.number, _RUNS.c.version == run.version).values(values)
        )
        if done.rowcount != 1:
            raise other_process(self._engine)
        return after

    def add_pairs(self, connection: sa.Connection, run: Run, domain: int, pairs: Iterable[Pair]) -> None:
        """Store old and new ids."""
        # whole numbers as text: a tenth of the time of parameters
        rows = ", ".join(f"({run.number:d}, {domain:d}, {old:d}, {via:d}, {new:d})" for old, via, new in pairs)
        connection.exec_driver_sql(f"INSERT INTO {MAP.name} (run, domain, old, via, new) VALUES {rows}")

    def add_moved(self, connection: sa.Connection, run: Run, plan: DomainPlan, column: sa.Column[Any]) -> None:
        """Store old and new ids of a counter in one statement; MergeError if there are not as many as planned."""
        # in their order, in which an index grows at its end
        ids = sa.select(column.label("id")).where(column.is_not(None)).distinct().order_by(column).subquery()
        new = ids.c.id + plan.offset
        rows = sa.select(sa.literal(run.number), sa.literal(plan.number), ids.c.id, new, new)
        connection.execute(sa.insert(MAP).from_select(["run", "domain", "old", "via", "new"], rows))
        mine = sa.select(sa.func.count()).where(*pairs_of(run, plan.number))
        if connection.scalar(mine) != plan.renamed:
            raise MergeError(f"{plan.name} has other ids than planned. Nothing was changed; make a new plan.")

    def forget(self, connection: sa.Connection, run: Run) -> None:
        """Remove the map of a run, whose ids are old again."""
        for table in (MAP, _COLUMNS):
            connection.execute(sa.delete(table).where(table.c.run == run.number))


def pairs_of(
    run: Run, number: int, *, after: int | None = None, last: int | None = None
) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for the pairs of the domain *number*, of old ids behind *after*, up to *last*."""
    conditions = [MAP.c.run == run.number, MAP.c.domain == number]
    if after is not None:
        conditions.append(MAP.c.old > after)
    if last is not None:
        conditions.append(MAP.c.old <= last)
    return conditions


def check_finished(engine: sa.Engine, last: Run | None) -> None:
    """Refuse a database whose last run is not finished: some of its ids are new, others are still old; MergeError."""
    if last is not None and last.state not in FINISHED:
        raise MergeError(
            f"plan {last.plan} was begun in {url_of(engine)} and is not finished ({last.state}). Nothing was changed; "
            "take it back first, with `snowredis merge abandon` and the URL, or, unless it is undoing, finish it with "
            "`snowredis merge apply` and the file of that plan."
        )
