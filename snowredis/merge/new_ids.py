"""Choose new ids for those that clash. Pure: no database, no clock.

Ids of a layout keep their tick, on a *lane* (datacenter, backup and worker) on which neither database has an id: a new
id equals no old one, and rows stay in the order of time. Numbers of a counter all move by one offset that is
greater than every number in use: they stay in their order, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from snowredis.core.layout import Layout
from snowredis.merge import MergeError

__all__ = ["counter_offset", "lane_mask", "lanes_needed", "new_ids", "unused_lanes"]

# ids of every layout are above this after its first hour or so; numbers of counters are below
COUNTER_LIMIT = 1 << 32


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


def lane_mask(layout: Layout) -> int:
    """Return the bits of an id that say its lane. A lane is written as the id that has only these."""
    mask = 0
    for name, bits in layout.fields:
        if name in ("datacenter", "backup", "worker"):
            mask |= ((1 << bits) - 1) << getattr(layout, f"{name}_shift")
    return mask


def unused_lanes(layout: Layout, used: Iterable[int], workers: range | None = None) -> Iterator[int]:
    """Yield the lanes that are not among *used*: in datacenters that are in use first, the highest worker id first.

    Args:
        workers: only these worker ids.
    """
    taken = set(used)
    shift, mask = layout.datacenter_shift, layout.datacenters - 1
    in_use = sorted({lane >> shift & mask for lane in taken})
    others = (number for number in range(layout.datacenters) if number not in set(in_use))
    datacenters = [*in_use, *others] if layout.datacenters <= 1 << 16 else in_use or [0]
    candidates = workers if workers is not None else range(layout.workers)
    for backup in range(layout.namespaces):
        for datacenter in datacenters:
            for worker in reversed(candidates):
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
