"""Apply a plan to the database that changes, and take it back: both go on where a process stopped.

Every transaction leaves a consistent database and says in the journal how far it got. An id changes in its own column
and in every column that refers to it in one transaction, so after each commit all references are right. Undoing is the
same, from the map in the database, in the other direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, islice, pairwise
from typing import Any, NamedTuple

import sqlalchemy as sa

from snowredis.merge import MergeError
from snowredis.merge.databases import count_rows, database_errors, lock, open_database, reading, url_of, writing
from snowredis.merge.journal import FINISHED, LOCK, MAP, Journal, Run, check_finished, pairs_of
from snowredis.merge.obstacles import check_copyable, check_obstacles, rehearse
from snowredis.merge.pair import Databases, open_both
from snowredis.merge.plan_file import DomainPlan, Pairs, Plan
from snowredis.merge.progress import Progress
from snowredis.merge.schema import ColumnName, Partial, Schema, TableName, read_schema, tables_of
from snowredis.merge.support import support_of
from snowredis.merge.verify import check_result, id_sums, old_ids, sums
from snowredis.merge.workspace import IdStore, Workspace

# pairs that one statement stores in the map
_LOADED = 20_000
# ids of the first batch; later ones follow from how many rows refer to an id
_FIRST = 500


def open_databases(plan: Plan, kept_url: str | None = None, changed_url: str | None = None) -> Databases:
    """Connect to the databases of a plan, and check that their tables are those of the plan.

    Args:
        kept_url, changed_url: if others than the plan has, such as with a password.

    Raises:
        MergeError: the tables are not those of the plan.
        SourceError: no connection.
    """
    databases = open_both(kept_url or plan.kept, changed_url or plan.changed, plan.options)
    both = (databases.kept, databases.kept_schema), (databases.changed, databases.changed_schema)
    for (engine, schema), planned in zip(both, plan.fingerprints, strict=True):
        if schema.fingerprint() != planned:
            raise MergeError(
                f"the tables of {url_of(engine)} are not as they were when the plan was made. Nothing was changed; "
                "make a new plan."
            )
    return databases


# --- apply -----------------------------------------------------------------------------------------------


def apply_plan(plan: Plan, pairs: Pairs, databases: Databases, *, batch_rows: int, progress: Progress) -> Run:
    """Rewrite the ids, from where the last process stopped, and verify the result. Returns at once if all is done.

    Args:
        batch_rows: about how many values a transaction changes; more for a single id that has more references.

    Raises:
        MergeError: refused or stopped; the message says what was changed.
    """
    engine, schema, journal = databases.changed, databases.changed_schema, Journal(databases.changed)
    with lock(engine, LOCK):
        # the order matters: begin() refuses if another process made a run after the first read
        last, run = journal.read(), journal.read(plan.id)
        if run is None or run.state == "undoing":
            check_finished(engine, last)
            _check(plan, pairs, databases, progress)
            run = _begin(plan, pairs, databases, journal, last, progress)
        if run.state == "rewriting":
            with writing(engine, "The same command continues") as connection:
                connection.exec_driver_sql(f"{support_of(engine).analyze} {MAP.name}").close()
            run = _Rewriter(engine, schema, journal, batch_rows, progress).rewrite(run)
            _move_counters(engine, schema, run)
            tail = "The ids were changed, and the check failed; `snowredis merge abandon` and the URL take it back"
            check_result(engine, schema, run, run.domains, tail, progress)
            run = _advance(engine, journal, run, state="done")
    return run


def _advance(engine: sa.Engine, journal: Journal, run: Run, **changes: Any) -> Run:
    with writing(engine, "All batches were done") as connection:
        return journal.advance(connection, run, **changes)


def _check(plan: Plan, pairs: Pairs, databases: Databases, progress: Progress) -> None:
    """Check that both databases still are what the plan was made for, and that all new ids are unused."""
    renamed = [domain.domain for domain in plan.renamed]
    with databases.reading() as sides, Workspace() as workspace:
        changed, schema = sides[1]
        check_obstacles(changed, schema, renamed, with_triggers=plan.with_triggers)
        check_copyable(sides)
        store = IdStore(workspace)
        for domain in plan.domains:
            progress.start(f"proving that no id of {domain.name} clashes any more")
            if plan.ids[domain.name] == [id_sums(*side, domain.domain) for side in sides]:
                # the ids are those for which the plan was proved
                continue
            store.load("kept", domain.number, *sides[0], domain.domain, ())
            store.load("changed", domain.number, *sides[1], domain.domain, domain.domain.partials)
            if domain.is_moved:
                store.add_offset(domain.number, domain.offset)
            store.add(domain.number, pairs(domain.number))
            store.prove(domain.number, domain.name, matched=domain.kind == "match")
        for name, table in schema.tables.items():
            had, now = plan.rows[str(name)], count_rows(changed, table)
            if now != had:
                raise MergeError(
                    f"{name} has {now:,} rows, and had {had:,} when the plan was made. Nothing was changed; stop the "
                    "application that writes to it, and make a new plan."
                )
    rehearse(databases.changed, renamed, schema)


def _begin(
    plan: Plan, pairs: Pairs, databases: Databases, journal: Journal, last: Run | None, progress: Progress
) -> Run:
    """Store the run, with the sums of all tables, and its map in one transaction."""
    engine, schema, run = databases.changed, databases.changed_schema, journal.new_run(plan, last)
    run = replace(run, sums=sums(engine, schema, run, (), progress))
    with writing(engine, "Nothing was changed") as connection:
        journal.begin(connection, run, last)
        for of in run.domains:
            progress.start(f"storing the map of {of.name}", of.renamed)
            if of.is_moved:
                journal.add_moved(connection, run, of, schema.column(of.domain.keys[0]))
                continue
            left = pairs(of.number)
            while batch := list(islice(left, _LOADED)):
                journal.add_pairs(connection, run, of.number, batch)
                progress.add(len(batch))
    return run


def _move_counters(engine: sa.Engine, schema: Schema, run: Run) -> None:
    """Let the database's own counters go on above the new numbers."""
    keys = {key for plan in run.domains for key in plan.domain.keys}
    support = support_of(engine)
    with reading(engine) as connection:
        counters = support.counters(connection, schema)
    for counter in counters:
        if keys & set(counter.columns):
            with writing(engine, "All batches were done") as connection:
                support.run(connection, counter.statement)


