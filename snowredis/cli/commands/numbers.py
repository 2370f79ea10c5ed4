"""`numbers`: create, show, open, change and delete tags of segments and of dated numbers."""

from __future__ import annotations

import argparse
import contextlib
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
    duration,
    pairs,
    print_json,
    printable,
    table,
    time_of,
    write,
)
from snowredis.settings import URL_SETTING, Setting, settings_in_environment, split_urls, url_or_default

if TYPE_CHECKING:
    from snowredis.numbers.administration import DatedInfo, TagInfo


def _segment_constants() -> list[Setting]:
    """Return the declarations of the constants of a tag of segments."""
    from snowredis.numbers.settings import SEGMENT_SETTINGS

    return [setting for setting in SEGMENT_SETTINGS.values() if setting.of_pool]


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


def _dated_of(args: argparse.Namespace) -> tuple[str | list[str], str, DatedInfo | None]:
    """Return URL and tag, and the dated numbers of the tag if that is what the command is about."""
    from snowredis.errors import StoreUnavailable

    url, tag = _tag_of(args)
    try:
        infos, dated = _read(url, tag)
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


def _add_create(parser: Parser) -> None:
    _add_tag(parser)
    parser.add_settings(*_segment_constants(), *_dated_constants())


def _create(args: argparse.Namespace) -> None:
    from snowredis.numbers.administration import create_tag
    from snowredis.numbers.dated import DatedGenerator

    url, tag = _tag_of(args)
    constants = _given(args, _segment_constants())
    if args.period is None:
        create_tag(url, tag, **constants)
        print(f"tag {tag} was created; its first number is {constants.get('start', 1):,}")
        return
    constants.pop("start", None)
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
    _add_period(parser)
    parser.add_settings(*_segment_constants())
    parser.add_yes()


def _open(args: argparse.Namespace) -> None:
    from snowredis.numbers.administration import open_dated, open_tag
    from snowredis.numbers.settings import DATED_SETTINGS

    url, tag, dated = _dated_of(args)
    constants = _given(args, _segment_constants())
    if dated is not None:
        if args.first is None:
            raise CommandError(ExitCode.USAGE, "dated numbers are opened with --from N.")
        period = dated.label if args.period in (None, "now") else args.period
        confirm(args, f"Are you sure that no number of {tag} from {args.first:,} on was used in {period}?")
        limits = settings_in_environment(os.environ, [DATED_SETTINGS["redis_skew"]])
        limits |= {name: value for name, value in constants.items() if name == "failover_slack"}
        following = open_dated(dated.url, tag, args.first, period, **limits)
        print(f"the period {period} of tag {tag} is open; its next number is {following:,}")
        return
    what = "beyond those that processes reported" if args.first is None else f"from {args.first:,} on"
    confirm(args, f"Are you sure that no number of {tag} {what} was ever handed out?")
    following = open_tag(url, tag, args.first, **constants)
    print(f"tag {tag} is open; its next number is {following:,}")


def _add_change(parser: Parser) -> None:
    _add_tag(parser)
    parser.add_settings(*_segment_constants())
    parser.add_argument("--to", metavar="URLS", help="the servers from now on (default: those of --url)")
    text = "no number from N on was handed out: needed if a server does not reply, or may have forgotten numbers"
    parser.add_argument("--from", dest="first", type=natural, metavar="N", help=text)
    parser.add_yes()


def _change(args: argparse.Namespace) -> None:
    from snowredis.numbers.administration import change_tag

    url, tag = _tag_of(args)
    # not those of the environment, which are those of the processes: what is not named stays as it is
    constants = _given(args, _segment_constants(), environment={})
    confirm(args, f"Close {tag}, and open it with other settings?")
    following = change_tag(url, split_urls(args.to) if args.to else url, tag, first=args.first, **constants)
    print(f"tag {tag} was changed; its next number is {following:,}. Restart its processes with the new settings")


def _add_delete(parser: Parser) -> None:
    _add_tag(parser)
    _add_period(parser)
    parser.add_yes()


