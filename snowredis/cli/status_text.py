"""The status, the events and the deaths of a pool as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from snowredis.cli.output import (
    MAX_FOREIGN,
    Cell,
    Column,
    Line,
    ago,
    compact,
    duration,
    printable,
    table,
    time_of,
    wrapped,
)

if TYPE_CHECKING:
    from snowredis.monitor.events import Event
    from snowredis.monitor.snapshot import Death
    from snowredis.monitor.status import Status


LEVEL_STYLES = {"ok": "good", "notice": "note", "unknown": "note", "warning": "warn", "critical": "bad"}
# columns of the longest level, and a space
_INDENT = 9


def status_lines(
    status: Status, time_text: Callable[[int], str] = time_of, *, advice: bool = True, most: int | None = None
) -> list[Line]:
    """Return the headline and the conditions.

    Args:
        advice: whether to say what to do.
        most: how many conditions are shown at most; None: all.
    """
    lines: list[Line] = [headline(status)]
    shown = status.conditions[:most]
    for condition in shown:
        head: Line = [(f"{condition.level:<{_INDENT}}", LEVEL_STYLES[condition.level])]
        lines += wrapped(head, printable(condition.render(time_text), 1000))
        if advice and condition.advice:
            lines += wrapped([(" " * _INDENT + "→ ", "dim")], printable(condition.advice, 1000), "note")
    if len(shown) < len(status.conditions):
        lines.append([(f"{' ' * _INDENT}… and {len(status.conditions) - len(shown)} more", "dim")])
    return lines


def headline(status: Status) -> Line:
    """Return the level and the headline; the level is a word, and not shown by its color alone."""
    return [
        ("status ", "dim"),
        (f"{status.level}: {printable(status.headline, 200)}", LEVEL_STYLES[status.level]),
    ]


# kinds of events that are no reason for alarm; the others are "bad"
_EVENT_STYLES = {
    "claimed": "good",
    "released": "dim",
    "clock-back": "warn",
    "adopted": "note",
    "returned": "note",
}


def event_line(event: Event, time_text: Callable[[int], str] = time_of) -> Line:
    """Return *event* as a line: when, what, who, details."""

    def shown(time_ms: int) -> str:
        # events are untrusted
        return time_text(max(0, time_ms))

    line: Line = [(f"{shown(event.at_ms)}  ", "dim")]
    line.append((f"{event.kind:<10}  ", _EVENT_STYLES.get(event.kind, "bad")))
    if event.worker >= 0:
        process = f"{printable(event.host, MAX_FOREIGN)}:{event.pid}"
        label = f" ({printable(event.label, MAX_FOREIGN)})" if event.label else ""
        line += [(f"worker {event.worker:<6} ", ""), (process, "strong"), (label, "")]
    details = _details(event, shown)
    return [*line, (f"  {details}" if details else "", "dim")]


def _details(event: Event, shown: Callable[[int], str]) -> str:
    texts = []
    if event.kind == "expired" and event.heartbeat_ms is not None:
        silent_ms = max(0, event.at_ms - event.heartbeat_ms)
        texts.append(f"its lease ended, {duration(silent_ms)} after the last heartbeat")
    elif event.kind == "reclaimed":
        texts.append("killed; another process released the worker id")
    elif event.kind == "returned" and event.ended_ms is not None:
        texts.append(f"renewed its lease, which had ended {ago(max(0, event.at_ms - event.ended_ms))}")
    elif event.kind == "claimed":
        texts.append(f"ids up to {shown(event.until_ms)}")
    elif event.kind == "floor" and event.from_ms:
        texts.append(f"new workers start at {shown(event.from_ms)}: {printable(event.text, 100)}")
    elif event.kind == "alarm":
        between = f"{shown(event.from_ms)} and {shown(event.until_ms)}"
        texts.append(f"{printable(event.text, 200)}, with times between {between}")
    elif event.text:
        texts.append(printable(event.text, 200))
    if stats := event.stats:
        texts.append(f"{stats.ids_made:,} ids, clock {stats.clock_offset_ms:+d} ms")
        if stats.clock_backs:
            texts.append(f"clock went back {stats.clock_backs} times, namespace {stats.namespace}")
    return ", ".join(texts)


_DEATH_COLUMNS = (
    Column("worker", right=True),
    Column("died"),
    Column("", right=True),
    Column("host", shrinks=True),
    Column("pid", right=True),
    Column("label", shrinks=True),
    Column("last heartbeat", shrinks=True),
    Column("ids", right=True),
    Column("how"),
)
_HOW = {"expired": "lease ended", "reclaimed": "killed, released by another process"}


def death_table(
    deaths: Sequence[Death], now_ms: int, width: int | None = None, time_text: Callable[[int], str] = time_of
) -> list[Line]:
    """Return a table of *deaths* as of *now_ms* on the Redis clock."""
    rows: list[list[Cell]] = [
        [
            (str(death.worker), "strong"),
            (time_text(death.at_ms), "bad"),
            (ago(max(0, now_ms - death.at_ms)), "dim"),
            printable(death.host, MAX_FOREIGN),
            str(death.pid or ""),
            printable(death.label, MAX_FOREIGN),
            ("unknown", "dim") if death.heartbeat_ms is None else time_text(death.heartbeat_ms),
            compact(death.ids_made),
            (_HOW[death.kind] + (", acknowledged" if death.acknowledged else ""), "dim"),
        ]
        for death in deaths
    ]
    return table(_DEATH_COLUMNS, rows, width)
