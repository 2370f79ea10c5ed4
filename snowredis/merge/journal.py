"""Tables that apply keeps in the databases: the state of each run, old and new ids, and what was copied.

They are written in the same transactions as the changes that they describe. They stay: `snowredis_merge_map` answers
which id a row had before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from snowredis.errors import MergeError
from snowredis.merge.databases import database_errors, url_of, writing
from snowredis.merge.plan.plan_file import Plan

__all__ = ["MAP", "Copies", "Journal", "Run"]

_CHANGED = sa.MetaData()
_RUNS = sa.Table(
    "snowredis_merge_runs",
    _CHANGED,
    sa.Column("plan", sa.String(32), primary_key=True),
    sa.Column("run", sa.Integer, nullable=False, unique=True),
    # raised by each transaction, so that two processes never work on one run at once
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("domain", sa.Integer, nullable=False),
    sa.Column("done_to", sa.BigInteger),
    sa.Column("changed_values", sa.BigInteger, nullable=False),
    sa.Column("details", sa.Text, nullable=False),
    sa.Column("started_ms", sa.BigInteger, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
)
_COLUMNS = sa.Table(
    "snowredis_merge_columns",
    _CHANGED,
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("domain", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("column_name", sa.String(200), primary_key=True),
)
MAP = sa.Table(
    "snowredis_merge_map",
    _CHANGED,
    sa.Column("run", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("domain", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("old", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("new", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("run", "domain", "new"),
)
_KEPT = sa.MetaData()
_COPIES = sa.Table(
    "snowredis_merge_copies",
    _KEPT,
    sa.Column("plan", sa.String(32), primary_key=True),
    sa.Column("table_name", sa.String(200), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("done_to", sa.Text),
    sa.Column("copied_rows", sa.BigInteger, nullable=False),
    sa.Column("finished", sa.Boolean(create_constraint=False), nullable=False),
)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _other_process(what: str) -> MergeError:
    return MergeError(
        f"another process is at work on {what}. Nothing was changed by this one; wait for the other, or stop it, "
        "and run the same command again."
    )


@dataclass(frozen=True, slots=True)
class Run:
    """State of one run.

    Attributes:
        number: of the run in this database, 1 or higher.
        state: "loading" (of the map), "rewriting", "verifying", then "done".
        domain: that it works on; 0 before the first.
        done_to: the last old id of that domain that is done.
        changed: how many values were rewritten.
        details: sums and numbers of rows before the change, by table.
    """

    number: int
    version: int
    state: str
    domain: int
    done_to: int | None
    changed: int
    details: dict[str, Any]


class Journal:
    """Journal of one plan in the database that changes."""

    def __init__(self, engine: sa.Engine, plan: Plan) -> None:
        self._engine, self._plan = engine, plan

    def read(self) -> Run | None:
        """Return the state of the run; None if it has not begun. Changes nothing."""
        if not sa.inspect(self._engine).has_table(_RUNS.name):
            return None
        with database_errors(self._engine), self._engine.connect() as connection:
            row = connection.execute(sa.select(_RUNS).where(_RUNS.c.plan == self._plan.id)).first()
        if row is None:
            return None
        return Run(
            row.run,
            row.version,
            row.state,
            row.domain,
            row.done_to,
            row.changed_values,
            json.loads(row.details),
        )

    def begin(self) -> Run:
        """Make the tables, and the record of this run."""
        with database_errors(self._engine):
            _CHANGED.create_all(self._engine)
        with writing(self._engine, "Nothing was changed") as connection:
            number = (connection.scalar(sa.select(sa.func.max(_RUNS.c.run))) or 0) + 1
            run = Run(number, 0, "loading", 0, None, 0, {})
            connection.execute(
                sa.insert(_RUNS).values(
                    plan=self._plan.id,
                    run=number,
                    version=0,
                    state=run.state,
                    domain=0,
                    changed_values=0,
                    details="{}",
                    started_ms=_now_ms(),
                    updated_ms=_now_ms(),
                )
            )
            columns = [
                {"run": number, "domain": domain.number, "column_name": column[:200]}
                for domain in self._plan.domains
                for column in domain.columns
                if domain.renamed
            ]
            if columns:
                connection.execute(sa.insert(_COLUMNS), columns)
        return run

    def advance(self, connection: sa.Connection, run: Run, **changes: Any) -> Run:
        """Store the next state, first in the transaction that makes it true.

        Raises:
            MergeError: another process did so.
        """
        after = replace(run, version=run.version + 1, **changes)
        done = connection.execute(
            sa.update(_RUNS)
            .where(_RUNS.c.plan == self._plan.id, _RUNS.c.version == run.version)
            .values(
                version=after.version,
                state=after.state,
                domain=after.domain,
                done_to=after.done_to,
                changed_values=after.changed,
                details=json.dumps(after.details),
                updated_ms=_now_ms(),
            )
        )
        if done.rowcount != 1:
            raise _other_process(f"plan {self._plan.id}")
        return after

    def add_pairs(
        self, connection: sa.Connection, run: Run, domain: int, pairs: Iterable[tuple[int, int]]
    ) -> None:
        """Store old and new ids."""
        rows = [{"run": run.number, "domain": domain, "old": old, "new": new} for old, new in pairs]
        connection.execute(sa.insert(MAP), rows)


def check_none_unfinished(engine: sa.Engine) -> None:
    """Refuse a database in which a plan was begun and not finished: some of its ids are new, others are still old.

    Raises:
        MergeError: there is one.
    """
    if not sa.inspect(engine).has_table(_RUNS.name):
        return
    with database_errors(engine), engine.connect() as connection:
        row = connection.execute(sa.select(_RUNS).where(_RUNS.c.state != "done")).first()
    if row is not None:
        raise MergeError(
            f"plan {row.plan} was begun in {url_of(engine)} and is not finished ({row.state}). Nothing was changed; "
            "finish it first: snowredis merge apply with the file of that plan."
        )


@dataclass(frozen=True, slots=True)
class Copy:
    """Progress of the copy of a table.

    Attributes:
        done_to: key of the last row that was copied.
    """

    table: str
    version: int
    done_to: list[Any] | None
    rows: int
    finished: bool


class Copies:
    """Journal of the copy, in the database that the rows are copied to."""

    def __init__(self, engine: sa.Engine, plan: Plan) -> None:
        self._engine, self._plan = engine, plan

    def read(self) -> dict[str, Copy]:
        """Return the state of each table; empty before the copy began. Changes nothing."""
        if not sa.inspect(self._engine).has_table(_COPIES.name):
            return {}
        with database_errors(self._engine), self._engine.connect() as connection:
            rows = connection.execute(sa.select(_COPIES).where(_COPIES.c.plan == self._plan.id)).all()
        return {
            row.table_name: Copy(
                row.table_name,
                row.version,
                None if row.done_to is None else json.loads(row.done_to),
                row.copied_rows,
                bool(row.finished),
            )
            for row in rows
        }

    def begin(self, tables: Iterable[str]) -> dict[str, Copy]:
        """Make the table, and a record for each of *tables*."""
        with database_errors(self._engine):
            _KEPT.create_all(self._engine)
        records = {name: Copy(name, 0, None, 0, finished=False) for name in tables}
        with writing(self._engine, "No row was copied") as connection:
            connection.execute(
                sa.insert(_COPIES),
                [
                    {
                        "plan": self._plan.id,
                        "table_name": name,
                        "version": 0,
                        "copied_rows": 0,
                        "finished": False,
                    }
                    for name in records
                ],
            )
        return records

    def advance(self, connection: sa.Connection, copy: Copy, **changes: Any) -> Copy:
        """Store how far a table is, first in the transaction that makes it true."""
        after = replace(copy, version=copy.version + 1, **changes)
        done = connection.execute(
            sa.update(_COPIES)
            .where(
                _COPIES.c.plan == self._plan.id,
                _COPIES.c.table_name == copy.table,
                _COPIES.c.version == copy.version,
            )
            .values(
                version=after.version,
                done_to=None if after.done_to is None else json.dumps(after.done_to),
                copied_rows=after.rows,
                finished=after.finished,
            )
        )
        if done.rowcount != 1:
            raise _other_process(f"the copy of {copy.table}")
        return after
