"""Read the ids of both databases side by side, sorted: which clash, and whether new ones would."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import sqlalchemy as sa

from snowredis.core.layout import Layout
from snowredis.errors import MergeError
from snowredis.merge.databases import stream
from snowredis.merge.id_domains import Domain, Schema
from snowredis.merge.plan.new_ids import lane_mask

__all__ = ["Scan", "find_clashes", "ids_of", "prove"]

# kinds of ids that prove() compares, as bits; only an id that is kept may equal one that gets a new one
_KEPT, _STAYS, _OLD, _NEW = 1, 2, 4, 8


@dataclass(slots=True)
class Scan:
    """Ids of one domain in both databases.

    Attributes:
        kept, changed: how many ids each side has.
        clashes: ids that both have, sorted.
        lowest: of the side that changes; highest: of both.
        lanes: that either side uses, if there is a layout.
        unfit: how many ids are negative or have more bits than the layout.
    """

    kept: int = 0
    changed: int = 0
    clashes: array[int] = field(default_factory=lambda: array("q"))
    lowest: int = 0
    highest: int = 0
    lanes: set[int] = field(default_factory=set)
    unfit: int = 0


def ids_of(connection: sa.Connection, schema: Schema, domain: Domain) -> Iterator[int]:
    """Yield the ids that the key columns of *domain* hold, sorted, each once."""
    parts = []
    for name in domain.keys:
        if name.of in schema.tables and name.column in schema.tables[name.of].c:
            column = schema.column(name)
            parts.append(sa.select(column.label("id")).where(column.is_not(None)))
    if not parts:
        return
    query: sa.Executable
    if len(parts) == 1 and _is_unique(schema, domain):
        query = parts[0].order_by(sa.text("1"))
    else:
        query = sa.union(*parts, parts[0]).order_by(sa.text("1"))
    for (an_id,) in stream(connection, query):
        yield int(an_id)


def _is_unique(schema: Schema, domain: Domain) -> bool:
    table = schema.tables[domain.keys[0].of]
    return [column.name for column in table.primary_key.columns] == [domain.keys[0].column]


def find_clashes(kept: Iterator[int], changed: Iterator[int], layout: Layout | None) -> Scan:
    """Compare two sorted streams of ids."""
    scan = Scan()
    of_kept, of_changed = _noted(kept, scan, "kept", layout), _noted(changed, scan, "changed", layout)
    left, right = next(of_kept, None), next(of_changed, None)
    while left is not None and right is not None:
        if left == right:
            scan.clashes.append(left)
        if left <= right:
            left = next(of_kept, None)
            if left is None:
                break
        if left > right:
            right = next(of_changed, None)
    for _ in of_kept:
        pass
    for _ in of_changed:
        pass
    return scan


def _noted(ids: Iterator[int], scan: Scan, side: str, layout: Layout | None) -> Iterator[int]:
    count, an_id, bits = 0, None, layout.total_bits if layout else 63
    mask = lane_mask(layout) if layout else 0
    add = scan.lanes.add if layout else (lambda _: None)
    for an_id in ids:
        count += 1
        if an_id >> bits:
            scan.unfit += 1
        else:
            add(an_id & mask)
        if side == "changed" and count == 1:
            scan.lowest = an_id
        yield an_id
    setattr(scan, side, count)
    if an_id is not None:
        scan.highest = max(scan.highest, an_id)


def prove(
    name: str, kept: Iterable[int], changed: Iterable[int], old: Iterable[int], new: Iterable[int]
) -> None:
    """Check that no id is there twice after the change, and that no new id equals any old one. All are sorted.

    Args:
        kept: ids of the database that keeps its ids.
        changed: ids of the other one, before the change.
        old, new: those of them that change, and what they become.

    Raises:
        MergeError: an id clashes, or an old one does not exist (any more).
    """
    last, kinds = None, 0
    streams = (
        _marked(name, changed, old),
        ((an_id, _KEPT) for an_id in kept),
        ((an_id, _NEW) for an_id in new),
    )
    for an_id, kind in heapq.merge(*streams):
        if an_id != last:
            last, kinds = an_id, kind
            continue
        kinds |= kind
        if kinds != _KEPT | _OLD:
            what = (
                "a new id of the plan, and is in use"
                if kinds & _NEW
                else "in both databases, and not in the plan"
            )
            raise MergeError(
                f"{name}: {an_id} is {what}. Nothing was changed; the databases are not as they were when the plan was "
                "made: make a new plan."
            )


def _marked(name: str, ids: Iterable[int], old: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield *ids* with their kind; MergeError if one of *old* is not among them."""
    iterator = iter(old)
    leaving = next(iterator, None)
    for an_id in ids:
        if leaving is not None and leaving < an_id:
            break
        if an_id == leaving:
            leaving = next(iterator, None)
            yield an_id, _OLD
        else:
            yield an_id, _STAYS
    if leaving is not None:
        raise MergeError(
            f"{name}: {leaving} is to get a new id, and does not exist any more. Nothing was changed; somebody writes "
            "to the database: stop that, and make a new plan."
        )
