"""Shared parts of the commands: their parsers, and the pool that their options name.

SNOWREDIS_* variables stand in for options that are not given. Imports neither redis nor asyncio by itself;
open_pool() does when it is called.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from snowredis.cli.exit_codes import CommandError, ExitCode, code_of, print_error
from snowredis.cli.output import printable
from snowredis.core import text as texts
from snowredis.errors import ConfigError, PoolNotFound, StoreUnavailable
from snowredis.settings import BOOL, SECONDS, SETTINGS, Setting, from_environment, settings_of_process, url_to_read

if TYPE_CHECKING:
    from snowredis.worker_pool import WorkerPool


class Parser(argparse.ArgumentParser):
    """Parser that reports usage errors as all other errors are reported: in one paragraph."""

    def error(self, message: str) -> NoReturn:
        print_error(CommandError(ExitCode.USAGE, f"{message}. See: {self.prog} --help"))
        self.exit(ExitCode.USAGE)

    def add_yes(self) -> None:
        """Add --yes, for confirm()."""
        self.add_argument("--yes", action="store_true", help="do not ask")

    def add_redis(self, *, pool: bool = True) -> None:
        """Add --url, and --pool."""
        text = "redis://, rediss://, unix://, embedded://, sentinel:// or cluster://"
        self.add_argument("--url", help=f"{text} (default: {SETTINGS['url'].default_text})")
        if pool:
            self.add_argument("--pool", metavar="NAME", help=f"default: {SETTINGS['pool'].default_text}")

    def add_layout(self) -> None:
        """Add --layout, for layout_text()."""
        text = "name or spec (default: SNOWREDIS_LAYOUT, else 'default')"
        self.add_argument("--layout", metavar="L", help=text)

    def add_settings(self, *settings: Setting) -> None:
        """Add an option for each of *settings*."""
        for setting in settings:
            text = f"{setting.help} (default: {setting.default_text})".replace("%", "%%").replace("`", "")
            values: dict[str, Any] = {"type": reader(setting)}
            values["metavar"] = "S" if setting.kind is SECONDS else setting.name.upper()
            if setting.kind is BOOL:
                values = {"action": "store_const", "const": True}
            elif setting.kind.choices:
                values = {"choices": setting.kind.choices}
            self.add_argument(f"--{setting.name.replace('_', '-')}", help=text, **values)


class _Help(argparse.HelpFormatter):
    """Formatter that fills paragraphs to the terminal's width and keeps the list of examples as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        fill = super()._fill_text
        return "\n\n".join(fill(part, width, indent) for part in text.split("\n\n"))


