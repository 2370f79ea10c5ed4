"""The command `snowredis`: finds the command that was asked for, runs it, and turns errors into exit codes.

One rule for the files: commands/NAME.py is the command `snowredis NAME`, commands/pool_NAME.py is
`snowredis pool NAME`; each defines add_to(), which adds its parser, and the function that runs it. What
several commands share stands beside this file. The demo and the terminal view of `top`, which are larger
than their commands, are in demo/ and top_view.py.

Every command imports what it needs when it runs, so that --help, decode and layout start fast: this
module and the parsers import neither redis nor textual nor asyncio.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from snowredis import __version__
from snowredis.cli.commands import (
    bench,
    decode,
    demo,
    doctor,
    events,
    generate,
    layout,
    metrics,
    pool,
    serve,
    top,
    whois,
    workers,
)
from snowredis.cli.completion import add_print_completion
from snowredis.cli.exit_codes import ExitCode, code_of, print_error
from snowredis.cli.options import Parser

# in the order of --help
_COMMANDS = (demo, generate, decode, layout, workers, top, whois, events, pool, metrics, doctor, serve, bench)


def build_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="snowredis",
        description="64-bit, time-ordered, never-repeated ids for a fleet of processes that agree through Redis.",
        epilog="Exit codes: " + ", ".join(f"{code.value} {_words(code)}" for code in ExitCode) + ".",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"snowredis {__version__}")
    add_print_completion(parser)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    for module in _COMMANDS:
        module.add_to(commands)
    return parser


def _words(code: ExitCode) -> str:
    return code.name.lower().replace("_", " ")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # a terminal whose encoding has no "…" must not end a command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = _run(build_parser(), argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nsnowredis: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # the reader closed the pipe, as in `snowredis generate -n 1000000 | head`
        _discard_stdout()
        return ExitCode.OK
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        print_error(error)
        return code_of(error)
    return code


def _run(parser: Parser, argv: Sequence[str] | None) -> int:
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:
        # --help, --version, or a usage error, which argparse has printed
        return stop.code if isinstance(stop.code, int) else ExitCode.OK
    if not hasattr(args, "run"):
        parser.print_help(sys.stderr)
        return ExitCode.USAGE
    code: int = args.run(args)
    return code


def _discard_stdout() -> None:
    """Point stdout at /dev/null: what is still buffered has no reader, and the interpreter would report it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # in tests stdout may have no file descriptor
        return
