"""Check the ids of the demo: none may be made twice, and each must name a worker id of its process.

Reads files of int64, one per process. Of the library it trusts only the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from snowredis.core.duplicates import MAX_EXAMPLES, Runs, find_duplicates, int64s
from snowredis.core.layout import Layout


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
    written = [(file, int64s(file.path.read_bytes())) for file in files]
    shift, mask = layout.worker_shift, layout.workers - 1
    wrong = [
        f"{an_id} of {file.process} names another worker id"
        for file, ids in written
        if not {an_id >> shift & mask for an_id in ids} <= file.workers
        for an_id in ids
        if an_id >> shift & mask not in file.workers
    ]
    duplicates = find_duplicates(Runs(file.process, ids) for file, ids in written)
    examples = [*wrong[:MAX_EXAMPLES], *map(str, duplicates.examples)]
    return Verdict(duplicates.ids, duplicates.repeated, len(wrong), examples)
