"""`generate`, `decode` and `whois`: make ids, show their fields, and which process made them.

`decode` needs no Redis and does not import redis-py.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from snowredis.cli import output, pool_text
from snowredis.cli.commands.layout import draw
from snowredis.cli.exit_codes import ExitCode, interrupted_by_signals, print_error
from snowredis.cli.options import Command, Parser, layout_text, open_known_pool, open_pool, positive, settings
from snowredis.cli.output import Line, Pair, ago, pairs, print_json, printable, write
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import preset_name, resolve_layout
from snowredis.errors import PoolNotFound, SnowredisError
from snowredis.process.clock import now_ms
from snowredis.settings import FORMS, SETTINGS

if TYPE_CHECKING:
    from snowredis.monitor.holdings import Holder
    from snowredis.monitor.whois import Whois

# --- generate -----------------------------------------------------------------------------------

# ids made and written at once: a few ms of the default layout
_BATCH = 8192


def _add_generate_arguments(parser: Parser) -> None:
    text = "how many (default: 1)"
    parser.add_argument("-n", dest="count", type=positive, default=1, metavar="N", help=text)
    parser.add_argument("--format", choices=FORMS, default="decimal", metavar="FORM", help=", ".join(FORMS))
    parser.add_redis()
    parser.add_settings(SETTINGS["layout"], SETTINGS["ttl"])
    parser.add_argument("--label", help="what `snowredis workers` shows for it (default: snowredis generate)")


def _generate(args: argparse.Namespace) -> None:
    from snowredis.connection import connect
    from snowredis.core.text import encode

    url, options = settings(args)
    options = {"label": "snowredis generate"} | settings_of_pool(args) | options
    with interrupted_by_signals(), warnings_on_stderr(), connect(url, **options) as ids:
        left = args.count
        while left:
            batch = ids.next_ids(min(left, _BATCH))
            left -= len(batch)
            texts: Iterable[str] = map(str, batch)
            if args.format != "decimal":
                texts = (encode(an_id, args.format, layout=ids.layout) for an_id in batch)
            sys.stdout.write("\n".join(texts) + "\n")
        # a closed pipe raises here at the latest, while the lease can still be released
        sys.stdout.flush()


def settings_of_pool(args: argparse.Namespace) -> dict[str, Any]:
    """Return the constants of the pool as options of connect(); none if it does not exist yet."""
    try:
        with open_pool(args) as pool:
            return pool.info().options
    except PoolNotFound:
        return {}


@contextlib.contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print the library's warnings: the first start of a pool waits half a minute, and logs why."""
    import logging

    class Printable(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return f"snowredis: {record.levelname.lower()}: {printable(record.getMessage(), 4000)}"

    log, handler = logging.getLogger("snowredis"), logging.StreamHandler()
    handler.setFormatter(Printable())
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


GENERATE = Command(
    "generate",
    "make ids, one per line",
    """Claims a worker id in Redis and releases it at the end. Settings that are in neither an option nor a
SNOWREDIS_* variable are those of the pool.""",
    [
        ("snowredis generate", "one id"),
        ("snowredis generate -n 1000000 --pool orders | head", "as many as are read"),
        ("snowredis generate --url embedded:// --format base62", "needs no Redis"),
    ],
    _add_generate_arguments,
    _generate,
)

# --- decode -------------------------------------------------------------------------------------


def _add_decode_arguments(parser: Parser) -> None:
    text = "number or text; - reads them from standard input"
    parser.add_argument("ids", nargs="+", metavar="ID", help=text)
    parser.add_format()
    parser.add_layout()
    parser.add_argument("--json", action="store_true", help="one JSON object per line; ids are strings in it")


def _decode(args: argparse.Namespace) -> int:
    from snowredis.core.text import parse_user_id

    layout, code, first = resolve_layout(layout_text(args)), ExitCode.OK, True
    for text in _texts(args.ids):
        try:
            readings = parse_user_id(text, layout, form=args.format, now_ms=now_ms())
        except SnowredisError as error:
            # the other ids may be good
            print_error(error)
            code = ExitCode.BAD_INPUT
            continue
        if args.json:
            print_json(id_record(text, readings, layout))
        else:
            write([*([] if first else [[]]), *id_lines(text, readings, layout)])
        first = False
    return code


def _texts(arguments: list[str]) -> Iterator[str]:
    for argument in arguments:
        if argument != "-":
            yield argument
            continue
        for line in sys.stdin:
            yield from line.split()


def id_lines(text: str, readings: list[tuple[str, int]], layout: Layout) -> list[Line]:
    from snowredis.core.text import FUTURE_MS

    (form, an_id), *others = readings
    parts, name = layout.decode(an_id), preset_name(layout)
    head: Line = [(str(an_id), "strong")]
    if text.strip() != str(an_id):
        head = [(printable(text.strip(), 60), ""), (" is ", "dim"), *head]
    rows: list[Pair] = [
        ("read as", form),
        ("time", [(output.time_of(parts.timestamp_ms), "note"), (f"  {_ago(parts.timestamp_ms)}", "dim")]),
        ("unix ms", str(parts.timestamp_ms)),
        ("layout", f"{name}  {layout_spec(layout).partition(';')[0]}" if name else str(layout)),
    ]
    rows += [(name, str(value)) for name, value in parts.datacenter_fields]
    if parts.timestamp_ms > now_ms() + FUTURE_MS:
        rows.append(("warning", [("its time is in the future: was it made with another --layout?", "warn")]))
    for other_form, other_id in others:
        time_ms = layout.decode(other_id).timestamp_ms
        rows.append((f"or {other_form}", [(f"{other_id}  {output.time_of(time_ms)}  {_ago(time_ms)}", "dim")]))
    diagram: list[Line] = [[("  ", ""), *line] for line in draw(layout, an_id)]
    # a diagram that does not fit shows nothing
    fits = max(output.width_of(output.plain(line)) for line in diagram) <= (output.terminal_width() or 1000)
    return [head, *pairs(rows), *(diagram if fits else [])]


def id_record(text: str, readings: list[tuple[str, int]], layout: Layout) -> dict[str, Any]:
    """Return an id as JSON shows it, with *text* and its other readings."""
    from snowredis.core.as_json import to_json
    from snowredis.core.decoded import decoded

    (form, an_id), *others = readings
    more = [{"form": other_form, "id": str(other_id)} for other_form, other_id in others]
    return {"text": text, **to_json(decoded(layout, an_id, form)), "other_readings": more}


def _ago(time_ms: int) -> str:
    return ago(now_ms() - time_ms)


DECODE = Command(
    "decode",
    "show the time, the worker and the other fields of ids",
    """Ids may be numbers or text in any form. Text that is valid in several forms is read in the most plausible
one; the other readings are listed.""",
    [
        ("snowredis decode 249736970576592896", "time, fields and bits"),
        ("snowredis decode 0IRnTPj9V9k --format base62", "in a given form"),
        ("snowredis decode --layout twitter 1541815603606036480", "an id of another system"),
        ("snowredis generate -n 3 | snowredis decode - --json", "one object per line"),
    ],
    _add_decode_arguments,
    _decode,
)

# --- whois --------------------------------------------------------------------------------------

_CERTAINTY_STYLES = {"certain": "good", "probable": "warn", "unknown": "bad"}


def _add_whois_arguments(parser: Parser) -> None:
    text = "number or text; twice the same one for a duplicate"
    parser.add_argument("ids", nargs="+", metavar="ID", help=text)
    parser.add_redis()
    parser.add_format()
    parser.add_times()
    parser.add_argument("--json", action="store_true", help="one JSON object per line; ids are strings in it")


def _whois(args: argparse.Namespace) -> int:
    from snowredis.core.text import parse_user_id

    with open_known_pool(args) as pool:
        info = pool.info()
        readings = [parse_user_id(text, info.layout, form=args.format, now_ms=info.now_ms) for text in args.ids]
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
        age: Line = [(time_text(parts.timestamp_ms), "note"), (f"  {ago(now_ms - parts.timestamp_ms)}", "dim")]
        rows.append(("time", age))
        rows.append(("worker id", f"{parts.worker}, namespace {parts.backup}, sequence {parts.sequence}"))
    if (holder := whois.holder) is not None:
        texts = zip(pool_text.OWNER_COLUMNS, pool_text.owner_texts(holder.owner), strict=True)
        rows += [(column.title, [(text, "strong")]) for column, text in texts]
        rows.append(("lease", _lease(holder, now_ms, time_text)))
    if parts is not None:
        rows.append(("worker id now", _worker_now(whois, time_text)))
    rows.append(("certainty", [(whois.certainty, _CERTAINTY_STYLES[whois.certainty])]))
    rows.append(("reason", printable(whois.reason, 1000)))
    rows += [
        ("candidate", f"{pool_text.process_text(holder.owner)}  {_lease(holder, now_ms, time_text)}")
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
        return "no process has it"
    holder = whois.holder
    same = holder and holder.from_ms == worker.claimed_ms and holder.owner.process == worker.owner.process
    who = "the same process" if same else pool_text.process_text(worker.owner)
    return f"{who}, {worker.state}; last heartbeat {time_text(worker.renewed_ms)}, {ago(worker.heartbeat_age_ms)}"


def _lease(holder: Holder, now_ms: int, time_text: Callable[[int], str]) -> str:
    """Return from when to when *holder* had its worker id."""
    begin = "an unknown time" if holder.from_ms is None else time_text(holder.from_ms)
    if holder.held:
        return f"since {begin}, still held"
    if holder.to_ms is None:
        return f"from {begin} to an unknown time"
    return f"from {begin} to {time_text(holder.to_ms)}  {ago(now_ms - holder.to_ms)}"


WHOIS = Command(
    "whois",
    "show which process made an id",
    """Reads the pool's events, of which about 20,000 are kept. For an id that is given twice: how it can be in two
tables. Exits with 1 if the process that made an id cannot be known.""",
    [
        ("snowredis whois 249736970576592896 --pool orders", "host, pid, lease"),
        ("snowredis whois 0IRnTPj9V9k --format base62 --json", "for programs"),
        ("snowredis whois 249736970576592896 249736970576592896", "a duplicate"),
    ],
    _add_whois_arguments,
    _whois,
)
