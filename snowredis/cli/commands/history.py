"""`whois` and `events`: show what happened in a pool. Both only read."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from snowredis.cli import output
from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Command, Parser, natural, open_known_pool
from snowredis.cli.output import Line, Pair, ago, pairs, print_json, printable, write
from snowredis.cli.pool_text import OWNER_COLUMNS, event_line, owner_texts, process_text
from snowredis.errors import StoreUnavailable

if TYPE_CHECKING:
    from snowredis.monitor.events import Event, Follower
    from snowredis.monitor.holdings import Holder
    from snowredis.monitor.whois import Whois

# --- whois --------------------------------------------------------------------------------------

_STYLES = {"certain": "good", "probable": "warn", "unknown": "bad"}


def _add_whois_arguments(parser: Parser) -> None:
    text = "number or text; twice the same one for a duplicate"
    parser.add_argument("ids", nargs="+", metavar="ID", help=text)
    parser.add_redis()
    parser.add_format()
    parser.add_times()
    parser.add_argument("--json", action="store_true", help="one JSON object per line; ids are strings in it")


def _whois(args: argparse.Namespace) -> int:
    from snowredis.core.text import parse_user_id

    with open_known_pool(args) as pool:
        info = pool.info()
        readings = [parse_user_id(text, info.layout, form=args.format, now_ms=info.now_ms) for text in args.ids]
        results = pool.whois_all([an_id for (_, an_id), *_ in readings], info)
    for number, whois in enumerate(results):
        if args.json:
            print_json(whois)
        else:
            write([*([[]] if number else []), *whois_lines(whois, args.time_text)])
    return ExitCode.ERROR if any(whois.certainty == "unknown" for whois in results) else ExitCode.OK


def whois_lines(whois: Whois, time_text: Callable[[int], str]) -> list[Line]:
    """Return the lines about the process that made an id."""
    parts, now_ms, rows = whois.parts, whois.now_ms, list[Pair]()
    if parts is not None:
        age: Line = [(time_text(parts.timestamp_ms), "note"), (f"  {ago(now_ms - parts.timestamp_ms)}", "dim")]
        rows.append(("time", age))
        rows.append(("worker id", f"{parts.worker}, namespace {parts.backup}, sequence {parts.sequence}"))
    if (holder := whois.holder) is not None:
        texts = zip(OWNER_COLUMNS, owner_texts(holder.owner), strict=True)
        rows += [(column.title, [(text, "strong")]) for column, text in texts]
        rows.append(("lease", _lease(holder, now_ms, time_text)))
    if parts is not None:
        rows.append(("worker id now", _worker_now(whois, time_text)))
    rows.append(("certainty", [(whois.certainty, _STYLES[whois.certainty])]))
    rows.append(("reason", printable(whois.reason, 1000)))
    rows += [
        ("candidate", f"{process_text(holder.owner)}  {_lease(holder, now_ms, time_text)}")
        for holder in whois.candidates
    ]
    lines: list[Line] = [[(str(whois.id), "strong")], *pairs(rows, wrap=True)]
    if whois.duplicate_causes is not None:
        lines += [[], [("how it can be in two places", "strong")]]
        causes = whois.duplicate_causes
        rows = [("shown" if cause.shown else "possible", printable(cause.text, 1000)) for cause in causes]
        lines += pairs(rows, wrap=True)
    return lines


def _worker_now(whois: Whois, time_text: Callable[[int], str]) -> str:
    """Return which process has the worker id of the id now."""
    worker = whois.worker_now
    if worker is None or worker.state == "free":
        return "no process has it"
    holder = whois.holder
    same = holder and holder.from_ms == worker.claimed_ms and holder.owner.process == worker.owner.process
    who = "the same process" if same else process_text(worker.owner)
    return f"{who}, {worker.state}; last heartbeat {time_text(worker.renewed_ms)}, {ago(worker.heartbeat_age_ms)}"


def _lease(holder: Holder, now_ms: int, time_text: Callable[[int], str]) -> str:
    """Return from when to when *holder* had its worker id."""
    begin = "an unknown time" if holder.from_ms is None else time_text(holder.from_ms)
    if holder.held:
        return f"since {begin}, still held"
    if holder.to_ms is None:
        return f"from {begin} to an unknown time"
    return f"from {begin} to {time_text(holder.to_ms)}  {ago(now_ms - holder.to_ms)}"


WHOIS = Command(
    "whois",
    "show which process made an id",
    """Reads the pool's events, of which about 20,000 are kept. For an id that is given twice: how it can be in two
