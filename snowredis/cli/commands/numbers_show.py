"""`numbers show`: show a tag: what was handed out, how fast, and for how long it lasts. Only reads."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode
from snowredis.cli.options import Parser
from snowredis.cli.output import (
    Cell,
    Column,
    Line,
    ago,
    duration,
    pairs,
    print_json,
    printable,
    table,
    terminal_width,
    time_of,
    write,
)
from snowredis.settings import DEFAULT_URL, settings_in_environment, split_urls

if TYPE_CHECKING:
    from snowredis.numbers.administration import DatedInfo, TagInfo

SUMMARY = "show a tag: what was handed out, how fast, and for how long it lasts"
ABOUT = """The consumption is that between two looks at Redis, so numbers of segments that were fetched in between. How
many numbers each process has at hand, its step, prefetches and waits are in its metrics. Of dated numbers it shows the
current period, the last number of it, and whether it is closed."""
EXAMPLES = [
    ("snowredis numbers show invoices", "for how long it lasts"),
    ("snowredis numbers show invoices --seconds 60", "at the rate of a minute"),
    ("snowredis numbers show invoices --json", "for programs"),
]


def add_tag(parser: Parser) -> None:
    """Add TAG and --url."""
    parser.add_argument("tag", nargs="?", metavar="TAG", help="default: SNOWREDIS_TAG")
    text = "the Redis, or several independent ones, separated by spaces (default: SNOWREDIS_URL, else "
    parser.add_argument("--url", help=f"{text}{DEFAULT_URL})")


def tag_of(args: argparse.Namespace) -> tuple[str | list[str], str]:
    """Return the URL and the tag: from the command line, else from SNOWREDIS_* variables."""
    from snowredis.numbers.settings import SEGMENT_SETTINGS

    given = settings_in_environment(os.environ, [SEGMENT_SETTINGS["url"], SEGMENT_SETTINGS["tag"]])
    url, tag = args.url or given.get("url", DEFAULT_URL), args.tag or given.get("tag")
    if tag is None:
        raise CommandError(ExitCode.USAGE, "no tag is named. Write it after the command.")
    return split_urls(url) if isinstance(url, str) else url, tag


def add_arguments(parser: Parser) -> None:
    add_tag(parser)
    text = "time between the two looks that show the consumption; 0: one look (default: %(default)s)"
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help=text)
    parser.add_argument("--json", action="store_true", help="an object")


def run(args: argparse.Namespace) -> int:
    from snowredis.numbers.administration import remaining, show_tag

    url, tag = tag_of(args)
    (infos, dated), rate = read(url, tag), None
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
        return ExitCode.OK
    now_ms = time.time_ns() // 1_000_000
    lines: list[Line] = []
    if exists:
        lines += [[("tag ", "dim"), (tag, "strong")], *pairs(_rows(infos, rate), wrap=True), []]
        lines += [*_table(infos, now_ms), []]
    if dated is not None:
        lines += [[("dated numbers of ", "dim"), (tag, "strong")], *pairs(_dated_rows(dated), wrap=True)]
    write(lines if lines[-1] else lines[:-1])
    return ExitCode.OK


def read(url: str | list[str], tag: str) -> tuple[Sequence[TagInfo], DatedInfo | None]:
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
            lasts += (
                f", for {duration(left / rate * 1000)} at this rate" if left / rate < 1e11 else ", for ages"
            )
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
    columns += [
        Column(title, right=True) for title in ("handed out", "segments", "processes", "last request")
    ]
    rows: list[list[Cell]] = []
    for info in infos:
        state = info.reason.value if info.reason else "open"
        if not info.exists:
            state = "no reply" if info.error else "unknown here"
        last = ago(max(0, now_ms - info.last_ms)) if info.last_ms else "never"
        numbers = [
            f"{number:,}" for number in (info.next_number, info.handed_out, info.segments, info.clients)
        ]
        rows.append(
            [printable(info.where, 60), (state, "good" if state == "open" else "bad"), *numbers, last]
        )
    return table(columns, rows, terminal_width())
