"""Find every id that was handed out twice, among any number of ids, in memory that does not grow with them.

Runs are sorted in chunks of bounded size into temporary files, and those are merged.
"""

from __future__ import annotations

import heapq
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from tests.chaos.runs import read_runs, read_status

# runs in a chunk: about 30 MB while it is sorted
CHUNK_RUNS = 200_000
MOST_SHOWN = 20

# first id, first id after the run, when it was written (ms), number of the file
Row = tuple[int, int, int, int]


@dataclass
class Verdict:
    ids: int = 0
    runs: int = 0
    repeated: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.repeated and not self.problems

    def problem(self, text: str) -> None:
        if len(self.problems) < MOST_SHOWN:
            self.problems.append(text)


def check(directory: Path, layout: Layout | str, *, chunk_runs: int = CHUNK_RUNS) -> Verdict:
    """Read every file of *directory* and answer what is wrong with its ids."""
    layout = resolve_layout(layout)
    verdict = Verdict()
    paths = sorted(directory.glob("*.runs"))
    with tempfile.TemporaryDirectory(prefix="chaos-", dir=directory) as name:
        rows = _rows(paths, layout, verdict)
        chunks: list[Path] = []
        while chunk := list(islice(rows, chunk_runs)):
            chunks.append(_write_sorted(Path(name, str(len(chunks))), chunk))
        _compare(heapq.merge(*map(_read_rows, chunks)), paths, layout, verdict)
    return verdict


def _rows(paths: list[Path], layout: Layout, verdict: Verdict) -> Iterator[Row]:
    """All runs of all files; each file is held against what its process counted."""
    for number, path in enumerate(paths):
        status = read_status(path)
        recorded = 0
        for first, count, at_ms in read_runs(path):
            recorded += count
            last = first + count - 1
            if count < 1 or first < 1 or last >> layout.sequence_bits != first >> layout.sequence_bits:
                verdict.problem(
                    f"{path.name}: {count} ids from {first} on are not of one tick of one worker id"
                )
            yield first, first + count, at_ms, number
        if status is not None and recorded < status.counted:
            verdict.problem(
                f"{path.name}: {status.counted} ids were counted, but only {recorded} are recorded"
            )


def _write_sorted(path: Path, rows: list[Row]) -> Path:
    rows.sort()
    flat = array("q")
    for row in rows:
        flat.extend(row)
    path.write_bytes(flat.tobytes())
    return path


def _read_rows(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        while block := file.read(1 << 16):
            flat = array("q", block)
            yield from zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)


def _compare(rows: Iterable[Row], paths: list[Path], layout: Layout, verdict: Verdict) -> None:
    # of the runs so far, the one that reaches furthest
    furthest: Row = (0, 0, 0, 0)
    for row in rows:
        first, after = row[:2]
        verdict.runs += 1
        verdict.ids += after - first
        if first < furthest[1]:
            verdict.repeated += min(after, furthest[1]) - first
            parts = layout.decode(first)
            verdict.problem(
                f"repeated: {first} (tick {parts.timestamp_ms} ms, worker {parts.worker}, namespace {parts.backup}, "
                f"sequence {parts.sequence})\n    by {_owner(paths, furthest)}\n    and {_owner(paths, row)}"
            )
        if after > furthest[1]:
            furthest = row


def _owner(paths: list[Path], row: Row) -> str:
    first, after, at_ms, number = row
    status = read_status(paths[number])
    who = (
        f"{status.kind} of slot {status.slot}, pid {status.pid}, started at {status.started_ms} ms"
        if status
        else "?"
    )
    return (
        f"{who}; {after - first} ids from {first} on, written at {at_ms} ms of the run; {paths[number].name}"
    )