# --- undo ------------------------------------------------------------------------------------------------


def revert(url: str, *, finished: bool, batch_rows: int, progress: Progress) -> Run:
    """Give the ids of the last run their old values again, from the map in the database; goes on if it was stopped.

    Args:
        finished: the run must be complete (undo), or else must not be (abandon).

    Raises:
        MergeError: there is no such run, an old id is in use, or the result is not what it was.
    """
    engine = open_database(url)
    journal = Journal(engine)
    with lock(engine, LOCK):
        run = _last_run(engine, journal.read(), finished)
        with database_errors(engine):
            schema = read_schema(engine, also=(), **run.options)
        if run.state != "undoing":
            before = run.sums
            if run.state == "done":
                _check_unused(engine, schema, run)
                before = sums(engine, schema, run, run.domains, progress)
            rehearse(engine, [plan.domain for plan in run.domains], schema)
            run = _advance(engine, journal, run, state="undoing", done_to=None, changed=0, sums=before)
        run = _Rewriter(engine, schema, journal, batch_rows, progress).rewrite(run)
        tail = "All ids have their old values, and the check failed; the map of old and new ids was kept"
        try:
            check_result(engine, schema, run, (), tail, progress)
        except MergeError:
            # another process wrote something, but there is nothing left to take back
            _advance(engine, journal, run, state="undone", domain=0, done_to=None)
            raise
        with writing(engine, "All ids have their old values") as connection:
            journal.forget(connection, run)
            return journal.advance(connection, run, state="undone", domain=0, done_to=None)


def _last_run(engine: sa.Engine, run: Run | None, finished: bool) -> Run:
    """Return *run* if it can be taken back; MergeError if not."""
    if run is None or run.state == "undone":
        again = ", or all have their old values again" if run else ""
        raise MergeError(f"no ids were changed in {url_of(engine)}{again}. Nothing was changed.")
    if run.state != "undoing" and finished != (run.state in FINISHED):
        what, command = ("is not finished", "abandon") if finished else ("is finished", "undo")
        raise MergeError(
            f"the merge in {url_of(engine)} {what}: take it back with `snowredis merge {command}`. Nothing was changed."
        )
    return run


