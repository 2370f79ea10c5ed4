"""Make the plan of a merge: read both databases, find the ids that clash, choose new ones, prove that they do not."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import sqlalchemy as sa

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.core.values import utc_text
from snowredis.errors import shown
from snowredis.merge import MergeError, obstacles
from snowredis.merge.databases import database_errors, is_same_database, open_database, reading, url_of
from snowredis.merge.id_store import IdStore, Scan
from snowredis.merge.journal import Journal, check_finished
from snowredis.merge.new_ids import COUNTER_LIMIT, counter_offset, lanes_needed, new_ids, unused_lanes
from snowredis.merge.plan_file import DomainPlan, Pair, Plan, PlanFile
from snowredis.merge.progress import Progress
from snowredis.merge.schema import ColumnName, Domain, Schema, TableName, read_schema, tables_called
from snowredis.merge.support import Support, support_of
from snowredis.merge.undecided import CONTENT_TYPES, check_decided, find_partials
from snowredis.merge.workspace import Workspace

__all__ = ["Databases", "Request", "make_plan", "open_both", "workspace"]

_MEMORY = 2 << 30
# tables of Django that every project fills by itself, with other ids, and what makes their rows the same
_MATCHES = {CONTENT_TYPES: ("app_label", "model"), "auth_permission": ("content_type_id", "codename")}


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
    workers: range | None = None
    with_triggers: bool = False

    @property
    def options(self) -> dict[str, list[str]]:
        """Return what open_both() needs to find the same columns again."""
        return {
            "schemas": list(self.schemas),
            "references": list(self.references),
            "ids": list(self.ids),
            "excluded": list(self.excluded),
        }


@dataclass(frozen=True, slots=True)
class Databases:
    """Both databases, and what is in them."""

    kept: sa.Engine
    changed: sa.Engine
    of_kept: Schema
    of_changed: Schema


@dataclass(slots=True)
class _Work:
    """State of one run: both sides, and what was found."""

    request: Request
    layout: Layout | None
    kept: sa.Connection
    changed: sa.Connection
    of_kept: Schema
    of_changed: Schema
    support: Support
    store: IdStore
    progress: Progress
    matched: dict[TableName, tuple[str, ...]]
    counters: set[ColumnName]
    numbers: dict[str, int] = field(default_factory=dict)
    scans: dict[str, Scan] = field(default_factory=dict)
    lanes: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def workspace() -> Workspace:
    """Return a temporary workspace for an IdStore."""
    return Workspace(_MEMORY)


def make_plan(request: Request, path: Path, progress: Progress) -> Plan:
    """Read both databases and write the plan to *path*, which must not exist. Changes nothing else.

    Raises:
        MergeError: the merge cannot be planned; the message says why and what to do.
        SourceError: a database cannot be read.
        ConfigError, LayoutError: an unknown layout.
    """
    layout = None if request.layout is None else resolve_layout(request.layout)
    progress.start("reading tables and foreign keys")
    both = open_both(request.kept, request.changed, request.options)
    of_kept, of_changed = both.of_kept, both.of_changed
    check_finished(both.changed, Journal(both.changed).read())
    with contextlib.ExitStack() as stack:
        work = _Work(
            request,
            layout,
            stack.enter_context(reading(both.kept)),
            stack.enter_context(reading(both.changed)),
            of_kept,
            of_changed,
            support_of(both.changed),
            IdStore(stack.enter_context(workspace())),
            progress,
            _matched(request, of_kept, of_changed),
            {of_changed.named(text, "--counter") for text in request.counters},
        )
        file = PlanFile.create(path)
        try:
            plan = _plan(work, file)
            file.finish(plan)
        except BaseException:
            file.discard()
            raise
    return plan


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
        of_kept = read_schema(kept, schemas=options["schemas"], excluded=_known(kept, options["excluded"]))
    with database_errors(changed):
        of_changed = read_schema(changed, **options, also=of_kept.foreign_keys)
    if not of_changed.tables:
        raise MergeError(f"{url_of(changed)} has no tables. Nothing was changed; check the URL and --schema.")
    return Databases(kept, changed, of_kept, of_changed)


def _known(engine: sa.Engine, excluded: Iterable[str]) -> list[str]:
    """Return those of the excluded tables that this database has, too."""
    inspector = sa.inspect(engine)
    return [text for text in excluded if inspector.has_table(text.rpartition(".")[2], text.rpartition(".")[0] or None)]


def _matched(request: Request, of_kept: Schema, of_changed: Schema) -> dict[TableName, tuple[str, ...]]:
    """Return the tables whose rows are the same under other ids, with the columns that say so."""
    matched: dict[TableName, tuple[str, ...]] = {
        TableName(None, table): columns
        for table, columns in _MATCHES.items()
        if TableName(None, table) in of_changed.tables.keys() & of_kept.tables.keys()
    }
    for text in request.matched:
        table, equals, columns = text.partition("=")
        (name, *_) = tables_called(table, of_changed.tables, "--match")
        names = tuple(part.strip() for part in columns.split(","))
        missing = [part for part in names if part not in of_changed.tables[name].c]
        if not equals or missing or name not in of_kept.tables:
            raise MergeError(
                f"--match {shown(text)} cannot be used. Nothing was planned; write table=column,column with columns of "
                "a table that both databases have."
            )
        matched[name] = names
    return matched


def _plan(work: _Work, file: PlanFile) -> Plan:
    request = work.request
    independent = {work.of_changed.named(text, "--independent") for text in request.independent}
    work.progress.start("looking for rows without a parent")
    obstacles.check_same_types(work.of_kept, work.of_changed)
    obstacles.check_no_orphans(work.kept, work.of_kept, "that is kept")
    obstacles.check_no_orphans(work.changed, work.of_changed, "that changes")
    partials, findings = find_partials(work.changed, work.of_changed, independent)
    work.of_changed = work.of_changed.with_partials(partials)
    # the other database says its kinds by other ids
    work.of_kept = work.of_kept.with_partials(find_partials(work.kept, work.of_kept, set())[0])
    of_kept = {domain.name: domain.partials for domain in work.of_kept.domains}
    ordered = _in_order(work.of_changed)
    for number, domain in enumerate(ordered, 1):
        work.progress.start(f"reading {domain.name}")
        work.numbers[domain.name] = number
        there = replace(domain, partials=of_kept.get(domain.name, ()))
        work.store.load("kept", number, work.kept, work.of_kept, there)
        work.store.load("changed", number, work.changed, work.of_changed, domain)
        work.scans[domain.name] = scan = work.store.scan(number, work.layout)
        work.lanes |= scan.lanes
    work.progress.start("looking for references without a foreign key")
    compared = {domain.name: work.numbers[domain.name] for domain in ordered if not _is_matched(work, domain)}
    check_decided(work.changed, work.of_changed, work.store, compared, independent, findings)
    # what makes rows the same may be ids that change: those first
    first = [domain for domain in ordered if not _is_matched(work, domain)]
    plans = {domain.name: _choose(work, domain) for domain in first}
    for domain in _matches_in_order(work, ordered):
        plans[domain.name] = _match(work, domain)
    plans = {name: replace(plan, at_once=_at_once(work, plan)) for name, plan in plans.items()}
    domains = sorted(plans.values(), key=lambda plan: plan.number)
    for plan in domains:
        work.store.prove(plan.number, plan.name, matched=plan.kind == "match")
        file.add(plan.number, work.store.pairs(plan.number))
    renamed = [plan.domain for plan in domains if plan.renamed]
    if renamed:
        obstacles.check_obstacles(work.changed, work.of_changed, renamed, with_triggers=request.with_triggers)
    return Plan(
        id=secrets.token_hex(8),
        kept=url_of(work.kept.engine, hide=False),
        changed=url_of(work.changed.engine, hide=False),
        layout=request.layout,
        options=request.options,
        fingerprints=(work.of_kept.fingerprint(), work.of_changed.fingerprint()),
        domains=domains,
        rows={str(name): _count(work.changed, table) for name, table in work.of_changed.tables.items()},
        notes=work.notes,
    )


def _in_order(schema: Schema) -> list[Domain]:
    """Return the domains so that what says the kind of a reference is rewritten after the reference."""
    kinds: dict[str, set[ColumnName]] = {
        domain.name: {ColumnName(*part.column.of, part.kind) for part in domain.partials} for domain in schema.domains
    }
    last = [d for d in schema.domains if any(set(d.columns) & kind for kind in kinds.values())]
    ordered = [domain for domain in schema.domains if domain not in last] + last
    for at, domain in enumerate(ordered):
        for earlier in ordered[:at]:
            if set(earlier.columns) & kinds[domain.name]:
                raise MergeError(
                    f"the references to {domain.name} depend on {earlier.name}, and the other way round. Nothing was "
                    "planned; --exclude one of the tables."
                )
    return ordered


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def _at_once(work: _Work, plan: DomainPlan) -> bool:
    """Return whether the ids of a domain must change in one transaction."""
    domain, engine = plan.domain, work.changed.engine
    if plan.kind == "match" or any(
        ColumnName(*partial.column.of, partial.kind) in domain.columns for partial in domain.partials
    ):
        return True
    slow = [
        name
        for name in (obstacles.without_index(engine, work.of_changed, domain) if plan.renamed else ())
        if _count(work.changed, work.of_changed.tables[name.of]) > obstacles.SMALL_TABLE
    ]
    work.notes += [
        f"{name} has no index: all ids of {plan.name} are changed in one transaction, which reads the table once; for "
        "batches make an index first"
        for name in slow
    ]
    return bool(slow)


def _domain_plan(work: _Work, domain: Domain, kind: str) -> DomainPlan:
    scan, number = work.scans[domain.name], work.numbers[domain.name]
    (renamed,) = work.store.rows(f"SELECT count(*) FROM mapping WHERE domain = {number}")[0]
    counts = (scan.kept, scan.changed, scan.clashes, renamed)
    return DomainPlan(number, domain, kind, *counts)


# --- new ids ---------------------------------------------------------------------------------------------


def _choose(work: _Work, domain: Domain) -> DomainPlan:
    """Choose the new ids of a domain."""
    scan, number = work.scans[domain.name], work.numbers[domain.name]
    both = (work.of_kept, work.of_changed)
    if not scan.clashes:
        return _domain_plan(work, domain, "unchanged")
    if scan.highest < COUNTER_LIMIT or work.counters & set(domain.columns):
        limit = min(work.support.limit(s.column(c)) for s in both for c in domain.columns if c.of in s.tables)
        offset = counter_offset(scan.lowest, scan.highest, limit, domain.name)
        work.store.add_offset(number, offset)
        obstacles.check_columns(both, domain, scan.highest + offset, work.support)
        return replace(_domain_plan(work, domain, "counter"), offset=offset)
    clashes = work.store.clashes(number)
    layout, lanes = _lanes(work, domain, clashes)
    if scan.unfit:
        work.notes.append(f"{domain.name}: {scan.unfit:,} ids do not fit the layout; none of them clashes, all stay")
    work.store.add(number, ((old, new, new) for old, new in new_ids(clashes, layout, lanes)))
    highest = work.store.rows(f"SELECT max(new) FROM mapping WHERE domain = {number}")[0][0]
    obstacles.check_columns(both, domain, highest, work.support)
    return replace(_domain_plan(work, domain, "layout"), lanes=tuple(lanes))


def _lanes(work: _Work, domain: Domain, clashes: list[int]) -> tuple[Layout, list[int]]:
    """Return the layout, and lanes for the new ids of *domain*, which no other domain uses."""
    layout = work.layout
    if layout is None:
        raise MergeError(
            f"{domain.name}: {len(clashes):,} ids clash, and they are too large for numbers of a counter "
            f"({clashes[-1]}). Nothing was planned; say how they were made with --layout, or, if they are plain "
            f"numbers, --counter {domain.name}."
        )
    if clashes[0] < 0 or clashes[-1] >> layout.total_bits:
        wrong = clashes[0] if clashes[0] < 0 else clashes[-1]
        raise MergeError(
            f"{domain.name}: {wrong} clashes, and is no id of the layout {layout}. Nothing was planned; name the "
            f"layout that the ids were made with, or --counter {domain.name}."
        )
    newest_ms = layout.ms_at(clashes[-1] >> layout.timestamp_shift)
    if newest_ms > time.time_ns() // 1_000_000:
        raise MergeError(
            f"{domain.name}: {clashes[-1]} clashes, and lies in the future under the layout {layout}: "
            f"{utc_text(newest_ms) or 'past the year 9999'}. Nothing was planned, since its new id might be made "
            "again; check the layout and its epoch."
        )
    needed, tick = lanes_needed(clashes, layout)
    lanes = []
    for lane in unused_lanes(layout, work.lanes, work.request.workers):
        lanes.append(lane)
        if len(lanes) == needed:
            break
    else:
        remedy = "give more --workers." if work.request.workers else "the layout is full: merge into more shards."
        raise MergeError(
            f"{domain.name}: tick {tick} has so many ids that clash that {needed:,} unused worker ids are needed for "
            f"their new ids, and {len(lanes):,} are left. Nothing was planned; {remedy}"
        )
    work.lanes |= set(lanes)
    return layout, sorted(lanes)


# --- rows that are the same in both databases --------------------------------------------------------------


def _is_matched(work: _Work, domain: Domain) -> bool:
    return any(key.of in work.matched for key in domain.keys)


def _matches_in_order(work: _Work, domains: Sequence[Domain]) -> list[Domain]:
    """Return the matched domains so that each comes after those whose ids say that its rows are the same."""
    left = [domain for domain in domains if _is_matched(work, domain)]
    ordered: list[Domain] = []
    while left:
        ready = [domain for domain in left if not any(_needs(work, domain, other) for other in left)]
        if not ready:
            raise MergeError(
                f"--match: {left[0].keys[0].of} is matched by ids that depend on it. Nothing was planned; match it by "
                "other columns."
            )
        ordered += ready
        left = [domain for domain in left if domain not in ready]
    return ordered


def _needs(work: _Work, domain: Domain, other: Domain) -> bool:
    name = domain.keys[0].of
    return bool({ColumnName(*name, column) for column in work.matched[name]} & set(other.columns))


def _match(work: _Work, domain: Domain) -> DomainPlan:
    """Give the rows that both databases have the ids of the first, and all others ids that are free."""
    name, number, scan = domain.keys[0].of, work.numbers[domain.name], work.scans[domain.name]
    if len(domain.keys) != 1:
        raise MergeError(f"--match {name}: its key is that of several tables. Nothing was planned; match the others.")
    kept = _natural(work.kept, work.of_kept.tables[name], domain.keys[0].column, work.matched[name], [])
    translated = [
        {old: new for old, _, new in work.store.pairs(work.numbers[of.name])} if of else {}
        for of in (
            next((d for d in work.of_changed.domains if ColumnName(*name, column) in d.columns), None)
            for column in work.matched[name]
        )
    ]
    changed = _natural(
        work.changed, work.of_changed.tables[name], domain.keys[0].column, work.matched[name], translated
    )
    names = {an_id: natural for natural, an_id in changed.items()}
    # with those that some rows refer to, and that are of no row
    taken, old_ids, free = set(kept.values()), work.store.ids("changed", number), scan.highest
    final: dict[int, int] = {}
    for an_id in old_ids:
        if (natural := names.get(an_id)) in kept:
            final[an_id] = kept[natural]
        elif an_id in taken:
            free += 1
            final[an_id] = free
    moved = {old: new for old, new in final.items() if old != new}
    # a new id that is also an old one: all go through temporary ids, above everything
    through = not set(moved.values()).isdisjoint(old_ids)
    pairs: list[Pair] = [
        (old, free + at if through else new, new) for at, (old, new) in enumerate(sorted(moved.items()), 1)
    ]
    work.store.add(number, pairs)
    obstacles.check_columns((work.of_kept, work.of_changed), domain, free + len(pairs) * through, work.support)
    return _domain_plan(work, domain, "match")


def _natural(
    connection: sa.Connection,
    table: sa.Table,
    key: str,
    columns: Sequence[str],
    translated: Sequence[dict[int, int]],
) -> dict[tuple[object, ...], int]:
    """Return the id of each row by what makes it the same in both databases."""
    found: dict[tuple[object, ...], int] = {}
    for an_id, *values in connection.execute(sa.select(table.c[key], *(table.c[name] for name in columns))):
        for at, mapping in enumerate(translated):
            values[at] = mapping.get(values[at], values[at])
        natural = tuple(values)
        if natural in found or None in natural:
            raise MergeError(
                f"--match {table.name}: two rows have the same {', '.join(columns)}, or one has NULL: "
                f"{shown(natural)}. Nothing was planned; match by columns that name each row."
            )
        found[natural] = an_id
    return found
