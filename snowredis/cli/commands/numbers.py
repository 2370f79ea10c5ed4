"""`numbers`: create, show, open and delete tags."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snowredis import numbers
from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Command, Parser, confirm, number, open_pool
from snowredis.cli.output import show, show_each
from snowredis.settings import URL_SETTING, required_url, url_to_read

# what people see of a tag first
_COLUMNS = "period next_number"


def _add(parser: Parser, *, tags: str | None = None) -> None:
    """Add TAG and --url."""
    parser.add_argument("tag", nargs=tags, metavar="TAG")
    parser.add_argument("--url", help=f"the Redis, one server (default: {URL_SETTING.default_text})")


def _add_create(parser: Parser) -> None:
    from snowredis.numbers.settings import DATED_CONSTANTS, TAG_CONSTANTS

    _add(parser)
    parser.add_settings(*TAG_CONSTANTS.values())
    parser.add_argument(
        "--layout", metavar="LAYOUT", help="of shard numbers: the layout whose datacenter bits hold them"
    )
    dated = DATED_CONSTANTS.values()
    parser.add_settings(*(one._replace(default_text=f"none; of dated numbers {one.default_text}") for one in dated))


def _create(args: argparse.Namespace) -> None:
    """Create a tag that is really new, or go on with one that Redis lost.

    Redis may lose a tag, as any key. Processes then refuse numbers until you say from which number on none was handed
    out. So never run this for a tag that existed, unless --start is above all of its numbers: they would be handed out
    a second time. What is given here is stored in the tag, and no process has to repeat it but the period.

    examples:
      snowredis numbers create invoices                                 1, 2, 3, …
      snowredis numbers create bills --period day --zone Europe/Berlin  dated
      snowredis numbers create tickets --start 2 --stride 2             even ones
      snowredis numbers create shards --layout game-shards              of pools
    """
    from snowredis.numbers.settings import DATED_CONSTANTS, TAG_CONSTANTS

    # SNOWREDIS_* variables are settings of processes, and create no tag
    given = {name: getattr(args, name) for name in (*TAG_CONSTANTS, *DATED_CONSTANTS, "layout")}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    first = numbers.create_tag(required_url(args.url), args.tag, **settings)
    print(f"tag {args.tag} was created; its first number is {first:,}")


def _add_open(parser: Parser) -> None:
    _add(parser)
    parser.add_argument(
        "--from", dest="first", type=number(0), required=True, metavar="N", help="none from N on was used"
    )
    parser.add_argument("--period", metavar="LABEL", help="of dated numbers: the period, such as 2026-11-22")
    parser.add_yes()


def _open(args: argparse.Namespace) -> None:
    """Let a closed tag hand out numbers, after Redis may have lost some.

    No number from N on was ever handed out, such as max(id) of the table plus what processes may hold, twice the
    largest segment for each. The tag opens there, or beyond what processes have shown. Of dated numbers, one period is
    opened.

    examples:
      snowredis numbers open invoices --from 5000                 asks
      snowredis numbers open bills --from 43 --period 2026-11-22  one day
    """
    url, tag, period = required_url(args.url), args.tag, args.period
    info = numbers.show_tag(url, tag)
    if info is not None and info.period and period is None:
        text = f"the tag {tag} has dated numbers. Add the period that you open, such as --period {info.period}"
        raise CommandError(ExitCode.USAGE, text)
    where = f" in {period}" if period else ""
    confirm(args, f"Are you sure that no number of {tag} from {args.first:,} on was ever handed out{where}?")
    following = numbers.open_tag(url, tag, args.first, period)
    print(f"tag {tag} is open{where}; its next number is {following:,}")


def _add_delete(parser: Parser) -> None:
    _add(parser)
    parser.add_yes()


def _delete(args: argparse.Namespace) -> None:
    """Delete a tag.

    Then which of its numbers were handed out is not known: a tag of the same name would hand them out again.

    examples:
      snowredis numbers delete coupons  asks
    """
    confirm(args, f"Delete {args.tag}, with all its periods? Then it is unknown which numbers were used.")
    deleted = numbers.delete_tag(required_url(args.url), args.tag)
    print(f"tag {args.tag} was deleted" if deleted else f"there is no tag {args.tag}")


def _show(args: argparse.Namespace) -> int:
    """Show a tag: its next number, its settings, and whether it is closed; or all tags.

    Metrics show how fast numbers are handed out, how many each process has at hand, its step and its waits.

    examples:
      snowredis numbers show invoices  what is left
      snowredis numbers show           all tags of a Redis
    """
    url = url_to_read(args.url)
    if args.tag is None:
        from snowredis.monitor.doctor import tag_names

        with open_pool(args) as server:
            names = tag_names(server.client)
        empty = f"there is no tag at {server.where}; create one with: snowredis numbers create TAG"
        columns = f"tag state {_COLUMNS} maximum"
        is_whole = show_each(names, partial(numbers.show_tag, url), columns, as_json=args.json, empty=empty)
        return ExitCode.OK if is_whole else ExitCode.ERROR
    info = numbers.show_tag(url, args.tag)
    if info is None:
        text = f"this Redis has no tag {args.tag!r}. If it is new, create it once: snowredis numbers create {args.tag}"
        raise CommandError(ExitCode.POOL_NOT_FOUND, text)
    show(info, f"state why {_COLUMNS} maximum closed_at opens_at settings where", as_json=args.json)
    return ExitCode.OK


_COMMANDS = [
    Command("create", _create, _add_create),
    Command("show", _show, partial(_add, tags="?"), json="an object a line"),
    Command("open", _open, _add_open),
    Command("delete", _delete, _add_delete),
]
NUMBERS = Command(
    "numbers",
    about="""Numbers of tags, in segments or dated, and of shards: create, show, open and delete.

A tag names numbers that Redis hands out, such as those of invoices: in segments, snowredis.generator("segment",
tag="invoices"), or dated, snowredis.generator("dated", tag="invoices").""",
    commands=_COMMANDS,
)