def print_help(args: argparse.Namespace) -> int:
    """Print the help of the group of commands in which none was chosen."""
    args.parser.print_help(sys.stderr)
    return ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of commands.

    Attributes:
        name: its name, the last word of what is typed.
        run: runs it and returns its exit code; None: OK. Its docstring is the help of the command.
        add_arguments: adds its options and arguments to a parser.
        json: what it prints with --json; empty: it has no such option.
        about: the help of a group.
        commands: the commands of a group, which has no arguments of its own.
    """

    name: str
    run: Callable[[argparse.Namespace], int | None] = print_help
    add_arguments: Callable[[Parser], object] = lambda _: None
    json: str = ""
    about: str = ""
    commands: Sequence[Command] = ()

    def help(self) -> tuple[str, str]:
        """Return what it does, and its examples, one a line; those of a group are the first of each command.

        Both are empty under ``python -OO``, which has no docstrings.
        """
        about, _, examples = inspect.cleandoc(self.about or self.run.__doc__ or "").partition("\n\nexamples:\n")
        firsts = (child.help()[1].partition("\n")[0].strip().partition("  ")[0] for child in self.commands)
        return about, examples or "\n".join(f"  {line}" for line in firsts)


def add_commands(parser: Parser, title: str, commands: Sequence[Command], wanted: str | None = None) -> None:
    """Add a parser for each of *commands*; without one of them, *parser* prints its help.

    Args:
        wanted: the only command whose arguments are added; None: all.
    """
    parser.set_defaults(run=print_help, parser=parser)
    children = parser.add_subparsers(metavar=title.upper(), title=f"{title}s", parser_class=Parser)
    for command in commands:
        about, examples = command.help()
        summary = about.partition("\n")[0].removesuffix(".")
        child = children.add_parser(
            command.name,
            help=summary[:1].lower() + summary[1:],
            description=about,
            epilog=f"examples:\n{examples}",
            formatter_class=_Help,
            allow_abbrev=False,
        )
        if wanted not in (None, command.name):
            continue
        command.add_arguments(child)
        if command.json:
            child.add_argument("--json", action="store_true", help=command.json)
        child.set_defaults(run=command.run, parser=child)
        if command.commands:
            add_commands(child, "action", command.commands)


def confirm(args: argparse.Namespace, question: str, refused: str = "nothing was changed") -> None:
    """Ask at the terminal; return if the answer is yes, or if --yes was given.

    Raises CommandError with what was *refused* otherwise.
    """
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(
            ExitCode.USAGE, f"standard input is not a terminal, so you cannot be asked; {refused}. Confirm with --yes."
        )
    try:
        agreed = input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        agreed = False
        print()
    if not agreed:
        raise CommandError(ExitCode.ERROR, refused)


def reader(setting: Setting) -> Callable[[str], Any]:
    """Return the parser of the values of *setting*, as ``type`` of an argument."""

    def read(text: str) -> Any:
        try:
            return setting.read(text, "it")
        except ConfigError as error:
            raise argparse.ArgumentTypeError(printable(str(error), 200)) from None

    return read


def number(lowest: float, highest: float = 10**19, parse: Callable[[str], float] = int) -> Callable[[str], Any]:
    """Return the parser of a number in this range, as ``type`` of an argument."""

    def read(text: str) -> float:
        with contextlib.suppress(ValueError):
            # int() reads 1_000, +5 and digits of other scripts, too
            is_plain = text.isascii() and (text.isdigit() if parse is int else True)
            if is_plain and lowest <= (value := parse(text)) <= highest:
                return value
        what = "a whole number" if parse is int else "a number"
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not {what} from {lowest} to {highest}")

    return read


def moment_ms(text: str) -> int:
    """Parse a moment: an ISO date or time, in UTC if it has no offset, or Unix ms. Return Unix ms."""
    try:
        return number(0)(text) if text.isascii() and text.isdigit() else texts.moment_ms(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{printable(text, 40)!r} is not a valid time: write it as 2026-01-01, 2026-01-01T12:00:00Z or in Unix ms"
        ) from None


def settings(args: argparse.Namespace, *, looks: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the URL and the options of connect(): from the command line, else from SNOWREDIS_* variables.

    For a command that only *looks*, the URL of localhost and no pool if none is named; ConfigError for others.
    """
    given = {name: value for name, value in vars(args).items() if name in SETTINGS and value is not None}
    options = from_environment(os.environ, given=given) if looks else settings_of_process(given)
    return url_to_read(options.pop("url", None)), options


def layout_text(args: argparse.Namespace) -> str | None:
    """Return the layout for commands that need no Redis, and so ignore errors in the other variables."""
    text: str | None = args.layout
    return os.environ.get("SNOWREDIS_LAYOUT") if text is None else text


def open_pool(args: argparse.Namespace) -> contextlib.closing[WorkerPool]:
    """Open the pool that the command line or the environment names, to read or change it."""
    from snowredis.worker_pool import WorkerPool

    # a pool can have thousands of rows, and none of them is garbage before the command ends
    gc.set_threshold(100_000)
    url, options = settings(args, looks=True)
    return contextlib.closing(WorkerPool(url, options.get("pool")))


@contextlib.contextmanager
def open_known_pool(args: argparse.Namespace) -> Iterator[WorkerPool]:
    """Open a pool that should exist. Its error lists those that do, or says what to do until Redis can be used."""
    with open_pool(args) as pool:
        try:
            yield pool
        except PoolNotFound as error:
            raise PoolNotFound(error.pool, pool.where, tuple(pool.pools())) from error
        except StoreUnavailable as error:
            from snowredis.monitor.conditions import DO_NOT_RESTART

            raise CommandError(code_of(error), f"{error} Meanwhile, {DO_NOT_RESTART}.") from error
