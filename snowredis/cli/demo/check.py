"""Whether any id of a fleet came twice, and whether each says who made it. Exact, in bounded memory.

Reads files of int64, one a process. Trusts nothing that the library says of itself but the layout: it
compares every id with every other.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from snowredis.core.layout import Layout

# ids compared at once: 20 MB of Python integers
_WINDOW = 250_000
# of bad ids: enough to look into it
_MAX_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a process wrote, and the worker ids that it said to have held."""

    who: str
    path: Path
    workers: frozenset[int]


@dataclass(slots=True)
class Verdict:
    """What was found.

    Attributes:
        ids: how many there are.
        duplicates: how many came again after they had come once.
        strangers: how many name a worker id that their process never held.
        examples: some of those, with who wrote them.
    """

    ids: int = 0
    duplicates: int = 0
    strangers: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.duplicates and not self.strangers


def check(files: Sequence[Recorded], layout: Layout) -> Verdict:
    """Compare all ids of all files."""
    verdict = Verdict()
    written = [(file, read_ids(file.path)) for file in files]
    verdict.ids = sum(len(ids) for _, ids in written)
    for file, ids in written:
        _find_strangers(file, ids, layout, verdict)
    _find_duplicates(written, verdict)
    return verdict


def read_ids(path: Path) -> array[int]:
    """The ids of a file. A process that was killed in the middle of a write may leave a part of one; it had not
    counted that yet."""
    ids: array[int] = array("q")
    with path.open("rb") as file:
        ids.fromfile(file, path.stat().st_size // ids.itemsize)
    return ids


def _find_strangers(file: Recorded, ids: array[int], layout: Layout, verdict: Verdict) -> None:
    shift, mask = layout.worker_shift, layout.workers - 1
    if {an_id >> shift & mask for an_id in ids} <= file.workers:
        return
    bad = [an_id for an_id in ids if an_id >> shift & mask not in file.workers]
    verdict.strangers += len(bad)
    verdict.examples += [f"{an_id} of {file.who} names another worker id" for an_id in bad[:_MAX_EXAMPLES]]


def _find_duplicates(written: Sequence[tuple[Recorded, array[int]]], verdict: Verdict) -> None:
    """Ids that are equal lie in the same window, so each window's ids go into one set: as many, or one came twice.

    A file is a few runs that only grow, a new one where its clock went back; so a window is a slice of each.
    """
    runs = [(ids, start, end) for _, ids in written for start, end in _runs(ids)]
    if not runs:
        return
    low, high = min(ids[start] for ids, start, _ in runs), max(ids[end - 1] for ids, _, end in runs) + 1
    windows = verdict.ids // _WINDOW + 1
    edges = [low + (high - low) * at // windows for at in range(windows + 1)]
    for since, until in pairwise(edges):
        slices = [
            ids[bisect_left(ids, since, start, end) : bisect_left(ids, until, start, end)]
            for ids, start, end in runs
        ]
        different: set[int] = set()
        different.update(*slices)
        repeated = sum(map(len, slices)) - len(different)
        if repeated:
            verdict.duplicates += repeated
            _name_duplicates(slices, written, verdict)


def _runs(ids: array[int]) -> Iterator[tuple[int, int]]:
    """Where ids only grow, as (start, end). Equal neighbours are of two runs."""
    breaks = [at for at, (before, after) in enumerate(pairwise(ids), 1) if after <= before]
    return pairwise([0, *breaks, len(ids)]) if ids else iter(())


def _name_duplicates(
    slices: Iterable[array[int]], written: Sequence[tuple[Recorded, array[int]]], verdict: Verdict
) -> None:
    counted = Counter(an_id for part in slices for an_id in part)
    for an_id in [an_id for an_id, times in counted.items() if times > 1]:
        if len(verdict.examples) >= _MAX_EXAMPLES:
            return
        makers = [file.who for file, ids in written for _ in range(ids.count(an_id))]
        verdict.examples.append(f"{an_id} was made by {' and by '.join(makers)}")
