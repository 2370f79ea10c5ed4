"""Times for people: in UTC, or in the zone of this host, each with its date and its zone; and times that they type."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from snowredis.cli.options import Parser, natural
from snowredis.cli.output import printable, time_of
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


def moment_ms(text: str) -> int:
    """Parse a moment: an ISO date or time, in UTC if it has no offset, or Unix ms. Return Unix ms."""
    if text.isascii() and text.isdigit():
        return natural(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{printable(text, 40)!r} is not a valid time: write it as 2026-01-01, 2026-01-01T12:00:00Z or in Unix ms"
        ) from None
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
