"""Shell completion: print a script that completes commands and options, made by shtab from the parsers.

The script is static, so a press of Tab starts no Python process (argcomplete starts one each time) and
works for `snowredis` in any virtual environment. shtab is imported only when the script is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from snowredis.cli.exit_codes import missing_extra
from snowredis.cli.options import Parser

# as shtab.SUPPORTED_SHELLS, which is not imported for --help; a test compares them
SHELLS = ("bash", "zsh", "tcsh", "fish", "powershell")


def add_print_completion(parser: Parser) -> None:
    """Add --print-completion."""
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=SHELLS,
        metavar="SHELL",
        help=f"print a completion script for {', '.join(SHELLS[:-1])} or {SHELLS[-1]} and exit",
    )


class _PrintCompletion(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        try:
            import shtab
        except ImportError as error:
            raise missing_extra(error, "cli") from error
        for action in _actions(parser):
            if action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, shell=str(values)))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options and arguments of *parser* and of all its commands."""
    found = list(parser._actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                found += _actions(child)
    return found
