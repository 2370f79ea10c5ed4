"""`segment show`: show a tag: what was handed out, how fast, and for how long it lasts. Only reads."""

from __future__ import annotations

import argparse
import dataclasses
import json
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
    printable,
    table,
    terminal_width,
    write,
)
from snowredis.cli.segment_access import add_tag, tag_of

if TYPE_CHECKING:
    from snowredis.segment.administration import TagInfo

SUMMARY = "show a tag: what was handed out, how fast, and for how long it lasts"
ABOUT = """The consumption is that between two looks at Redis, so numbers of segments that were fetched in between. How
many numbers each process has at hand, its step, prefetches and waits are in its metrics."""
EXAMPLES = [
    ("snowredis segment show invoices", "for how long it lasts"),
    ("snowredis segment show invoices --seconds 60", "at the rate of a minute"),
    ("snowredis segment show invoices --json", "for programs"),
]


def add_arguments(parser: Parser) -> None:
    add_tag(parser)
    text = "time between the two looks that show the consumption; 0: one look (default: %(default)s)"
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help=text)
    parser.add_argument("--json", action="store_true", help="an object")


def run(args: argparse.Namespace) -> int:
    from snowredis.segment.administration import show_tag

    url, tag, _ = tag_of(args)
    infos, rate = show_tag(url, tag), None
    if not any(info.exists for info in infos):
        where = ", ".join(info.where for info in infos)
        text = f"there is no tag {tag!r} at {where}. If it is new, create it once: snowredis segment create {tag}"
        raise CommandError(ExitCode.POOL_NOT_FOUND, text)
    if args.seconds > 0:
        before, began_s = infos, time.monotonic()
        time.sleep(args.seconds)
        infos = show_tag(url, tag)
        handed = sum(info.handed_out for info in infos) - sum(info.handed_out for info in before)
        rate = max(0, handed) / (time.monotonic() - began_s)
    if args.json:
        print(json.dumps(_as_json(tag, infos, rate)))
        return ExitCode.OK
    now_ms = time.time_ns() // 1_000_000
    head: Line = [("tag ", "dim"), (tag, "strong")]
    write([head, *pairs(_rows(infos, rate), wrap=True), [], *_table(infos, now_ms)])
    return ExitCode.OK


def _rows(infos: Sequence[TagInfo], rate: float | None) -> list[tuple[str, str | Line]]:
    from snowredis.segment.administration import remaining

    config = next(info.config for info in infos if info.config is not None)
    closed = [info for info in infos if info.reason is not None or not info.exists]
    state: str | Line = "open"
    if closed:
        text = closed[0].reason.text if closed[0].reason is not None else "a server does not know it"
        state = [(f"closed: {text}", "bad")]
    left = remaining(infos)
    lasts = "it begins again" if config.cyclic else "not known"
    if left is not None:
        lasts = f"{left:,} numbers are left"
        if rate:
            lasts += (
                f", for {duration(left / rate * 1000)} at this rate" if left / rate < 1e11 else ", for ages"
            )
    alarms = sum(info.alarms for info in infos)
    return [
        ("state", state),
        ("range", f"{config.start:,} to {config.maximum:,}" + (", cyclic" if config.cyclic else "")),
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
        state = "unknown here" if not info.exists else info.reason.value if info.reason else "open"
        last = ago(max(0, now_ms - info.last_ms)) if info.last_ms else "never"
        numbers = [
            f"{number:,}" for number in (info.next_number, info.handed_out, info.segments, info.clients)
        ]
        rows.append(
            [printable(info.where, 60), (state, "good" if state == "open" else "bad"), *numbers, last]
        )
    return table(columns, rows, terminal_width())


def _as_json(tag: str, infos: Sequence[TagInfo], rate: float | None) -> dict[str, object]:
    from snowredis.segment.administration import remaining

    left = remaining(infos)
    servers = [
        {
            "where": info.where,
            "exists": info.exists,
            "closed": info.reason.value if info.reason is not None else None,
            "next": str(info.next_number),
            "handed_out": str(info.handed_out),
            **{name: value for name, value in dataclasses.asdict(info).items() if name in _PLAIN},
        }
        for info in infos
    ]
    return {
        "tag": tag,
        "rate": rate,
        "remaining": None if left is None else str(left),
        "used_up_in_s": left / rate if left is not None and rate else None,
        "servers": servers,
    }


_PLAIN = ("segments", "clients", "alarms", "closed_ms", "last_ms")
