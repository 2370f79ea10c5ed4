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
import string
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from datetime import date as Date  # noqa: N812 - Period has a date
from typing import Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from snowredis.errors import ConfigError

PeriodName: TypeAlias = Literal["hour", "day", "month", "year", "ever"]

# names in the database of time zones that say nothing about a place
_NO_ZONES = ("localtime", "posixrules", "Factory")
# the part of a local time that names its period
_LABELS = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y", "ever": ""}
# the end of the period that never ends, ms since 1970: in the year 4821
NEVER_MS = 90_000_000_000_000


class Period(NamedTuple):
    """One period of a calendar.

    Attributes:
        label: its name; empty for the period that never ends.
        date: its beginning, local time, aware.
        end: its last day.
        from_ms, until_ms: all instants between them are in the period, the one that was asked for too; ms since 1970.
            There may be more, where a local time comes twice.
        first_ms: no instant before this one is in the period.
    """

    label: str
    date: datetime
    end: Date
    from_ms: int
    until_ms: int
    first_ms: int


# the period of numbers that never start again
EVER = Period("", datetime(1970, 1, 1, tzinfo=UTC), Date(1970, 1, 1), 0, NEVER_MS, 0)


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
        local = self._local(ms)
        start = self._start(local)
        following = _next_start(self.period, start)
        # a local time may come twice, or never: then these are not its instants, but near
        ends = [self._instant(each, fold) for each in (start, following) for fold in (0, 1)]
        from_ms = max((end for end in ends if end <= ms), default=ms)
        until_ms = min((end for end in ends if end > ms), default=ms + 1)
        label = start.strftime(_LABELS[self.period])
        return Period(
            label=label,
            date=start.replace(tzinfo=self._zone),
            end=(following - timedelta(hours=1)).date(),
            from_ms=self._edge(label, ms, from_ms),
            until_ms=self._edge(label, ms, until_ms - 1) + 1,
            first_ms=min(from_ms, ends[0], ends[1]),
        )

    def of(self, day: Date | None, now: int) -> Period:
        """Return the period of *day*, a date or an aware datetime; None: of *now*, in ms. Raises ConfigError."""
        if day is None:
            return self.at(now)
        if not isinstance(day, datetime):
            # a date of the zone; at noon, since clocks are changed at night
            day = datetime(day.year, day.month, day.day, 12, tzinfo=self._zone)
            if self.period == "hour":
                raise ConfigError("numbers that start again each hour need the time of the document, not only its date")
        if day.tzinfo is None:
            raise ConfigError(f"{day!r} has no time zone. Use a date, or an aware datetime")
        return self.at(round(day.timestamp() * 1000))

    def first_from(self, period: Period, ms: int) -> int:
        """Return when the first period, *period* or a later one, begins that has no instant before *ms*."""
        while period.first_ms < ms:
            period = self.at(period.until_ms)
        return period.first_ms

    def _local(self, ms: int) -> datetime:
        at = datetime.fromtimestamp(ms // 1000, UTC) + timedelta(milliseconds=ms % 1000)
        return at.astimezone(self._zone).replace(tzinfo=None)

    def _instant(self, local: datetime, fold: int) -> int:
        return round(local.replace(tzinfo=self._zone, fold=fold).timestamp() * 1000)

    def _start(self, local: datetime) -> datetime:
        start = local.replace(minute=0, second=0, microsecond=0)
        if self.period != "hour":
            start = start.replace(hour=0)
        if self.period in ("month", "year"):
            start = start.replace(day=1)
        if self.period == "year":
            start = start.replace(month=self._first_month, year=start.year - (start.month < self._first_month))
        return start

    def _label(self, ms: int) -> str:
        return self._start(self._local(ms)).strftime(_LABELS[self.period])

    def _edge(self, label: str, inside: int, end: int) -> int:
        """Return *end*, or the last instant towards it that has *label*, as *inside* has."""
        if self._label(end) == label:
            return end
        # the clocks were changed in between, across a boundary
        outside = end
        while abs(outside - inside) > 1:
            middle = (inside + outside) // 2
            if self._label(middle) == label:
                inside = middle
            else:
                outside = middle
        return inside


def _next_start(period: PeriodName, start: datetime) -> datetime:
    if period == "hour":
        return start + timedelta(hours=1)
    if period == "day":
        return start + timedelta(days=1)
    if period == "year":
        return start.replace(year=start.year + 1)
    if start.month == 12:
        return start.replace(year=start.year + 1, month=1)
    return start.replace(month=start.month + 1)


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
MAX_NUMBER = 10**14
MAX_TEXT_LENGTH = 200
# parts of a date that have the same length in every period -> that length
_DATE_PARTS = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "j": 3, "G": 4, "V": 2, "u": 1, "%": 1}
_DATE_PART = re.compile(r"%(.?)", re.DOTALL)
# 6, 06, 06d; a comma would make the length of a text say less
_NUMBER_SPEC = re.compile(r"(?:0([1-9][0-9]?))?d?")
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
    """Format of the numbers of one tag.

    Args:
        text: with the fields {date} and {end} (the beginning of the period, and its last day), {number} and {tag}: as
            in str.format(), {date:FORMAT} as for strftime() with the parts %Y %y %m %d %H %j %G %V %u, and {number}
            or {number:06}. %y says the year for 100 years. None: that of DEFAULT_FORMATS.
        period: how often numbers start again.
        tag: for the field of that name.
        maximum: the highest number of a period; None: the highest that has as many digits as the format says.

    Raises ConfigError for a text that cannot be used, or that two numbers could have.
    """

    def __init__(self, text: str | None, period: PeriodName, tag: str, maximum: int | None = None) -> None:
        self.text = text = text or DEFAULT_FORMATS[period]
        self._tag, self._around = tag, ""
        if _UNSTORABLE.search(text):
            raise ConfigError(f"format {text!r} has a control character or a lone surrogate. Leave it out")
        parts, width, fixed, before_number = [], 0, 0, 0
        for literal, name, spec in _fields(text):
            fixed += len(literal)
            self._around += literal.replace("{", "{{").replace("}", "}}")
            if name == "number":
                parts.append("number")
                width, before_number = _width(text, spec), fixed
                self._around += "#"
                continue
            if name in ("date", "end"):
                fixed += _date_length(text, name, spec)
                parts += _DATE_PART.findall(spec) if name == "date" else []
            elif name == "tag":
                fixed += len(tag)
            if name is not None:
                self._around += f"{{{name}:{spec}}}"
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
        self.text_length = fixed + max(width, digits)
        if self.text_length > MAX_TEXT_LENGTH:
            raise ConfigError(
                f"format {text!r} makes texts of {self.text_length} characters; {MAX_TEXT_LENGTH} are allowed"
            )
        before = "".join(parts[: parts.index("number")])
        self.sortable = (
            width >= digits
            and any(order.startswith(before) for order in _SORTED)
            and any(needed <= set(before) for needed in _NEEDED[period])
        )

    def write(self, period: Period, number: int) -> str:
        """Return the text of a number of *period*."""
        return self.text.format(date=period.date, end=period.end, number=number, tag=self._tag)

    def around(self, period: Period) -> str:
        """Return the text around the numbers of *period*, with # in their place."""
        return self._around.format(date=period.date, end=period.end, tag=self._tag)


