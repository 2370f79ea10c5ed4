"""`events`: what happened in a pool, and what happens. Only reads."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import (
    Commands,
    Parser,
    add_command,
    add_redis,
    open_known_pool,
    positive,
    settings,
)
from snowredis.cli.output import MAX_FOREIGN, Line, colored, plain, printable, wants_color

if TYPE_CHECKING:
    from snowredis.monitor.history.events import Event
    from snowredis.monitor.worker_pool import WorkerPool

_NEWEST = 20
_STYLES = {"claimed": "good", "released": "dim", "expired": "warn", "clock-back": "warn", "adopted": "note"}
_BAD = "bad"


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "events",
        summary="show what happened in a pool",
        about="Times are of the Redis clock, in UTC. The pool keeps about 20,000 events.",
        examples=[
            ("snowredis events --pool orders", "the newest 20"),
            ("snowredis events -n 100 --json", "one object a line"),
            ("snowredis events --follow", "and what comes, until Ctrl-C"),
        ],
        run=_events,
    )
    add_redis(parser)
    parser.add_argument(
        "-n", type=positive, default=_NEWEST, metavar="N", help="how many of the newest (default: 20)"
    )
    parser.add_argument("--follow", "-f", action="store_true", help="then those that come, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def _events(args: argparse.Namespace) -> int:
    url, options = settings(args)
    with open_known_pool(url, options.get("pool", "default")) as pool:
        # a pool without events may be no pool
        now_ms = pool.info().now_ms
        found = pool.events(newest=args.n)
        for event in found:
            _show(event, as_json=args.json)
        if args.follow:
            _follow(pool, found[-1] if found else None, now_ms, as_json=args.json)
    return ExitCode.OK


def _follow(pool: WorkerPool, last: Event | None, now_ms: int, *, as_json: bool) -> None:
    """Goes on after an outage of Redis where it was; ends with Ctrl-C only."""
    import sys
    import time

    from snowredis.errors import StoreUnavailable

    after, told = _place(last, now_ms), False
    while True:
        try:
            for event in pool.follow(after):
                told = False
                if event is not None:
                    _show(event, as_json=as_json)
                    after = _place(event, now_ms)
        except StoreUnavailable as error:
            if not told:
                print(f"snowredis: {printable(str(error), 300)}; trying again", file=sys.stderr)
            told = True
            time.sleep(1.0)


def _place(event: Event | None, now_ms: int) -> str:
    return event.id if event is not None else str(now_ms)


def _show(event: Event, *, as_json: bool) -> None:
    import sys

    if as_json:
        print(json.dumps(asdict(event)), flush=True)
        return
    paint = colored if wants_color(sys.stdout) else plain
    print(paint(line_of(event)), flush=True)


def line_of(event: Event) -> Line:
    """An event for people."""
    from snowredis.cli.commands.decode import time_of

    style = _STYLES.get(event.kind, _BAD)
    line: Line = [(f"{time_of(max(0, event.at_ms))}  ", "dim"), (f"{event.kind:<10}  ", style)]
    if event.worker >= 0:
        who = f"{printable(event.host, MAX_FOREIGN)}:{event.pid}"
        label = f" ({printable(event.label, MAX_FOREIGN)})" if event.label else ""
        line += [(f"worker {event.worker:<6} ", ""), (who, "strong"), (label, "")]
    text = _detail(event)
    return [*line, (f"  {text}" if text else "", "dim")]


def _detail(event: Event) -> str:
    from snowredis.cli.commands.decode import time_of

    if event.stats:
        stats = event.stats
        back = f", clock went back {stats.clock_backs} times, namespace {stats.namespace}"
        return (
            f"{stats.ids_made:,} ids, clock {stats.clock_offset_ms:+d} ms{back if stats.clock_backs else ''}"
        )
    if event.kind == "claimed":
        return f"ids up to {time_of(max(0, event.until_ms))}"
    if event.kind == "floor" and event.from_ms:
        return f"new workers start at {time_of(event.from_ms)}: {printable(event.text, 100)}"
    return printable(event.text, 200)
