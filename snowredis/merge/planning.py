"""Make the plan of a merge: read both databases, find the ids that clash, choose new ones, prove that they do not."""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.core.values import utc_text
from snowredis.errors import shown
from snowredis.merge import MergeError, Undecided, obstacles
from snowredis.merge.clashes import clashes, notes
from snowredis.merge.databases import reading, url_of
from snowredis.merge.id_store import IdStore
from snowredis.merge.journal import Journal, check_finished
from snowredis.merge.matching import is_matched, match, matches_in_order, same_rows
from snowredis.merge.new_ids import COUNTER_LIMIT, counter_offset, lanes_needed, new_ids, unused_lanes
from snowredis.merge.pair import Request, Work, open_both, workspace
from snowredis.merge.plan_file import DomainPlan, Plan, PlanFile
from snowredis.merge.progress import Progress
from snowredis.merge.schema import ColumnName, Domain, Schema, TableName, tables_called
from snowredis.merge.support import support_of
from snowredis.merge.undecided import CONTENT_TYPES, check_asked, find_partials, undecided
from snowredis.merge.verify import id_sums

__all__ = ["Request", "make_plan"]

# tables of Django that every project fills by itself, with other ids, and what makes their rows the same
_MATCHES = {CONTENT_TYPES: ("app_label", "model"), "auth_permission": ("content_type_id", "codename")}


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
        work = Work(
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
            {of_changed.named(text, "--independent") for text in request.independent},
        )
        file = PlanFile.create(path)
        try:
            plan = _plan(work, file)
            file.finish(plan)
        except BaseException:
            file.discard()
            raise
    return plan


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


def _plan(work: Work, file: PlanFile) -> Plan:
    request = work.request
    work.progress.start("looking for rows without a parent")
    obstacles.check_same_types(work.of_kept, work.of_changed)
    obstacles.check_no_orphans(work.kept, work.of_kept, "that is kept")
    obstacles.check_no_orphans(work.changed, work.of_changed, "that changes")
    partials, findings = find_partials(work.changed, work.of_changed, work.independent)
    work.of_changed = work.of_changed.with_partials(partials)
    check_asked(work)
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
    named = undecided(work)
    # a column that is called like a table is asked about once
    findings = [text for text in findings if text.split()[0] not in {other.split()[0] for other in named}] + named
    # what makes rows the same may be ids that change: those first
    plans = {domain.name: _choose(work, domain) for domain in ordered if not is_matched(work, domain)}
    for domain in matches_in_order(work, ordered):
        plans[domain.name] = match(work, domain)
    of_domains = {key.of for domain in ordered for key in domain.keys}
    for name in work.matched.keys() - of_domains:
        same_rows(work, name, None)
    work.progress.start("looking for what the copy will meet")
    findings += clashes(work, plans)
    if findings:
        raise Undecided(findings)
    work.notes += notes(work)
    plans = {name: replace(plan, at_once=_at_once(work, plan)) for name, plan in plans.items()}
    domains = sorted(plans.values(), key=lambda plan: plan.number)
    for plan in domains:
        work.store.prove(plan.number, plan.name, matched=plan.kind == "match")
        file.add(plan.number, work.store.pairs(plan.number))
    renamed = [plan.domain for plan in domains if plan.renamed]
    if renamed:
        obstacles.check_obstacles(work.changed, work.of_changed, renamed, with_triggers=request.with_triggers)
    kept, changed = (work.kept, work.of_kept), (work.changed, work.of_changed)
    return Plan(
        id=secrets.token_hex(8),
        kept=url_of(work.kept.engine, hide=False),
        changed=url_of(work.changed.engine, hide=False),
        layout=request.layout,
        options=request.options,
        fingerprints=(work.of_kept.fingerprint(), work.of_changed.fingerprint()),
        domains=domains,
        rows={str(name): _count(work.changed, table) for name, table in work.of_changed.tables.items()},
        kept_rows={str(name): _count(work.kept, work.of_kept.tables[name]) for name in work.of_changed.tables},
        matched={str(name): list(columns) for name, columns in work.matched.items()},
        same=work.same,
        ids={plan.name: [id_sums(c, schema, plan.domain) for c, schema in (kept, changed)] for plan in domains},
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


def _at_once(work: Work, plan: DomainPlan) -> bool:
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


# --- new ids ---------------------------------------------------------------------------------------------


def _choose(work: Work, domain: Domain) -> DomainPlan:
    """Choose the new ids of a domain."""
    scan, number = work.scans[domain.name], work.numbers[domain.name]
    both = (work.of_kept, work.of_changed)
    if not scan.clashes:
        return work.domain_plan(domain, "unchanged")
    if scan.highest < COUNTER_LIMIT or work.counters & set(domain.columns):
        limit = min(work.support.limit(s.column(c)) for s in both for c in domain.columns if c.of in s.tables)
        offset = counter_offset(scan.lowest, scan.highest, limit, domain.name)
        work.store.add_offset(number, offset)
        obstacles.check_columns(both, domain, scan.highest + offset, work.support)
        return replace(work.domain_plan(domain, "counter"), offset=offset)
    clashes = work.store.clashes(number)
    layout, lanes = _lanes(work, domain, clashes)
    if scan.unfit:
        work.notes.append(f"{domain.name}: {scan.unfit:,} ids do not fit the layout; none of them clashes, all stay")
    work.store.add(number, ((old, new, new) for old, new in new_ids(clashes, layout, lanes)))
    highest = work.store.rows(f"SELECT max(new) FROM mapping WHERE domain = {number}")[0][0]
    obstacles.check_columns(both, domain, highest, work.support)
    return replace(work.domain_plan(domain, "layout"), lanes=tuple(lanes))


def _lanes(work: Work, domain: Domain, clashes: list[int]) -> tuple[Layout, list[int]]:
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
