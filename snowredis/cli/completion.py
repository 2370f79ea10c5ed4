"""Shell completion: print a script that completes commands and options, made by shtab from the parsers.

The script is static, so a press of Tab starts no Python process (argcomplete starts one each time) and
works for `snowredis` in any virtual environment. shtab is imported only when the script is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from snowredis.cli.exit_codes import ExitCode, missing_extra
from snowredis.cli.options import Parser

# as shtab.SUPPORTED_SHELLS, which is not imported for --help; a test compares them
SHELLS = ("bash", "zsh", "tcsh", "fish", "powershell")


def add_print_completion(parser: Parser) -> None:
    """Add --print-completion."""
    text = f"print a completion script for {', '.join(SHELLS[:-1])} or {SHELLS[-1]} and exit"
    parser.add_argument("--print-completion", choices=SHELLS, metavar="SHELL", help=text)


def print_completion(parser: Parser, shell: str) -> int:
    """Print the script that completes the commands and options of *parser* in *shell*."""
    try:
        import shtab
    except ImportError as error:
        raise missing_extra(error, "cli") from error
    for action in _actions(parser):
        if action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=shell))
    return ExitCode.OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of *parser* and of all its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)
