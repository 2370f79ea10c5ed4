"""Find ids that were made more than once, and their makers.

Exact: every id is compared with every other. Takes packed integers, such as array('q') or a memoryview of a file's
bytes, and needs little more memory, since a bounded number of runs is compared at once.
Pure: reads no file. Does not depend on layouts or leases.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, starmap
from typing import NamedTuple

# runs compared at once: 20 MB of Python integers
WINDOW_RUNS = 250_000
# enough to investigate
MAX_EXAMPLES = 20


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Ids of one maker, as runs of consecutive ids, in any order.

    Attributes:
        maker: name of the maker, for people.
        firsts: the first id of each run.
        counts: how many ids each run has, 1 or more; None: each has one.
    """

    maker: str
    firsts: Sequence[int]
    counts: Sequence[int] | None = None

    def after(self, index: int) -> int:
        """Return the first id after a run."""
        return self.firsts[index] + (1 if self.counts is None else self.counts[index])

    def total(self) -> int:
        """Return how many ids there are in all runs."""
        return len(self.firsts) if self.counts is None else sum(self.counts)


class Run(NamedTuple):
    """One run: the ids from *first* up to, not including, *after*; with the indices of its maker and of itself."""

    first: int
    after: int
    maker: int
    position: int


@dataclass(frozen=True, slots=True)
class Repetition:
    """Two runs that share *count* ids, from *first* on."""

    first: int
    count: int
    runs: tuple[Run, Run]
    makers: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.first} was made by {' and by '.join(self.makers)}"


@dataclass(slots=True)
class Duplicates:
    """Result of find_duplicates().

    Attributes:
        ids: how many ids there are.
        repeated: how many of them are repetitions: all ids minus the different ones.
        examples: some of the repetitions, MAX_EXAMPLES at most.
    """

    ids: int = 0
    repeated: int = 0
    examples: list[Repetition] = field(default_factory=list)


# runs start … stop - 1 of one maker, whose first ids do not decrease
_Stretch = tuple[int, int, int]


def int64s(data: bytes, columns: int = 1) -> memoryview[int]:
    """Return the integers in *data*, 8 bytes each as array('q') writes them.

    A last row of fewer than *columns* integers is omitted: a process that was killed during a write leaves one.
    """
    row_bytes = 8 * columns
    return memoryview(data)[: len(data) // row_bytes * row_bytes].cast("q")


def find_duplicates(sources: Iterable[Runs], *, window_runs: int = WINDOW_RUNS) -> Duplicates:
    """Compare all ids of all *sources*.

    Args:
        sources: the runs of each maker. Fastest if each consists of a few increasing stretches.
        window_runs: number of runs that are compared at once, which bounds the memory.
    """
    sources = list(sources)
    result = Duplicates(sum(source.total() for source in sources))
    stretches = [
        (maker, start, stop) for maker, source in enumerate(sources) for start, stop in _growing(source.firsts)
    ]
    if not stretches:
        return result
    low = min(sources[maker].firsts[start] for maker, start, _ in stretches)
    high = max(sources[maker].firsts[stop - 1] for maker, _, stop in stretches) + 1
    # the run that ends last of those seen so far
    furthest: Run | None = None
    for window in _windows(sources, stretches, low, high, window_runs):
        furthest = _last_if_apart(sources, window, furthest) or _compare(sources, window, furthest, result)
    return result


def _growing(firsts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return (start, stop) of each part in which ids do not decrease, in order."""
    decreases = starmap(operator.gt, pairwise(firsts))
    cuts = [index for index, decreased in enumerate(decreases, 1) if decreased]
    return pairwise([0, *cuts, len(firsts)]) if len(firsts) else iter(())


def _windows(
    sources: Sequence[Runs], stretches: list[_Stretch], low: int, high: int, window_runs: int
) -> Iterator[list[_Stretch]]:
    """Yield parts of *stretches* with at most *window_runs* runs each, in order of their ids.

    Halves the range of first ids [low, high) until it has few enough runs, or all begin with the same id.
    """
    if high - low == 1 or sum(stop - start for _, start, stop in stretches) <= window_runs:
        yield stretches
        return
    middle = (low + high) // 2
    below: list[_Stretch] = []
    above: list[_Stretch] = []
    for maker, start, stop in stretches:
        cut = bisect_left(sources[maker].firsts, middle, start, stop)
        if start < cut:
            below.append((maker, start, cut))
        if cut < stop:
            above.append((maker, cut, stop))
    for part, part_low, part_high in ((below, low, middle), (above, middle, high)):
        if part:
            yield from _windows(sources, part, part_low, part_high, window_runs)


def _last_if_apart(sources: Sequence[Runs], window: list[_Stretch], furthest: Run | None) -> Run | None:
    """Return the last run of a window if no two runs overlap, which is nearly always true; else None."""
    firsts: list[int] = []
    afters: list[int] = []
    for maker, start, stop in window:
        part, counts = sources[maker].firsts[start:stop], sources[maker].counts
        firsts += part
        if counts is not None:
            afters += map(operator.add, part, counts[start:stop])
        else:
            afters += [an_id + 1 for an_id in part]
    firsts.sort()
    afters.sort()
    # runs are disjoint exactly if each ends before the next begins, all sorted
    if not all(map(operator.le, afters, firsts[1:])) or (furthest and firsts[0] < furthest.after):
        return None
    return next(
        Run(firsts[-1], afters[-1], maker, stop - 1)
        for maker, _, stop in window
        if sources[maker].firsts[stop - 1] == firsts[-1]
    )


def _compare(sources: Sequence[Runs], window: list[_Stretch], furthest: Run | None, result: Duplicates) -> Run:
    """Add the overlaps of a window's runs to *result*; return the run that ends last."""
    runs = sorted(
        Run(sources[maker].firsts[index], sources[maker].after(index), maker, index)
        for maker, start, stop in window
        for index in range(start, stop)
    )
    if furthest is None:
        furthest = runs.pop(0)
    for run in runs:
        if run.first < furthest.after:
            count = min(run.after, furthest.after) - run.first
            result.repeated += count
            if len(result.examples) < MAX_EXAMPLES:
                makers = sources[furthest.maker].maker, sources[run.maker].maker
                result.examples.append(Repetition(run.first, count, (furthest, run), makers))
        if run.after > furthest.after:
            furthest = run
    return furthest
