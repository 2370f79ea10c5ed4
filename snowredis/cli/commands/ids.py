"""`generate` and `decode`: make ids, and show their fields. `decode` needs no Redis and does not import redis-py."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from snowredis.cli import output
from snowredis.cli.commands.layout import draw
from snowredis.cli.exit_codes import ExitCode, interrupted_by_signals, print_error
from snowredis.cli.options import Command, Parser, layout_text, open_pool, positive, settings
from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import preset_name, resolve_layout
from snowredis.errors import PoolNotFound, SnowredisError
from snowredis.process.clock import now_ms
from snowredis.settings import FORMS, SETTINGS

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
            return f"snowredis: {record.levelname.lower()}: {output.printable(record.getMessage(), 4000)}"

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
            output.print_json(id_record(text, readings, layout))
        else:
            output.write([*([] if first else [[]]), *id_lines(text, readings, layout)])
        first = False
    return code


def _texts(arguments: list[str]) -> Iterator[str]:
    for argument in arguments:
        if argument != "-":
            yield argument
            continue
        for line in sys.stdin:
            yield from line.split()


def id_lines(text: str, readings: list[tuple[str, int]], layout: Layout) -> list[output.Line]:
    from snowredis.core.text import FUTURE_MS

    (form, an_id), *others = readings
    parts, name = layout.decode(an_id), preset_name(layout)
    head: output.Line = [(str(an_id), "strong")]
    if text.strip() != str(an_id):
        head = [(output.printable(text.strip(), 60), ""), (" is ", "dim"), *head]
    rows: list[output.Pair] = [
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
    diagram: list[output.Line] = [[("  ", ""), *line] for line in draw(layout, an_id)]
    # a diagram that does not fit shows nothing
    fits = max(output.width_of(output.plain(line)) for line in diagram) <= (output.terminal_width() or 1000)
    return [head, *output.pairs(rows), *(diagram if fits else [])]


def id_record(text: str, readings: list[tuple[str, int]], layout: Layout) -> dict[str, Any]:
    """Return an id as JSON shows it, with *text* and its other readings."""
    from snowredis.core.as_json import to_json
    from snowredis.core.decoded import decoded

    (form, an_id), *others = readings
    more = [{"form": other_form, "id": str(other_id)} for other_form, other_id in others]
    return {"text": text, **to_json(decoded(layout, an_id, form)), "other_readings": more}


def _ago(time_ms: int) -> str:
    return output.ago(now_ms() - time_ms)


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
