"""`generate`: make ids, one per line. Claims a worker id, and releases it however the command ends."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from snowredis.cli.exit_codes import ExitCode, interrupted_by_signals
from snowredis.cli.options import Parser, add_redis, add_settings, open_pool, positive, settings
from snowredis.cli.output import printable
from snowredis.errors import PoolNotFound
from snowredis.settings import FORMS

# ids made and written at once: a few ms of the default layout
_BATCH = 8192

SUMMARY = "make ids, one per line"
ABOUT = """Claims a worker id in Redis and releases it at the end. Settings that are in neither an option nor a
SNOWREDIS_* variable are those of the pool."""
EXAMPLES = [
    ("snowredis generate", "one id"),
    ("snowredis generate -n 1000000 --pool orders | head", "as many as are read"),
    ("snowredis generate --url embedded:// --format base62", "needs no Redis"),
]


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "-n", dest="count", type=positive, default=1, metavar="N", help="how many (default: 1)"
    )
    parser.add_argument("--format", choices=FORMS, default="decimal", metavar="FORM", help=", ".join(FORMS))
    add_redis(parser)
    add_settings(parser, "layout", "ttl")
    parser.add_argument("--label", help="what `snowredis workers` shows for it (default: snowredis generate)")


def run(args: argparse.Namespace) -> int:
    from snowredis.connection import connect
    from snowredis.core.text import encode

    url, options = settings(args)
    options = {"label": "snowredis generate"} | _settings_of_pool(args) | options
    with interrupted_by_signals(), _warnings_on_stderr(), connect(url, **options) as ids:
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
    return ExitCode.OK


def _settings_of_pool(args: argparse.Namespace) -> dict[str, Any]:
    """Return the constants of the pool as options of connect(); none if it does not exist yet."""
    try:
        with open_pool(args) as pool:
            return pool.info().options
    except PoolNotFound:
        return {}


@contextlib.contextmanager
def _warnings_on_stderr() -> Iterator[None]:
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
