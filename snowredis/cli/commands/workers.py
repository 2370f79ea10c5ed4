"""`workers`, `whois` and `events`: show who is and was in a pool, and what happened there. They only read."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from snowredis.cli import output, pool_text
from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Command, Parser, natural, open_known_pool, seconds
from snowredis.cli.output import Line, Pair, ago, is_terminal, pairs, print_json, printable, write
from snowredis.errors import StoreUnavailable

if TYPE_CHECKING:
    from snowredis.monitor.events import Event, Follower
    from snowredis.monitor.holdings import Holder
    from snowredis.monitor.pool_monitor import Reading
    from snowredis.monitor.snapshot import EndedLease, PoolInfo
    from snowredis.monitor.whois import Whois

# --- workers ------------------------------------------------------------------------------------


def _add_workers_arguments(parser: Parser) -> None:
    parser.add_redis()
    text = "repeat until Ctrl-C, by default every 2 s"
    parser.add_argument("--watch", nargs="?", type=seconds, const=2.0, metavar="SECONDS", help=text)
    parser.add_argument("--all", action="store_true", help="also worker ids without a lease")
    pool_text.add_filter(parser)
    parser.add_argument("--group-by", choices=("host", "label"), help="one line for each host or label")
    text = "say that you have seen who died or is silent: that is no warning any more"
    parser.add_argument("--acknowledge", action="store_true", help=text)
    parser.add_times()
    parser.add_argument("--json", action="store_true", help="one object; with --watch one object per line")


def _workers(args: argparse.Namespace) -> None:
    from snowredis.monitor.pool_monitor import PoolPoller

    with open_known_pool(args) as pool:
        if args.acknowledge:
            seen = pool.acknowledge_deaths()
            print(
                f"acknowledged: who died or fell silent in pool {pool.name} up to {args.time_text(seen.until_ms)}",
                file=sys.stderr,
            )
        read = partial(PoolPoller(pool).read, idle=pool_text.WorkerFilter(args).wants_idle)
        if args.watch is not None:
            _show_repeatedly(read, pool.where, args)
        else:
            _show(first_reading(read), pool.where, args)


def first_reading(read: Callable[[], Reading]) -> Reading:
    """Return the first reading. Raises the error of a pool that cannot be read."""
    reading = read()
    if reading.error is not None:
        raise reading.error
    return reading


def _show(reading: Reading, where: str, args: argparse.Namespace) -> None:
    if args.json:
        snapshot = reading.snapshot and pool_text.WorkerFilter(args).chosen(reading.snapshot)
        print_json(replace(reading, snapshot=snapshot).report)
    else:
        write(_lines(reading, where, args))


def _show_repeatedly(read: Callable[[], Reading], where: str, args: argparse.Namespace) -> None:
    """Show the workers every --watch seconds until Ctrl-C: on a terminal in place, else one state after the other."""
    reading = first_reading(read)
    in_place = is_terminal(sys.stdout) and not args.json
    try:
        with output.alternate_screen() if in_place else contextlib.nullcontext() as draw:
            while True:
                if draw is not None:
                    draw(_lines(reading, where, args, shutil.get_terminal_size().lines))
                elif reading.error is None or args.json:
                    _show(reading, where, args)
                    if not args.json:
                        print()
                time.sleep(args.watch)
                was_away, reading = reading.error is not None, read()
                if reading.error is not None and not was_away and not in_place:
                    print(f"snowredis: {printable(str(reading.error), 300)}; trying again", file=sys.stderr)
    finally:
        if in_place:
            # the last state stays visible, with space for the shell's prompt
            write(_lines(reading, where, args, shutil.get_terminal_size().lines - 3))


def _lines(reading: Reading, where: str, args: argparse.Namespace, height: int | None = None) -> list[Line]:
    """Return the status, the pool and its workers in at most *height* lines."""
    snapshot = reading.snapshot
    status = pool_text.status_lines(
        reading.status, args.time_text, advice=height is None, most=None if height is None else 3
    )
    if snapshot is None:
        return status
    info, chosen = snapshot.info, pool_text.WorkerFilter(args).chosen(snapshot)
    workers = chosen.workers
    lines = [*pool_text.pool_lines(where, snapshot), *status]
    if reading.error is not None:
        lines.append([(f"below: the state of {args.time_text(reading.read_at_ms)}, not up to date", "bad")])
    if args.group_by:
        return [*lines, [], *pool_text.group_table(args.group_by, workers, chosen.deaths)][:height]
    lines += [[], *_ended_lines("ended without a release in the last hour", chosen.deaths, info, args, height)]
    lines += _ended_lines("silent, without a lease", chosen.silent, info, args, height)
    if not workers:
        none = "no worker matches" if snapshot.workers else "no worker is alive"
        if not snapshot.workers and snapshot.lanes_until_ms > info.now_ms:
            until = args.time_text(snapshot.lanes_until_ms)
            none = f"no worker has a lease; those that lost theirs go on in outage lanes, until {until} at most"
        return [*lines, [(none, "dim")]][:height]
    # the table's head and the line that counts the others take the rest
    fits = len(workers) if height is None else max(1, height - len(lines) - 1)
    shown = workers if len(workers) <= fits else workers[: max(1, fits - 1)]
    lines += pool_text.worker_table(shown, info, output.terminal_width())
    if len(shown) < len(workers):
        others = len(workers) - len(shown)
        lines.append([(f"… and {others:,} more: --state, --host and --label choose, --group-by counts", "dim")])
    return lines[:height]


# the newest of the processes that died or are silent
MOST_ENDED = 20


def _ended_lines(
    title: str, ended: Sequence[EndedLease], info: PoolInfo, args: argparse.Namespace, height: int | None
) -> list[Line]:
    from snowredis.monitor.owner import counted

    if not ended:
        return []
    # at most a third of the screen
    most = MOST_ENDED if height is None else min(MOST_ENDED, max(1, height // 3 - 4))
    lines = [*pool_text.ended_table(ended[:most], info.now_ms, args.time_text)]
    if most < len(ended):
        lines.append([(f"… and {len(ended) - most:,} more: --group-by host counts them, --json has all", "dim")])
    return [[(f"{title}: {counted(ended)}", "strong")], *lines, []]


WORKERS = Command(
    "workers",
    "show which process has which worker id, and which died",
    """Ids, ids/s, clock and namespace are as of a worker's last heartbeat. State: healthy, late (no
