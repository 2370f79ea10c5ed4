"""The steps of a migration: start, backfill, verify, switch, then finish; or rollback instead of finish."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import sqlalchemy as sa

from snowredis.core.collisions import Proof, counter_ids, prove
from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.errors import ConfigError, MigrationError
from snowredis.merge.id_domains import ColumnName
from snowredis.merge.migrate.backfill import Progress, fill_tables
from snowredis.merge.migrate.column import IdColumn, read_column
from snowredis.merge.migrate.database import Database
from snowredis.merge.migrate.journal import Entry, Journal
from snowredis.merge.migrate.mariadb import MariaDB
from snowredis.merge.migrate.new_values import CLOCK_ERROR_MS, Ids, check_switch
from snowredis.merge.migrate.plan import MigrationPlan, State
from snowredis.merge.migrate.postgresql import PostgreSQL
from snowredis.merge.migrate.reflect import make_plan
from snowredis.merge.migrate.sqlite import SQLite
from snowredis.merge.migrate.verify import ColumnCheck, verify_after, verify_before

__all__ = ["Migration"]

_DATABASES: dict[str, type[Database]] = {"postgresql": PostgreSQL, "mariadb": MariaDB, "sqlite": SQLite}
# the step that comes after each state
_NEXT: dict[State, str] = {
    "starting": "start",
    "started": "backfill",
    "filled": "switch",
    "switching": "switch",
    "switched": "finish",
    "rolling back": "rollback",
    "finishing": "finish",
}


def _ignore(_: object) -> None:
    pass


class Migration:
    """Migration of one column of ids, and of all columns that refer to it.

    Every step can be run again after it failed or was killed. The journal in the database says what comes next.

    Args:
        engine: from open_database(): PostgreSQL, MariaDB or SQLite.
        table, column, schema: the ids.
    """

    def __init__(self, engine: sa.Engine, table: str, column: str, schema: str | None = None) -> None:
        kind = "mariadb" if getattr(engine.dialect, "is_mariadb", False) else engine.dialect.name
        with engine.connect():
            # MariaDB is known as such only after a connection, where the URL says mysql://
            kind = "mariadb" if getattr(engine.dialect, "is_mariadb", False) else kind
        if kind not in _DATABASES:
            raise ConfigError(
                f"{kind} databases cannot be migrated, only PostgreSQL, MariaDB and SQLite. Nothing was changed."
            )
        self.engine, self._kind = engine, _DATABASES[kind]
        if schema == sa.inspect(engine).default_schema_name:
            schema = None
        self.column = ColumnName(schema, table, column)
        self._journal = Journal(str(self.column))

    # --- what is there ---------------------------------------------------------------------------------

    def entry(self) -> Entry | None:
        """Return plan and state; None if no migration of the column was started."""
        with self.engine.connect() as connection:
            return self._journal.read(connection)

    def read_column(self) -> IdColumn:
        """Return the smallest and the greatest id, and what the column can hold."""
        return read_column(self.engine, self.column)

    def next_step(self) -> str | None:
        """Return the step that comes next; None if the migration is finished."""
        entry = self.entry()
        return "start" if entry is None else _NEXT.get(entry.state)

    def plan(
        self,
        layout: Layout,
        *,
        old_layout: Layout | None = None,
        ids: Ids = "auto",
        references: Sequence[str] = (),
    ) -> tuple[MigrationPlan, Proof]:
        """Return what start() would do, and the proof; changes nothing."""
        plan, proof = make_plan(
            self.engine,
            self.column,
            layout=layout,
            old_layout=old_layout,
            ids=ids,
            references=references,
            now_ms=time.time_ns() // 1_000_000,
        )
        database = self._database(plan)
        database.check_version()
        database.check()
        return plan, proof

    # --- the steps -------------------------------------------------------------------------------------

    def start(self, plan: MigrationPlan) -> None:
        """Add the new columns, and triggers that fill them in rows that are written from now on."""
        self._journal.create_table(self.engine)
        entry = self.entry()
        if entry is None or entry.state == "finished":
            entry = Entry(plan, "starting")
            self._write(entry)
        self._expect(entry, "start", "starting")
        # a plan that was begun is carried on with, even if the column has grown since
        self._database(entry.plan).start()
        self._write(replace(entry, state="started"))

    def backfill(
        self,
        *,
        batch_ms: int = 50,
        rows_per_s: int | None = None,
        on_progress: Callable[[Progress], None] = _ignore,
        on_build: Callable[[str], None] = _ignore,
    ) -> None:
        """Fill the new columns of all other rows, then build indexes and constraints for them.

        Args:
            batch_ms: how long one batch should take, and so the longest that others wait for a row of it.
            rows_per_s: the most rows; None: no limit.
        """
        entry = self._entry()
        self._expect(entry, "backfill", "started", "filled")
        database = self._database(entry.plan)
        fill_tables(
            database,
            self._journal,
            dict(entry.progress),
            batch_ms=batch_ms,
            rows_per_s=rows_per_s,
            report=on_progress,
        )
        database.build(on_build)
        self._write(replace(entry, state="filled", progress={}))

    def verify(self) -> list[ColumnCheck]:
        """Compare old and new columns by counts and checksums; raises nothing for what it finds."""
        entry = self._entry()
        self._expect(entry, "verify", "filled", "switched")
        database, check = self._database(entry.plan), verify_before
        if entry.state == "switched":
            check = verify_after
        with self.engine.connect() as connection:
            database.use_one_cpu(connection)
            return check(connection, database)

    def switch(self) -> float:
        """Exchange the columns: applications read and write new ids from now on.

        Returns:
            For how many seconds the tables were locked; 0 where no table is.

        Raises:
            MigrationError: verify() would find errors, or ids are in the column that the proof did not expect.
        """
        entry = self._entry()
        self._expect(entry, "switch", "filled", "switching")
        self._prove_again(entry)
        if entry.state == "filled":
            _refuse_errors(self.verify(), "switched")
            self._write(replace(entry, state="switching"))
        switched = replace(entry, state="switched", progress=entry.progress)
        database = self._database(entry.plan)
        database.switch(lambda connection: self._journal.write(connection, switched))
        return database.locked_s

    def rollback(self) -> None:
        """Go back to the old ids, and remove whatever was added. Rows written since the switch have old ids, too."""
        entry = self._entry()
        if entry.state in ("finishing", "finished"):
            self._expect(entry, "rollback")
        database, switched = self._database(entry.plan), bool(entry.progress.get("switched"))
        if entry.state != "rolling back":
            switched = entry.state in ("switching", "switched")
            self._write(replace(entry, state="rolling back", progress={"switched": switched}))
        entry = replace(entry, state="rolling back", progress={"switched": False})
        if switched:
            database.switch_back(lambda connection: self._journal.write(connection, entry))
        database.drop_new()
        with self.engine.begin() as connection:
            self._journal.delete(connection)

    def finish(self) -> None:
        """Remove triggers and old columns. There is no way back from here."""
        entry = self._entry()
        self._expect(entry, "finish", "switched", "finishing")
        if entry.state == "switched":
            _refuse_errors(self.verify(), "removed")
            self._write(replace(entry, state="finishing"))
        self._database(entry.plan).finish()
        self._write(replace(entry, state="finished", progress={}))

    def take_all_steps(self, layout: Layout, *, ids: Ids = "auto", references: Sequence[str] = ()) -> None:
        """Take every step that is left, up to finish(): for small tables and new databases.

        Does nothing where the migration is finished, or the column needs none.
        """
        entry = self.entry()
        if entry is None:
            plan, _ = self.plan(layout, ids=ids, references=references)
            if not plan.tables and not plan.counted:
                return
            self.start(plan)
        while (entry := self._entry()).state != "finished":
            if entry.state == "starting":
                self.start(entry.plan)
            elif entry.state == "started":
                self.backfill()
            elif entry.state in ("filled", "switching"):
                self.switch()
            elif entry.state == "rolling back":
                self._expect(entry, "finish")
            else:
                self.finish()

    # --- shared ----------------------------------------------------------------------------------------

    def _database(self, plan: MigrationPlan) -> Database:
        return self._kind(self.engine, plan)

    def _entry(self) -> Entry:
        entry = self.entry()
        if entry is None:
            raise MigrationError(
                f"no migration of {self.column} was started. Nothing was changed; run: snowredis migrate start"
            )
        return entry

    def _write(self, entry: Entry) -> None:
        with self.engine.begin() as connection:
            self._journal.write(connection, entry)

    def _expect(self, entry: Entry, step: str, *states: State) -> None:
        if entry.state not in states:
            following = _NEXT.get(entry.state)
            advice = f"next comes: snowredis migrate {following}" if following else "it is over"
            raise MigrationError(
                f"the migration of {self.column} is {entry.state}, so {step} was refused, and nothing was changed; "
                f"{advice}."
            )

    def _prove_again(self, entry: Entry) -> None:
        """Prove with the column's maximum and the time of the switch; refuse what does not hold any more."""
        plan = entry.plan
        table = sa.table(plan.table, sa.column(plan.column), schema=plan.schema)
        if entry.state == "filled":
            with self.engine.connect() as connection:
                last = connection.scalar(sa.select(sa.func.max(table.c[plan.column])))
            check_switch(int(last or 0), plan.last_old, plan.offset)
        moved = counter_ids(plan.last_old + plan.offset, plan.first_old + plan.offset)
        now_ms = max(plan.start_ms, time.time_ns() // 1_000_000)
        proof = prove(moved, resolve_layout(plan.layout), start_ms=now_ms, clock_error_ms=CLOCK_ERROR_MS)
        if not proof.distinct:
            raise MigrationError(
                f"old and new ids of {self.column} can be equal by now: was this host's clock set back? Nothing was "
                "switched; check the clock, or roll back and start again."
            )


def _refuse_errors(checks: Sequence[ColumnCheck], what: str) -> None:
    errors = [
        f"{check.column}: {check.wrong} rows differ, {check.orphans} refer to no row"
        for check in checks
        if check.wrong or check.orphans
    ]
    if errors:
        raise MigrationError(
            f"the columns do not agree: {'; '.join(errors)}. Nothing was {what}; see: snowredis migrate verify"
        )
