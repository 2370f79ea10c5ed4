"""Check the ids of a chaos run: none is repeated, and the files contain as many as were counted."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from tests.lab.chaos.runs import RecordedRuns, read_runs, read_status

# enough to investigate
MAX_PROBLEMS = 20


@dataclass
class Verdict:
    """Result of check(). *repeated* counts ids that were made again, *problems* describes some of what is wrong."""

    ids: int = 0
    runs: int = 0
    repeated: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.repeated and not self.problems

    def add_problem(self, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)


def check(directory: Path, layout: Layout | str) -> Verdict:
    """Read every file of *directory* and compare all ids. Takes 64 bytes of memory a run."""
    layout = resolve_layout(layout)
    verdict = Verdict()
    files = {path: read_runs(path) for path in sorted(directory.glob("*.runs"))}
    for path, recorded in files.items():
        _check_file(path, recorded, layout, verdict)
        verdict.runs += len(recorded.firsts)
        verdict.ids += sum(recorded.counts)
    if verdict.runs:
        _compare_all(files, layout, verdict)
    return verdict


def _compare_all(files: dict[Path, RecordedRuns], layout: Layout, verdict: Verdict) -> None:
    """Compare each run, in the order of the first ids, with those before it: with the one that ends last."""
    ends = np.cumsum([len(recorded.firsts) for recorded in files.values()])
    firsts, counts = (
        np.concatenate([getattr(recorded, column) for recorded in files.values()]) for column in ("firsts", "counts")
    )
    order = np.argsort(firsts)
    firsts, afters = firsts[order], (firsts + counts)[order]
    furthest = np.maximum.accumulate(afters)
    shared = np.minimum(afters[1:], furthest[:-1]) - firsts[1:]
    verdict.repeated = int(shared[shared > 0].sum())

    def describe(place: int) -> str:
        number = int(np.searchsorted(ends, order[place], "right"))
        path, recorded = list(files.items())[number]
        position = int(order[place]) - int(ends[number]) + len(recorded.firsts)
        first, count, written_ms = (column[position] for column in recorded.columns)
        return f"{_maker(path)}; {count} ids from {first} on, written at {written_ms} ms of the run"

    for place in map(int, np.flatnonzero(shared > 0)[:MAX_PROBLEMS] + 1):
        parts = layout.decode(int(firsts[place]))
        verdict.add_problem(
            f"repeated: {firsts[place]} (tick {parts.timestamp_ms} ms, worker {parts.worker}, namespace "
            f"{parts.backup}, sequence {parts.sequence})\n    by {describe(int(np.argmax(afters[:place])))}\n"
            f"    and {describe(place)}"
        )


def _check_file(path: Path, recorded: RecordedRuns, layout: Layout, verdict: Verdict) -> None:
    """Compare a file with what its process counted, and each run with the layout."""
    for first, count, _ in recorded.rows():
        last = first + count - 1
        if count < 1 or first < 1 or last >> layout.sequence_bits != first >> layout.sequence_bits:
            verdict.add_problem(f"{path.name}: the {count} ids from {first} on are not of one tick and worker id")
    status, ids = read_status(path), sum(recorded.counts)
    if status is not None and ids < status.counted:
        verdict.add_problem(f"{path.name}: {status.counted} ids were counted, but only {ids} are recorded")


def _maker(path: Path) -> str:
    status = read_status(path)
    if status is None:
        return path.name
    return f"{status.kind} of slot {status.slot}, pid {status.pid}, started at {status.started_ms} ms; {path.name}"
