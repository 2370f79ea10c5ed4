"""`whois`: show which process made an id, and how one id can be in two tables. Only reads."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode
from snowredis.cli.options import Parser, add_format, add_redis, add_times, open_known_pool
from snowredis.cli.output import MAX_FOREIGN, Line, Pair, ago, pairs, print_json, printable, write

if TYPE_CHECKING:
    from snowredis.monitor.ownership import Holder
    from snowredis.monitor.whois import Whois

_STYLES = {"certain": "good", "probable": "warn", "unknown": "bad"}

SUMMARY = "show which process made an id"
ABOUT = """Reads the pool's events, of which about 20,000 are kept. For an id that is given twice: how it can be in two
tables. Exits with 1 if the process that made an id cannot be known."""
EXAMPLES = [
    ("snowredis whois 249736970576592896 --pool orders", "host, pid, lease"),
    ("snowredis whois 0IRnTPj9V9k --format base62 --json", "for programs"),
    ("snowredis whois 249736970576592896 249736970576592896", "a duplicate"),
]


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "ids", nargs="+", metavar="ID", help="number or text; twice the same one for a duplicate"
    )
    add_redis(parser)
    add_format(parser)
    add_times(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per line; ids are strings in it")


def run(args: argparse.Namespace) -> int:
    from snowredis.core.text import parse_user_id

    with open_known_pool(args) as pool:
        info = pool.info()
        readings = [
            parse_user_id(text, info.layout, form=args.format, now_ms=info.now_ms) for text in args.ids
        ]
        results = pool.whois_all([an_id for (_, an_id), *_ in readings], info)
    for number, whois in enumerate(results):
        if args.json:
            print_json(whois)
        else:
            write([*([[]] if number else []), *whois_lines(whois, args.time_text)])
    return ExitCode.ERROR if any(whois.certainty == "unknown" for whois in results) else ExitCode.OK


def whois_lines(whois: Whois, time_text: Callable[[int], str]) -> list[Line]:
    """Return the lines about the process that made an id."""
    parts, now_ms, rows = whois.parts, whois.now_ms, list[Pair]()
    if parts is not None:
        age: Line = [
            (time_text(parts.timestamp_ms), "note"),
            (f"  {ago(now_ms - parts.timestamp_ms)}", "dim"),
        ]
        rows.append(("time", age))
        rows.append(("worker id", f"{parts.worker}, namespace {parts.backup}, sequence {parts.sequence}"))
    if (holder := whois.holder) is not None:
        rows.append(("host", [(printable(holder.host, MAX_FOREIGN), "strong")]))
        rows.append(("pid", [(str(holder.pid or "?"), "strong")]))
        rows.append(("label", [(printable(holder.label, MAX_FOREIGN), "strong")]))
        rows.append(("lease", _lease(holder, now_ms, time_text)))
    if parts is not None:
        rows.append(("worker id now", _worker_now(whois, time_text)))
    rows.append(("certainty", [(whois.certainty, _STYLES[whois.certainty])]))
    rows.append(("reason", printable(whois.reason, 1000)))
    rows += [
        ("candidate", f"{_process(holder)}  {_lease(holder, now_ms, time_text)}")
        for holder in whois.candidates
    ]
    lines: list[Line] = [[(str(whois.id), "strong")], *pairs(rows, wrap=True)]
    if whois.duplicate_causes is not None:
        lines += [[], [("how it can be in two places", "strong")]]
        causes = whois.duplicate_causes
        rows = [("shown" if cause.shown else "possible", printable(cause.text, 1000)) for cause in causes]
        lines += pairs(rows, wrap=True)
    return lines


def _worker_now(whois: Whois, time_text: Callable[[int], str]) -> str:
    """Return which process has the worker id of the id now."""
    worker = whois.worker_now
    if worker is None or worker.state == "free":
        return "nobody has it"
    process = (printable(worker.host, MAX_FOREIGN), worker.pid, printable(worker.label, MAX_FOREIGN))
    holder = whois.holder
    same = holder and holder.from_ms == worker.claimed_ms and holder.process[:2] == (worker.host, worker.pid)
    who = (
        "the same process"
        if same
        else f"{process[0]}:{process[1]}" + (f" ({process[2]})" if process[2] else "")
    )
    return f"{who}, {worker.state}; last heartbeat {time_text(worker.renewed_ms)}, {ago(worker.heartbeat_age_ms)}"


def _lease(holder: Holder, now_ms: int, time_text: Callable[[int], str]) -> str:
    """Return from when to when *holder* had its worker id."""
    begin = "an unknown time" if holder.from_ms is None else time_text(holder.from_ms)
    if holder.held:
        return f"since {begin}, still held"
    if holder.to_ms is None:
        return f"from {begin} to an unknown time"
    return f"from {begin} to {time_text(holder.to_ms)}  {ago(now_ms - holder.to_ms)}"


def _process(holder: Holder) -> str:
    label = f" ({printable(holder.label, MAX_FOREIGN)})" if holder.label else ""
    return f"{printable(holder.host, MAX_FOREIGN)}:{holder.pid}{label}"
