"""The processes behind the leases: counted by host and pid, named in texts; what they can do without Redis. Pure.

One process can have several generators, each with a lease of its own. Hosts and labels are untrusted text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from snowredis.core.values import duration
from snowredis.monitor.owner import Owner
from snowredis.monitor.snapshot import EndedLease, Snapshot, WorkerInfo

# workers named in a text
_MAX_NAMED = 5
# a restart of Redis takes less than this, as does what goes wrong in it
RESTART_MS = 3_600_000


def count(number: int, one: str, several: str = "") -> str:
    """Return *number* with the word for it; *several*: the plural if it is not *one* with an s."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def process_text(owner: Owner) -> str:
    """Return host, pid and label of a process; untrusted text."""
    return f"{owner.host}:{owner.pid}{f' ({owner.label})' if owner.label else ''}"


def processes_of(leases: Iterable[WorkerInfo | EndedLease]) -> set[tuple[str, int]]:
    """Return host and pid of each process that has, or had, one of *leases*."""
    return {each.owner.process for each in leases}


def counted(leases: Sequence[WorkerInfo | EndedLease]) -> str:
    """Return how many processes have *leases*, and how many leases these are if some have several."""
    number = len(processes_of(leases))
    if number == len(leases):
        return count(number, "worker")
    return f"{count(number, 'process', 'processes')} with {len(leases):,} worker ids"


def named(leases: Sequence[WorkerInfo | EndedLease]) -> str:
    """Return how many these are, and the first of them."""
    names = ", ".join(f"{each.worker} on {each.host}:{each.pid}" for each in leases[:_MAX_NAMED])
    return f"{counted(leases)} ({names}{' …' if len(leases) > _MAX_NAMED else ''})"


def greatest_holder(workers: Sequence[WorkerInfo]) -> tuple[str, int]:
    """Return the process with the most worker ids, and how many it has; ("", 0) if there is none."""
    held = Counter(worker.owner.process for worker in workers)
    process, most = max(held.items(), key=lambda item: item[1], default=(None, 0))
    return next((process_text(worker.owner) for worker in workers if worker.owner.process == process), ""), most


class PlanAnswer(NamedTuple):
    """Answer to a question that people ask before they do something.

    Attributes:
        question: "restart": may I restart Redis now? "deploy": may I start a rolling deployment now?
        text: begins with "yes", "no", or what has to be kept to.
    """

    question: str
    text: str


def answers(snapshot: Snapshot, floor_ms: int) -> tuple[PlanAnswer, ...]:
    """Return the answers of a pool that was just read. *floor_ms*: how long new workers wait after a restart."""
    return PlanAnswer("restart", _may_restart(snapshot, floor_ms)), PlanAnswer("deploy", _may_deploy(snapshot))


def _may_restart(snapshot: Snapshot, floor_ms: int) -> str:
    now_ms = snapshot.info.now_ms
    lasting = sorted(each.lasts_until_ms - now_ms for each in snapshot.workers if each.state != "no-ids")
    wait = f"{duration(floor_ms)} after " if floor_ms else ""
    then = f"A process that starts meanwhile gets no ids until {wait}Redis is back"
    if not lasting:
        return f"yes: no worker makes ids. {then}"
    if lasting[0] >= RESTART_MS:
        who = "the only worker goes" if len(lasting) == 1 else f"all {len(lasting):,} workers go"
        return f"yes: {who} on for {duration(lasting[0])}. {then}"
    short = sum(left_ms < RESTART_MS for left_ms in lasting)
    rest = f"; the others go on for {duration(lasting[short])}" if short < len(lasting) else ""
    return (
        f"only if it is back within {duration(max(0, lasting[0]))}: {short:,} of {count(len(lasting), 'worker')} "
        f"can have no ids after that{rest}. {then}"
    )


def _may_deploy(snapshot: Snapshot) -> str:
    info, living = snapshot.info, len(snapshot.workers)
    if snapshot.mass_silence or snapshot.refusal:
        return "no: Redis takes no renewals, so a new worker may get no worker id"
    if info.floor_wait_ms:
        return f"in {duration(info.floor_wait_ms)}: new workers wait until then"
    needed = f"it needs {2 * living:,} worker ids ({living:,} living and as many new), and there are {info.capacity:,}"
    if living <= info.free:
        return f"yes: {needed}"
    if info.free <= 0:
        return f"no: {needed}, all leased"
    return f"only if at most {info.free:,} new workers start before old ones end: {needed}"
