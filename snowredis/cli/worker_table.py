"""Workers of a pool as text: two lines about the pool, and a table. Shared by `workers` and `top`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from snowredis.cli.output import (
    MAX_FOREIGN,
    Column,
    Line,
    Segment,
    compact,
    duration,
    offset,
    plain,
    printable,
    table,
    width_of,
)

if TYPE_CHECKING:
    from snowredis.monitor.snapshot import PoolInfo, WorkerInfo

# a narrower terminal gets the compact form of the table
WIDE = 100
# spaces between columns in the wide and in the compact form
GAP, COMPACT_GAP = 2, 1
_STATE_STYLES = {
    "healthy": "good",
    "late": "warn",
    "suspect": "bad",
    "unknown": "note",
    "expired": "bad",
    "free": "dim",
}

# each column and its sort key; numbers that need attention when they are high are sorted from high to low
_COLUMNS: tuple[tuple[Column, Callable[[WorkerInfo], Any]], ...] = (
    (Column("worker", right=True), lambda worker: worker.worker),
    (Column("state", min_width=7), lambda worker: -worker.heartbeat_age_ms if worker.alive else 0),
    (Column("host", shrinks=True), lambda worker: (worker.host, worker.pid)),
    (Column("pid", right=True), lambda worker: worker.pid),
    (Column("label", shrinks=True), lambda worker: (worker.label, worker.host)),
    (Column("lease", right=True, min_width=6), lambda worker: worker.lease_left_ms),
    (Column("beat", right=True, min_width=6), lambda worker: -worker.heartbeat_age_ms),
    (Column("ids", right=True, min_width=6), lambda worker: -worker.ids_made),
    (Column("ids/s", right=True, min_width=6), lambda worker: -worker.ids_per_second),
    (Column("clock", right=True, min_width=6), lambda worker: -abs(worker.clock_offset_ms)),
    (Column("ns", right=True), lambda worker: -worker.namespace),
    (Column("back", right=True), lambda worker: -worker.clock_backs),
)
COLUMNS = tuple(column for column, _ in _COLUMNS)
SORT_KEYS = {column.title: key for column, key in _COLUMNS}


def pool_lines(where: str, info: PoolInfo) -> list[Line]:
    """Return two lines about the pool: its name and address; its use, and the wait for its floor."""
    use: Line = [
        (f"{info.used:,} of {info.capacity:,} worker ids leased", "warn" if info.free == 0 else ""),
        (f"  {info.free:,} free  peak {info.peak:,}  ", "dim"),
    ]
    if info.floor_ms > info.now_ms:
        use.append((f"new workers wait {duration(info.floor_ms - info.now_ms)} for the floor", "warn"))
    else:
        use.append(("no wait for new workers", "dim"))
    return [[("pool ", "dim"), (info.name, "strong"), (f" at {printable(where)}", "dim")], use]


def worker_table(workers: Sequence[WorkerInfo], info: PoolInfo, width: int | None) -> list[Line]:
    """Return a table of *workers*; if it does not fit into *width*, its numbers are short and its texts are cut.

    A terminal narrower than WIDE gets no column for the state: the color of the heartbeat shows it.
    """
    hidden = () if width is None or width >= WIDE else ("state",)
    lines = table(*worker_rows(workers, info, hidden=hidden), gap=GAP)
    if width is None or width_of(plain(lines[0])) <= width:
        return lines
    return table(*worker_rows(workers, info, hidden=hidden, short_numbers=True), width, COMPACT_GAP)


def worker_rows(
    workers: Sequence[WorkerInfo], info: PoolInfo, *, hidden: Sequence[str] = (), short_numbers: bool = False
) -> tuple[list[Column], list[list[Segment]]]:
    """Return the columns, without *hidden* ones, and the cells of a table of *workers*."""
    shown = [at for at, column in enumerate(COLUMNS) if column.title not in hidden]
    count: Callable[[float], str] = compact if short_numbers else "{:,}".format
    cells = (_cells(worker, info, count) for worker in workers)
    return [COLUMNS[at] for at in shown], [[row[at] for at in shown] for row in cells]


def _cells(worker: WorkerInfo, info: PoolInfo, count: Callable[[float], str]) -> list[Segment]:
    """Return the cells of one worker, one for each of COLUMNS."""
    normal, state = "" if worker.alive else "dim", _STATE_STYLES.get(worker.state, "")
    lease = ("ended" if worker.token_hash else "free", "dim")
    if worker.alive:
        lease = (duration(worker.lease_left_ms), "warn" if worker.lease_left_ms < info.ttl_ms / 2 else "good")
    far = abs(worker.clock_offset_ms) > info.lead_ms and worker.alive
    return [
        (str(worker.worker), "strong" if worker.alive else "dim"),
        (worker.state, state),
        (printable(worker.host, MAX_FOREIGN), normal),
        (str(worker.pid or ""), normal),
        (printable(worker.label, MAX_FOREIGN), normal),
        lease,
        (duration(worker.heartbeat_age_ms), state if worker.alive else "dim"),
        (count(worker.ids_made), normal),
        (count(worker.ids_per_second), normal),
        (offset(worker.clock_offset_ms), "warn" if far else normal),
        (str(worker.namespace), "note" if worker.namespace and worker.alive else normal),
        (str(worker.clock_backs), "warn" if worker.clock_backs and worker.alive else normal),
    ]
