"""Periods of a calendar in a time zone, and texts of dated numbers such as "INV-{date:%Y%m%d}-{number:06}". Pure.

A period is known by its label, the local time without what is smaller than the period: "2026-10-25T02". At the end of
daylight saving time an hour comes twice, and in some zones a day was left and entered again: both times are one period,
since they have one label, and numbers of a label never repeat.

No two numbers have one text, by construction: every part of a text has a fixed length, but for the number. So the
length of a text says where the number is, and numbers are counted for each text that stands around them. That holds for
another period, zone or date as well, as long as the number has the same place: the same lengths before and after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from datetime import date as Date  # noqa: N812 - Period has a date
from typing import Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from snowredis.core.description import IdDescription
from snowredis.errors import ConfigError

PeriodName: TypeAlias = Literal["hour", "day", "month", "year", "ever"]

# names in the database of time zones that say nothing about a place
_NO_ZONES = ("localtime", "posixrules", "Factory")
# the part of a local time that names its period
_LABELS = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y", "ever": ""}
# longer than each period, and shorter than two
_LONGER = {"hour": timedelta(hours=1), "day": timedelta(1), "month": timedelta(32), "year": timedelta(367)}
# the end of the period that never ends, ms since 1970: in the year 4821
NEVER_MS = 90_000_000_000_000
_MINUTE_MS = 60_000


class Period(NamedTuple):
    """One period of a calendar.

    Attributes:
        label: its name; empty for the period that never ends.
        date: its beginning, local time, aware.
        end: its last day.
        from_ms, until_ms: the minute that was asked for, ms since 1970; all of its instants are in the period.
        first_ms: no instant before this one is in the period.
        later_ms: an instant of a later period, near its beginning.
        around: the text around its numbers, with # in their place; "" for plain numbers.
    """

    label: str
    date: datetime
    end: Date
    from_ms: int
    until_ms: int
    first_ms: int
    later_ms: int
    around: str = ""


# the period of numbers that never start again
EVER = Period("", datetime(1970, 1, 1, tzinfo=UTC), Date(1970, 1, 1), 0, NEVER_MS, 0, NEVER_MS)


class Calendar:
    """The hours, days, months or years of a time zone; years begin with the month *year_begins*, 1 to 12.

    Raises ConfigError for an unknown zone, and for months of other periods than years.
    """

    def __init__(self, period: PeriodName, zone: str, year_begins: int = 1) -> None:
        self.period, self.zone, self._first_month = period, zone, year_begins
        if year_begins != 1 and period != "year":
            raise ConfigError(f"year_begins={year_begins} is for years, and the period is {period}. Leave it out")
        if zone in _NO_ZONES:
            raise ConfigError(
                f"zone must be the name of a place's time zone, such as 'Europe/Berlin' or 'UTC'. {zone!r} is another "
                "one on each host, so that two of them would give one text to two numbers."
            )
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigError(
                f"zone must be the name of a time zone, such as 'Europe/Berlin', not {zone!r}. If it is one, this "
                "system has no time zones: pip install tzdata"
            ) from None

    def at(self, ms: int) -> Period:
        """Return the period of an instant, ms since 1970."""
        if self.period == "ever":
            return EVER
        start = self._start(ms)
        following = self._floor(start + _LONGER[self.period])
        # a local time may come twice, or never: then these are not its instants, but near
        begins, ends = ([self._instant(local, fold) for fold in (0, 1)] for local in (start, following))
        from_ms, until_ms = ms - ms % _MINUTE_MS, ms - ms % _MINUTE_MS + _MINUTE_MS
        if {self._start(from_ms), self._start(until_ms - 1)} != {start}:
            # an offset with seconds, as zones had them in former times
            from_ms, until_ms = ms, ms + 1
        return Period(
            label=start.strftime(_LABELS[self.period]),
            date=start.replace(tzinfo=self._zone),
            end=(following - timedelta(hours=1)).date(),
            from_ms=from_ms,
            until_ms=until_ms,
            first_ms=min(ms, *begins),
            later_ms=max(ms + 1, *ends),
        )

    def instant_of(self, day: Date) -> int:
        """Return an instant of *day*, a date or an aware datetime, ms since 1970. Raises ConfigError."""
        if not isinstance(day, Date) or not 1000 < day.year < 9999:
            # %Y has fewer digits in earlier years, so that the length of a text would not say where its number is
            raise ConfigError(f"{day!r} is not a date of the years 1001 to 9998. No number was made")
        if not isinstance(day, datetime):
            # a date of the zone; at noon, since clocks are changed at night
            day = datetime(day.year, day.month, day.day, 12, tzinfo=self._zone)
            if self.period == "hour":
                raise ConfigError("numbers that start again each hour need the time of the document, not only its date")
        if day.tzinfo is None:
            raise ConfigError(f"{day!r} has no time zone. Use a date, or an aware datetime")
        return round(day.timestamp() * 1000)

    def first_from(self, period: Period, ms: int) -> int:
        """Return when the first period, *period* or a later one, begins that has no instant before *ms*."""
        while period.first_ms < ms:
            period = self.at(period.later_ms)
        return period.first_ms

    def _instant(self, local: datetime, fold: int) -> int:
        return round(local.replace(tzinfo=self._zone, fold=fold).timestamp() * 1000)

    def _start(self, ms: int) -> datetime:
        """Return the local time at which the period of an instant begins, naive."""
        return self._floor(datetime.fromtimestamp(ms // 1000, self._zone).replace(tzinfo=None, fold=0))

    def _floor(self, local: datetime) -> datetime:
        start = local.replace(minute=0, second=0)
        if self.period != "hour":
            start = start.replace(hour=0)
        if self.period in ("month", "year"):
            start = start.replace(day=1)
        if self.period == "year":
            start = start.replace(month=self._first_month, year=start.year - (start.month < self._first_month))
        return start


# formats of periods, if none is given
DEFAULT_FORMATS = {
    "hour": "{date:%Y%m%d%H}-{number:06}",
    "day": "{date:%Y%m%d}-{number:06}",
    "month": "{date:%Y%m}-{number:06}",
    "year": "{date:%Y}-{number:06}",
    "ever": "{number}",
}
# digits of the highest number, where the format does not say how many
DEFAULT_DIGITS = 10
# exact in Lua's doubles, 16 digits; and below 2^53, so exact in JavaScript
MAX_NUMBER = 9_000_000_000_000_000
MAX_TEXT_LENGTH = 200
# parts of a date that have the same length in every period -> that length
_DATE_PARTS = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "j": 3, "G": 4, "V": 2, "u": 1, "%": 1}
_DATE_PART = re.compile(f"%([{''.join(_DATE_PARTS)}])")
# a piece of a format: literal text, or a field whose text has one length, but for the number. A comma between digits
# would make the length of a text say less
_PIECE = re.compile(
    r"(?P<literal>[^{}]|\{\{|\}\})|\{(?:(?P<tag>tag)|(?P<number>number)(?::(?:0(?P<width>[1-9][0-9]?))?d?)?"
    rf"|(?P<date>date|end):(?P<spec>(?:[^{{}}%]|{_DATE_PART.pattern})+))\}}"
)
_FIELDS = (
    "The fields are {number} or {number:06}, {tag}, and {date:…} and {end:…} with the parts "
    f"{' '.join(f'%{part}' for part in _DATE_PARTS)}. The text of others has no fixed length, depends on the system, "
    "or may be the same for two numbers"
)
# databases, terminals or scripts refuse these: control characters, and halves of surrogate pairs
_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# combinations of parts that say the day
_DAYS = ({"Y", "m", "d"}, {"y", "m", "d"}, {"Y", "j"}, {"y", "j"}, {"G", "V", "u"})
# a text has to show one of these combinations
_NEEDED: dict[PeriodName, tuple[set[str], ...]] = {
    "ever": (set(),),
    "year": ({"Y"}, {"y"}, *_DAYS),
    "month": ({"Y", "m"}, {"y", "m"}, *_DAYS),
    "day": _DAYS,
    "hour": tuple({*day, "H"} for day in _DAYS),
}
# parts of a date that sort like it, if they stand in this order
_SORTED = ("YmdH", "YjH")


class NumberFormat:
    """The periods of the numbers of one tag, and their texts.

    Args:
        tag: for the field of that name.
        period, zone, year_begins: as for Calendar.
        format: text with the fields {date} and {end} (the beginning of the period, and its last day), {number} and
            {tag}: as in str.format(), {date:FORMAT} as for strftime() with the parts %Y %y %m %d %H %j %G %V %u, and
            {number} or {number:06}. %y says the year for 100 years. None: that of DEFAULT_FORMATS.
        maximum: the highest number of a period; None: the highest that has as many digits as the format says.

    Raises ConfigError for settings that cannot be used, and for a text that two numbers could have.
    """

    def __init__(
        self,
        tag: str,
        period: PeriodName = "day",
        zone: str = "UTC",
        year_begins: int = 1,
        format: str | None = None,  # noqa: A002 - it is one
        maximum: int | None = None,
    ) -> None:
        self.calendar = Calendar(period, zone, year_begins)
        self.text = text = format or DEFAULT_FORMATS[period]
        self._tag, self._around = tag, ""
        if _UNSTORABLE.search(text):
            raise ConfigError(f"format {text!r} has a control character or a lone surrogate. Leave it out")
        parts, width, fixed, before_number = [], 0, 0, 0
        for piece in _pieces(text):
            self._around += "#" if piece["number"] else piece[0]
            if piece["number"]:
                parts.append("number")
                width, before_number = int(piece["width"] or 0), fixed
            elif piece["date"]:
                dated = _DATE_PART.findall(piece["spec"])
                fixed += len(_DATE_PART.sub("", piece["spec"])) + sum(_DATE_PARTS[part] for part in dated)
                parts += dated if piece["date"] == "date" else []
            else:
                fixed += len(tag) if piece["tag"] else 1
        if parts.count("number") != 1:
            raise ConfigError(f"format {text!r} must have the field {{number}} once, such as {{number:06}}")
        if period == "ever" and len(parts) > 1:
            raise ConfigError(f"format {text!r} shows a date, but these numbers never start again. Leave it out")
        self.place = (before_number, fixed - before_number)
        if not any(needed <= set(parts) for needed in _NEEDED[period]):
            raise ConfigError(
                f"format {text!r} does not show the whole period, but numbers start again each {period}: two numbers "
                f"would have one text. Write more of the date, such as {DEFAULT_FORMATS[period]!r}"
            )
        self.maximum: int = maximum or min(10 ** (width or DEFAULT_DIGITS) - 1, MAX_NUMBER)
        digits = len(str(self.maximum))
        length = fixed + max(width, digits)
        if length > MAX_TEXT_LENGTH:
            raise ConfigError(f"format {text!r} makes texts of {length} characters; {MAX_TEXT_LENGTH} are allowed")
        before = "".join(parts[: parts.index("number")])
        sortable = (
            width >= digits
            and any(order.startswith(before) for order in _SORTED)
            and any(needed <= set(before) for needed in _NEEDED[period])
        )
        year = f" year_begins={year_begins}" if year_begins != 1 else ""
        # what a tag in Redis keeps
        self.stored = {
            "periods": f"period={period} zone={zone} place={'/'.join(map(str, self.place))}{year}",
            "format": text,
        }

        self.description = IdDescription(
            "dated", str, None, length, sortable=sortable, guessable=True, leaks=("time", "volume"), needs=("redis",)
        )

    def at(self, ms: int) -> Period:
        """Return the period of an instant, ms since 1970, with the text around its numbers."""
        period = self.calendar.at(ms)
        return period._replace(around=self._around.format(date=period.date, end=period.end, tag=self._tag))

    def write(self, period: Period, number: int) -> str:
        """Return the text of a number of *period*."""
        return self.text.format(date=period.date, end=period.end, number=number, tag=self._tag)


def _pieces(text: str) -> Iterator[re.Match[str]]:
    """Yield each piece of a format. Raises ConfigError for one that is not known to work."""
    at = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise ConfigError(f"format {text!r} cannot be used from {text[at:]!r} on. {_FIELDS}")
        yield piece
        at = piece.end()
