"""`numbers`: create, show, open, change and delete tags of segments and of dated numbers."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Command, Parser, confirm, natural
from snowredis.cli.output import (
    MAX_FOREIGN,
    Cell,
    Column,
    Line,
    ago,
    pairs,
    print_json,
    printable,
    table,
    time_of,
    write,
)
from snowredis.settings import URL_SETTING, Setting, settings_in_environment, url_or_default

if TYPE_CHECKING:
    from snowredis.numbers.administration import DatedInfo, TagInfo


def _segment_constants() -> list[Setting]:
    """Return the declarations of the constants of a tag of segments."""
    from snowredis.numbers.settings import SEGMENT_SETTINGS, SHARE

    return [*(setting for setting in SEGMENT_SETTINGS.values() if setting.of_pool), SHARE]


def _dated_constants() -> list[Setting]:
    """Return those of dated numbers, besides those that segments have, too."""
    from snowredis.numbers.settings import DATED_SETTINGS

    return [DATED_SETTINGS[name] for name in ("period", "zone", "format")]


def _given(
    args: argparse.Namespace, declared: Sequence[Setting], environment: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the values of *declared* settings: those of the command line, else of SNOWREDIS_* variables."""
    values = {setting.name: getattr(args, setting.name) for setting in declared}
    given = {name: value for name, value in values.items() if value is not None}
    return settings_in_environment(environment, declared) | given


def _add_create(parser: Parser) -> None:
    _add_tag(parser)
    parser.add_settings(*_segment_constants(), *_dated_constants())


