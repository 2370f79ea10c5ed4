"""`numbers`: create, show, open, change and delete tags of segments and of dated numbers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from snowredis.cli.commands import numbers_show
from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Command, Parser, add_commands, natural, print_help
from snowredis.settings import SECONDS, settings_in_environment, split_urls

if TYPE_CHECKING:
    from snowredis.numbers.administration import DatedInfo

SUMMARY = "numbers of tags, in segments or dated: create, show, open and change"
ABOUT = """A tag names numbers that Redis hands out, such as those of invoices: in segments,
snowredis.generator("segment", tag="invoices"), or dated, snowredis.generator("dated", tag="invoices")."""
EXAMPLES = [
    ("snowredis numbers create invoices", "once, for a new tag of segments"),
    ("snowredis numbers create bills --period day", "once, for dated numbers"),
    ("snowredis numbers show invoices", "for how long it lasts"),
    ("snowredis numbers open invoices --from 5000", "Redis may have lost some"),
    ("snowredis numbers change invoices --to URLS", "one server more"),
]


class _Action:
    """One command of the group: a Command of snowredis/cli/options.py."""

    def __init__(
        self,
        name: str,
        summary: str,
        about: str,
        examples: list[tuple[str, str]],
        add: Callable[[Parser], None],
        run: Callable[[argparse.Namespace], int],
    ) -> None:
        self.__name__, self.SUMMARY, self.ABOUT, self.EXAMPLES = name, summary, about, examples
        self._add, self.run = add, run

    def add_arguments(self, parser: Parser) -> None:
        numbers_show.add_tag(parser)
        self._add(parser)


def _declared() -> dict[str, Any]:
    """Return the constants of tags, of both kinds, by name."""
    from snowredis.numbers.settings import DATED_SETTINGS, SEGMENT_SETTINGS

    dated = {name: DATED_SETTINGS[name] for name in ("period", "zone", "format")}
    return {name: setting for name, setting in SEGMENT_SETTINGS.items() if setting.of_pool} | dated


def _add_constants(parser: Parser, *, dated: bool) -> None:
    for name, setting in _declared().items():
        if not (dated or setting.of_pool):
            continue
        text = f"{setting.help} (default: {setting.default_text})".replace("%", "%%").replace("`", "")
        option = f"--{name.replace('_', '-')}"
        if setting.kind is SECONDS:
            parser.add_argument(option, help=text, type=float, metavar="S")
        elif setting.kind.choices:
            parser.add_argument(option, help=text, choices=setting.kind.choices)
        elif setting.kind.parse is int:
            parser.add_argument(option, help=text, type=natural, metavar="N")
        else:
            parser.add_argument(option, help=text, metavar="TEXT")


def _constants(args: argparse.Namespace) -> dict[str, Any]:
    """Return the constants of the command line, else of SNOWREDIS_* variables."""
    declared = _declared()
    given = settings_in_environment(os.environ, declared.values())
    return given | {
        name: value for name, value in vars(args).items() if name in declared and value is not None
    }


def _add_yes(parser: Parser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _confirm(args: argparse.Namespace, question: str) -> None:
    """Return if a person agrees, or if --yes was given."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(
            ExitCode.USAGE,
            "standard input is not a terminal, so no person can confirm this. Nothing was changed. Confirm with --yes.",
        )
    try:
        agreed = input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        agreed = False
        print()
    if not agreed:
        raise CommandError(ExitCode.ERROR, "nothing was changed")


def _dated_of(args: argparse.Namespace) -> tuple[str | list[str], str, DatedInfo | None]:
    """Return URL and tag, and the dated numbers of the tag if that is what the command is about."""
    from snowredis.errors import StoreUnavailable

    url, tag = numbers_show.tag_of(args)
    try:
        infos, dated = numbers_show.read(url, tag)
    except StoreUnavailable:
        # what does not need to read does not fail for that
        return url, tag, None
    segments = any(info.exists for info in infos)
    if segments and dated is not None and not args.period:
        raise CommandError(
            ExitCode.USAGE,
            f"the tag {tag} has segments and dated numbers. Say which: --period segments; or, for dated ones, --period "
            "now or the label of the period.",
        )
    return url, tag, None if args.period == "segments" else dated


def _add_period(parser: Parser) -> None:
    text = "of dated numbers: label of the period, such as 2026-11-22, or now, the present one (default)"
    parser.add_argument("--period", metavar="LABEL", help=f"{text}; of a tag with both: segments")


def _create(args: argparse.Namespace) -> int:
    from snowredis.numbers.administration import create_tag
    from snowredis.numbers.dated import DatedGenerator

    url, tag = numbers_show.tag_of(args)
    constants = _constants(args)
    if args.period is None:
        segments = {name: value for name, value in constants.items() if _declared()[name].of_pool}
        create_tag(url, tag, **segments)
        print(f"tag {tag} was created; its first number is {constants.get('start', 1):,}")
        return ExitCode.OK
    dated = {name: value for name, value in constants.items() if name != "start"}
    with DatedGenerator(tag, url, **dated) as ids:
        if not ids.create():
            text = f"the dated numbers of {tag} are not new. Nothing was changed. See: snowredis numbers show {tag}"
            raise CommandError(ExitCode.BAD_INPUT, text)
    print(f"tag {tag} was created; its numbers start again each {args.period}")
    return ExitCode.OK