tables. Exits with 1 if the process that made an id cannot be known.""",
    [
        ("snowredis whois 249736970576592896 --pool orders", "host, pid, lease"),
        ("snowredis whois 0IRnTPj9V9k --format base62 --json", "for programs"),
        ("snowredis whois 249736970576592896 249736970576592896", "a duplicate"),
    ],
    _add_whois_arguments,
    _whois,
)

# --- events -------------------------------------------------------------------------------------

# pause between two reads of Redis
_FOLLOW_EVERY_S = 0.5


def _add_events_arguments(parser: Parser) -> None:
    from snowredis.snowflake.codes import EventKind

    kinds = [kind.value for kind in EventKind]
    parser.add_redis()
    text = "how many of the newest (default: 20)"
    parser.add_argument("-n", type=natural, default=20, metavar="N", help=text)
    parser.add_argument("--follow", "-f", action="store_true", help="then show new events, until Ctrl-C")
    text = f"only {', '.join(kinds)}; may be repeated"
    parser.add_argument("--kind", action="append", choices=kinds, metavar="KIND", help=text)
    parser.add_argument("--worker", type=natural, metavar="N", help="only events of this worker id")
    parser.add_times()
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def _events(args: argparse.Namespace) -> None:
    with open_known_pool(args) as pool:
        # raises PoolNotFound, where events() returns none
        now_ms = pool.info().now_ms
        chosen = args.kind or args.worker is not None
        # events that are not shown do not count
        events = [event for event in pool.events(newest=None if chosen else args.n) if _is_chosen(event, args)]
        for event in events[len(events) - min(args.n, len(events)) :]:
            _show_event(event, args)
        if args.follow:
            last = next((event.id for event in reversed(events) if event.id), str(now_ms))
            _follow(pool.follower(last, {event.key for event in events if not event.id}), args)


def _is_chosen(event: Event, args: argparse.Namespace) -> bool:
    return (not args.kind or event.kind in args.kind) and args.worker in (None, event.worker)


def _follow(follower: Follower, args: argparse.Namespace) -> None:
    """Show the events that *follower* reads, until Ctrl-C. After an outage of Redis none is missing."""
    is_away = False
    while True:
        try:
            events = follower.read()
        except StoreUnavailable as error:
            if not is_away:
                print(f"snowredis: {printable(str(error), 300)}; trying again", file=sys.stderr)
            is_away, events = True, []
        else:
            is_away = False
        for event in events:
            if _is_chosen(event, args):
                _show_event(event, args)
        time.sleep(_FOLLOW_EVERY_S)


def _show_event(event: Event, args: argparse.Namespace) -> None:
    if args.json:
        print_json(event)
    else:
        paint = output.colored if output.wants_color(sys.stdout) else output.plain
        print(paint(event_line(event, args.time_text)), flush=True)


EVENTS = Command(
    "events",
    "show the events of a pool",
    """Times are those of the Redis clock. A lease that ends without a release is an event at once ("expired"),
though no other process runs. A pool keeps about 20,000 events.""",
    [
        ("snowredis events --pool orders", "the newest 20"),
        ("snowredis events -n 100 --json", "one object per line"),
        ("snowredis events --follow", "then new ones, until Ctrl-C"),
        ("snowredis events --kind expired --kind reclaimed", "deaths only"),
        ("snowredis events --worker 17", "one worker id"),
    ],
    _add_events_arguments,
    _events,
)
