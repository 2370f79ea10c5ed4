"""Make the plan of a merge: read both databases, find the ids that clash, choose new ones, prove that they do not."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import sqlalchemy as sa

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.core.values import utc_text
from snowredis.errors import shown
from snowredis.merge import MergeError, Undecided, obstacles
from snowredis.merge.clashes import clashes, notes
from snowredis.merge.databases import reading, url_of
from snowredis.merge.journal import Journal, check_finished
from snowredis.merge.matching import is_matched, match, matches_in_order, same_rows
from snowredis.merge.pair import Request, Work, open_both
from snowredis.merge.plan_file import DomainPlan, Plan, PlanFile
from snowredis.merge.progress import Progress
from snowredis.merge.schema import ColumnName, Domain, Schema, TableName, tables_called
from snowredis.merge.support import support_of
from snowredis.merge.undecided import CONTENT_TYPES, check_asked, find_partials, undecided
from snowredis.merge.verify import id_sums
from snowredis.merge.workspace import IdStore, Workspace

__all__ = ["Request", "counter_offset", "lanes_needed", "make_plan", "new_ids", "unused_lanes"]

# ids of every layout are above this after its first hour or so; numbers of counters are below
COUNTER_LIMIT = 1 << 32
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
            IdStore(stack.enter_context(Workspace())),
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
    # ids that change may make rows the same, so they are chosen first
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
        kept=url_of(work.kept.engine),
        changed=url_of(work.changed.engine),
        layout=request.layout,
        options=request.options,
        fingerprints=(work.of_kept.fingerprint(), work.of_changed.fingerprint()),
        domains=domains,
        rows={str(name): _count(work.changed, table) for name, table in work.of_changed.tables.items()},
        kept_rows={str(name): _count(work.kept, work.of_kept.tables[name]) for name in work.of_changed.tables},
        matched={str(name): list(columns) for name, columns in work.matched.items()},
        same=work.same,
        with_triggers=request.with_triggers,
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
    constrained = {column for key in work.of_changed.foreign_keys if key.name for column in key.columns}
    for name in slow:
        text = f"all ids of {plan.name} are changed in one transaction, which reads the table once"
        if work.support.kind == "postgresql" and name in constrained:
            text = f"to check its foreign key, PostgreSQL reads {name.of} once for each id of {plan.name} that changes"
        index = f"CREATE INDEX {name.table}_{name.column} ON {name.of} ({name.column})"
        work.notes.append(f"{name} has no index: {text}. Make one first: {index};")
    return bool(slow)


# --- new ids ---------------------------------------------------------------------------------------------
#
# Ids of a layout keep their tick, on a *lane* (datacenter, backup and worker) on which neither database has an id: a
# new id equals no old one, and rows stay in the order of time. Numbers of a counter all move by one offset that is
# greater than every number in use: they stay in their order, too.


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
    for lane in unused_lanes(layout, work.lanes):
        lanes.append(lane)
        if len(lanes) == needed:
            break
    else:
        raise MergeError(
            f"{domain.name}: tick {tick} has so many ids that clash that {needed:,} unused worker ids are needed for "
            f"their new ids, and {len(lanes):,} are left. Nothing was planned; the layout is full: merge into more "
            "shards."
        )
    work.lanes |= set(lanes)
    return layout, sorted(lanes)


def counter_offset(lowest: int, highest: int, limit: int, name: str) -> int:
    """Return what is added to every number of a counter.

    A power of ten, so that people recognize the old number in the new one, and with space for the numbers that the
    other database's counter gives out until the merge; the least possible offset if the column is too narrow for that.

    Args:
        lowest: least number that gets a new one.
        highest: greatest number on either side.
        limit: greatest number that fits the columns.

    Raises:
        MergeError: no offset fits.
    """
    least = highest - lowest + 1
    round_offset = 10
    while round_offset < 2 * least:
        round_offset *= 10
    for offset in (round_offset, least):
        if highest + offset <= limit:
            return offset
    raise MergeError(
        f"{name}: the new numbers would reach {highest + least:,}, and its columns hold at most {limit:,}. Nothing was "
        "planned; widen the column and all foreign keys to it to 64 bits (BIGINT) in both databases."
    )


def unused_lanes(layout: Layout, used: Iterable[int]) -> Iterator[int]:
    """Yield the lanes that are not among *used*: in datacenters that are in use first, the highest worker id first."""
    taken = set(used)
    shift, mask = layout.datacenter_shift, layout.datacenters - 1
    in_use = sorted({lane >> shift & mask for lane in taken})
    others = (number for number in range(layout.datacenters) if number not in set(in_use))
    datacenters = [*in_use, *others] if layout.datacenters <= 1 << 16 else in_use or [0]
    for backup in range(layout.namespaces):
        for datacenter in datacenters:
            for worker in reversed(range(layout.workers)):
                lane = layout.compose(tick=0, datacenter=datacenter, backup=backup, worker=worker)
                if lane not in taken:
                    yield lane


def lanes_needed(ids: Iterable[int], layout: Layout) -> tuple[int, int]:
    """Return how many lanes the ids of the fullest tick need, and that tick; *ids* are sorted."""
    most, at = 0, 0
    for tick, group in groupby(ids, key=lambda an_id: an_id >> layout.timestamp_shift):
        count = sum(1 for _ in group)
        if count > most:
            most, at = count, tick
    return -(-most // layout.sequences), at


def new_ids(ids: Iterable[int], layout: Layout, lanes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield old and new id: of the same tick, on one of *lanes*; in the order of *ids*, which are sorted.

    The new ids of a tick are in the order of the old ones.
    """
    step, shift = layout.sequence_step, layout.timestamp_shift
    for tick, group in groupby(ids, key=lambda an_id: an_id >> shift):
        old = list(group)
        base = tick << shift
        new = (base | lanes[at // layout.sequences] | at % layout.sequences * step for at in range(len(old)))
        yield from zip(old, sorted(new), strict=True)