def _delete(args: argparse.Namespace) -> None:
    from snowredis.numbers.administration import delete_dated, delete_tag

    url, tag, dated = _dated_of(args)
    confirm(args, f"Delete {tag}? Then which of its numbers were handed out is not known any more.")
    deleted = delete_dated(dated.url, tag) if dated is not None else delete_tag(url, tag)
    print(f"tag {tag} was deleted" if deleted else f"there is no tag {tag}")


def _add_tag(parser: Parser) -> None:
    """Add TAG and --url."""
    parser.add_argument("tag", nargs="?", metavar="TAG", help="default: SNOWREDIS_TAG")
    text = "the Redis, or several independent ones, separated by spaces (default: "
    parser.add_argument("--url", help=f"{text}{URL_SETTING.default_text})")


def _tag_of(args: argparse.Namespace) -> tuple[str | list[str], str]:
    """Return the URL and the tag: from the command line, else from SNOWREDIS_* variables."""
    url, tag = _url_and_tag(args)
    if tag is None:
        text = "no tag is named. Write its name after the command. These are the tags: snowredis numbers show"
        raise CommandError(ExitCode.USAGE, text)
    return url, tag


def _url_and_tag(args: argparse.Namespace) -> tuple[str | list[str], str | None]:
    from snowredis.numbers.settings import SEGMENT_SETTINGS

    given = settings_in_environment(os.environ, [SEGMENT_SETTINGS["url"], SEGMENT_SETTINGS["tag"]])
    url = url_or_default(args.url or given.get("url"))
    return split_urls(url) if isinstance(url, str) else url, args.tag or given.get("tag")


def _add_show(parser: Parser) -> None:
    _add_tag(parser)
    text = "time between the two looks that show the consumption; 0: one look (default: %(default)s)"
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help=text)
    parser.add_argument("--json", action="store_true", help="an object, or a list of all tags")


def _show(args: argparse.Namespace) -> None:
    from snowredis.numbers.administration import remaining, show_tag

    url, tag = _url_and_tag(args)
    if tag is None:
        _show_all(url, args)
        return
    (infos, dated), rate = _read(url, tag), None
    exists = any(info.exists for info in infos)
    if not exists and dated is None:
        where = ", ".join(info.where for info in infos)
        text = (
            f"there is no tag {tag!r} at {where}, neither of segments nor of dated numbers. If it is new, create it "
            f"once: snowredis numbers create {tag}"
        )
        raise CommandError(ExitCode.POOL_NOT_FOUND, text)
    if exists and args.seconds > 0 and not any(info.error for info in infos):
        before, began_s = infos, time.monotonic()
        time.sleep(args.seconds)
        infos = show_tag(url, tag)
        handed = sum(info.handed_out for info in infos) - sum(info.handed_out for info in before)
        rate = max(0, handed) / (time.monotonic() - began_s)
    if args.json:
        left = remaining(infos)
        lasts_s = left / rate if left is not None and rate else None
        left_text = None if left is None else str(left)
        facts = {"tag": tag, "rate": rate, "remaining": left_text, "used_up_in_s": lasts_s}
        print_json({**facts, "servers": infos, "dated": dated})
        return
    now_ms = time.time_ns() // 1_000_000
    lines: list[Line] = []
    if exists:
        lines += [[("tag ", "dim"), (tag, "strong")], *pairs(_rows(infos, rate), wrap=True), []]
        lines += [*_table(infos, now_ms), []]
    if dated is not None:
        lines += [[("dated numbers of ", "dim"), (tag, "strong")], *pairs(_dated_rows(dated), wrap=True)]
    write(lines if lines[-1] else lines[:-1])


def _show_all(url: str | list[str], args: argparse.Namespace) -> None:
    """Show a table of the tags of the first server."""
    from snowredis.monitor.number_checks import tags_at

    where, names = tags_at(url if isinstance(url, str) else url[0])
    found: list[tuple[str, str, str, int]] = []
    for name in names:
        infos, dated = _read(url, name)
        if known := [info for info in infos if info.exists]:
            state = "closed" if any(info.reason for info in known) else "open"
            found.append((name, "segments", state, min(info.next_number for info in known)))
        if dated is not None:
            state = "closed" if dated.closed_reason is not None else "open"
            found.append((name, f"dated by {dated.period}", state, dated.last_number + 1))
    if args.json:
        titles = ("tag", "numbers", "state", "next")
        print_json([dict(zip(titles, (*one[:3], str(one[3])), strict=True)) for one in found])
    elif found:
        columns = [
            Column("tag", shrinks=True),
            *map(Column, ("numbers", "state")),
            Column("next", right=True),
        ]
        styles = {"open": "good", "closed": "bad"}
        rows: list[list[Cell]] = [
            [(printable(name, MAX_FOREIGN), "strong"), numbers, (state, styles[state]), f"{following:,}"]
            for name, numbers, state, following in found
        ]
        write([[("tags at ", "dim"), (where, "")], [], *table(columns, rows)])
    else:
        print(f"there is no tag at {where}; create one with: snowredis numbers create TAG")


