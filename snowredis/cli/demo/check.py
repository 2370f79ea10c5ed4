"""Check the ids of the demo: none may be made twice, and each must name a worker id of its process.

Reads files of int64, one per process. Of the library it trusts only the layout.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from pathlib import Path

from snowredis.core.layout import Layout

# compared at once: 20 MB of Python integers
_WINDOW = 250_000
_MAX_EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class Recorded:
    """The file of one process, and the worker ids that the process reported."""

    process: str
    path: Path
    workers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of check().

    Attributes:
        ids: how many ids there are.
        duplicates: how many of them repeat another.
        wrong_workers: how many name a worker id that their process never held.
        examples: some of those ids, with the processes that made them.
    """

    ids: int
    duplicates: int
    wrong_workers: int
    examples: Sequence[str]

    @property
    def good(self) -> bool:
        return not self.duplicates and not self.wrong_workers


def check(files: Sequence[Recorded], layout: Layout) -> Verdict:
    """Compare all ids of all *files*. An id at the end of a file that was written in part does not count."""
    written = [(file, _int64s(file.path.read_bytes())) for file in files]
    shift, mask = layout.worker_shift, layout.workers - 1
    wrong = [
        f"{an_id} of {file.process} names another worker id"
        for file, ids in written
        if not {an_id >> shift & mask for an_id in ids} <= file.workers
        for an_id in ids
        if an_id >> shift & mask not in file.workers
    ]
    repeated = list(_repeated([ids for _, ids in written]))
    examples = [*wrong[:_MAX_EXAMPLES]]
    for an_id in repeated[:_MAX_EXAMPLES]:
        makers = " and by ".join(file.process for file, ids in written for _ in range(list(ids).count(an_id)))
        examples.append(f"{an_id} was made by {makers}")
    return Verdict(sum(len(ids) for _, ids in written), len(repeated), len(wrong), examples)


def _int64s(data: bytes) -> Sequence[int]:
    return memoryview(data)[: len(data) // 8 * 8].cast("q")


def _repeated(sources: list[Sequence[int]]) -> Iterator[int]:
    """Yield every id that is equal to an earlier one of all *sources*, in windows of ids that are near each other."""
    growing = [ids if all(starmap(operator.le, pairwise(ids))) else sorted(ids) for ids in sources if ids]
    if not growing:
        return
    low, high = min(ids[0] for ids in growing), max(ids[-1] for ids in growing) + 1
    windows = 1 + sum(map(len, growing)) // _WINDOW
    edges = [low + (high - low) * window // windows for window in range(windows + 1)]
    for begin, end in pairwise(edges):
        near = [an_id for ids in growing for an_id in ids[bisect_left(ids, begin) : bisect_left(ids, end)]]
        near.sort()
        yield from (second for first, second in pairwise(near) if first == second)
