"""`top`: show the workers of a pool in a terminal view that sorts, filters and scrolls. Only reads."""

from __future__ import annotations

import argparse
import sys

from snowredis.cli.commands.workers import DEFAULT_INTERVAL_S, MIN_INTERVAL_S, first_reading, this_person
from snowredis.cli.exit_codes import CommandError, ExitCode, missing_extra
from snowredis.cli.options import Parser, add_redis, add_times, open_known_pool, seconds

SUMMARY = "watch the workers of a pool: sort, filter, scroll, look at one"
ABOUT = """Columns are those of `snowredis workers`. Click a column's title, or press s and S, to sort by it; r
reverses, / filters by host, label, state, pid or worker id, Enter shows one worker in full, d the workers that
died in the last hour, a shows worker ids that nobody has too, Space reads at once, q quits. Needs a terminal, and
the extra snowredis[cli]."""
EXAMPLES = [
    ("snowredis top --pool orders", "every 2 s, until q or Ctrl-C"),
    ("snowredis top --pool orders --interval 0.5", "more often"),
]


def add_arguments(parser: Parser) -> None:
    add_redis(parser)
    text = "time between two reads of Redis (default: 2)"
    parser.add_argument("--interval", type=seconds, default=DEFAULT_INTERVAL_S, metavar="SECONDS", help=text)
    parser.add_argument("--all", action="store_true", help="also worker ids that nobody has")
    add_times(parser)


def run(args: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise CommandError(
            ExitCode.USAGE, "top needs a terminal. For a pipe or a file use: snowredis workers --watch"
        )
    from snowredis.monitor.polling import PoolWatch

    try:
        from snowredis.cli.top_view import TopView
    except ImportError as error:
        raise missing_extra(error, "cli") from error

    with open_known_pool(args) as pool:
        watch = PoolWatch(pool)
        view = TopView(
            lambda show_all: watch.read(idle=show_all),
            pool.where,
            interval_s=max(args.interval, MIN_INTERVAL_S),
            show_all=args.all,
            # a pool that does not exist is an error of the command, before the view opens
            first=first_reading(lambda: watch.read(idle=args.all)),
            time_text=args.time_text,
            acknowledge=lambda until_ms: pool.acknowledge_deaths(until_ms=until_ms, by=this_person()),
        )
        code = view.run()
    if code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    # Textual has printed the traceback of an error in the view
    return code if code is not None else ExitCode(view.return_code or ExitCode.OK)
