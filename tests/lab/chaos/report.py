"""Plan and report of a chaos run."""

import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.chaos.runs import read_status

# ids may be late by as much for no other reason than a busy machine
MARGIN_S = 5.0


@dataclass(frozen=True)
class Plan:
    """Size of a run.

    seconds: over which the faults are spread; recovery and check take longer. ids: continue for at least so many.
    rest_s: what each process sleeps after each batch; 0: it makes ids as fast as it can.

    The layout has barely more worker ids than there are processes with their children, and a sequence so wide
    that the processor is the limit.
    """

    seed: int = 0
    processes: int = 8
    faults: int = 1000
    seconds: float = 300.0
    ids: int = 0
    ttl_s: float = 3.0
    # short enough that worker ids have an outage lane again soon after a loss
    outage_reserve_s: float = 10.0
    truce_every: int = 100
    layout: str = "41/0/2/4/16"
    # a setting of the pool; "none" is for a server without INFO
    durability: str = "detect"
    plain_ttl: bool = False
    rest_s: float = 0.0
    # "node": half of the processes are of examples/client/client.mjs; a command: of that client, see foreign.py
    also: str = ""


@dataclass
class Report:
    """Figures of a run.

    recovery_s: the longest time until every process made ids again after a truce, and its limit.
    gap_s: the longest that a worker was without ids although no fault explains it.
    hung: children that were killed at the end, since they did not end with their parents, by kind.
    """

    fired: Counter[str] = field(default_factory=Counter)
    skipped: str = ""
    seconds: float = 0.0
    ids: int = 0
    children: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    recovery_s: float = 0.0
    recovery_limit_s: float = 0.0
    gap_s: float = 0.0
    hung: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def sum_up(self, directory: Path) -> None:
        """Read the files of the processes."""
        for path in directory.glob("*.runs"):
            status = read_status(path)
            if status is not None:
                self.ids += status.counted
                self.errors[status.error] += status.errors
                self.children[status.kind] += 1
        del self.errors[""]
        for crash in sorted(directory.glob("*.crash")):
            self.problems.append(f"{crash.name}: {crash.read_text()[-1500:]}")
        if self.gap_s > MARGIN_S:
            self.problems.append(f"a living worker had no ids for {self.gap_s:.1f} s, and no fault explains it")


def ids_so_far(directory: Path) -> int:
    statuses = map(read_status, directory.glob("*.runs"))
    return sum(status.counted for status in statuses if status is not None)


# all workers of a run, and their children, write there
LOG = "workers.log"


def processes_of(directory: Path) -> list[int]:
    """Return the pids of the processes that still write to the log of the run in *directory*."""
    found, log = [], str(directory / LOG)
    for output in Path("/proc").glob("[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if os.readlink(output) == log:
                found.append(int(output.parts[2]))
    return found
