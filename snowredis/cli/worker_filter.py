"""Which workers are shown, by state, host and label; and workers summed up by host or label."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from snowredis.cli.options import Parser
from snowredis.cli.output import MAX_FOREIGN, Cell, Column, Line, compact, duration, printable, table

if TYPE_CHECKING:
    from snowredis.monitor.snapshot import Death, Snapshot, WorkerInfo

# as in monitor.snapshot, which is not imported for --help
STATES = ("healthy", "late", "suspect", "unknown", "expired", "free")
# states without a lease, whose worker ids are read only if they are asked for
IDLE_STATES = ("expired", "free")


def add_filter(parser: Parser) -> None:
    """Add --state, --host and --label."""
    parser.add_argument(
        "--state",
        action="append",
        choices=STATES,
        metavar="STATE",
        help=f"only {', '.join(STATES)}; may be repeated",
    )
    for name in ("host", "label"):
        text = f"only workers whose {name} matches this pattern, such as 'web-*'"
        parser.add_argument(f"--{name}", metavar="PATTERN", help=text)


@dataclass(frozen=True, slots=True)
class WorkerFilter:
    """Filter of workers; None: any. Patterns are those of file names."""

    states: Sequence[str] | None = None
    host: str | None = None
    label: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> WorkerFilter:
        """Return the filter that the arguments of add_filter() name."""
        return cls(args.state, args.host, args.label)

    @property
    def wants_idle(self) -> bool:
        """True if worker ids without a lease are asked for by their state."""
        return any(state in IDLE_STATES for state in self.states or ())

    def workers(self, snapshot: Snapshot, *, show_all: bool = False) -> list[WorkerInfo]:
        """Return the workers to show, by worker id."""
        everybody = show_all or self.wants_idle
        infos = snapshot.worker_ids if everybody else sorted_by_id((*snapshot.workers, *snapshot.unknown))
        return [info for info in infos if self._matches(info) and info.state in (self.states or STATES)]

    def deaths(self, snapshot: Snapshot) -> list[Death]:
        """Return the deaths to show, the newest first."""
        wanted = self.states is None or "expired" in self.states
        return [death for death in snapshot.deaths if wanted and self._matches(death)]

    def _matches(self, who: WorkerInfo | Death) -> bool:
        pairs = ((self.host, who.host), (self.label, who.label))
        return all(pattern is None or fnmatchcase(text, pattern) for pattern, text in pairs)


def sorted_by_id(infos: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Return *infos* by worker id."""
    return sorted(infos, key=lambda info: info.worker)


_GROUP_COLUMNS = tuple(
    Column(title, right=True)
    for title in ("workers", "healthy", "late", "suspect", "unknown", "died", "oldest beat", "ids/s")
)


def group_table(
    by: str, workers: Sequence[WorkerInfo], deaths: Sequence[Death], width: int | None
) -> list[Line]:
    """Return one row for each host or label, with counts of its workers and of its deaths in the last hour."""
    names = sorted({getattr(who, by) for who in (*workers, *deaths)})
    rows: list[list[Cell]] = []
    for name in names:
        members = [worker for worker in workers if getattr(worker, by) == name]
        states = [worker.state for worker in members]
        died = sum(getattr(death, by) == name for death in deaths)
        living = [worker for worker in members if worker.alive]
        oldest_ms = max((worker.heartbeat_age_ms for worker in living), default=None)
        rows.append(
            [
                (printable(name, MAX_FOREIGN) or "(none)", "strong"),
                f"{len(living):,}",
                (f"{states.count('healthy'):,}", "good" if states.count("healthy") else "dim"),
                (f"{states.count('late'):,}", "warn" if states.count("late") else "dim"),
                (f"{states.count('suspect'):,}", "bad" if states.count("suspect") else "dim"),
                (f"{states.count('unknown'):,}", "note" if states.count("unknown") else "dim"),
                (f"{died:,}", "bad" if died else "dim"),
                "" if oldest_ms is None else duration(oldest_ms),
                compact(sum(worker.ids_per_second for worker in living)),
            ]
        )
    return table((Column(by, shrinks=True), *_GROUP_COLUMNS), rows, width)
