"""`demo`: watch a fleet make ids while things go wrong. The demo itself is in cli/demo/."""

from __future__ import annotations

import argparse

from snowredis.cli.options import Parser, between, natural, seconds

# in a shorter demo a dead worker's lease does not end in time; in a longer one the files of ids get large
_MIN_SECONDS, _MAX_SECONDS = 5, 120
_MAX_WORKERS = 32

SUMMARY = "watch a fleet make ids while things go wrong, in about 20 seconds"
ABOUT = """Starts a private Redis in a temporary directory, and processes that make ids. One is killed with -9, the
clock of another is set back, and a new process takes over the dead one's worker id. At the end all ids are checked,
and everything is removed, also after Ctrl-C."""
EXAMPLES = [
    ("snowredis demo", "20 seconds, 5 workers"),
    ("snowredis demo --seconds 60 --workers 12", "longer, and with more of them"),
    ("snowredis demo --plain", "plain lines, as in a pipe"),
]


def add_arguments(parser: Parser) -> None:
    length, size = between(_MIN_SECONDS, _MAX_SECONDS, seconds), between(2, _MAX_WORKERS, natural)
    text = f"{_MIN_SECONDS} to {_MAX_SECONDS} (default: 20)"
    parser.add_argument("--seconds", type=length, default=20.0, metavar="S", help=text)
    parser.add_argument(
        "--workers", type=size, default=5, metavar="N", help=f"2 to {_MAX_WORKERS} (default: 5)"
    )
    parser.add_argument("--plain", action="store_true", help="no live display")


def run(args: argparse.Namespace) -> int:
    from snowredis.cli.demo import show

    return show.run(args.seconds, args.workers, plain=args.plain)
