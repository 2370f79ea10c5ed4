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
from snowredis.errors import PoolNotFound

if TYPE_CHECKING:
    from snowredis.monitor.pool import WorkerPool

# as core.text.FORMS, which is not imported for --help; a test compares them
FORMS = ("decimal", "base62", "base58", "base36", "base32", "hex", "friendly")
# as lease.model.DURABILITIES, in the same way
DURABILITIES = ("detect", "assured", "none")
# of connect() and of PoolConfig: named the same here
SETTINGS = (
    "pool",
    "layout",
    "datacenter",
    "ttl",
    "max_clock_lead",
    "redis_skew",
    "failover_slack",
    "durability",
    "guard_rollbacks",
    "label",
)
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
        help="redis://, rediss://, unix://, embedded://, sentinel:// or cluster://, or several with blanks in between "
        "(default: SNOWREDIS_URL, else redis://localhost:6379/0)",
    )
    if pool:
        parser.add_argument("--pool", metavar="NAME", help="default: SNOWREDIS_POOL, else 'default'")


def add_pool_settings(parser: Parser, *, all_of_them: bool) -> None:
    """Add what a pool is made with; --layout and --ttl at least."""
    parser.add_argument("--layout", metavar="L", help="name or spec, see: snowredis layout")
    parser.add_argument("--ttl", type=seconds, metavar="S", help="seconds a lease lasts (default: 30)")
    if all_of_them:
        for option, text in (
            ("--max-clock-lead", "seconds a host's clock may be ahead of Redis' (default: ttl / 12)"),
            ("--redis-skew", "seconds two Redis servers' clocks may differ (default: ttl / 12)"),
            ("--failover-slack", "default: 15 under Sentinel or Cluster, else 0"),
        ):
            parser.add_argument(option, type=seconds, metavar="S", help=text)
        parser.add_argument(
            "--datacenter", type=natural, metavar="N", help="the layout's datacenter (default: 0)"
        )
        parser.add_argument(
            "--durability",
            choices=DURABILITIES,
            help="whether this Redis loses acknowledged writes: detect: perhaps, in restarts and failovers that it "
            "shows (the default); assured: never; none: perhaps, and nothing shows it",
        )
        parser.add_argument(
            "--guard-rollbacks",
            action="store_const",
            const=True,
            help="let new workers wait after every silence of a ttl: the memory of this Redis may be rolled back",
        )


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
    """The URL and the options of connect(): from the command line, else from SNOWREDIS_* variables."""
    from snowredis.connection import settings_from, split_urls

    url, options = settings_from(os.environ)
    if args.url is not None:
        url = split_urls(args.url)
    given = {name: getattr(args, name, None) for name in SETTINGS}
    return url, options | {name: value for name, value in given.items() if value is not None}


def layout_text(args: argparse.Namespace) -> str | None:
    """Return the layout for commands that need no Redis, without importing what settings() needs."""
    text: str | None = args.layout
    return os.environ.get("SNOWREDIS_LAYOUT") if text is None else text


@contextlib.contextmanager
def open_pool(url: str | list[str], name: str) -> Iterator[WorkerPool]:
    """Open a pool to read or to change it."""
    from snowredis.monitor.pool import WorkerPool

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
