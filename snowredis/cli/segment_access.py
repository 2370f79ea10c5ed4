"""Shared parts of the commands for segments: their options, and the tag and constants that these name."""

from __future__ import annotations

import argparse
import os
from typing import Any

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Parser, natural
from snowredis.settings import BOOL, DEFAULT_URL, SECONDS, settings_in_environment, split_urls


def add_tag(parser: Parser) -> None:
    """Add TAG and --url."""
    parser.add_argument("tag", nargs="?", metavar="TAG", help="default: SNOWREDIS_TAG")
    text = (
        "the Redis, or several independent ones, separated by spaces (default: SNOWREDIS_URL, else "
        + DEFAULT_URL
    )
    parser.add_argument("--url", help=f"{text})")


def add_constants(parser: Parser) -> None:
    """Add the constants of a tag, which all its processes have in common."""
    from snowredis.numbers.settings import SEGMENT_SETTINGS

    for name, setting in SEGMENT_SETTINGS.items():
        if not setting.of_pool:
            continue
        text = f"{setting.help} (default: {setting.default_text})".replace("%", "%%").replace("`", "")
        option = f"--{name.replace('_', '-')}"
        if setting.kind is BOOL:
            parser.add_argument(option, help=text, action="store_const", const=True)
        elif setting.kind is SECONDS:
            parser.add_argument(option, help=text, type=float, metavar="S")
        else:
            parser.add_argument(option, help=text, type=natural, metavar="N")


def tag_of(args: argparse.Namespace) -> tuple[str | list[str], str, dict[str, Any]]:
    """Return the URL, the tag and its constants: from the command line, else from SNOWREDIS_* variables."""
    from snowredis.numbers.settings import SEGMENT_SETTINGS

    given = settings_in_environment(os.environ, SEGMENT_SETTINGS.values())
    given |= {
        name: value for name, value in vars(args).items() if name in SEGMENT_SETTINGS and value is not None
    }
    url, tag = given.pop("url", DEFAULT_URL), given.pop("tag", None)
    if tag is None:
        raise CommandError(ExitCode.USAGE, "no tag is named. Write it after the command.")
    constants = {name: value for name, value in given.items() if SEGMENT_SETTINGS[name].of_pool}
    return split_urls(url) if isinstance(url, str) else url, tag, constants


def confirm(args: argparse.Namespace, question: str) -> bool:
    """Return whether a person agrees, or --yes was given."""
    import sys

    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise CommandError(
            ExitCode.USAGE,
            "standard input is not a terminal, so nobody can confirm this; nothing was changed. Confirm with --yes.",
        )
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False