def _read(url: str | list[str], tag: str) -> tuple[Sequence[TagInfo], DatedInfo | None]:
    """Return the segments of *tag* on each server, and its dated numbers on the first server that has some.

    Raises StoreRefused if the user has the right to neither.
    """
    from snowredis.errors import StoreRefused, StoreUnavailable
    from snowredis.numbers.administration import show_dated, show_tag

    infos: Sequence[TagInfo] = ()
    refused: StoreRefused | None = None
    try:
        infos = show_tag(url, tag)
    except StoreRefused as error:
        refused = error
    dated = None
    for each in [url] if isinstance(url, str) else url:
        # a user with rights to segments only, or one of several servers that does not reply
        with contextlib.suppress(*((StoreUnavailable,) if infos else (StoreRefused,))):
            dated = dated or show_dated(each, tag)
    if refused is not None and dated is None:
        raise refused
    return infos, dated


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


def _rows(infos: Sequence[TagInfo], rate: float | None) -> list[tuple[str, str | Line]]:
    from snowredis.numbers.administration import remaining

    config = next(info.config for info in infos if info.config is not None)
    closed = [info for info in infos if info.reason is not None or not info.exists]
    state: str | Line = "open"
    if closed:
        text = closed[0].reason.text if closed[0].reason is not None else "a server does not know it"
        text = closed[0].error or text
        state = [(f"closed: {text}", "bad")]
    left = remaining(infos)
    lasts = "not known"
    if left is not None:
        lasts = f"{left:,} numbers are left"
        if rate:
            lasts += f", for {duration(left / rate * 1000)} at this rate" if left / rate < 1e11 else ", for ages"
    alarms = sum(info.alarms for info in infos)
    return [
        ("state", state),
        ("range", f"{config.start:,} to {config.maximum:,}"),
        ("next", f"{min(info.next_number for info in infos if info.exists):,}"),
        ("consumption", "not measured" if rate is None else f"{rate:,.0f} numbers a second are handed out"),
        ("lasts", lasts),
        ("alarms", [(f"{alarms:,}: numbers may have been handed out twice", "bad")] if alarms else "0"),
    ]


def _table(infos: Sequence[TagInfo], now_ms: int) -> list[Line]:
    columns = [Column("server", shrinks=True), Column("state"), Column("next", right=True)]
    columns += [Column(title, right=True) for title in ("handed out", "segments", "processes", "last request")]
    rows: list[list[Cell]] = []
    for info in infos:
        state = info.reason.value if info.reason else "open"
        if not info.exists:
            state = "no reply" if info.error else "unknown here"
        last = ago(max(0, now_ms - info.last_ms)) if info.last_ms else "never"
        numbers = [f"{number:,}" for number in (info.next_number, info.handed_out, info.segments, info.clients)]
        rows.append([printable(info.where, 60), (state, "good" if state == "open" else "bad"), *numbers, last])
    return table(columns, rows)


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
        ],
        _add_create,
        _create,
    ),
    Command(
        "show",
        "show a tag: what was handed out, how fast, and for how long it lasts; or all tags",
        """The consumption is that between two looks at Redis, so numbers of segments that were fetched in between. How
many numbers each process has at hand, its step, prefetches and waits are in its metrics. Of dated numbers it shows the
current period, its last number, and whether it is closed.""",
        [
            ("snowredis numbers show invoices", "for how long it lasts"),
            ("snowredis numbers show", "all tags of a Redis"),
            ("snowredis numbers show invoices --seconds 60", "at the rate of a minute"),
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
    Command(
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
    Command(
        "delete",
        "delete a tag",
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
