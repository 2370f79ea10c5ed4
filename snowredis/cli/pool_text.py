"""A pool as text: its status, its workers, their deaths, and events; and which workers are shown."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from snowredis.cli import output
from snowredis.cli.options import Parser
from snowredis.cli.output import MAX_FOREIGN, Cell, Column, Line, Segment, ago, printable
from snowredis.core.values import duration

if TYPE_CHECKING:
    from snowredis.monitor.events import Event
    from snowredis.monitor.owner import Owner
    from snowredis.monitor.snapshot import EndedLease, PoolInfo, Snapshot, WorkerInfo
    from snowredis.monitor.status import Status

LEVEL_STYLES = {"ok": "good", "notice": "note", "unknown": "note", "warning": "warn", "critical": "bad"}
# columns of the longest level, and a space
_INDENT = 9


def status_lines(status: Status, time_text: Callable[[int], str], *, brief: bool = False) -> list[Line]:
    """Return the headline and the conditions; *brief*: three conditions at most, and not what to do."""
    # the level is a word, and not shown by its color alone
    headline = f"{status.level}: {printable(status.headline, 200)}"
    lines: list[Line] = [[("status ", "dim"), (headline, LEVEL_STYLES[status.level])]]
    shown = status.conditions[: 3 if brief else None]
    for condition in shown:
        head: Line = [(f"{condition.level:<{_INDENT}}", LEVEL_STYLES[condition.level])]
        text, todo = condition.render(time_text), "" if brief else condition.advice
        lines += output.advised(head, printable(text, 1000), printable(todo, 1000))
    if len(shown) < len(status.conditions):
        lines.append([(f"{' ' * _INDENT}… and {len(status.conditions) - len(shown)} more", "dim")])
    return lines


# kinds of events that are no reason for alarm; the others are "bad"
_EVENT_STYLES = {"claimed": "good", "released": "dim", "clock-back": "warn", "adopted": "note", "returned": "note"}


def event_line(event: Event, time_text: Callable[[int], str]) -> Line:
    """Return *event* as a line: when, what, who, details."""
    line: Line = [(f"{time_text(event.at_ms)}  ", "dim")]
    is_new = event.kind == "floor" and not event.from_ms
    line.append((f"{event.kind:<10}  ", "good" if is_new else _EVENT_STYLES.get(event.kind, "bad")))
    if event.worker >= 0:
        line += [(f"worker {event.worker:<6} ", ""), (process_text(event.owner), "strong")]
    details = _details(event, time_text)
    return [*line, (f"  {details}" if details else "", "dim")]


# what is shown of a process; texts beside it name all of it, with the label in brackets
OWNER_COLUMNS = (Column("host", shrinks=True), Column("pid", right=True), Column("label", shrinks=True))


def owner_texts(owner: Owner) -> list[str]:
    """Return the texts of OWNER_COLUMNS."""
    return [printable(owner.host, MAX_FOREIGN), str(owner.pid or ""), printable(owner.label, MAX_FOREIGN)]


def process_text(owner: Owner) -> str:
    """Return host and pid of a process, and its label in brackets."""
    host, pid, label = owner_texts(owner)
    return f"{host}:{pid}{f' ({label})' if label else ''}"


def _details(event: Event, time_text: Callable[[int], str]) -> str:
    texts = []
    if event.kind == "expired" and event.renewed_ms is not None:
        silent_ms = max(0, event.at_ms - event.renewed_ms)
        texts.append(f"its lease ended, {duration(silent_ms)} after the last heartbeat")
    elif event.kind == "died":
        texts.append("killed or crashed; another process found it dead and released the worker id")
    elif event.kind == "returned" and event.ended_ms is not None:
        texts.append(f"renewed its lease, which had ended {ago(max(0, event.at_ms - event.ended_ms))}")
    elif event.kind == "claimed":
        texts.append(f"ids up to {time_text(event.until_ms)}")
    elif event.kind == "floor" and event.from_ms:
        texts.append(f"new workers start at {time_text(event.from_ms)}: {printable(event.text, 100)}")
    elif event.kind == "alarm":
        between = f"{time_text(event.from_ms)} and {time_text(event.until_ms)}"
        texts.append(f"{printable(event.text, 200)}, with times between {between}")
    elif event.text:
        texts.append(printable(event.text, 200))
    if stats := event.stats:
        # a process that ended without a release told them at its last heartbeat
        least = "at least " if event.kind in ("expired", "died") else ""
        texts.append(f"{least}{stats.ids_made:,} ids, clock {stats.clock_offset_ms:+d} ms")
        if stats.clock_backs:
            texts.append(f"clock went back {stats.clock_backs} times, namespace {stats.namespace}")
    return ", ".join(texts)


_ENDED_COLUMNS = (
    Column("worker", right=True),
    Column("ended"),
    Column("", right=True),
    *OWNER_COLUMNS,
    Column("last heartbeat", shrinks=True),
    Column("ids at least", right=True),
    Column("how"),
)


def ended_table(ended: Sequence[EndedLease], now_ms: int, time_text: Callable[[int], str]) -> list[Line]:
    """Return a table of *ended* leases as of *now_ms* on the Redis clock."""

    def how(each: EndedLease) -> str:
        if each.kind == "died":
            return "found dead by another process"
        if each.lasts_until_ms <= now_ms:
            return "nobody saw its end; it has no ids"
        return f"if it lives, it has ids until {time_text(each.lasts_until_ms)}"

    rows: list[list[Cell]] = [
        [
            (str(each.worker), "strong"),
            (time_text(each.at_ms), "bad"),
            (ago(max(0, now_ms - each.at_ms)), "dim"),
            *owner_texts(each.owner),
            ("unknown", "dim") if each.renewed_ms is None else time_text(each.renewed_ms),
            output.compact(each.ids_made),
            (how(each) + (", acknowledged" if each.acknowledged else ""), "dim"),
        ]
        for each in ended
    ]
    return output.table(_ENDED_COLUMNS, rows)


# --- workers --------------------------------------------------------------------------------------

_STATE_STYLES = {
    "healthy": "good",
    "late": "warn",
    "silent": "bad",
    "no-ids": "bad",
    "unknown": "note",
    "expired": "bad",
    "free": "dim",
}

COLUMNS = (
    Column("worker", right=True),
    Column("state", min_width=7, optional=True),
    *OWNER_COLUMNS,
    Column("lease", right=True, min_width=6),
    Column("beat", right=True, min_width=6),
    Column("ids", right=True, min_width=6, optional=True),
    Column("ids/s", right=True, min_width=6),
    Column("clock", right=True, min_width=6, optional=True),
    Column("namespace", right=True, optional=True),
    Column("back", right=True, optional=True),
)


def pool_lines(where: str, snapshot: Snapshot) -> list[Line]:
    """Return two lines about the pool: its name and address; its use, and the wait for its floor."""
    info = snapshot.info
    use: Line = [
        (snapshot.use, "warn" if info.free == 0 else ""),
        (f"  {info.free:,} free  peak {info.peak:,}  ", "dim"),
    ]
    if info.floor_ms > info.now_ms:
        use.append((f"new workers wait {duration(info.floor_ms - info.now_ms)} for the floor", "warn"))
    else:
        use.append(("no wait for new workers", "dim"))
    return [[("pool ", "dim"), (info.name, "strong"), (f" at {printable(where)}", "dim")], use]


def worker_table(workers: Sequence[WorkerInfo], info: PoolInfo, width: int | None) -> list[Line]:
    """Return a table of *workers*.

    On a terminal of *width*, its numbers are short, and it has as many columns as there is space for.
    """
    count = "{:,}".format if width is None else output.compact
    # spaces between columns: less on a narrow terminal
    gap = 2 if width is None or width >= 100 else 1
    rows = [_cells(worker, info, count) for worker in workers]
    if len({worker.owner.version for worker in workers if worker.alive}) < 2:
        return output.table(COLUMNS, rows, width, gap)
    for row, worker in zip(rows, workers, strict=True):
        row.append((printable(worker.owner.version, MAX_FOREIGN) or "unknown", "note"))
    return output.table((*COLUMNS, Column("version", optional=True)), rows, width, gap)


def _cells(worker: WorkerInfo, info: PoolInfo, count: Callable[[float], str]) -> list[Segment]:
    """Return the cells of one worker, one for each of COLUMNS."""
    normal, state = "" if worker.alive else "dim", _STATE_STYLES.get(worker.state, "")
    lease = ("ended" if worker.token_hash else "free", "dim")
    if worker.alive:
        lease = (duration(worker.lease_left_ms), "warn" if worker.lease_left_ms < info.ttl_ms / 2 else "good")
    far = abs(worker.clock_offset_ms) > info.lead_ms and worker.alive
    # a rate of an earlier time would look like one of now
    rate = ("?", "dim") if worker.state == "unknown" else (count(worker.ids_per_second), normal)
    return [
        (str(worker.worker), "strong" if worker.alive else "dim"),
        (worker.state, state),
        *[(text, normal) for text in owner_texts(worker.owner)],
        lease,
        (duration(worker.heartbeat_age_ms), state if worker.alive else "dim"),
        (count(worker.ids_made), normal),
        rate,
        (output.offset(worker.clock_offset_ms), "warn" if far else normal),
        (str(worker.namespace), "note" if worker.namespace and worker.alive else normal),
        (str(worker.clock_backs), "warn" if worker.clock_backs and worker.alive else normal),
    ]


def add_filter(parser: Parser) -> None:
    """Add --state, --host and --label."""
    from snowredis.monitor.snapshot import STATES

    text = f"only {', '.join(STATES)}; may be repeated"
    parser.add_argument("--state", action="append", choices=STATES, metavar="STATE", help=text)
    for name in ("host", "label"):
        text = f"only workers whose {name} matches this pattern, such as 'web-*'"
        parser.add_argument(f"--{name}", metavar="PATTERN", help=text)


def wants_idle(args: argparse.Namespace) -> bool:
    """Return true if worker ids without a lease are asked for, so that they have to be read."""
    return args.all or not {"expired", "free"}.isdisjoint(args.state or ())


def chosen(snapshot: Snapshot, args: argparse.Namespace) -> Snapshot:
    """Return *snapshot* with the workers that the arguments of add_filter() choose, idle and unknown ones among them.

    Its ended leases are chosen, too. Patterns are those of file names.
    """
    patterns = [(name, pattern) for name in ("host", "label") if (pattern := getattr(args, name)) is not None]

    def matches(who: WorkerInfo | EndedLease, state: str) -> bool:
        of_state = not args.state or state in args.state
        return of_state and all(fnmatchcase(getattr(who, name), pattern) for name, pattern in patterns)

    return replace(
        snapshot,
        workers=tuple(info for info in snapshot.worker_ids if matches(info, info.state)),
        deaths=tuple(each for each in snapshot.deaths if matches(each, "expired")),
        silent=tuple(each for each in snapshot.silent if matches(each, "silent")),
    )


_COUNTED_STATES = ("healthy", "late", "silent", "no-ids", "unknown")
_GROUP_COLUMNS = tuple(
    Column(title, right=True) for title in ("workers", *_COUNTED_STATES, "died", "oldest beat", "ids/s")
)


def counted(number: int, style: str) -> Segment:
    """Return *number* in *style*, or dim if it is 0."""
    return f"{number:,}", style if number else "dim"


def group_table(by: str, workers: Sequence[WorkerInfo], deaths: Sequence[EndedLease]) -> list[Line]:
    """Return one row for each host or label, with counts of its workers and of its deaths in the last hour."""
    died = Counter(getattr(death, by) for death in deaths)
    members: dict[str, list[WorkerInfo]] = {name: [] for name in died}
    for worker in workers:
        members.setdefault(getattr(worker, by), []).append(worker)
    rows: list[list[Cell]] = []
    for name in sorted(members):
        states = Counter(worker.state for worker in members[name])
        living = [worker for worker in members[name] if worker.alive]
        oldest_ms = max((worker.heartbeat_age_ms for worker in living), default=None)
        rows.append(
            [
                (printable(name, MAX_FOREIGN) or "(none)", "strong"),
                f"{len(living):,}",
                *(counted(states[state], _STATE_STYLES[state]) for state in _COUNTED_STATES),
                counted(died[name], "bad"),
                "" if oldest_ms is None else duration(oldest_ms),
                output.compact(sum(worker.ids_per_second for worker in living)),
            ]
        )
    return output.table((Column(by, shrinks=True), *_GROUP_COLUMNS), rows)
