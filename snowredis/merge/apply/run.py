"""Apply a plan to the database that changes: check, load the map, rewrite, verify; go on where a process stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import sqlalchemy as sa

from snowredis.errors import MergeError
from snowredis.merge.apply.rewrite import Rewriter
from snowredis.merge.apply.sums import sum_of_table
from snowredis.merge.databases import database_errors, open_database, reading, url_of, writing
from snowredis.merge.id_domains import ColumnName, Domain, Schema, TableName
from snowredis.merge.journal import MAP, Journal, Run, check_none_unfinished
from snowredis.merge.plan.make import prove_domain, read_both
from snowredis.merge.plan.plan_file import DomainPlan, Plan, PlanFile
from snowredis.merge.plan.problems import orphans
from snowredis.merge.support import Support, support_of

__all__ = ["Databases", "Outcome", "apply_plan", "open_databases"]

# pairs that one transaction stores in the map
_LOADED = 5_000
Report = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Databases:
    """Both databases of a plan, and what is in them.

    Attributes:
        domains: with their numbers in the plan.
    """

    kept: sa.Engine
    changed: sa.Engine
    of_kept: Schema
    of_changed: Schema
    domains: list[tuple[DomainPlan, Domain]]

    @property
    def support(self) -> Support:
        return support_of(self.changed)

    def close(self) -> None:
        """Close the connections."""
        self.kept.dispose()
        self.changed.dispose()

    @property
    def renamed(self) -> list[tuple[DomainPlan, Domain]]:
        """Domains whose ids change."""
        return [pair for pair in self.domains if pair[0].renamed]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run.

    Attributes:
        ids, values: how many ids changed, and in how many places.
        rows: of the tables that were verified, each with its checksum.
        resumed: whether an earlier process had begun.
    """

    ids: int
    values: int
    rows: dict[str, tuple[int, int]]
    resumed: bool


def open_databases(plan: Plan, kept_url: str | None = None, changed_url: str | None = None) -> Databases:
    """Connect to the databases of a plan, and find the same columns in them.

    Args:
        kept_url, changed_url: if others than the plan has, such as with a password.

    Raises:
        MergeError: no connection, or the tables are not those of the plan.
    """
    kept, changed = open_database(kept_url or plan.kept), open_database(changed_url or plan.changed)
    if url_of(kept) == url_of(changed):
        raise MergeError(
            f"both URLs lead to {url_of(kept)}. Nothing was changed; ids of one stay, those of the other change."
        )
    with database_errors(changed):
        of_kept, of_changed = read_both(kept, changed, plan.options)
    planned = {domain.name: domain for domain in plan.domains}
    found = {domain.name: domain for domain in of_changed.domains}
    for name in planned.keys() | found.keys():
        columns = set(planned[name].columns) if name in planned else set()
        now = set(map(str, found[name].columns)) if name in found else set()
        if columns != now:
            differ = ", ".join(sorted(columns ^ now))
            raise MergeError(
                f"{url_of(changed)} is not as it was when the plan was made: {differ} came or went. Nothing was "
                "changed; make a new plan."
            )
    domains = [(domain, found[domain.name]) for domain in plan.domains]
    return Databases(kept, changed, of_kept, of_changed, domains)


def apply_plan(
    plan: Plan,
    file: PlanFile,
    databases: Databases,
    *,
    batch_rows: int,
    with_triggers: bool = False,
    report: Report = lambda _text, _done: None,
) -> Outcome:
    """Rewrite the ids, from where the last process stopped, and verify the result. Returns at once if all is done.

    Args:
        with_triggers: go on although triggers that cannot be switched off run at each change.

    Raises:
        MergeError: refused or stopped; the message says what was changed.
    """
    journal = Journal(databases.changed, plan)
    run = journal.read()
    resumed = run is not None
    if run is None:
        _check(plan, file, databases, with_triggers, report)
        run = journal.begin()
    if run.state == "loading":
        run = _load(file, databases, journal, run, report)
    if run.state == "rewriting":
        rewriter = Rewriter(
            databases.changed, databases.of_changed, databases.support, journal, batch_rows, report
        )
        for domain_plan, domain in databases.renamed:
            run = rewriter.rewrite(run, domain_plan.number, domain)
        _move_counters(databases)
        run = _advance(databases, journal, run, state="verifying")
    if run.state == "verifying":
        _verify(databases, run, report)
        run = _advance(databases, journal, run, state="done")
    rows = {name: (count, total) for name, (count, total) in run.details["sums"].items()}
    return Outcome(plan.renamed, run.changed, rows, resumed)


def _advance(databases: Databases, journal: Journal, run: Run, **changes: object) -> Run:
    with writing(databases.changed, "All batches were done") as connection:
        return journal.advance(connection, run, **changes)


