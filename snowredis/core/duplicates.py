"""Find ids that were made more than once, and who made them.

Exact: every id is compared with every other. Takes packed integers, such as array('q') or a memoryview of a file's
bytes, and needs little memory besides: what is compared at once is bounded.
Pure: reads no file. Trusts nothing that a layout or a lease says.
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
# enough to look into it
MAX_EXAMPLES = 20


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Ids of one maker, as runs of consecutive ids, in any order.

    Attributes:
        maker: who made them, for people.
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
    """One run: the ids from *first* up to, not including, *after*; and where it stands."""

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
        repeated: how many of them are there again: all ids less the different ones.
        examples: some of those.
    """

    ids: int = 0
    repeated: int = 0
    examples: list[Repetition] = field(default_factory=list)


# runs start … stop - 1 of one maker, whose first ids do not decrease
_Stretch = tuple[int, int, int]


def int64s(data: bytes, columns: int = 1) -> memoryview[int]:
    """Return the integers in *data*, 8 bytes each as array('q') writes them.

    A last row of less than *columns* integers is left out: a process that was killed in the middle of a write
    leaves such.
    """
    row_bytes = 8 * columns
    return memoryview(data)[: len(data) // row_bytes * row_bytes].cast("q")


def find_duplicates(sources: Iterable[Runs], *, window_runs: int = WINDOW_RUNS) -> Duplicates:
    """Compare all ids of all *sources*.

    Args:
        sources: who made what. Fastest where a source is a few stretches that only grow.
        window_runs: how many runs are compared at once, which bounds the memory.
    """
    sources = list(sources)
    found = Duplicates(sum(source.total() for source in sources))
    stretches = [
        (maker, start, stop)
        for maker, source in enumerate(sources)
        for start, stop in _growing(source.firsts)
    ]
    if not stretches:
        return found
    low = min(sources[maker].firsts[start] for maker, start, _ in stretches)
    high = max(sources[maker].firsts[stop - 1] for maker, _, stop in stretches) + 1
    # of the runs so far, the one that reaches furthest
    furthest: Run | None = None
    for window in _windows(sources, stretches, low, high, window_runs):
        furthest = _last_if_apart(sources, window, furthest) or _compare(sources, window, furthest, found)
    return found


def _growing(firsts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut where the ids decrease: (start, stop) of each part, in order."""
    decreases = starmap(operator.gt, pairwise(firsts))
    cuts = [index for index, decreased in enumerate(decreases, 1) if decreased]
    return pairwise([0, *cuts, len(firsts)]) if len(firsts) else iter(())


def _windows(
    sources: Sequence[Runs], stretches: list[_Stretch], low: int, high: int, window_runs: int
) -> Iterator[list[_Stretch]]:
    """Yield, in order of their ids, parts of *stretches* that have no more than *window_runs* runs together.

    Halves the range of first ids [low, high) until its runs are few, or all of them begin with the same id.
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
    """Return the last run of a window where no two runs overlap, which is nearly always so; else None."""
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


def _compare(sources: Sequence[Runs], window: list[_Stretch], furthest: Run | None, found: Duplicates) -> Run:
    """Go through the runs of a window in order, count what overlaps, and return the run that reaches furthest."""
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
            found.repeated += count
            if len(found.examples) < MAX_EXAMPLES:
                makers = sources[furthest.maker].maker, sources[run.maker].maker
                found.examples.append(Repetition(run.first, count, (furthest, run), makers))
        if run.after > furthest.after:
            furthest = run
    return furthest
