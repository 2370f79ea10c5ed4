"""`numbers`: create, show, open, change and delete tags of segments and of dated numbers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from typing import Any

from snowredis import numbers
from snowredis.cli import output
from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Command, Parser, confirm, natural
from snowredis.environment import from_environment
from snowredis.errors import ConfigError, SnowredisError, StoreRefused
from snowredis.process.clock import now_ms
from snowredis.settings import URL_SETTING, Setting, required_url, url_to_look_at


def _constants(*, dated: bool) -> dict[str, Setting]:
    """Return the declarations of the constants of a tag of segments, or of dated numbers."""
    from snowredis.numbers.settings import DATED_SETTINGS, SEGMENT_SETTINGS, SHARE

    found = {name: one for name, one in (DATED_SETTINGS if dated else SEGMENT_SETTINGS).items() if one.of_pool}
    return found if dated else {**found, "share": SHARE}


def _given(args: argparse.Namespace, declared: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the values of *declared* settings: those of the command line, else of SNOWREDIS_* variables."""
    given = {name: getattr(args, name) for name in declared if getattr(args, name) is not None}
    return from_environment(os.environ, declared.values()) | given


def _add(parser: Parser, settings: Iterable[Setting] = (), *, changes: bool = True, tags: str | None = None) -> None:
    """Add TAG, --url, an option for each of *settings*, and --yes if the command *changes* something."""
    parser.add_argument("tag", nargs=tags, metavar="TAG")
    parser.add_argument("--url", help=f"the Redis, one server (default: {URL_SETTING.default_text})")
    parser.add_settings(*settings)
    if changes:
        parser.add_yes()


def _create(args: argparse.Namespace) -> None:
    dated = args.period is not None
    constants, others = _constants(dated=dated), _constants(dated=not dated)
    wrong = sorted(f"--{name}" for name in others.keys() - constants if getattr(args, name) is not None)
    if wrong:
        why = "segments have it, and --period makes dated numbers" if dated else "dated numbers have it: add --period"
        raise CommandError(ExitCode.USAGE, f"{' and '.join(wrong)}: only {why}. Nothing was created.")
    given = _given(args, constants)
    if not dated:
        first = numbers.create_tag(required_url(args.url), args.tag, **given)
        print(f"tag {args.tag} was created; its first number is {first:,}")
        return
    with numbers.DatedGenerator(args.tag, required_url(args.url), **given) as ids:
        if not ids.create():
            raise ConfigError(
                f"the dated numbers of {args.tag} are not new. Nothing was changed. See: snowredis numbers show"
            )
    print(f"tag {args.tag} was created; its numbers start again each {args.period}")