def _add_open(parser: Parser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    text = "no number from N on was handed out"
    where.add_argument("--from", dest="first", type=natural, metavar="N", help=text)
    text = "of segments: no number was handed out but those that processes reported"
    where.add_argument("--as-reported", action="store_true", help=text)
    _add_period(parser)
    _add_segment_constants(parser)
    _add_yes(parser)


def _add_segment_constants(parser: Parser) -> None:
    _add_constants(parser, dated=False)


def _open(args: argparse.Namespace) -> int:
    from snowredis.numbers.administration import open_dated, open_tag
    from snowredis.numbers.settings import DATED_SETTINGS

    url, tag, dated = _dated_of(args)
    constants = {name: value for name, value in _constants(args).items() if _declared()[name].of_pool}
    if dated is not None:
        if args.first is None:
            raise CommandError(ExitCode.USAGE, "dated numbers are opened with --from N.")
        period = dated.label if args.period in (None, "now") else args.period
        _confirm(args, f"Are you sure that no number of {tag} from {args.first:,} on was used in {period}?")
        limits = settings_in_environment(os.environ, [DATED_SETTINGS["redis_skew"]])
        limits |= {name: value for name, value in constants.items() if name == "failover_slack"}
        following = open_dated(dated.url, tag, args.first, period, **limits)
        print(f"the period {period} of tag {tag} is open; its next number is {following:,}")
        return ExitCode.OK
    what = "beyond those that processes reported" if args.first is None else f"from {args.first:,} on"
    _confirm(args, f"Are you sure that no number of {tag} {what} was ever handed out?")
    following = open_tag(url, tag, args.first, **constants)
    print(f"tag {tag} is open; its next number is {following:,}")
    return ExitCode.OK


def _add_change(parser: Parser) -> None:
    _add_segment_constants(parser)
    parser.add_argument("--to", metavar="URLS", help="the servers from now on (default: those of --url)")
    text = (
        "no number from N on was handed out: needed if a server does not reply, or may have forgotten numbers"
    )
    parser.add_argument("--from", dest="first", type=natural, metavar="N", help=text)
    _add_yes(parser)


def _change(args: argparse.Namespace) -> int:
    from snowredis.numbers.administration import change_tag

    url, tag = numbers_show.tag_of(args)
    # not those of the environment, which are those of the processes: what is not named stays as it is
    constants: Mapping[str, Any] = {
        name: getattr(args, name)
        for name, setting in _declared().items()
        if setting.of_pool and getattr(args, name) is not None
    }
    _confirm(args, f"Close {tag}, and open it with other settings?")
    following = change_tag(url, split_urls(args.to) if args.to else url, tag, first=args.first, **constants)
    print(
        f"tag {tag} was changed; its next number is {following:,}. Restart its processes with the new settings"
    )
    return ExitCode.OK


def _add_delete(parser: Parser) -> None:
    _add_period(parser)
    _add_yes(parser)


def _delete(args: argparse.Namespace) -> int:
    from snowredis.numbers.administration import delete_dated, delete_tag

    url, tag, dated = _dated_of(args)
    _confirm(args, f"Delete {tag}? Then which of its numbers were handed out is not known any more.")
    deleted = delete_dated(dated.url, tag) if dated is not None else delete_tag(url, tag)
    print(f"tag {tag} was deleted" if deleted else f"there is no tag {tag}")
    return ExitCode.OK


_ACTIONS: list[Command] = [
    _Action(
        "create",
        "create a tag that is really new",
        """Redis may lose a tag, as any key. Processes then refuse numbers until a person says from where on none was
handed out. So never run this for a tag that existed: its numbers would be handed out a second time.""",
        [
            ("snowredis numbers create invoices", "1, 2, 3, …"),
            ("snowredis numbers create coupons --start 100000 --maximum 999999", "six digits"),
            ("snowredis numbers create bills --period day --zone Europe/Berlin", "dated"),
        ],
        lambda parser: _add_constants(parser, dated=True),
        _create,
    ),
    numbers_show,
    _Action(
        "open",
        "let a closed tag hand out numbers, after Redis may have lost some",
        """With --from N: no number from N on was ever handed out, such as max(id) of the table plus what processes may
hold, twice the largest segment for each. With --as-reported: none beyond those that processes reported, since all of
them are alive and have reported. The tag opens there or later; servers that do not reply stay as they are. Of
dated numbers, one period is opened.""",
        [
            ("snowredis numbers open invoices --from 5000", "asks"),
            ("snowredis numbers open invoices --as-reported --yes", "all are alive"),
            ("snowredis numbers open bills --from 43 --period 2026-11-22", "one day"),
        ],
        _add_open,
        _open,
    ),
    _Action(
        "change",
        "give a tag of segments other constants, or other servers",
        """Closes the tag on all its servers, finds the highest number that any of them handed out, and opens it beyond
that with the new constants; those that are not named stay as they are. Processes keep the segments that they have, and
are refused more until they have the new settings, too: restart them. After an interruption the tag is closed: repeat
the command. Dated numbers keep their period and zone: use another tag.""",
        [
            ("snowredis numbers change invoices --maximum 9999999", "a longer range"),
            ("snowredis numbers change tickets --to 'redis://a redis://b'", "two servers"),
        ],
        _add_change,
        _change,
    ),
    _Action(
        "delete",
        "delete a tag",
        "Then which of its numbers were handed out is not known: a tag of the same name would hand them out again.",
        [("snowredis numbers delete coupons", "asks")],
        _add_delete,
        _delete,
    ),
]


def add_arguments(parser: Parser) -> None:
    add_commands(parser, "action", _ACTIONS)


def run(args: argparse.Namespace) -> int:
    return print_help(args)
