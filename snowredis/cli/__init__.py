"""The command `snowredis`: finds the command that was asked for, runs it, and says how it ended.

Every command imports what it needs when it runs, so that --help, decode and layout start fast: this
module and the parsers import neither redis nor rich nor asyncio.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from snowredis import __version__
from snowredis.cli import (
    bench,
    decode,
    demo,
    doctor,
    events,
    generate,
    layouts,
    metrics,
    pools,
    serve,
    whois,
    workers,
)
from snowredis.cli.exit_codes import ExitCode, code_of
from snowredis.cli.options import Parser
from snowredis.cli.output import complain

# in the order of --help
_COMMANDS = (demo, generate, decode, layouts, workers, whois, events, pools, metrics, doctor, serve, bench)


def build_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(
        prog="snowredis",
        description="64-bit, time-ordered, never-repeated ids for a fleet of processes that agree through Redis.",
        epilog="Exit codes: " + ", ".join(f"{code.value} {_words(code)}" for code in ExitCode) + ".",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"snowredis {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    for module in _COMMANDS:
        module.add_to(commands)
    return parser


def _words(code: ExitCode) -> str:
    return code.name.lower().replace("_", " ")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # a terminal that knows no "…" must not end a command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = _run(build_parser(), argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nsnowredis: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # the reader has seen enough, as in `snowredis generate -n 1000000 | head`
        _forget_stdout()
        return ExitCode.OK
    except Exception as error:
        # whatever it is, it is said in one paragraph
        if sys.flags.dev_mode:
            raise
        complain(error)
        return code_of(error)
    return code


def _run(parser: Parser, argv: Sequence[str] | None) -> int:
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:
        # --help, --version, or a line that makes no sense; said already
        return stop.code if isinstance(stop.code, int) else ExitCode.OK
    if not hasattr(args, "run"):
        parser.print_help(sys.stderr)
        return ExitCode.USAGE
    code: int = args.run(args)
    return code


def _forget_stdout() -> None:
    """What is still buffered has no reader; without this the interpreter complains about it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # a stdout that is no file, in tests
        return
