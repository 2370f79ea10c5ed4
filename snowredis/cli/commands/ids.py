"""`generate`, `decode` and `whois`: make ids, show their fields, and which process made them.

`decode` needs no Redis and does not import redis-py.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from snowredis.cli.exit_codes import ExitCode, interrupted_by_signals, print_error
from snowredis.cli.options import Command, Parser, layout_text, number, open_known_pool, open_pool, settings
from snowredis.cli.output import emit, pairs, printable, show, write
from snowredis.core.as_json import decoded
from snowredis.core.presets import resolve_layout
from snowredis.core.text import FORMS, parse_user_id
from snowredis.errors import PoolNotFound, SnowredisError
from snowredis.process.clock import now_ms

# --- generate -----------------------------------------------------------------------------------

# ids made and written at once: a few ms of the default layout
_BATCH = 8192


def _add_generate_arguments(parser: Parser) -> None:
    text = "how many (default: 1)"
    parser.add_argument("-n", dest="count", type=number(1), default=1, metavar="N", help=text)
    parser.add_redis()


def _generate(args: argparse.Namespace) -> None:
    """Make ids, one per line.

    Claims a worker id in Redis and releases it at the end. Settings that are in no SNOWREDIS_* variable are those of
    the pool. `snowredis decode` shows ids as text.

    examples:
      snowredis generate                                  one id
      snowredis generate -n 1000000 --pool orders | head  as many as are read
      snowredis generate --url embedded://                needs no Redis
    """
    from snowredis.connection import connect

    url, options = settings(args)
    options = {"label": "snowredis generate"} | settings_of_pool(args) | options
    with interrupted_by_signals(), warnings_on_stderr(), connect(url, **options) as ids:
        left = args.count
        while left:
            batch = ids.next_ids(min(left, _BATCH))
            left -= len(batch)
            if not emit("\n".join(map(str, batch)) + "\n"):
                # a reader that has seen enough is no error
                return


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


GENERATE = Command("generate", _generate, _add_generate_arguments)

# --- decode -------------------------------------------------------------------------------------


def _add_decode_arguments(parser: Parser) -> None:
    text = "number or text; - reads them from standard input"
    parser.add_argument("ids", nargs="+", metavar="ID", help=text)
    text = f"the form of the ids: {', '.join(FORMS)} (default: by its shape)"
    parser.add_argument("--format", choices=FORMS, metavar="FORM", help=text)
    parser.add_layout()


# an id of a later time was probably made with another layout
_FUTURE_MS = 86_400_000
_DECODED = "id form time datacenter backup worker sequence gene datacenter_fields tick forms layout"


def _decode(args: argparse.Namespace) -> int:
    """Show the time, the worker and the other fields of ids.

    The shape of an id shows its form: digits alone are decimal, 16 characters or 0x hex, underscores friendly, and the
    rest base62.

    examples:
      snowredis decode 249736970576592896                    time, fields and bits
      snowredis decode 0IRnTPj9V9k --format base62           in a given form
      snowredis decode --layout twitter 1541815603606036480  an id of another system
      snowredis generate -n 3 | snowredis decode - --json    one object per line
    """
    layout, code, texts = resolve_layout(layout_text(args)), ExitCode.OK, list(_texts(args.ids))
    for text in texts:
        try:
            form, an_id = parse_user_id(text, layout, form=args.format)
        except SnowredisError as error:
            # the other ids may be good
            print_error(error)
            code = ExitCode.BAD_INPUT
            continue
        record = decoded(layout, an_id, form)
        show(record, _DECODED, as_json=args.json)
        if not args.json:
            write(pairs(list(record.bits.items())))
            late = record.parts.timestamp_ms > now_ms() + _FUTURE_MS
            print("its time is in the future: was it made with another --layout?\n" if late else "")
    return code


def _texts(arguments: list[str]) -> Iterator[str]:
    for argument in arguments:
        if argument != "-":
            yield argument
            continue
        for line in sys.stdin:
            yield from line.split()


DECODE = Command("decode", _decode, _add_decode_arguments, json="one JSON object per line; ids are strings in it")

# --- whois --------------------------------------------------------------------------------------


def _add_whois_arguments(parser: Parser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="number or text")
    parser.add_redis()


_WHOIS = "id parts.time parts.worker parts.backup parts.sequence maker.host maker.pid maker.label maker.claimed_at "
_WHOIS += "maker.state maker.ends_at certainty reason"


def _whois(args: argparse.Namespace) -> int:
    """Show which process made an id.

    Reads the pool's events, of which about 20,000 are kept. Exits with 1 if the process that made an id cannot be
    known. How one id can be in two tables: docs/how-to/troubleshooting.md.

    examples:
      snowredis whois 249736970576592896 --pool orders  host, pid, lease
      snowredis whois 0IRnTPj9V9k --json                for programs
    """
    with open_known_pool(args) as pool:
        layout = pool.info().layout
        results = pool.whois_all([parse_user_id(text, layout)[1] for text in args.ids])
    for whois in results:
        show(whois, _WHOIS, as_json=args.json)
    return ExitCode.ERROR if any(whois.certainty == "unknown" for whois in results) else ExitCode.OK


WHOIS = Command("whois", _whois, _add_whois_arguments, json="one JSON object per line; ids are strings in it")
