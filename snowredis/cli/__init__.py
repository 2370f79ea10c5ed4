"""The command `snowredis`: parse the command line, run the command, and turn errors into exit codes.

commands/ has the commands, each in a file of its name or with those that it is related to. What several commands share
is in the files beside this one, and so are processes that commands start.

Every command imports what is slow to import when it runs, so that --help, decode and layout start fast:
this module and the parsers import neither redis nor asyncio.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from snowredis import __version__
from snowredis.cli.commands.demo import DEMO
from snowredis.cli.commands.gameday import GAMEDAY
from snowredis.cli.commands.ids import DECODE, GENERATE, WHOIS
from snowredis.cli.commands.layout import LAYOUT, SQL
from snowredis.cli.commands.numbers import NUMBERS
from snowredis.cli.commands.pool import POOL
from snowredis.cli.commands.run import RUN
from snowredis.cli.commands.serve import SERVE
from snowredis.cli.commands.workers import DOCTOR, EVENTS, METRICS, WORKERS
from snowredis.cli.exit_codes import CommandError, ExitCode, code_of, print_error
from snowredis.cli.options import Parser, add_commands
from snowredis.cli.output import discard_stdout, emit, printable

# errors of a write to a full disk, to a file that is too large, or to a broken device
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)
# in the order of --help
_COMMANDS = [DEMO, GENERATE, DECODE, LAYOUT, WORKERS, WHOIS, EVENTS, POOL, METRICS]
_COMMANDS += [DOCTOR, GAMEDAY, SERVE, RUN, SQL, NUMBERS]
# commands of packages that nothing imports, as modules and attributes
_JOINED = (("merge.commands", "MERGE"), ("merge.commands", "MIGRATE"))


def build_parser(wanted: str | None = None) -> Parser:
    """Return the parser of the whole command line.

    Args:
        wanted: the first word of the command line: only the command of this name has arguments; None: all have.
    """
    codes = [f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode]
    parser = Parser(
        prog="snowredis",
        description="64-bit, time-ordered, never-repeated ids for a fleet of processes that agree through Redis.",
        epilog=f"Exit codes: {', '.join(codes)}.",
        allow_abbrev=False,
    )
    text = "show the version, and what it runs on"
    parser.add_argument("--version", action="store_true", help=text)
    joined = [getattr(import_module(f"snowredis.{module}"), name) for module, name in _JOINED]
    add_commands(parser, "command", [*_COMMANDS, *joined], wanted)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    if sys.stdout is None:
        # closed by the shell, as in `snowredis layout >&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    for stream in (sys.stdout, sys.stderr):
        # a terminal whose encoding has no "…" must not end a command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        given = sys.argv[1:] if argv is None else argv
        # --help of the program has the options of no command
        code = _run(build_parser(given[0] if given else ""), argv)
        emit("")
    except KeyboardInterrupt:
        print("\nsnowredis: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # the reader closed the pipe, as in `snowredis generate -n 1000000 | head`
        discard_stdout()
        return ExitCode.OK
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OUTPUT_ERRORS:
            error = CommandError(ExitCode.ERROR, f"the output could not be written: {error.strerror}")
            discard_stdout()
        if sys.flags.dev_mode:
            raise
        print_error(error)
        return code_of(error)
    return code


def _run(parser: Parser, argv: Sequence[str] | None) -> int:
    try:
        args, unknown = parser.parse_known_args(argv)
        if unknown:
            # the command knows its options
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as stop:
        # --help, --version, or a usage error, which argparse has printed
        return stop.code if isinstance(stop.code, int) else ExitCode.OK
    if args.version:
        print(_versions())
        return ExitCode.OK
    code: int | None = args.run(args)
    return code or ExitCode.OK


def _versions() -> str:
    """Return the version, and what else a report of a problem should say."""
    import platform
    from importlib import metadata

    from snowredis.settings import SETTINGS
    from snowredis.snowflake.ids.fast_path import IMPLEMENTATION

    durability, made_in = SETTINGS["durability"], IMPLEMENTATION.capitalize()
    if IMPLEMENTATION != "c":
        made_in += " (slower than C: a compiler was missing at the installation, or SNOWREDIS_PURE is set)"
    # written by a build from a checkout; a checkout on the path may not be installed
    commit = next((installed.read_text("commit") for installed in metadata.distributions(name="snowredis")), None)
    return (
        f"snowredis {__version__}{f' of commit {commit}' if commit else ''}: ids made in {made_in}, durability "
        f"{printable(os.environ.get(durability.variable) or durability.default)}, "
        f"{platform.python_implementation()} {platform.python_version()}, redis-py {metadata.version('redis')}"
    )
