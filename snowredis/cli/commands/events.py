"""`events`: show the newest events of a pool, and with --follow new ones. Only reads."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, add_redis, open_known_pool, positive
from snowredis.cli.output import MAX_FOREIGN, Line, colored, plain, printable, time_of, wants_color
from snowredis.errors import StoreUnavailable

if TYPE_CHECKING:
    from snowredis.monitor.history.events import Event
    from snowredis.monitor.worker_pool import WorkerPool

# kinds of events that are no reason for alarm
_STYLES = {"claimed": "good", "released": "dim", "expired": "warn", "clock-back": "warn", "adopted": "note"}

SUMMARY = "show the events of a pool"
ABOUT = "Times are those of the Redis clock, in UTC. A pool keeps about 20,000 events."
EXAMPLES = [
    ("snowredis events --pool orders", "the newest 20"),
    ("snowredis events -n 100 --json", "one object per line"),
    ("snowredis events --follow", "then new ones, until Ctrl-C"),
]


def add_arguments(parser: Parser) -> None:
    add_redis(parser)
    parser.add_argument(
        "-n", type=positive, default=20, metavar="N", help="how many of the newest (default: 20)"
    )
    parser.add_argument("--follow", "-f", action="store_true", help="then show new events, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    with open_known_pool(args) as pool:
        # raises PoolNotFound, where events() returns none
        now_ms = pool.info().now_ms
        events = pool.events(newest=args.n)
        for event in events:
            _show(event, as_json=args.json)
        if args.follow:
            _follow(pool, events[-1].id if events else str(now_ms), as_json=args.json)
    return ExitCode.OK


def _follow(pool: WorkerPool, after: str, *, as_json: bool) -> None:
    """Show the events after *after*, a stream id, until Ctrl-C. After an outage of Redis none is missing."""
    is_away = False
    while True:
        try:
            for event in pool.follow(after):
                is_away = False
                if event is not None:
                    _show(event, as_json=as_json)
                    after = event.id
        except StoreUnavailable as error:
            if not is_away:
                print(f"snowredis: {printable(str(error), 300)}; trying again", file=sys.stderr)
            is_away = True
            time.sleep(1.0)


def _show(event: Event, *, as_json: bool) -> None:
    paint = colored if wants_color(sys.stdout) else plain
    print(json.dumps(asdict(event)) if as_json else paint(_as_line(event)), flush=True)


def _as_line(event: Event) -> Line:
    line: Line = [(f"{time_of(max(0, event.at_ms))}  ", "dim")]
    line.append((f"{event.kind:<10}  ", _STYLES.get(event.kind, "bad")))
    if event.worker >= 0:
        process = f"{printable(event.host, MAX_FOREIGN)}:{event.pid}"
        label = f" ({printable(event.label, MAX_FOREIGN)})" if event.label else ""
        line += [(f"worker {event.worker:<6} ", ""), (process, "strong"), (label, "")]
    details = _details(event)
    return [*line, (f"  {details}" if details else "", "dim")]


def _details(event: Event) -> str:
    if stats := event.stats:
        back = f", clock went back {stats.clock_backs} times, namespace {stats.namespace}"
        text = f"{stats.ids_made:,} ids, clock {stats.clock_offset_ms:+d} ms"
        return text + (back if stats.clock_backs else "")
    if event.kind == "claimed":
        return f"ids up to {time_of(max(0, event.until_ms))}"
    if event.kind == "floor" and event.from_ms:
        return f"new workers start at {time_of(event.from_ms)}: {printable(event.text, 100)}"
    return printable(event.text, 200)
