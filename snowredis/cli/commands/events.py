"""`events`: show the newest events of a pool, and with --follow new ones. Only reads."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, add_redis, add_times, natural, open_known_pool
from snowredis.cli.output import colored, plain, print_json, printable, wants_color
from snowredis.cli.status_text import event_line
from snowredis.errors import StoreUnavailable

if TYPE_CHECKING:
    from snowredis.monitor.events import Event
    from snowredis.monitor.worker_pool import WorkerPool

# as in lease.codes, which is not imported for --help
KINDS = (
    "claimed",
    "released",
    "expired",
    "reclaimed",
    "returned",
    "adopted",
    "lost",
    "clock-back",
    "floor",
    "alarm",
)

SUMMARY = "show the events of a pool"
ABOUT = """Times are those of the Redis clock. A lease that ends without a release is an event at once ("expired"),
though no other process runs. A pool keeps about 20,000 events."""
EXAMPLES = [
    ("snowredis events --pool orders", "the newest 20"),
    ("snowredis events -n 100 --json", "one object per line"),
    ("snowredis events --follow", "then new ones, until Ctrl-C"),
    ("snowredis events --kind expired --kind reclaimed", "deaths only"),
    ("snowredis events --worker 17", "one worker id"),
]


def add_arguments(parser: Parser) -> None:
    add_redis(parser)
    parser.add_argument(
        "-n", type=natural, default=20, metavar="N", help="how many of the newest (default: 20)"
    )
    parser.add_argument("--follow", "-f", action="store_true", help="then show new events, until Ctrl-C")
    parser.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        metavar="KIND",
        help=f"only {', '.join(KINDS)}; may be repeated",
    )
    parser.add_argument("--worker", type=natural, metavar="N", help="only events of this worker id")
    add_times(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    with open_known_pool(args) as pool:
        # raises PoolNotFound, where events() returns none
        now_ms = pool.info().now_ms
        chosen = args.kind or args.worker is not None
        # those that are not shown do not count
        events = [
            event for event in pool.events(newest=None if chosen else args.n) if _is_chosen(event, args)
        ]
        for event in events[len(events) - min(args.n, len(events)) :]:
            _show(event, args)
        if args.follow:
            last = next((event.id for event in reversed(events) if event.id), str(now_ms))
            shown = {event.key for event in events if not event.id}
            _follow(pool, last, shown, args)
    return ExitCode.OK


def _is_chosen(event: Event, args: argparse.Namespace) -> bool:
    return (not args.kind or event.kind in args.kind) and args.worker in (None, event.worker)


def _follow(pool: WorkerPool, after: str, shown: set[str], args: argparse.Namespace) -> None:
    """Show the events after *after*, a stream id, until Ctrl-C. After an outage of Redis none is missing.

    Args:
        shown: keys of expiries that were shown before a script wrote them.
    """
    is_away = False
    while True:
        try:
            for event in pool.follow(after):
                is_away = False
                if event is None:
                    continue
                after = event.id or after
                if event.key in shown:
                    shown.discard(event.key)
                    continue
                if not event.id:
                    shown.add(event.key)
                if _is_chosen(event, args):
                    _show(event, args)
        except StoreUnavailable as error:
            if not is_away:
                print(f"snowredis: {printable(str(error), 300)}; trying again", file=sys.stderr)
            is_away = True
            time.sleep(1.0)


def _show(event: Event, args: argparse.Namespace) -> None:
    if args.json:
        print_json(event)
    else:
        paint = colored if wants_color(sys.stdout) else plain
        print(paint(event_line(event, args.time_text)), flush=True)
