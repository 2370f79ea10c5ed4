"""The commands of `snowredis` with their --help, and the exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from scripts._docs.tables import table
from snowredis.cli import build_parser
from snowredis.cli.exit_codes import _ERRORS, ExitCode

_OTHER_REASONS = {
    ExitCode.OK: "success",
    ExitCode.ERROR: "an unexpected error, a failed check, or a question without an answer",
    ExitCode.USAGE: "the command line is not valid",
    ExitCode.FOUND_ERRORS: "`snowredis doctor` found errors, or `snowredis merge check` values that cannot be right",
    ExitCode.FOUND_CLASHES: "`snowredis merge check` found ids that exist twice",
    ExitCode.INTERRUPTED: "Ctrl-C, SIGTERM, or a closed terminal",
}


def all_commands() -> str:
    """Return a section for each command, with its --help."""
    return "\n\n".join(_sections(build_parser()))


def exit_codes() -> str:
    """Return the table of the exit codes."""
    rows = []
    for code in ExitCode:
        errors = ", ".join(f"`{kind.__name__}`" for kind in _ERRORS.get(code, ()))
        rows.append((str(code.value), _OTHER_REASONS.get(code) or errors))
    return table(("code", "reason"), rows)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands below *parser*, by name."""
    groups = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {name: child for group in groups for name, child in group.choices.items()}


def _sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## `{parser.prog}`\n\n```text\n{parser.format_help().strip()}\n```"
    for child in commands_of(parser).values():
        yield from _sections(child)
