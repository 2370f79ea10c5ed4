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
    """Yield the section of a command, and those of the commands below it.

    It is made from the arguments and not from the text of --help, which differs between versions of Python.
    """
    about = (parser.description or "").replace("<", "&lt;").replace("*", "\\*")
    parts = [f"## `{parser.prog}`", about]
    arguments = [one for one in parser._actions if one.dest != "help" and one.nargs != argparse.PARSER]
    if arguments:
        parts.append(table(("argument", "what it is"), ((_name(one), _help(one)) for one in arguments)))
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog}\n```")
    yield "\n\n".join(part for part in parts if part)
    for child in commands_of(parser).values():
        yield from _sections(child)


def _name(argument: argparse.Action) -> str:
    metavar = argument.metavar or (
        f"{{{','.join(map(str, argument.choices))}}}" if argument.choices else argument.dest.upper()
    )
    if not argument.option_strings:
        return f"`{metavar}`"
    value = "" if argument.nargs == 0 else f" {metavar}"
    return ", ".join(f"`{name}{value}`" for name in argument.option_strings)


def _help(argument: argparse.Action) -> str:
    text = (argument.help or "") % {**vars(argument), "prog": "snowredis"}
    return text.replace("<", "&lt;").replace("*", "\\*")
