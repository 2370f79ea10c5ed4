"""Make the plan of a merge: read both databases, find the ids that clash, choose new ones, prove that they do not."""

from __future__ import annotations

import contextlib
import secrets
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from snowredis.core.layout import Layout, utc_from_ms
from snowredis.core.presets import resolve_layout
from snowredis.errors import MergeError
from snowredis.merge.databases import database_errors, open_database, reading, url_of
from snowredis.merge.foreign_keys import columns_called, read_schema, tables_called
from snowredis.merge.id_domains import ColumnName, Domain, Schema, TableName
from snowredis.merge.journal import check_none_unfinished
from snowredis.merge.plan.new_ids import COUNTER_LIMIT, counter_offset, lanes_needed, new_ids, unused_lanes
from snowredis.merge.plan.plan_file import Conflict, DomainPlan, Plan, PlanFile, TablePlan
from snowredis.merge.plan.problems import check_no_orphans, conflicts
from snowredis.merge.plan.scan import Scan, find_clashes, ids_of, prove
from snowredis.merge.support import support_of

__all__ = ["Request", "make_plan"]

# values that one query counts
_COUNTED = 500


@dataclass(frozen=True, slots=True)
class Request:
    """Options of a plan; see the options of `snowredis merge plan`.

    Attributes:
        kept: URL of the database whose ids stay.
        changed: URL of the database whose ids change where they clash.
        shared: tables whose rows mean the same in both.
        counters: columns whose ids are plain numbers, whatever their size.
        workers: worker ids that new ids may use; None: any that neither side uses.
    """

    kept: str
    changed: str
    layout: str | None = None
    schemas: Sequence[str] = ()
    references: Sequence[str] = ()
    ids: Sequence[str] = ()
    excluded: Sequence[str] = ()
    shared: Sequence[str] = ()
    counters: Sequence[str] = ()
    workers: range | None = None

    @property
    def options(self) -> dict[str, list[str]]:
        """Return what read_schema() needs to find the same columns again."""
        return {
            "schemas": list(self.schemas),
            "references": list(self.references),
            "ids": list(self.ids),
            "excluded": list(self.excluded),
        }


@dataclass(slots=True)
class _Work:
    """State of one run: both sides, and what was found."""

    request: Request
    layout: Layout | None
    kept: sa.Connection
    changed: sa.Connection
    of_kept: Schema
    of_changed: Schema
    shared: set[TableName]
    counters: set[ColumnName]
    report: Callable[[str], None]
    warnings: list[str] = field(default_factory=list)
    lanes: set[int] = field(default_factory=set)


def make_plan(request: Request, path: Path, report: Callable[[str], None] = lambda _: None) -> Plan:
    """Read both databases and write the plan to *path*, which must not exist. Changes nothing else.

    Args:
        report: is told what is being done, a line at a time.

    Raises:
        MergeError: the merge cannot be planned; the message says why and what to do.
        ConfigError, LayoutError: an unknown layout.
    """
    layout = None if request.layout is None else resolve_layout(request.layout)
    kept, changed = open_database(request.kept), open_database(request.changed)
    if url_of(kept) == url_of(changed):
        raise MergeError(
            f"both URLs lead to {url_of(kept)}. Nothing was planned; name two databases: first the one whose ids stay."
        )
    if kept.dialect.name != changed.dialect.name:
        raise MergeError(
            f"one database is {kept.dialect.name}, the other {changed.dialect.name}. Nothing was planned; move one to "
            "the other's kind first, with the tools of the databases."
        )
    report("reading tables and foreign keys")
    with database_errors(changed):
        of_kept, of_changed = read_both(kept, changed, request.options)
    support_of(changed).check(changed, of_changed)
    support_of(kept).check(kept, of_kept)
    check_none_unfinished(changed)
    with contextlib.ExitStack() as stack:
        stack.callback(kept.dispose)
        stack.callback(changed.dispose)
        work = _Work(
            request,
            layout,
            stack.enter_context(reading(kept)),
            stack.enter_context(reading(changed)),
            of_kept,
            of_changed,
            tables_called(request.shared, of_changed, "--shared"),
            columns_called(request.counters, of_changed, "--counter"),
            report,
        )
        file = PlanFile.create(path)
        try:
            plan = _plan(work, file, kept, changed)
            file.finish(plan)
        except BaseException:
            file.discard()
            raise
    return plan


def read_both(kept: sa.Engine, changed: sa.Engine, options: dict[str, list[str]]) -> tuple[Schema, Schema]:
    """Read both schemas; a foreign key that only the first has counts in the other, too."""
    of_kept = read_schema(kept, schemas=options["schemas"], excluded=options["excluded"])
    of_changed = read_schema(
        changed,
        schemas=options["schemas"],
        references=options["references"],
        ids=options["ids"],
        excluded=options["excluded"],
        also=of_kept.foreign_keys,
    )
    if not of_changed.tables:
        raise MergeError(f"{url_of(changed)} has no tables. Nothing was planned; check the URL and --schema.")
    return of_kept, of_changed


