"""Result of a check: what was read, which ids clash, which cannot be right, which will clash."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "CheckResult",
    "DuplicatesByTime",
    "DuplicatesByWorker",
    "DuplicatesIn",
    "Example",
    "Occurrence",
    "Problem",
    "ProblemKind",
    "SharedWorkers",
    "SourceSummary",
    "WorkerRange",
]


class ProblemKind(StrEnum):
    """Kinds of values of a column that are wrong."""

    MISSING = "missing"  # NULL, or an empty text
    DECIMAL = "decimal"
    TEXT = "text"
    TOO_LARGE = "too-large"  # does not fit into 64 bits with a sign
    NEGATIVE = "negative"
    TOO_WIDE = "too-wide"  # has bits above those of the layout
    FUTURE = "future"
    COUNTER = "counter"  # of the layout's first hour, as the numbers of a counter are
    NO_IDS = "no-ids"
    LAYOUTS_DIFFER = "layouts-differ"


@dataclass(frozen=True, slots=True)
class Problem:
    """Values of one source that are not ids, or whose fields cannot be right.

    Attributes:
        source: name of the source.
        count: how many values.
        examples: some of them, as text that is not trusted.
        text: what is wrong, and what to do.
        is_error: whether the values cannot be right; else they are only unusual.
    """

    source: str
    kind: ProblemKind
    count: int
    examples: list[str]
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """Summary of a source.

    Attributes:
        location: file or table, without a password.
        layout: the full text form.
        rows: how many values, NULL included.
        ids: how many of them are whole numbers of 64 bits.
        first_ms, last_ms: time of the first and last plausible id, Unix ms; None if there is none.
        workers: how many pairs of datacenter and worker made its plausible ids.
        read_ms: when it was read completely, Unix ms.
    """

    name: str
    kind: str
    location: str
    layout: str
    rows: int
    ids: int
    first_ms: int | None
    last_ms: int | None
    workers: int
    read_ms: int


@dataclass(frozen=True, slots=True)
class DuplicatesIn:
    """Ids that exactly these sources have more than once between them."""

    sources: tuple[str, ...]
    ids: int
    rows: int


@dataclass(frozen=True, slots=True)
class DuplicatesByWorker:
    """Repeated ids of one worker id in one source; datacenter and worker are None for ids that no layout explains."""

    source: str
    datacenter: int | None
    worker: int | None
    ids: int


@dataclass(frozen=True, slots=True)
class DuplicatesByTime:
    """Repeated ids whose time is in one period."""

    start_ms: int
    ids: int


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Place of a repeated id, and what the layout of that source says of it."""

    source: str
    times: int
    datacenter: int | None
    worker: int | None
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class Example:
    """One repeated id."""

    an_id: int
    occurrences: list[Occurrence]


@dataclass(frozen=True, slots=True)
class WorkerRange:
    """Consecutive worker ids of one datacenter, both ends included."""

    datacenter: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SharedWorkers:
    """Worker ids that made ids in two sources, so that their next ids can be equal.

    Attributes:
        workers: how many pairs of datacenter and worker.
        at_once: how many of them were in use in both sources at the same time.
        ranges: which, MAX_RANGES at most.
    """

    sources: tuple[str, str]
    workers: int
    at_once: int
    ranges: list[WorkerRange]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of check().

    Attributes:
        sources: what was read.
        ids: how many ids were compared.
        repeated_ids: how many different ids are there more than once.
        repeated_rows: how many rows they are in.
        duplicates: repeated ids by the sources that have them, the most first.
        by_worker: by worker id, the most first, MAX_WORKERS at most.
        by_time: by periods of *period_ms*, in order.
        examples: the smallest repeated ids.
        problems: values that are not ids, or that cannot be right.
        shared_workers: pairs of sources whose next ids can clash.
        now_ms: when the check was made, Unix ms: later times are in the future.
        read_s, compare_s: how long this run took for reading and for everything else.
    """

    sources: list[SourceSummary]
    ids: int
    repeated_ids: int
    repeated_rows: int
    duplicates: list[DuplicatesIn]
    by_worker: list[DuplicatesByWorker]
    by_time: list[DuplicatesByTime]
    period_ms: int
    examples: list[Example]
    problems: list[Problem]
    shared_workers: list[SharedWorkers]
    now_ms: int
    read_s: float = 0.0
    compare_s: float = 0.0

    @property
    def errors(self) -> list[Problem]:
        """Problems of values that cannot be right."""
        return [problem for problem in self.problems if problem.is_error]
