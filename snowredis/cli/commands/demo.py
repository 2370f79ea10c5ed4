"""`demo`: watch a fleet make ids while things go wrong. The demo itself is in cli/demo/."""

from __future__ import annotations

import argparse

from snowredis.cli.options import Commands, Parser, add_command, positive, seconds

# in a shorter demo a dead worker's lease does not end in time; in a longer one the files of ids get large
_MIN_SECONDS, _MAX_SECONDS = 5, 120
_MAX_WORKERS = 32


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "demo",
        summary="watch a fleet make ids while things go wrong, in about 20 seconds",
        about=(
            "Starts a private Redis in a temporary directory, and processes that make ids. One is killed with -9, the "
            "clock of another is set back, and a new process takes over the dead one's worker id. At the end all ids "
            "are checked, and everything is removed, also after Ctrl-C."
        ),
        examples=[
            ("snowredis demo", "20 seconds, 5 workers"),
            ("snowredis demo --seconds 60 --workers 12", "longer, and with more of them"),
            ("snowredis demo --plain", "plain lines, as in a pipe"),
        ],
        run=_demo,
    )
    lengths, sizes = (
        f"{_MIN_SECONDS} to {_MAX_SECONDS} (default: 20)",
        f"2 to {_MAX_WORKERS} (default: 5)",
    )
    parser.add_argument("--seconds", type=_length, default=20.0, metavar="S", help=lengths)
    parser.add_argument("--workers", type=_fleet_size, default=5, metavar="N", help=sizes)
    parser.add_argument("--plain", action="store_true", help="no live display")


def _length(text: str) -> float:
    number = seconds(text)
    if not _MIN_SECONDS <= number <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not {_MIN_SECONDS} to {_MAX_SECONDS} seconds")
    return number


def _fleet_size(text: str) -> int:
    number = positive(text)
    if not 2 <= number <= _MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text} is not 2 to {_MAX_WORKERS} workers")
    return number


def _demo(args: argparse.Namespace) -> int:
    from snowredis.cli.demo.show import run

    return run(args.seconds, args.workers, plain=args.plain)
