"""`workers`, `events`, `doctor` and `metrics`: who is in a pool, what happened there, and what is wrong.

They only read.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from snowredis.cli import output, pool_text
from snowredis.cli.exit_codes import ExitCode, code_of, print_error
from snowredis.cli.options import Command, Parser, natural, open_known_pool, open_pool, seconds, settings
from snowredis.cli.output import MAX_FOREIGN, Line, advised, is_terminal, print_json, printable, write
from snowredis.errors import StoreUnavailable

if TYPE_CHECKING:
    from snowredis.monitor.checks import Finding
    from snowredis.monitor.events import Event, Follower
    from snowredis.monitor.pool_monitor import Reading
    from snowredis.monitor.snapshot import EndedLease, PoolInfo

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
        read = partial(PoolPoller(pool).read, idle=pool_text.wants_idle(args))
        reading = read()
        if reading.error is not None:
            raise reading.error
        if args.watch is not None:
            _show_repeatedly(reading, read, pool.where, args)
        else:
            _show(reading, pool.where, args)


def _show(reading: Reading, where: str, args: argparse.Namespace) -> None:
    if args.json:
        snapshot = reading.snapshot and pool_text.chosen(reading.snapshot, args)
        print_json(replace(reading, snapshot=snapshot).report)
    else:
        write(_lines(reading, where, args))


def _show_repeatedly(reading: Reading, read: Callable[[], Reading], where: str, args: argparse.Namespace) -> None:
    """Show the workers every --watch seconds until Ctrl-C: on a terminal in place, else one state after the other."""
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
    status = pool_text.status_lines(reading.status, args.time_text, brief=height is not None)
    if snapshot is None:
        return status
    info, chosen = snapshot.info, pool_text.chosen(snapshot, args)
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
        ("snowredis workers", "of the only pool"),
        ("snowredis workers --pool orders --watch", "every 2 s, until Ctrl-C"),
        ("snowredis workers --state silent --host 'web-*'", "find some"),
        ("snowredis workers --group-by host", "a line for each host"),
        ("snowredis workers --acknowledge", "the died and silent were seen"),
        ("snowredis workers --pool orders --all --json", "free ones too, for programs"),
    ],
    _add_workers_arguments,
    _workers,
)

# --- events -------------------------------------------------------------------------------------

# pause between two reads of Redis
_FOLLOW_EVERY_S = 0.5


def _add_events_arguments(parser: Parser) -> None:
    from snowredis.snowflake.record import EventKind

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
        ("snowredis events --kind expired --kind died", "ends without a release"),
        ("snowredis events --worker 17", "one worker id"),
    ],
    _add_events_arguments,
    _events,
)

# --- doctor -------------------------------------------------------------------------------------

_STYLES = {"ok": "good", "unknown": "dim", "warning": "warn", "error": "bad"}


def _add_doctor_arguments(parser: Parser) -> None:
    parser.add_redis()
    text = "the tag to check, of segments or of dated numbers (default: all)"
    parser.add_argument("--tag", metavar="NAME", help=text)
    text = "SQLAlchemy's URL of a database: check also whether readers could miss rows of its tables with a fence"
    parser.add_argument("--database", metavar="URL", help=text)
    parser.add_argument("--json", action="store_true", help="one object")


def _doctor(args: argparse.Namespace) -> int:
    from snowredis.monitor.checks import check_database, worst
    from snowredis.monitor.doctor import diagnose
    from snowredis.numbers.settings import SEGMENT_SETTINGS

    url, options = settings(args, looks=True)
    if args.tag is not None:
        SEGMENT_SETTINGS["tag"].check(args.tag)
    # SNOWREDIS_POOL names no pool beside --tag
    findings = [_fast_path(), *diagnose(url, options.get("pool") if args.tag is None else args.pool, args.tag)]
    findings += check_database(args.database) if args.database else ()
    severity = worst(findings)
    if args.json:
        print_json({"severity": severity, "findings": findings})
    else:
        write(finding_lines(findings))
    if any(finding.check == "redis" and finding.severity == "error" for finding in findings):
        return ExitCode.REDIS_UNAVAILABLE
    return {"error": ExitCode.FOUND_ERRORS, "warning": ExitCode.ERROR}.get(severity, ExitCode.OK)


def _fast_path() -> Finding:
    """Return which implementation makes ids; both are complete, so neither is a problem."""
    from snowredis.monitor.checks import ok
    from snowredis.snowflake.fast_path import IMPLEMENTATION

    slow = "ids are made in Python, which is slower than C: a C compiler was missing when snowredis was installed, or "
    return ok("ids are made in C" if IMPLEMENTATION == "c" else f"{slow}SNOWREDIS_PURE is set").of("fast path")


def finding_lines(findings: list[Finding]) -> list[Line]:
    lines: list[Line] = []
    widest = max(len(printable(finding.check, MAX_FOREIGN)) for finding in findings)
    for finding in findings:
        check = f"{printable(finding.check, MAX_FOREIGN):<{widest}}  "
        head = [(f"{finding.severity:<9}", _STYLES[finding.severity]), (check, "strong")]
        lines += advised(head, printable(finding.text, 1000), printable(finding.advice, 1000))
    counts = Counter(finding.severity for finding in findings)
    summary = ", ".join(f"{counts[severity]} {severity}" for severity in ("error", "warning", "unknown", "ok"))
    return [*lines, [], [(summary, "dim")]]


DOCTOR = Command(
    "doctor",
    "check for known problems, and show how to fix them",
    """Checks this host, Redis, its pools and tags; changes nothing. Exits with 0 if it finds no problem, with 1 if
there are warnings, with 4 if Redis does not answer, and with 9 if there are other errors.""",
    [
        ("snowredis doctor", "host, Redis, its pools and tags"),
        ("snowredis doctor --pool orders", "this Redis, and only this pool"),
        ("snowredis doctor --tag invoices", "only this tag, and no pool"),
        ("snowredis doctor --database mysql:///shop", "also the fences of a database"),
        ("snowredis doctor --json", "for programs"),
    ],
    _add_doctor_arguments,
    _doctor,
)

# --- metrics ------------------------------------------------------------------------------------


def _metrics(args: argparse.Namespace) -> int:
    from snowredis.monitor.metric_values import as_text, families_of
    from snowredis.monitor.pool_monitor import PoolPoller

    with open_pool(args) as pool:
        reading = PoolPoller(pool).read()
    # that a pool cannot be read is a metric, too
    sys.stdout.write(as_text(families_of({pool.name: reading})))
    if reading.error is None:
        return ExitCode.OK
    print_error(reading.error)
    return code_of(reading.error)


METRICS = Command(
    "metrics",
    "print a pool's metrics for Prometheus",
    "For node_exporter's textfile collector, or to read; `snowredis serve` serves them at /metrics.",
    [
        ("snowredis metrics --pool orders", "the text format"),
        ("snowredis metrics | sponge /var/node/orders.prom", "from cron"),
    ],
    Parser.add_redis,
    _metrics,
)