def _plan(work: _Work, file: PlanFile, kept: sa.Engine, changed: sa.Engine) -> Plan:
    work.report("looking for rows without a parent")
    check_no_orphans(work.kept, work.of_kept, "that is kept")
    check_no_orphans(work.changed, work.of_changed, "that changes")
    scans: list[tuple[Domain, Scan]] = []
    for domain in work.of_changed.domains:
        work.report(f"comparing {domain.name}")
        scan = find_clashes(
            ids_of(work.kept, work.of_kept, domain),
            ids_of(work.changed, work.of_changed, domain),
            work.layout,
        )
        work.lanes |= scan.lanes
        scans.append((domain, scan))
    domains = [_choose(work, file, number, *found) for number, found in enumerate(scans, 1)]
    for found, (domain, _) in zip(domains, scans, strict=True):
        if found.kind != "shared":
            work.report(f"proving that no id of {domain.name} clashes any more")
            prove_domain(work.kept, work.changed, work.of_kept, work.of_changed, domain, file, found.number)
    work.report("looking for rows that both databases have")
    safe = {
        name
        for found, (domain, _) in zip(domains, scans, strict=True)
        if found.kind != "shared"
        for name in domain.columns
    }
    obstacles = list(conflicts(work.kept, work.changed, work.of_kept, work.of_changed, safe, work.shared))
    obstacles += [
        Conflict(str(name), text)
        for name, text in support_of(changed).copy_obstacles(changed, work.of_changed)
    ]
    return Plan(
        id=secrets.token_hex(8),
        created_ms=time.time_ns() // 1_000_000,
        kept=url_of(kept, hide=False),
        changed=url_of(changed, hide=False),
        layout=work.request.layout,
        options=work.request.options,
        domains=domains,
        tables=list(_tables(work, domains, scans)),
        conflicts=obstacles,
        warnings=[*work.warnings, *support_of(changed).warnings(changed, work.of_changed)],
    )


def prove_domain(
    kept: sa.Connection,
    changed: sa.Connection,
    of_kept: Schema,
    of_changed: Schema,
    domain: Domain,
    file: PlanFile,
    number: int,
) -> None:
    """Check, against both databases, that no id of *domain* is there twice after the change."""
    prove(
        domain.name,
        ids_of(kept, of_kept, domain),
        ids_of(changed, of_changed, domain),
        (old for old, _ in file.pairs(number)),
        file.new_ids(number),
    )


def _choose(work: _Work, file: PlanFile, number: int, domain: Domain, scan: Scan) -> DomainPlan:
    """Choose the new ids of one domain, and store them."""
    kind, offset, lanes = "unchanged", 0, list[int]()
    pairs: Iterator[tuple[int, int]] = iter(())
    if any(key.of in work.shared for key in domain.keys):
        kind = "shared"
    elif scan.clashes:
        if scan.highest < COUNTER_LIMIT or work.counters & set(domain.columns):
            kind = "counter"
            limit = min(
                support_of(work.changed.engine).limit(work.of_changed.column(c)) for c in domain.columns
            )
            offset = counter_offset(scan.lowest, scan.highest, limit, domain.name)
            ids = ids_of(work.changed, work.of_changed, domain)
            pairs = ((an_id, an_id + offset) for an_id in ids)
        else:
            kind = "layout"
            layout, lanes = _lanes(work, domain, scan.clashes)
            pairs = new_ids(scan.clashes, layout, lanes)
    if scan.unfit and kind == "layout":
        work.warnings.append(
            f"{domain.name}: {scan.unfit:,} ids do not fit the layout; those that clash are refused, the others stay"
        )
    return DomainPlan(
        number=number,
        columns=tuple(map(str, domain.columns)),
        keys=len(domain.keys),
        kind=kind,
        kept=scan.kept,
        changed=scan.changed,
        clashes=len(scan.clashes),
        renamed=file.add(number, pairs),
        offset=offset,
        lanes=tuple(lanes),
    )


def _lanes(work: _Work, domain: Domain, clashes: array[int]) -> tuple[Layout, list[int]]:
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
            f"{domain.name}: {clashes[-1]} clashes, and is of the future by the layout {layout}: "
            f"{utc_from_ms(newest_ms).isoformat() if newest_ms < 1 << 47 else newest_ms}. Nothing was planned, since "
            "its new id might be given out again; check the layout and its epoch."
        )
    needed, tick = lanes_needed(clashes, layout)
    lanes = []
    for lane in unused_lanes(layout, work.lanes, work.request.workers):
        lanes.append(lane)
        if len(lanes) == needed:
            break
    else:
        raise MergeError(
            f"{domain.name}: tick {tick} has so many ids that clash that {needed:,} unused worker ids are needed for "
            f"their new ids, and {len(lanes):,} are left. Nothing was planned; "
            + (
                "give more --workers."
                if work.request.workers
                else "the layout is full: merge into more shards."
            )
        )
    work.lanes |= set(lanes)
    return layout, sorted(lanes)


def _tables(work: _Work, domains: list[DomainPlan], scans: list[tuple[Domain, Scan]]) -> Iterator[TablePlan]:
    rewritten: dict[TableName, int] = {}
    for found, (domain, scan) in zip(domains, scans, strict=True):
        for column in domain.columns if found.renamed else ():
            work.report(f"counting what changes in {column}")
            ids = None if found.kind == "counter" else scan.clashes
            rewritten[column.of] = rewritten.get(column.of, 0) + _count(work, column, ids)
    for name, table in work.of_changed.tables.items():
        target = work.of_kept.tables.get(name)
        yield TablePlan(
            name=str(name),
            rows=_rows(work.changed, table),
            kept_rows=None if target is None else _rows(work.kept, target),
            rewritten=rewritten.get(name, 0),
            shared=name in work.shared,
        )


def _rows(connection: sa.Connection, table: sa.Table) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def _count(work: _Work, name: ColumnName, ids: array[int] | None) -> int:
    """Return how many rows hold one of *ids*, or any, in a column."""
    column = work.of_changed.column(name)
    if ids is None:
        return work.changed.scalar(sa.select(sa.func.count(column))) or 0
    return sum(
        work.changed.scalar(sa.select(sa.func.count()).where(column.in_(ids[at : at + _COUNTED].tolist())))
        or 0
        for at in range(0, len(ids), _COUNTED)
    )
