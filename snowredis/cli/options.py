"""What the commands' options have in common, and what SNOWREDIS_* variables say where one is missing.

Imports neither redis nor asyncio by itself; open_pool() does when it is called.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.output import MAX_FOREIGN, printable
from snowredis.errors import ConfigError, PoolNotFound
from snowredis.settings import BOOL, DEFAULT_URL, SECONDS, SETTINGS, Setting, from_environment, split_urls

if TYPE_CHECKING:
    from snowredis.monitor.worker_pool import WorkerPool

# names of pools in an error message
_MAX_NAMED = 12


class Parser(argparse.ArgumentParser):
    """Parser that reports usage errors as all other errors are reported: in one paragraph."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"snowredis: error: {printable(message)}. See: {self.prog} --help\n")


class _Help(argparse.HelpFormatter):
    """Formatter that fills paragraphs to the terminal's width and keeps the list of examples as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        fill = super()._fill_text
        return "\n\n".join(fill(part, width, indent) for part in text.split("\n\n"))


Commands = argparse._SubParsersAction  # for annotations: the result of add_subparsers()


def add_command(
    commands: Commands[Parser],
    name: str,
    *,
    summary: str,
    about: str = "",
    examples: Sequence[tuple[str, str]],
    run: Callable[[argparse.Namespace], int] | None = None,
) -> Parser:
    """Add a command. Its help ends with *examples*: pairs of a command line and what it does."""
    widest = max(len(line) for line, _ in examples)
    epilog = "\n".join(["examples:", *(f"  {line:<{widest}}  {what}".rstrip() for line, what in examples)])
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}." + (f"\n\n{about}" if about else ""),
        epilog=epilog,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    # a group such as `pool` without an action prints its help
    parser.set_defaults(run=run or (lambda _: _print_help(parser)))
    return parser


def _print_help(parser: Parser) -> int:
    parser.print_help(sys.stderr)
    return ExitCode.USAGE


def add_redis(parser: Parser, *, pool: bool = True) -> None:
    """Add --url, and --pool."""
    parser.add_argument(
        "--url",
        help="redis://, rediss://, unix://, embedded://, sentinel:// or cluster://, or several, separated by spaces "
        f"(default: {SETTINGS['url'].variable}, else {DEFAULT_URL})",
    )
    if pool:
        named = SETTINGS["pool"]
        parser.add_argument(
            "--pool", metavar="NAME", help=f"default: {named.variable}, else '{named.default_text}'"
        )


def add_pool_settings(parser: Parser, *names: str) -> None:
    """Add the settings that a pool is made with, all or those named."""
    for name in names or [name for name, setting in SETTINGS.items() if setting.of_pool]:
        _add_setting(parser, SETTINGS[name])


def _add_setting(parser: Parser, setting: Setting) -> None:
    option, text = f"--{setting.name.replace('_', '-')}", f"{setting.help} (default: {setting.default_text})"
    text = text.replace("%", "%%").replace("`", "")
    if setting.kind is BOOL:
        parser.add_argument(option, action="store_const", const=True, help=text)
        return

    def read(text: str) -> Any:
        try:
            return setting.read(text, "it")
        except ConfigError as error:
            raise argparse.ArgumentTypeError(printable(str(error), 200)) from None

    if setting.kind.choices:
        parser.add_argument(option, choices=setting.kind.choices, help=text)
        return
    metavar = "S" if setting.kind is SECONDS else setting.name.upper()
    parser.add_argument(option, type=read, metavar=metavar, help=text)


def natural(text: str) -> int:
    """Parse a whole number of 0 or more."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not a whole number of 0 or more")
    return int(text)


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    number = natural(text)
    if not number:
        raise argparse.ArgumentTypeError("0 is too low: 1 is the minimum")
    return number


def seconds(text: str) -> float:
    """Parse seconds, 0 or more; fractions are allowed."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6:
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not a valid number of seconds")
    return number


def settings(args: argparse.Namespace) -> tuple[str | list[str], dict[str, Any]]:
    """Return the URL and the options of connect(): from the command line, else from SNOWREDIS_* variables."""
    found = from_environment(os.environ)
    found |= {name: value for name, value in vars(args).items() if name in SETTINGS and value is not None}
    url = found.pop("url", DEFAULT_URL)
    return split_urls(url) if isinstance(url, str) else url, found


def layout_text(args: argparse.Namespace) -> str | None:
    """Return the layout for commands that need no Redis, without importing what settings() needs."""
    text: str | None = args.layout
    return os.environ.get("SNOWREDIS_LAYOUT") if text is None else text


@contextlib.contextmanager
def open_pool(url: str | list[str], name: str) -> Iterator[WorkerPool]:
    """Open a pool to read or to change it."""
    from snowredis.monitor.worker_pool import WorkerPool

    pool = WorkerPool(url, name)
    try:
        yield pool
    finally:
        pool.close()


@contextlib.contextmanager
def open_known_pool(url: str | list[str], name: str) -> Iterator[WorkerPool]:
    """Open a pool that should exist; if it does not, the error lists those that do."""
    with open_pool(url, name) as pool:
        try:
            yield pool
        except PoolNotFound as error:
            raise CommandError(ExitCode.POOL_NOT_FOUND, f"{error}. {_existing_pools(pool)}") from error


def _existing_pools(pool: WorkerPool) -> str:
    names = [printable(name, MAX_FOREIGN) for name in pool.pools()]
    if not names:
        return f"There are no pools at {pool.where}."
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return (
        f"At {pool.where} there {'is' if len(names) == 1 else 'are'}: {', '.join(names[:_MAX_NAMED])}{more}."
    )
