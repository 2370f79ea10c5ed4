"""`whois`: which process made an id; of an id that stands in two tables, how that can be. Only reads."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Commands, Parser, add_command, add_redis, open_known_pool, settings
from snowredis.cli.output import MAX_FOREIGN, Line, ago, pairs, printable, write
from snowredis.settings import FORMS

if TYPE_CHECKING:
    from snowredis.core.layout import Layout
    from snowredis.monitor.history.duplicate_causes import DuplicateCause
    from snowredis.monitor.history.ownership import Holder
    from snowredis.monitor.history.whois import Whois

_STYLES = {"certain": "good", "probable": "warn", "unknown": "bad"}


def add_to(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands,
        "whois",
        summary="say which process made an id",
        about=(
            "From the pool's events, which are trimmed after about 20,000; where they do not show it, that is said. "
            "Two equal ids: how one id can stand in two tables. Exits with 1 if it cannot be known."
        ),
        examples=[
            ("snowredis whois 249736970576592896 --pool orders", "host, pid, lease"),
            ("snowredis whois 0IRnTPj9V9k --format base62 --json", "for programs"),
            ("snowredis whois 249736970576592896 249736970576592896", "a duplicate"),
        ],
        run=_whois,
    )
    parser.add_argument("ids", nargs="+", metavar="ID", help="number or text; one, or two that may be equal")
    add_redis(parser)
    parser.add_argument(
        "--format", choices=FORMS, metavar="FORM", help=f"the form that they have: {', '.join(FORMS)}"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line; ids are strings in it")


def _whois(args: argparse.Namespace) -> int:
    url, options = settings(args)
    with open_known_pool(url, options.get("pool", "default")) as pool:
        makers = pool.whois_all(_parse(args.ids, args.format, pool.info().layout))
    for number, whois in enumerate(makers):
        if args.json:
            print(json.dumps(whois_as_json(whois)))
        else:
            if number:
                print()
            write(_as_lines(whois))
    return ExitCode.ERROR if any(whois.certainty == "unknown" for whois in makers) else ExitCode.OK


def _parse(texts: list[str], form: str | None, layout: Layout) -> list[int]:
    from snowredis.core.text import parse, parse_any

    return [
        parse(text.strip(), form, layout=layout) if form else parse_any(text, layout=layout)[0][1]
        for text in texts
    ]


def _as_lines(whois: Whois) -> list[Line]:
    from snowredis.cli.commands.decode import time_of

    parts, now_ms = whois.parts, whois.now_ms
    rows: list[tuple[str, str | Line]] = []
    if parts is not None:
        rows += [
            (
                "time",
                [(time_of(parts.timestamp_ms), "note"), (f"  {ago(now_ms - parts.timestamp_ms)}", "dim")],
            ),
            ("worker id", f"{parts.worker}, namespace {parts.backup}, sequence {parts.sequence}"),
        ]
    if whois.holder is not None:
        rows += _of_holder(whois.holder, now_ms)
    rows.append(("this is", [(whois.certainty, _STYLES[whois.certainty])]))
    rows.append(("because", printable(whois.reason, 1000)))
    rows += [("perhaps", f"{_name(one)}  {_lease(one, now_ms)}") for one in whois.candidates]
    lines = [[(str(whois.id), "strong")], *_wrapped(rows)]
    if whois.duplicate_causes is not None:
        lines += [[], [("how it can stand in two places", "strong")]]
        lines += _wrapped([_of_cause(cause) for cause in whois.duplicate_causes])
    return lines


def _of_cause(cause: DuplicateCause) -> tuple[str, str | Line]:
    return ("shown" if cause.shown else "possible", printable(cause.text, 1000))


def _wrapped(rows: list[tuple[str, str | Line]]) -> list[Line]:
    """As pairs(), but long text goes on below itself."""
    import textwrap

    from snowredis.cli.output import terminal_width

    indent = max(len(name) for name, _ in rows) + 4
    width = max(40, (terminal_width() or 120) - indent)
    split: list[tuple[str, str | Line]] = []
    for name, value in rows:
        parts: list[str | Line] = [value]
        if isinstance(value, str):
            parts = [*(textwrap.wrap(value, width) or [""])]
        split += [(name if not number else "", part) for number, part in enumerate(parts)]
    return pairs(split)


def _of_holder(holder: Holder, now_ms: int) -> list[tuple[str, str | Line]]:
    return [
        ("host", [(printable(holder.host, MAX_FOREIGN), "strong")]),
        ("pid", [(str(holder.pid or "?"), "strong")]),
        ("label", [(printable(holder.label, MAX_FOREIGN), "strong")]),
        ("lease", _lease(holder, now_ms)),
    ]


def _lease(holder: Holder, now_ms: int) -> str:
    from snowredis.cli.commands.decode import time_of

    begin = "a time that is forgotten" if holder.from_ms is None else time_of(holder.from_ms)
    if holder.held:
        return f"since {begin}, still held"
    if holder.to_ms is None:
        return f"from {begin} to a time that is not known"
    return f"from {begin} to {time_of(holder.to_ms)}  {ago(now_ms - holder.to_ms)}"


def _name(holder: Holder) -> str:
    label = f" ({printable(holder.label, MAX_FOREIGN)})" if holder.label else ""
    return f"{printable(holder.host, MAX_FOREIGN)}:{holder.pid}{label}"


def whois_as_json(whois: Whois) -> dict[str, Any]:
    """Return *whois* for programs; the id as text."""
    return asdict(whois) | {"id": str(whois.id)}