def _check(plan: Plan, file: PlanFile, databases: Databases, with_triggers: bool, report: Report) -> None:
    """Check that both databases still are what the plan was made for, and that all new ids are unused."""
    databases.support.check(databases.changed, databases.of_changed)
    check_none_unfinished(databases.changed)
    with reading(databases.kept) as kept, reading(databases.changed) as changed:
        triggers = databases.support.fixed_triggers(changed, databases.of_changed)
        if triggers and plan.renamed and not with_triggers:
            raise MergeError(
                f"{len(triggers)} triggers run at changes and cannot be switched off here: {', '.join(triggers[:5])}. "
                "Nothing was changed; drop them for the merge, or, if they do no harm, go on --with-triggers."
            )
        for domain_plan, domain in databases.domains:
            if domain_plan.kind == "shared":
                continue
            report(f"proving that no id of {domain.name} clashes any more", 0)
            prove_domain(
                kept, changed, databases.of_kept, databases.of_changed, domain, file, domain_plan.number
            )
        for table in plan.tables:
            name = next(name for name in databases.of_changed.tables if str(name) == table.name)
            count = sa.select(sa.func.count()).select_from(databases.of_changed.tables[name])
            if (now := changed.scalar(count)) != table.rows:
                raise MergeError(
                    f"{table.name} has {now:,} rows, and had {table.rows:,} when the plan was made. Nothing was "
                    "changed; stop the application that writes to it, and make a new plan."
                )


def _load(file: PlanFile, databases: Databases, journal: Journal, run: Run, report: Report) -> Run:
    """Fill the map, and remember the sums of all tables whose rows will change."""
    for domain_plan, domain in databases.renamed:
        if run.domain > domain_plan.number:
            continue
        after = run.done_to if run.domain == domain_plan.number else None
        pairs = file.pairs(domain_plan.number, after)
        while batch := list(islice(pairs, _LOADED)):
            with writing(
                databases.changed, "No row was changed; only the map was being filled"
            ) as connection:
                run = journal.advance(connection, run, domain=domain_plan.number, done_to=batch[-1][0])
                journal.add_pairs(connection, run, domain_plan.number, batch)
            report(f"storing the map of {domain.name}", 0)
    with database_errors(databases.changed), databases.changed.connect() as connection:
        databases.support.after_loading(connection, MAP.name)
        connection.commit()
    report("adding up the rows before the change", 0)
    sums = _sums(databases, run, _mapped(databases))
    with writing(databases.changed, "No row was changed") as connection:
        return journal.advance(
            connection, run, state="rewriting", domain=0, done_to=None, details={"sums": sums}
        )


def _mapped(databases: Databases) -> dict[ColumnName, int]:
    return {name: plan.number for plan, domain in databases.renamed for name in domain.columns}


def _sums(databases: Databases, run: Run, mapped: dict[ColumnName, int]) -> dict[str, tuple[int, int]]:
    touched: dict[TableName, None] = {name.of: None for name in _mapped(databases)}
    with reading(databases.changed) as connection:
        return {
            str(name): sum_of_table(
                connection,
                databases.support,
                name,
                databases.of_changed.tables[name],
                mapped,
                run.number,
            )
            for name in touched
        }


def _verify(databases: Databases, run: Run, report: Report) -> None:
    """Check what was done: every row is there with what it had, all old ids are gone, all references lead to a row."""
    tail = "The ids were changed, and the check of it failed; the map of old and new ids is in snowredis_merge_map"
    report("adding up the rows after the change", run.changed)
    before = {name: tuple(values) for name, values in run.details["sums"].items()}
    after = _sums(databases, run, {})
    for name, (count, total) in after.items():
        if (count, total) != before[name]:
            what = (
                f"has {count:,} rows, and had {before[name][0]:,}"
                if count != before[name][0]
                else "has other values than before, besides its ids"
            )
            raise MergeError(
                f"{name} {what}. {tail}; somebody else wrote to it meanwhile, or a trigger did: compare it "
                "with a backup."
            )
    report("checking foreign keys", run.changed)
    with reading(databases.changed) as connection:
        for domain_plan, domain in databases.renamed:
            for column_name in domain.columns:
                column = databases.of_changed.column(column_name)
                old = sa.select(sa.func.count()).select_from(column.table.join(MAP, column == MAP.c.old))
                if left := connection.scalar(
                    old.where(MAP.c.run == run.number, MAP.c.domain == domain_plan.number)
                ):
                    raise MergeError(
                        f"{left:,} rows of {column_name} still have an old id. {tail}; somebody wrote to it meanwhile: "
                        "correct them by the map."
                    )
        for key in databases.of_changed.foreign_keys:
            row = connection.execute(orphans(databases.of_changed, key).limit(1)).first()
            if row is not None:
                raise MergeError(f"foreign key {key} leads nowhere from {tuple(row)}. {tail}.")


def _move_counters(databases: Databases) -> None:
    """Let the database's own counters go on above the new numbers."""
    for domain_plan, domain in databases.renamed:
        if domain_plan.kind != "counter":
            continue
        for name in domain.keys:
            move_counter(
                databases.changed, databases.of_changed, databases.support, name, "All batches were done"
            )


def move_counter(engine: sa.Engine, schema: Schema, support: Support, name: ColumnName, text: str) -> None:
    """Let the counter of a column, if it has one, go on above the greatest number that is there."""
    with writing(engine, text) as connection:
        column = schema.column(name)
        highest = connection.scalar(sa.select(sa.func.max(column)))
        if highest is not None:
            support.move_counter(connection, column, name, int(highest))
