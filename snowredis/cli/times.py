"""Times for people: in UTC, or in the zone of this host. Each contains its date and its zone."""

from __future__ import annotations

from datetime import datetime

from snowredis.cli.options import Parser
from snowredis.cli.output import time_of
from snowredis.core.layout import utc_from_ms, utc_text


def add_times(parser: Parser) -> None:
    """Add --utc and --local; the arguments' ``time_text`` is then a function that shows ms since 1970.

    UTC is the default: the hosts of a fleet, and those who talk about it, are in several zones.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--utc",
        dest="time_text",
        action="store_const",
        const=time_of,
        default=time_of,
        help="show times in UTC (the default)",
    )
    group.add_argument(
        "--local",
        dest="time_text",
        action="store_const",
        const=local_time_of,
        help="show times of this host's zone",
    )


def local_time_of(time_ms: int) -> str:
    """Return a time in ms since 1970 as text, in the zone of this host, with its offset from UTC."""
    if utc_text(time_ms) is None:
        return time_of(time_ms)
    try:
        local: datetime = utc_from_ms(time_ms).astimezone()
    except (OverflowError, OSError, ValueError):
        # at the ends of the calendar
        return time_of(time_ms)
    return local.isoformat(timespec="milliseconds")