def _refuse(args: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Raise CommandError if one of the options *names* is given."""
    given = [f"--{name}" for name in names if getattr(args, name) is not None]
    if given:
        raise CommandError(ExitCode.USAGE, f"{' and '.join(given)}: {why}. Nothing was created.")


def _create(args: argparse.Namespace) -> None:
    from snowredis.numbers.administration import create_tag
    from snowredis.numbers.dated import DatedGenerator

    url, tag = _tag_of(args)
    constants = _given(args, _segment_constants())
    if args.period is None:
        _refuse(args, ("zone", "format"), "only dated numbers have it. Add --period day, or leave it out")
        first = create_tag(url, tag, **constants)
        print(f"tag {tag} was created; its first number is {first:,}")
        return
    _refuse(args, ("start", "share"), "only segments have it, and --period makes dated numbers")
    for name in ("start", "share"):
        constants.pop(name, None)
    with DatedGenerator(tag, url, **constants, **_given(args, _dated_constants())) as ids:
        if not ids.create():
            text = f"the dated numbers of {tag} are not new. Nothing was changed. See: snowredis numbers show {tag}"
            raise CommandError(ExitCode.BAD_INPUT, text)
    print(f"tag {tag} was created; its numbers start again each {args.period}")


def _add_open(parser: Parser) -> None:
    _add_tag(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    text = "no number from N on was handed out"
    where.add_argument("--from", dest="first", type=natural, metavar="N", help=text)
    text = "of segments: no numbers were handed out besides those that processes reported"
    where.add_argument("--as-reported", action="store_true", help=text)
    text = "of dated numbers: label of the period, such as 2026-11-22, or now, the present one (default)"
    parser.add_argument("--period", metavar="LABEL", help=f"{text}; of a tag with both: segments")
    parser.add_settings(*_segment_constants())
    parser.add_yes()


def _open(args: argparse.Namespace) -> None:
    from snowredis.numbers.administration import open_tag

    url, tag = _tag_of(args)
    constants = _given(args, _segment_constants())
    segments, dated = _read(url, tag)
    if args.period not in (None, "segments") or (args.period is None and not segments.exists and dated is not None):
        _open_dated(args, url, tag, dated, constants)
        return
    if args.period is None and dated is not None:
        raise CommandError(
            ExitCode.USAGE,
            f"the tag {tag} has segments and dated numbers. Say which: --period segments; or, for dated ones, --period "
            "now or the label of the period.",
        )
    what = "beyond those that processes reported" if args.first is None else f"from {args.first:,} on"
    confirm(args, f"Are you sure that no number of {tag} {what} was ever handed out?")
    following = open_tag(url, tag, args.first, **constants)
    print(f"tag {tag} is open; its next number is {following:,}")


def _open_dated(
    args: argparse.Namespace, url: str, tag: str, dated: DatedInfo | None, constants: Mapping[str, Any]
) -> None:
    from snowredis.numbers.administration import open_dated
    from snowredis.numbers.settings import DATED_SETTINGS

    if dated is None:
        raise CommandError(
            ExitCode.POOL_NOT_FOUND,
            f"this Redis knows no dated numbers of {tag}. Nothing was opened. Let a process ask for a number, "
            f"which makes them known, then repeat this. If they are new: snowredis numbers create {tag} --period day",
        )
    if args.first is None:
        raise CommandError(ExitCode.USAGE, "dated numbers are opened with --from N.")
    period = dated.label if args.period in (None, "now") else args.period
    confirm(args, f"Are you sure that no number of {tag} from {args.first:,} on was used in {period}?")
    limits = settings_in_environment(os.environ, [DATED_SETTINGS["redis_skew"]])
    limits |= {name: value for name, value in constants.items() if name == "failover_slack"}
    following = open_dated(url, tag, args.first, period, **limits)
    print(f"the period {period} of tag {tag} is open; its next number is {following:,}")


def _changeable() -> list[Setting]:
    from snowredis.numbers.settings import CHANGEABLE, SEGMENT_SETTINGS

    return [SEGMENT_SETTINGS[name] for name in CHANGEABLE]


def _add_change(parser: Parser) -> None:
    _add_tag(parser)
    parser.add_settings(*_changeable())
    parser.add_yes()


def _change(args: argparse.Namespace) -> None:
    from snowredis.numbers.administration import change_tag

    url, tag = _tag_of(args)
    # not those of the environment, which are those of the processes: what is not named stays as it is
    constants = _given(args, _changeable(), environment={})
    if not constants:
        raise CommandError(ExitCode.USAGE, "nothing to change is named. See: snowredis numbers change --help")
    confirm(args, f"Change {tag}? Its processes use up what they have, and get no more until they are restarted.")
    following = change_tag(url, tag, **constants)
    print(f"tag {tag} was changed; its next number is {following:,}. Restart its processes with the new settings")


def _add_delete(parser: Parser) -> None:
    _add_tag(parser)
    parser.add_yes()


def _delete(args: argparse.Namespace) -> None:
    from snowredis.numbers.administration import delete_dated, delete_tag

    url, tag = _tag_of(args)
    what = "with all its segments and periods"
    confirm(args, f"Delete {tag}, {what}? Then which of its numbers were handed out is not known any more.")
    deleted = [delete_tag(url, tag), delete_dated(url, tag)]
    print(f"tag {tag} was deleted" if any(deleted) else f"there is no tag {tag}")


def _add_tag(parser: Parser) -> None:
    """Add TAG and --url."""
    parser.add_argument("tag", nargs="?", metavar="TAG", help="default: SNOWREDIS_TAG")
    parser.add_argument("--url", help=f"the Redis, one server (default: {URL_SETTING.default_text})")


def _tag_of(args: argparse.Namespace) -> tuple[str, str]:
    """Return the URL and the tag: from the command line, else from SNOWREDIS_* variables."""
    url, tag = _url_and_tag(args)
    if tag is None:
        text = "no tag is named. Write its name after the command. These are the tags: snowredis numbers show"
        raise CommandError(ExitCode.USAGE, text)
    return url, tag


def _url_and_tag(args: argparse.Namespace) -> tuple[str, str | None]:
    from snowredis.numbers.settings import SEGMENT_SETTINGS, servers_of

    given = settings_in_environment(os.environ, [SEGMENT_SETTINGS["url"], SEGMENT_SETTINGS["tag"]])
    url = url_or_default(args.url or given.get("url"))
    if len(servers_of(url)) > 1:
        text = "each command is about one server, and several are named. Name one with --url; repeat it for the others."
        raise CommandError(ExitCode.USAGE, text)
    return url, args.tag or given.get("tag")


def _add_show(parser: Parser) -> None:
    _add_tag(parser)
    parser.add_argument("--json", action="store_true", help="an object, or a list of all tags")


def _show(args: argparse.Namespace) -> None:
    url, tag = _url_and_tag(args)
    if tag is None:
        _show_all(url, args)
        return
    segments, dated = _read(url, tag)
    if not segments.exists and dated is None:
        text = (
            f"there is no tag {tag!r} at {segments.where}, neither of segments nor of dated numbers. If it is new, "
            f"create it once: snowredis numbers create {tag}"
        )
        raise CommandError(ExitCode.POOL_NOT_FOUND, text)
    if args.json:
        print_json({"tag": tag, "segments": segments if segments.exists else None, "dated": dated})
        return
    lines: list[Line] = []
    if segments.exists:
        lines += [[("tag ", "dim"), (tag, "strong")], *pairs(_rows(segments), wrap=True), []]
    if dated is not None:
        lines += [[("dated numbers of ", "dim"), (tag, "strong")], *pairs(_dated_rows(dated), wrap=True)]
    write(lines if lines[-1] else lines[:-1])


def _show_all(url: str, args: argparse.Namespace) -> None:
    """Show a table of all tags. What cannot be read is in it, too."""
    from snowredis.errors import SnowredisError
    from snowredis.monitor.number_checks import tags_at

    where, names = tags_at(url)
    found: list[tuple[str, str, str, str]] = []
    for name in names:
        try:
            segments, dated = _read(url, name)
        except SnowredisError as error:
            found.append((name, "unknown", str(error), ""))
            continue
        if segments.exists:
            state = "unknown" if segments.config is None else "closed" if segments.reason else "open"
            found.append((name, "segments", state, str(segments.next_number) if segments.config else ""))
        if dated is not None:
            found.append((name, f"dated by {dated.period}", dated.state, str(dated.last_number + 1)))
    titles = ("tag", "numbers", "state", "next")
    if args.json:
        print_json([dict(zip(titles, one, strict=True)) for one in found])
    elif found:
        columns = [Column(title, shrinks=title in ("tag", "state"), right=title == "next") for title in titles]
        rows: list[list[Cell]] = [
            [(printable(name, MAX_FOREIGN), "strong"), kind, (printable(state, 200), _style(state)), following]
            for name, kind, state, following in found
        ]
        write([[("tags at ", "dim"), (where, "")], [], *table(columns, rows)])
    else:
        print(f"there is no tag at {where}; create one with: snowredis numbers create TAG")


def _style(state: str) -> str:
    return "good" if state == "open" else "bad"


def _read(url: str, tag: str) -> tuple[TagInfo, DatedInfo | None]:
    """Return the segments and the dated numbers of *tag*. Raises StoreRefused if the user has the right to neither."""
    from snowredis.errors import StoreRefused
    from snowredis.numbers.administration import TagInfo, show_dated, show_tag

    try:
        segments = show_tag(url, tag)
    except StoreRefused as error:
        # a user with rights to dated numbers only
        dated = show_dated(url, tag)
        if dated is None:
            raise
        return TagInfo(error.where, exists=False), dated
    try:
        return segments, show_dated(url, tag)
    except StoreRefused:
        return segments, None


def _dated_rows(info: DatedInfo) -> list[tuple[str, str | Line]]:
    from snowredis.numbers.errors import CLOSED_REASONS

    state: str | Line = "open"
    if info.closed_reason is not None and info.opens_ms is not None:
        text = f"closed: {CLOSED_REASONS.get(info.closed_reason, printable(info.closed_reason, 40))}"
        state = [(f"{text}; the next period that is open begins at {time_of(info.opens_ms)}", "bad")]
    return [
        ("state", state),
        ("period", f"{info.period} of {info.zone}; now {info.label}"),
        ("last number", f"{info.last_number:,}" if info.last_number else "none yet in this period"),
        ("format", printable(info.format, 100) or "not known before the first number"),
        ("server", printable(info.where, 60)),
    ]


def _rows(info: TagInfo) -> list[tuple[str, str | Line]]:
    from snowredis.numbers.protocol import TagConfig, share_text
    from snowredis.signatures import wrong_format

    config, server = info.config, ("server", printable(info.where, 60))
    if config is None:
        text = wrong_format(TagConfig(tag="any").signature, info.signature) or f"unknown constants {info.signature!a}"
        return [("state", [(f"not readable: {text}", "bad")]), ("position", f"{info.position:,}"), server]
    state: str | Line = "open" if info.reason is None else [(f"closed: {info.reason.text}", "bad")]
    alarms: str | Line = "0"
    if info.alarm is not None:
        numbers, at = f"{info.alarm.first:,} to {info.alarm.last:,}", time_of(info.alarm.at_ms)
        alarms = [(f"{info.alarms:,}; at {at}: the numbers {numbers} may have been handed out twice", "bad")]
    share = [] if config.share[1] == 1 else [("share", share_text(config.share))]
    last = ago(max(0, time.time_ns() // 1_000_000 - info.last_ms)) if info.last_ms else "never"
    return [
        ("state", state),
        ("range", f"{config.start:,} to {config.maximum:,}"),
        *share,
        ("next", f"{info.next_number:,}"),
        ("left", f"{info.remaining:,}"),
        ("handed out", f"{info.handed_out:,} in {info.segments:,} segments to {info.clients:,} processes"),
        ("last request", last),
        ("alarms", alarms),
        server,
    ]


_COMMANDS = [
    Command(
        "create",
        "create a tag that is really new",
        """Redis may lose a tag, as any key. Processes then refuse numbers until you say from which number on none was
handed out. So never run this for a tag that existed: its numbers would be handed out a second time.""",
        [
            ("snowredis numbers create invoices", "1, 2, 3, …"),
            ("snowredis numbers create coupons --start 100000 --maximum 999999", "six digits"),
            ("snowredis numbers create bills --period day --zone Europe/Berlin", "dated"),
            ("snowredis numbers create tickets --share 1/2", "one of two"),
        ],
        _add_create,
        _create,
    ),
    Command(
        "show",
        "show a tag: what was handed out, what is left, and whether it is closed; or all tags",
        """How fast numbers are handed out, how many each process has at hand, its step, prefetches and waits are in the
metrics. Of dated numbers it shows the current period, its last number, and whether it is closed.""",
        [
            ("snowredis numbers show invoices", "what is left"),
            ("snowredis numbers show", "all tags of a Redis"),
            ("snowredis numbers show invoices --json", "for programs"),
        ],
        _add_show,
        _show,
    ),
    Command(
        "open",
        "let a closed tag hand out numbers, after Redis may have lost some",
        """With --from N: no number from N on was ever handed out, such as max(id) of the table plus what processes may
hold, twice the largest segment for each. With --as-reported: none beyond those that processes reported, since all of
them are alive and have reported. The tag opens there or later. A tag that Redis does not know needs its constants, too.
Of dated numbers, one period is opened.""",
        [
            ("snowredis numbers open invoices --from 5000", "asks"),
            ("snowredis numbers open invoices --as-reported --yes", "all are alive"),
            ("snowredis numbers open bills --from 43 --period 2026-11-22", "one day"),
        ],
        _add_open,
        _open,
    ),
    Command(
        "change",
        "give a tag of segments another maximum, durability or failover slack",
        """In one step; what is not named stays as it is. The tag has to be open, and its numbers go on where they are.
Processes keep the segments that they have, and are refused more until they have the new settings, too: restart them.
Start and share are fixed: for others, and for another period or zone of dated numbers, create another tag.""",
        [("snowredis numbers change invoices --maximum 9999999", "a longer range")],
        _add_change,
        _change,
    ),
    Command(
        "delete",
        "delete a tag, its segments and its dated numbers",
        "Then which of its numbers were handed out is not known: a tag of the same name would hand them out again.",
        [("snowredis numbers delete coupons", "asks")],
        _add_delete,
        _delete,
    ),
]
NUMBERS = Command(
    "numbers",
    "numbers of tags, in segments or dated: create, show, open and change",
    """A tag names numbers that Redis hands out, such as those of invoices: in segments,
snowredis.generator("segment", tag="invoices"), or dated, snowredis.generator("dated", tag="invoices").""",
    commands=_COMMANDS,
)