def _add_open(parser: Parser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--from", dest="first", type=natural, metavar="N", help="no number from N on was handed out")
    where.add_argument("--as-reported", action="store_true", help="of segments: none but those that were reported")
    parser.add_argument("--period", metavar="LABEL", help="of dated numbers: the period, such as 2026-11-22")
    _add(parser, _constants(dated=False).values())


def _open(args: argparse.Namespace) -> None:
    url, tag, period = required_url(args.url), args.tag, args.period
    if period is not None:
        if args.first is None:
            raise CommandError(ExitCode.USAGE, "dated numbers are opened with --from N.")
        confirm(args, f"Are you sure that no number of {tag} from {args.first:,} on was used in {period}?")
        slack = {"failover_slack": _constants(dated=True)["failover_slack"]}
        following = numbers.open_dated(url, tag, args.first, period, **_given(args, slack))
        print(f"the period {period} of tag {tag} is open; its next number is {following:,}")
        return
    segments, dated = _read(url, tag)
    if segments is None and dated is not None:
        text = f"the tag {tag} has dated numbers. Add the period that you open, such as --period {dated.label}"
        raise CommandError(ExitCode.USAGE, text)
    what = "beyond those that processes reported" if args.first is None else f"from {args.first:,} on"
    confirm(args, f"Are you sure that no number of {tag} {what} was ever handed out?")
    following = numbers.open_tag(url, tag, args.first, **_given(args, _constants(dated=False)))
    print(f"tag {tag} is open; its next number is {following:,}")


_CHANGEABLE = ("maximum", "durability", "failover_slack")


def _change(args: argparse.Namespace) -> None:
    # SNOWREDIS_* variables are settings of processes, and change no tag
    constants = {name: getattr(args, name) for name in _CHANGEABLE if getattr(args, name) is not None}
    if not constants:
        raise CommandError(ExitCode.USAGE, "nothing to change is named. See: snowredis numbers change --help")
    confirm(args, f"Change {args.tag}? Its processes use up what they have, and get no more until they are restarted.")
    following = numbers.change_tag(required_url(args.url), args.tag, **constants)
    print(f"tag {args.tag} was changed; its next number is {following:,}. Restart its processes with the new settings")


def _delete(args: argparse.Namespace) -> None:
    confirm(args, f"Delete {args.tag}, with all its segments and periods? Then it is unknown which numbers were used.")
    deleted = numbers.delete_tag(required_url(args.url), args.tag)
    print(f"tag {args.tag} was deleted" if deleted else f"there is no tag {args.tag}")


def _add_show(parser: Parser) -> None:
    _add(parser, changes=False, tags="?")
    parser.add_argument("--json", action="store_true", help="an object, or a list of all tags")


def _show(args: argparse.Namespace) -> None:
    if args.tag is None:
        _show_all(args)
        return
    segments, dated = _read(url_to_look_at(args.url), args.tag)
    if segments is None and dated is None:
        text = f"this Redis has no tag {args.tag!r}. If it is new, create it once: snowredis numbers create {args.tag}"
        raise CommandError(ExitCode.POOL_NOT_FOUND, text)
    if args.json:
        output.print_json({"tag": args.tag, "segments": segments, "dated": dated})
        return
    lines: list[output.Line] = []
    if segments is not None:
        lines += [[("tag ", "dim"), (args.tag, "strong")], *output.pairs(_rows(segments), wrap=True)]
    if dated is not None:
        lines += [[("dated numbers of ", "dim"), (args.tag, "strong")], *output.pairs(_dated_rows(dated), wrap=True)]
    output.write(lines)


def _show_all(args: argparse.Namespace) -> None:
    """Show a table of all tags. What cannot be read is in it, too."""
    from snowredis.monitor.doctor import tags_at

    where, names = tags_at(url_to_look_at(args.url))
    found: list[tuple[str, str, str, str]] = []
    for name in names:
        try:
            segments, dated = _read(url_to_look_at(args.url), name)
        except SnowredisError as error:
            found.append((name, "unknown", str(error), ""))
            continue
        if segments is not None:
            found.append((name, "segments", segments.state, str(segments.next_number) if segments.config else ""))
        if dated is not None:
            found.append((name, f"dated by {dated.period}", dated.state, str(dated.last_number + 1)))
    titles = ("tag", "numbers", "state", "next")
    if args.json:
        output.print_json([dict(zip(titles, one, strict=True)) for one in found])
        return
    if not found:
        print(f"there is no tag at {where}; create one with: snowredis numbers create TAG")
        return
    columns = [output.Column(title, shrinks=title in ("tag", "state"), right=title == "next") for title in titles]
    rows = [[output.printable(cell, 200) for cell in one] for one in found]
    output.write([[("tags at ", "dim"), (where, "")], *output.table(columns, rows)])


def _read(url: Any, tag: str) -> tuple[numbers.TagInfo | None, numbers.DatedInfo | None]:
    """Return the segments and the dated numbers of *tag*: what the user has the right to read. Raises StoreRefused."""
    try:
        segments = numbers.show_tag(url, tag)
    except StoreRefused:
        dated = numbers.show_dated(url, tag)
        if dated is None:
            raise
        return None, dated
    try:
        return segments, numbers.show_dated(url, tag)
    except StoreRefused:
        return segments, None


def _state(info: numbers.TagInfo | numbers.DatedInfo, more: str = "") -> str | output.Line:
    return "open" if info.reason is None else [(f"closed: {info.reason.text}{more}", "bad")]


def _dated_rows(info: numbers.DatedInfo) -> list[output.Pair]:
    opens = "" if info.opens_ms is None else output.time_of(info.opens_ms)
    return [
        ("state", _state(info, f"; the next period that is open begins at {opens}")),
        ("period", f"{info.period} of {info.zone}; now {info.label}"),
        ("last number", f"{info.last_number:,}" if info.last_number else "none yet in this period"),
        ("format", output.printable(info.format, 100) or "not known before the first number"),
        ("server", output.printable(info.where, 60)),
    ]


def _rows(info: numbers.TagInfo) -> list[output.Pair]:
    from snowredis.numbers.settings import TagConfig, share_text
    from snowredis.signatures import wrong_format

    config, server = info.config, ("server", output.printable(info.where, 60))
    if config is None:
        text = wrong_format(TagConfig(tag="any").signature, info.signature) or f"unknown constants {info.signature!a}"
        return [("state", [(f"not readable: {text}", "bad")]), ("position", f"{info.position:,}"), server]
    alarms: str | output.Line = "0"
    if info.alarm is not None:
        which, at = f"{info.alarm.first:,} to {info.alarm.last:,}", output.time_of(info.alarm.at_ms)
        alarms = [(f"{info.alarms:,}; at {at}: the numbers {which} may have been handed out twice", "bad")]
    return [
        ("state", _state(info)),
        ("range", f"{config.start:,} to {config.maximum:,}; share {share_text(config.share)}"),
        ("next", f"{info.next_number:,}; {info.remaining:,} left"),
        ("handed out", f"{info.handed_out:,} in {info.segments:,} segments to {info.clients:,} processes"),
        ("last request", output.ago(max(0, now_ms() - info.last_ms)) if info.last_ms else "never"),
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
            ("snowredis numbers create bills --period day --zone Europe/Berlin", "dated"),
            ("snowredis numbers create tickets --share 1/2", "one of two"),
        ],
        lambda parser: _add(parser, (_constants(dated=True) | _constants(dated=False)).values(), changes=False),
        _create,
    ),
    Command(
        "show",
        "show a tag: what was handed out, what is left, and whether it is closed; or all tags",
        """Metrics show how fast numbers are handed out, how many each process has at hand, its step and its waits.
Of dated numbers, the command shows the current period, its last number, and whether it is closed.""",
        [("snowredis numbers show invoices", "what is left"), ("snowredis numbers show", "all tags of a Redis")],
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
        lambda parser: _add(parser, [_constants(dated=False)[name] for name in _CHANGEABLE]),
        _change,
    ),
    Command(
        "delete",
        "delete a tag, its segments and its dated numbers",
        "Then which of its numbers were handed out is not known: a tag of the same name would hand them out again.",
        [("snowredis numbers delete coupons", "asks")],
        _add,
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
