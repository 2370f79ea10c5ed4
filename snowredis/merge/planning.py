"""Make the plan of a merge: read both databases, find the ids that clash, choose new ones, prove that they do not."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import groupby, islice
from pathlib import Path

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.core.values import utc_text
from snowredis.errors import shown
from snowredis.merge import MergeError, Undecided, obstacles
from snowredis.merge.clashes import clashes
from snowredis.merge.databases import count_rows, url_of
from snowredis.merge.journal import Journal, check_finished
from snowredis.merge.matching import match, matches_in_order, same_rows
from snowredis.merge.pair import Request, Work, open_both
from snowredis.merge.plan_file import DomainPlan, Plan, write_plan
from snowredis.merge.progress import Progress
from snowredis.merge.schema import ColumnName, Domain, Partial, Schema, TableName, option, tables_called
from snowredis.merge.support import support_of
from snowredis.merge.undecided import CONTENT_TYPES, undecided
from snowredis.merge.verify import id_sums
from snowredis.merge.workspace import LARGE, IdStore, Workspace

# tables that Django fills in every database, with other ids in each, and the columns that identify a row
_MATCHES: dict[TableName, tuple[str, ...]] = {
    CONTENT_TYPES: ("app_label", "model"),
    TableName(None, "auth_permission"): ("content_type_id", "codename"),
}


def make_plan(request: Request, path: Path, progress: Progress) -> Plan:
    """Read both databases and write the plan to *path*, which must not exist. Changes nothing else.

    Raises:
        MergeError: the merge cannot be planned; the message says why and what to do.
        SourceError: a database cannot be read.
        ConfigError, LayoutError: an unknown layout.
    """
    if path.exists():
        raise MergeError(f"{path} already exists. Nothing was planned; remove it, or give --out another name.")
    layout = None if request.layout is None else resolve_layout(request.layout)
    progress.start("reading tables and foreign keys")
    both = open_both(request.kept, request.changed, request.options)
    check_finished(both.changed, Journal(both.changed).read())
    with both.reading() as sides, Workspace() as workspace:
        schema = both.changed_schema
        work = Work(
            *(*sides[0], *sides[1], request, layout, support_of(both.changed), IdStore(workspace), progress),
            _matched(request, schema),
            {schema.named(text, "--counter") for text in request.counters},
            {schema.named(text, "--independent") for text in request.independent},
        )
        plan = _plan(work)
        write_plan(path, plan, work.store.pairs)
    return plan


def _matched(request: Request, changed_schema: Schema) -> dict[TableName, tuple[str, ...]]:
    """Return the tables whose rows are the same under other ids, with the columns that say so."""
    matched = {name: columns for name, columns in _MATCHES.items() if name in changed_schema.tables}
    for text in request.matched:
        table, equals, columns = text.partition("=")
        (name, *_) = tables_called(table, changed_schema.tables, "--match")
        names = tuple(part.strip() for part in columns.split(","))
        missing = [part for part in names if part not in changed_schema.tables[name].c]
        if not equals or missing:
            raise MergeError(
                f"--match {shown(text)} cannot be used. Nothing was planned; write table=column,column with columns of "
                "the table."
            )
        matched[name] = names
    return matched


def _plan(work: Work) -> Plan:
    request = work.request
    work.progress.start("looking for rows without a parent")
    obstacles.check_copyable(work.sides)
    work.sequences = [set(counter.columns) for counter in work.support.counters(work.changed, work.changed_schema)]
    obstacles.check_no_orphans(work.sides)
    # codes of rows, such as those of countries, stay
    schema = work.changed_schema
    schema.domains = [d for d in schema.domains if not (work.independent & set(d.keys) and schema.is_code(d))]
    ordered = _in_order(work.changed_schema)
    for number, domain in enumerate(ordered, 1):
        work.progress.start(f"reading {domain.name}")
        work.store.load("kept", number, work.kept, work.kept_schema, domain, _unconstrained(work, domain))
        work.store.load("changed", number, work.changed, work.changed_schema, domain, domain.partials)
        work.scans[domain.name] = work.store.scan(number)
    work.progress.start("looking for references without a foreign key")
    findings = undecided(work)
    # ids that change may make rows the same, so they are chosen first
    plans = {domain.name: _choose(work, domain) for domain in ordered if not work.is_matched(domain)}
    for domain in matches_in_order(work, ordered):
        plans[domain.name] = match(work, domain)
    of_domains = {key.table_name for domain in ordered for key in domain.keys}
    for name in work.matched.keys() - of_domains:
        same_rows(work, name, None)
    work.progress.start("looking for what the copy will meet")
    findings += clashes(work, plans)
    if findings:
        raise Undecided(findings)
    plans = {name: replace(plan, at_once=_at_once(work, plan)) for name, plan in plans.items()}
    domains = sorted(plans.values(), key=lambda plan: plan.number)
    for plan in domains:
        work.store.prove(plan.number, plan.name, matched=plan.kind == "match")
    renamed = [plan.domain for plan in domains if plan.renamed]
    if renamed:
        obstacles.check_obstacles(work.changed, work.changed_schema, renamed, with_triggers=request.with_triggers)
    kept_rows, rows = (
        {str(name): count_rows(connection, schema.tables[name]) for name in work.changed_schema.tables}
        for connection, schema in work.sides
    )
    return Plan(
        id=secrets.token_hex(8),
        kept=url_of(work.kept.engine),
        changed=url_of(work.changed.engine),
        layout=request.layout,
        options=request.options,
        fingerprints=(work.kept_schema.fingerprint(), work.changed_schema.fingerprint()),
        domains=domains,
        rows=rows,
        kept_rows=kept_rows,
        matched={str(name): list(columns) for name, columns in work.matched.items()},
        same=work.same,
        with_triggers=request.with_triggers,
        ids={plan.name: [id_sums(*side, plan.domain) for side in work.sides] for plan in domains},
        judged=[*request.references, *(f"{column} (no reference)" for column in request.independent)],
        notes=work.notes,
    )


def _unconstrained(work: Work, domain: Domain) -> Iterator[Partial]:
    """Yield the columns of the database that is kept in which ids of a domain may be those of no row.

    If a row got such an id, it would get children that are not its own.
    """
    ids = {column for other in work.changed_schema.domains for column in other.columns}
    known = {*work.kept_schema.constrained, *domain.keys}
    for part in (*domain.partials, *domain.wholes):
        if part.kind or part.column not in known:
            # if ids are kinds, which of them is the same kind here is not known
            yield part._replace(kind="", value="") if part.kind_column in ids else part


def _in_order(schema: Schema) -> list[Domain]:
    """Return the domains so that what says the kind of a reference is rewritten after the reference."""
    kinds = {domain.name: {part.kind_column for part in domain.partials} for domain in schema.domains}
    earlier = {
        domain: [other for other in schema.domains if other is not domain and kinds[other.name] & set(domain.columns)]
        for domain in schema.domains
    }
    try:
        return list(TopologicalSorter(earlier).static_order())
    except CycleError as error:
        names = " and ".join(domain.name for domain in error.args[1][1:])
        raise MergeError(
            f"the references to {names} depend on each other. Nothing was planned; --exclude one of the tables."
        ) from error


def _at_once(work: Work, plan: DomainPlan) -> bool:
    """Return whether the ids of a domain must change in one transaction."""
    if plan.kind == "match" or any(part.kind_column in plan.domain.columns for part in plan.domain.partials):
        return True
    slow = list(obstacles.without_index(work.changed, work.changed_schema, plan.domain) if plan.renamed else ())
    for name in slow:
        text = f"all ids of {plan.name} are changed in one transaction, which reads the table once"
        if work.support.kind == "postgresql" and name in work.changed_schema.constrained:
            text = f"to check its foreign key, PostgreSQL reads the table once for each id of {plan.name} that changes"
        quote = work.support.quote
        index = f"CREATE INDEX {quote(f'{name.table}_{name.column}')} ON {work.support.name(name.table_name)} ("
        index += f"{quote(name.column)})"
        work.notes.append(f"{name} has no index: {text}. Make one first: {index};")
    return bool(slow)


# --- new ids ---------------------------------------------------------------------------------------------
#
# Ids of a layout keep their tick, on a *lane* (datacenter, backup and worker) on which neither database has an id: a
# new id equals no old one, and rows stay in the order of time. Numbers of a counter all move by one offset that is
# greater than every number in use: they stay in their order, too.


def _choose(work: Work, domain: Domain) -> DomainPlan:
    """Choose the new ids of a domain."""
    scan = work.scans[domain.name]
    if not scan.clashes:
        return work.domain_plan(domain, "unchanged")
    if scan.highest < LARGE or work.counters & set(domain.columns):
        limit = min(work.support.limit(work.changed_schema.column(name)) for name in domain.all_columns)
        # ids of one sequence stay different in all of its tables
        shared = set[ColumnName]().union(domain.keys, *(one for one in work.sequences if one & set(domain.keys)))
        scans = [work.scans[other.name] for other in work.changed_schema.domains if shared & set(other.keys)]
        offset = counter_offset(min(one.lowest for one in scans), max(one.highest for one in scans), limit)
        obstacles.check_columns(work, domain, scan.highest + offset)
        work.store.add_offset(scan.number, offset)
        return replace(work.domain_plan(domain, "counter"), offset=offset, lowest=scan.lowest)
    clashes = work.store.clashes(scan.number)
    layout, lanes = _lanes(work, domain, clashes)
    work.store.add(scan.number, ((old, new, new) for old, new in new_ids(clashes, layout, lanes)))
    highest = work.store.rows(f"SELECT max(new) FROM mapping WHERE domain = {scan.number}")[0][0]
    obstacles.check_columns(work, domain, highest)
    return replace(work.domain_plan(domain, "layout"), lanes=tuple(lanes))


def _lanes(work: Work, domain: Domain, clashes: list[int]) -> tuple[Layout, list[int]]:
    """Return the layout, and lanes for the new ids of *domain*, which no other domain uses."""
    layout = work.layout
    if layout is None:
        raise MergeError(
            f"{domain.name}: {len(clashes):,} ids clash, and they are too large for numbers of a counter "
            f"({clashes[-1]}). Nothing was planned; say how they were made with --layout, or, if they are plain "
            f"numbers, {option('counter', domain.name)}."
        )
    wrong = clashes[0] if clashes[0] < 0 else clashes[-1]
    if wrong < 0 or wrong >> layout.total_bits:
        raise MergeError(
            f"{domain.name}: {wrong} clashes, and is no id of the layout {layout}. Nothing was planned; name the "
            f"layout that the ids were made with, or {option('counter', domain.name)}."
        )
    newest_ms = layout.ms_at(clashes[-1] >> layout.timestamp_shift)
    if newest_ms > time.time_ns() // 1_000_000:
        raise MergeError(
            f"{domain.name}: {clashes[-1]} clashes, and lies in the future under the layout {layout}: "
            f"{utc_text(newest_ms) or 'past the year 9999'}. Nothing was planned, since its new id might be made "
            "again; check the layout and its epoch."
        )
    work.lanes = work.lanes or work.store.lanes(layout)
    ((tick, most),) = Counter(an_id >> layout.timestamp_shift for an_id in clashes).most_common(1)
    needed = -(-most // layout.sequences)
    lanes = list(islice(unused_lanes(layout, work.lanes), needed))
    if len(lanes) < needed:
        raise MergeError(
            f"{domain.name}: tick {tick} has so many ids that clash that {needed:,} unused worker ids are needed for "
            f"their new ids, and {len(lanes):,} are left. Nothing was planned; the layout is full: merge into more "
            "shards."
        )
    work.lanes |= set(lanes)
    return layout, sorted(lanes)


def counter_offset(lowest: int, highest: int, limit: int) -> int:
    """Return what is added to every number of a counter.

    A power of ten, so that people recognize the old number in the new one, and with space for the numbers that the
    other database's counter gives out until the merge; the least possible offset if the column is too narrow for that.

    Args:
        lowest: least number that gets a new one.
        highest: greatest number on either side.
        limit: greatest number that fits the columns.
    """
    least = highest - lowest + 1
    # the least that is not below twice as much
    round_offset = 10 ** len(str(2 * least - 1))
    return round_offset if highest + round_offset <= limit else least


def unused_lanes(layout: Layout, used: Iterable[int]) -> Iterator[int]:
    """Yield the lanes that are not among *used*: in datacenters that are in use first, the highest worker id first."""
    taken = set(used)
    in_use = {layout.decode(lane).datacenter for lane in taken}
    for backup in range(layout.namespaces):
        for datacenter in sorted(range(layout.datacenters), key=lambda number: number not in in_use):
            for worker in reversed(range(layout.workers)):
                lane = layout.compose(tick=0, datacenter=datacenter, backup=backup, worker=worker)
                if lane not in taken:
                    yield lane


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
