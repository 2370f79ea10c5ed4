"""Check the ids of a chaos run: none is repeated, and the files contain as many as were counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from tests.chaos.runs import RecordedRuns, read_runs, read_status
from tests.support.duplicates import MAX_EXAMPLES, WINDOW_RUNS, Repetition, Run, Runs, find_duplicates


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
        if len(self.problems) < MAX_EXAMPLES:
            self.problems.append(text)


def check(directory: Path, layout: Layout | str, *, window_runs: int = WINDOW_RUNS) -> Verdict:
    """Read every file of *directory* and compare all ids. Takes 24 bytes of memory a run."""
    layout = resolve_layout(layout)
    verdict = Verdict()
    files = {path: read_runs(path) for path in sorted(directory.glob("*.runs"))}
    for path, recorded in files.items():
        _check_file(path, recorded, layout, verdict)
        verdict.runs += len(recorded.firsts)
    found = find_duplicates(
        (Runs(_maker(path), recorded.firsts, recorded.counts) for path, recorded in files.items()),
        window_runs=window_runs,
    )
    verdict.ids, verdict.repeated = found.ids, found.repeated
    for repetition in found.examples:
        verdict.add_problem(_describe(repetition, list(files.values()), layout))
    return verdict


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


def _describe(repetition: Repetition, files: list[RecordedRuns], layout: Layout) -> str:
    def describe_run(run: Run, maker: str) -> str:
        written_ms = files[run.maker].written_ms[run.position]
        return f"{maker}; {run.after - run.first} ids from {run.first} on, written at {written_ms} ms of the run"

    parts = layout.decode(repetition.first)
    earlier, later = map(describe_run, repetition.runs, repetition.makers)
    return (
        f"repeated: {repetition.first} (tick {parts.timestamp_ms} ms, worker {parts.worker}, namespace {parts.backup}, "
        f"sequence {parts.sequence})\n    by {earlier}\n    and {later}"
    )
