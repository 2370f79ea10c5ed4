"""`demo`: a fleet on a Redis of its own, one process killed, one clock set back, every id checked.

    show.py    the command: server, fleet, scenario, display, verdict; and leaving nothing behind
    scenario.py   what happens, in order
    fleet.py   the processes
    worker.py  one process, run on its own
    view.py    how it looks
    check.py   whether any id came twice

Only the parser is here; the rest is imported when the demo runs.
"""

from __future__ import annotations

import argparse

from snowredis.cli.options import Commands, Parser, add_command, positive, seconds

# below this a dead worker's lease does not end in time to show it; above, the files of ids get large
_LEAST_SECONDS, _MOST_SECONDS = 5, 120
_MOST_WORKERS = 32


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "demo",
        summary="watch a fleet make ids while things go wrong, in about 20 seconds",
        about=(
            "Starts a Redis of its own, in a temporary directory, and some processes that make ids on it. One is "
            "killed with -9, one gets its clock set back, a new one takes the dead one's worker id. At the end all "
            "ids are checked. Nothing is left behind, also after Ctrl-C."
        ),
        examples=[
            ("snowredis demo", "20 seconds, 5 workers"),
            ("snowredis demo --seconds 60 --workers 12", "longer, and with more of them"),
            ("snowredis demo --plain", "plain lines, as without a terminal"),
        ],
        run=_demo,
    )
    lengths, sizes = (
        f"{_LEAST_SECONDS} to {_MOST_SECONDS} (default: 20)",
        f"2 to {_MOST_WORKERS} (default: 5)",
    )
    parser.add_argument("--seconds", type=_length, default=20.0, metavar="S", help=lengths)
    parser.add_argument("--workers", type=_fleet_size, default=5, metavar="N", help=sizes)
    parser.add_argument("--plain", action="store_true", help="no live display")


def _length(text: str) -> float:
    number = seconds(text)
    if not _LEAST_SECONDS <= number <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not {_LEAST_SECONDS} to {_MOST_SECONDS} seconds")
    return number


def _fleet_size(text: str) -> int:
    number = positive(text)
    if not 2 <= number <= _MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text} is not 2 to {_MOST_WORKERS} workers")
    return number


def _demo(args: argparse.Namespace) -> int:
    from snowredis.cli.demo.show import run

    return run(args.seconds, args.workers, plain=args.plain)