def _fields(text: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield each field of *text*: the literal before it, its name and its format. Raises ConfigError."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ConfigError(f"format {text!r} cannot be used: {error}") from None
    for literal, name, spec, conversion in parts:
        if name not in (None, "date", "end", "number", "tag"):
            raise ConfigError(f"format {text!r} has an unknown field {name!r}. The fields are: date, end, number, tag")
        if conversion or "{" in (spec or "") or (name == "tag" and spec):
            raise ConfigError(f"format {text!r} cannot be used: write the field {name!r} as {{{name}}}")
        yield literal, name, spec or ""


def _width(text: str, spec: str) -> int:
    """Return how many digits *spec* gives to a number at least, 0 if it does not say. Raises ConfigError."""
    found = _NUMBER_SPEC.fullmatch(spec)
    if found is None:
        raise ConfigError(
            f"format {text!r} cannot be used: {{number:{spec}}} may have one text for two numbers. Write {{number}} "
            "or {number:06}"
        )
    return int(found[1] or 0)


def _date_length(text: str, name: str, spec: str) -> int:
    """Return how many characters *spec* makes of every date. Raises ConfigError."""
    if not spec:
        raise ConfigError(
            f"format {text!r} does not say how the date is written. Write {{{name}:%Y%m%d}}, not {{{name}}}"
        )
    length = len(_DATE_PART.sub("", spec))
    for part in _DATE_PART.findall(spec):
        if part not in _DATE_PARTS:
            raise ConfigError(
                f"format {text!r} cannot be used: the text of %{part} has no fixed length, or depends on the system. "
                f"The parts of a date are: {' '.join(f'%{name}' for name in _DATE_PARTS)}"
            )
        length += _DATE_PARTS[part]
    return length
