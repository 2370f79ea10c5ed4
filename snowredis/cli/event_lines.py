"""An event of a pool as one line. Shared by `events` and `workers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from snowredis.cli.output import MAX_FOREIGN, Line, ago, duration, printable, time_of

if TYPE_CHECKING:
    from snowredis.monitor.events import Event

# kinds of events that are no reason for alarm; the others are "bad"
_STYLES = {"claimed": "good", "released": "dim", "clock-back": "warn", "adopted": "note", "returned": "note"}


def event_line(event: Event, time_text: Callable[[int], str] = time_of) -> Line:
    """Return *event* as a line: when, what, who, details."""

    def shown(time_ms: int) -> str:
        # events are untrusted
        return time_text(max(0, time_ms))

    line: Line = [(f"{shown(event.at_ms)}  ", "dim")]
    line.append((f"{event.kind:<10}  ", _STYLES.get(event.kind, "bad")))
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