heartbeat for half a ttl), silent (none for two thirds of a ttl), no-ids (it sends heartbeats, and gets no ids),
unknown (Redis may have forgotten it), expired (the lease ended without a release), free (released). Workers that ended
without a release are listed for an hour, those that are silent for as long as they may have ids.""",
    [
        ("snowredis workers", "of pool 'default'"),
        ("snowredis workers --pool orders --watch", "every 2 s, until Ctrl-C"),
        ("snowredis workers --state silent --host 'web-*'", "find some"),
        ("snowredis workers --group-by host", "a line for each host"),
        ("snowredis workers --acknowledge", "the died and silent were seen"),
        ("snowredis workers --pool orders --all --json", "free ones too, for programs"),
    ],
    _add_workers_arguments,
    _workers,
)

# --- whois --------------------------------------------------------------------------------------

_CERTAINTY_STYLES = {"certain": "good", "probable": "warn", "unknown": "bad"}


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
        texts = zip(pool_text.OWNER_COLUMNS, pool_text.owner_texts(holder.owner), strict=True)
        rows += [(column.title, [(text, "strong")]) for column, text in texts]
        rows.append(("lease", _lease(holder, now_ms, time_text)))
    if parts is not None:
        rows.append(("worker id now", _worker_now(whois, time_text)))
    rows.append(("certainty", [(whois.certainty, _CERTAINTY_STYLES[whois.certainty])]))
    rows.append(("reason", printable(whois.reason, 1000)))
    rows += [
        ("candidate", f"{pool_text.process_text(holder.owner)}  {_lease(holder, now_ms, time_text)}")
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
    who = "the same process" if same else pool_text.process_text(worker.owner)
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
        print(paint(pool_text.event_line(event, args.time_text)), flush=True)


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