def _check_unused(engine: sa.Engine, schema: Schema, run: Run) -> None:
    """Refuse to undo if a row was made since that has an old id; MergeError."""
    # the old ids of matched rows are new ids of others
    plans = [plan for plan in run.domains if plan.kind != "match"]
    with reading(engine) as connection:
        for name, an_id in old_ids(connection, schema, run, plans):
            raise MergeError(
                f"{name} has a row with the id {an_id}, which another row gets back. Nothing was changed; the row was "
                "made since: give it another id, or remove it."
            )


# --- the rewriting ---------------------------------------------------------------------------------------


class _Batch(NamedTuple):
    """Ids of one domain behind *after* up to *last*; or all *ids* of several, if *last* is None."""

    plans: Sequence[DomainPlan]
    after: int | None
    last: int | None
    ids: int


class _Move(NamedTuple):
    """A column of numbers that move by *offset* in the rows that it *applies* to."""

    column: sa.Column[Any]
    applies: sa.ColumnElement[bool]
    offset: int


class _Rewriter:
    """Rewrites the ids of one database, forwards or backwards, in batches of old ids."""

    def __init__(
        self, engine: sa.Engine, schema: Schema, journal: Journal, batch_rows: int, progress: Progress
    ) -> None:
        self._engine, self._schema, self._support = engine, schema, support_of(engine)
        self._journal, self._batch_rows, self._progress = journal, batch_rows, progress
        self._self_updated: dict[object, list[str]] = {}

    def rewrite(self, run: Run) -> Run:
        """Give all ids their new values, or the old ones again, from where *run* is; return its state after."""
        left = [plan for plan in run.domains if run.domain <= plan.number]
        if run.is_backwards:
            # from the last domain that has new values
            left = [plan for plan in reversed(run.domains) if plan.number <= run.domain]
        for is_counter, plans in groupby(left, lambda plan: plan.kind == "counter"):
            together = list(plans)
            begun = run.done_to is not None and run.domain == together[0].number
            if is_counter and not run.is_backwards and not begun and self._fits_one_batch(run, together):
                self._progress.start(f"changing {', '.join(plan.name for plan in together)}")
                run = self._change(run, _Batch(together, None, None, sum(plan.renamed for plan in together)))
                continue
            for plan in together:
                run = self._domain(run, plan)
        return run

    def _fits_one_batch(self, run: Run, plans: Sequence[DomainPlan]) -> bool:
        """Return whether the tables of these ids are so small that each can change in one statement."""
        rows: list[int] = [run.sums[str(name.table_name)][0] for plan in plans for name in plan.domain.all_columns]
        _, late = self._schema.parents_first(tables_of(plan.domain for plan in plans))
        # in a circle, ON UPDATE of a parent would find children with their old values
        acts = late and any(key.on_update not in ("", "NO ACTION") for key in self._schema.foreign_keys)
        return sum(rows) <= self._batch_rows and not acts

    def _domain(self, run: Run, plan: DomainPlan) -> Run:
        size, done_to = _FIRST, run.done_to if run.domain == plan.number else None
        self._progress.start(f"changing {plan.name}{' back' if run.is_backwards else ''}", plan.renamed)
        while True:
            ids = sa.select(MAP.c.old).where(*pairs_of(run, plan.number, after=done_to)).order_by(MAP.c.old)
            ids = ids if plan.at_once else ids.limit(size)
            with reading(self._engine) as connection:
                part = ids.subquery()
                count, last = connection.execute(sa.select(sa.func.count(), sa.func.max(part.c.old))).one()
            if not count:
                return run
            before = run.changed
            run, done_to = self._change(run, _Batch([plan], done_to, int(last), count)), int(last)
            # a batch of twice as many ids, unless it would be too large
            size = max(1, min(2 * count, count * self._batch_rows // max(run.changed - before, 1)))
            self._progress.add(count)

    def _change(self, run: Run, batch: _Batch) -> Run:
        """Change the ids of a batch in one transaction."""
        text = f"{run.changed:,} values were changed until then, and stay as they are"
        domain = batch.plans[-1].number + (batch.last is None)
        with writing(self._engine, text) as connection:
            # locks the journal's row: a second process finds another version
            run = self._journal.advance(connection, run, domain=domain, done_to=batch.last)
            with self._support.relaxed(connection, tables_of(plan.domain for plan in batch.plans)):
                moves = batch.plans[0].kind == "counter" and not run.is_backwards
                changed = (self._move if moves else self._map)(connection, run, batch)
            # going back, a row may be gone
            if changed < batch.ids and not run.is_backwards:
                raise MergeError(
                    f"{batch.plans[0].name}: {batch.ids:,} ids were to change, and the database changed {changed:,} "
                    f"values. {text}; something keeps rows as they are, such as a rule or a policy: remove it."
                )
            return self._journal.advance(connection, run, changed=run.changed + changed)

    def _map(self, connection: sa.Connection, run: Run, batch: _Batch) -> int:
        """Look up the new ids, with temporary ids in between where new ids are also old ones of other rows."""
        (plan,) = batch.plans
        mine = pairs_of(run, plan.number, after=batch.after, last=batch.last)
        is_chain = connection.scalar(sa.select(sa.func.count()).where(*mine, MAP.c.via != MAP.c.new))
        through = [MAP.c.old, *([MAP.c.via] if is_chain else []), MAP.c.new]
        if run.is_backwards:
            through.reverse()
        steps = [(plan.domain.wholes, old, new) for old, new in pairwise(through)]
        # a kind that changes here, too, has its old value before all steps, and after them when going back. No
        # constraint is on references of some rows, so their new ids may be old ones of other rows
        steps.insert(len(steps) if run.is_backwards else 0, (plan.domain.partials, through[0], through[-1]))
        return sum(self._update(connection, part, old, new, mine) for parts, old, new in steps for part in parts)

    def _move(self, connection: sa.Connection, run: Run, batch: _Batch) -> int:
        """Add offsets to numbers, none of which is looked up: if all change, with one statement for each table.

        Otherwise each column has its own, which finds the numbers of the batch by an index.
        """
        children_first = reversed(self._schema.parents_first(tables_of(plan.domain for plan in batch.plans))[0])
        groups: dict[TableName | ColumnName, list[_Move]] = {name: [] for name in children_first}
        changed = 0
        for plan in batch.plans:
            first = plan.lowest if batch.after is None else batch.after + 1
            # no number is above it: the offset is greater than the distance of any two
            final = plan.lowest + plan.offset - 1 if batch.last is None else batch.last
            for name in plan.domain.columns:
                column = self._schema.column(name)
                move = _Move(column, column.between(first, final), plan.offset)
                groups.setdefault(name.table_name if batch.last is None else name, []).append(move)
            mine = pairs_of(run, plan.number, after=batch.after, last=batch.last)
            changed += sum(self._update(connection, part, MAP.c.old, MAP.c.new, mine) for part in plan.domain.partials)
        for moves in filter(None, groups.values()):
            table = moves[0].column.table
            where = sa.or_(*(move.applies for move in moves))
            counts = [sa.func.count(sa.case((move.applies, 1))) for move in moves]
            rows, *values = connection.execute(sa.select(sa.func.count(), *counts).where(where)).one()
            new: dict[Any, Any] = {m.column: sa.case((m.applies, m.column + m.offset), else_=m.column) for m in moves}
            new |= self._unchanged(connection, TableName(table.schema, table.name))
            done = connection.execute(sa.update(table).where(where).values(new)).rowcount
            # rows that stayed as they are were not changed
            changed += sum(values) - (rows - done) * len(moves)
        return changed

    def _unchanged(self, connection: sa.Connection, name: TableName) -> dict[Any, Any]:
        """Return the columns that the database would change by itself, with their own values."""
        if name not in self._self_updated:
            self._self_updated[name] = self._support.self_updated_columns(connection, name)
        columns = self._schema.tables[name].c
        return {columns[other]: columns[other] for other in self._self_updated[name]}

    def _update(
        self,
        connection: sa.Connection,
        part: Partial,
        old: sa.ColumnElement[Any],
        new: sa.ColumnElement[Any],
        mine: Sequence[sa.ColumnElement[bool]],
    ) -> int:
        """Give a column its new values in the rows that refer to a domain."""
        name = part.column
        table, column = self._schema.tables[name.table_name], self._schema.column(name)
        values, applies = self._unchanged(connection, name.table_name), part.applies(table.c)
        from_, to = (sa.cast(side, sa.String(40)) if part.is_text else side for side in (old, new))
        if connection.dialect.name == "sqlite":
            # SQLite would read the whole table for each batch of an UPDATE FROM without statistics
            value = sa.select(to).where(*mine, from_ == column).correlate(table).scalar_subquery()
            statement = sa.update(table).where(column.in_(sa.select(from_).where(*mine)), applies)
        else:
            value, statement = to, sa.update(table).where(column == from_, *mine, applies)  # type: ignore[assignment]
        return connection.execute(statement.values({column: value, **values})).rowcount
