"""The life of one worker id as text: who has it now, and what happened to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from snowredis.cli.event_lines import event_line
from snowredis.cli.output import MAX_FOREIGN, Line, Pair, ago, duration, offset, pairs, printable

if TYPE_CHECKING:
    from snowredis.monitor.events import Event
    from snowredis.monitor.snapshot import PoolInfo, WorkerInfo


def worker_rows(worker: WorkerInfo, info: PoolInfo, time_text: Callable[[int], str]) -> list[Pair]:
    """Return the state of a worker id by name."""
    if worker.state == "free":
        since = f"{time_text(worker.lease_end_ms)}, {ago(info.now_ms - worker.lease_end_ms)}"
        return [("worker id", str(worker.worker)), ("state", f"free: released at {since}")]
    left = f"{duration(worker.lease_left_ms)} left" if worker.alive else "ended"
    # a rate since the claim shows what one heartbeat may miss
    lived_s = max(1, (worker.renewed_ms - worker.claimed_ms) // 1000)
    return [
        ("worker id", str(worker.worker)),
        ("state", worker.state),
        ("process", f"{printable(worker.host, MAX_FOREIGN)}:{worker.pid}"),
        ("label", printable(worker.label, MAX_FOREIGN)),
        ("claimed", f"{time_text(worker.claimed_ms)}, {ago(info.now_ms - worker.claimed_ms)}"),
        ("last heartbeat", f"{time_text(worker.renewed_ms)}, {ago(worker.heartbeat_age_ms)}"),
        ("lease", f"until {time_text(worker.lease_end_ms)}, {left}"),
        ("reserved", f"until {time_text(worker.reserved_until_ms)}, on its own clock"),
        (
            "ids",
            f"{worker.ids_made:,}; {worker.ids_per_second:,} a second at the last heartbeat, "
            f"{worker.ids_made // lived_s:,} on average since the claim",
        ),
        (
            "clock",
            f"{offset(worker.clock_offset_ms)} from the Redis clock; went back {worker.clock_backs} times",
        ),
        ("namespace", str(worker.namespace)),
    ]


def life_lines(
    number: int,
    worker: WorkerInfo | None,
    events: Sequence[Event],
    info: PoolInfo,
    time_text: Callable[[int], str],
) -> list[Line]:
    """Return the state of worker id *number* and its events, the oldest first."""
    if worker is None:
        lines: list[Line] = [[(f"worker id {number} was never leased", "dim")]]
    else:
        lines = pairs(worker_rows(worker, info, time_text), indent=0)
    if events:
        lines += [[], [("events", "strong")], *(event_line(event, time_text) for event in events)]
    return lines
