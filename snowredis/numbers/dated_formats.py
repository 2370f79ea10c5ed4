"""Periods of a calendar, hours to years, in a time zone: which one an instant is in, and from when until when.

Pure. A period is known by its label, the local time without what is smaller than the period: "2026-10-25T02". At the
end of daylight saving time an hour comes twice, and in some zones a day was left and entered again: both times are one
period, since they have one label, and numbers of a label never repeat.

Texts of dated numbers, such as "INV-{date:%Y%m%d}-{number:06}": checked so that no two numbers have one text.

Pure. The text has to show the period: with daily numbers and "{date:%Y}-{number}", each day would repeat the numbers of
the day before. And it has to show where the date ends: "{date:%d}{number}" has one text for several numbers.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from snowredis.errors import ConfigError

PeriodName: TypeAlias = Literal["hour", "day", "month", "year"]

# what remains of a local time
_LABELS = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}


class Period(NamedTuple):
    """One period of a calendar.

    Attributes:
        label: its name; labels sort like local times.
        date: its beginning, local time, aware.
        from_ms, until_ms: all instants between them are in the period, the one that was asked for too; ms since 1970.
            There may be more, where a local time comes twice.
        first_ms: no instant before this one is in the period.
    """

    label: str
    date: datetime
    from_ms: int
    until_ms: int
    first_ms: int


class Calendar:
    """The hours, days, months or years of a time zone.

    Raises ConfigError for an unknown zone.
    """

    def __init__(self, period: PeriodName, zone: str) -> None:
        self.period, self.zone = period, zone
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigError(
                f"zone must be the name of a time zone, such as 'Europe/Berlin', not {zone!r}. If it is one, this "
                "system has no time zones: pip install tzdata"
            ) from None

    def at(self, ms: int) -> Period:
        """Return the period of an instant, ms since 1970."""
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
            from_ms=self._edge(label, ms, from_ms),
            until_ms=self._edge(label, ms, until_ms - 1) + 1,
            first_ms=min(from_ms, ends[0], ends[1]),
        )

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
        return start.replace(month=1) if self.period == "year" else start

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
    if period == "year" or start.month == 12:
        return start.replace(year=start.year + 1, month=1)
    return start.replace(month=start.month + 1)


# formats of periods, if none is given
DEFAULT_FORMATS = {
    "hour": "{date:%Y%m%d%H}-{number:06}",
    "day": "{date:%Y%m%d}-{number:06}",
    "month": "{date:%Y%m}-{number:06}",
    "year": "{date:%Y}-{number:06}",
}
# digits of the highest number, where the format does not say how many
DEFAULT_DIGITS = 10
MAX_TEXT_LENGTH = 200
_FIELDS = ("date", "number", "tag")


class NumberFormat:
    """Format of the numbers of one tag.

    Args:
        text: with the fields {date}, {number} and {tag}, each with a format as in str.format().
        period: how often numbers start again.
        tag: for the field of that name.
        maximum: the highest number of a period; None: the highest that has as many digits as the format says.

    Raises ConfigError for a text that cannot be used, or that two numbers would have.
    """

    def __init__(self, text: str, period: PeriodName, tag: str, maximum: int | None = None) -> None:
        width = _number_width(text)
        self._text, self._tag = text, tag
        self.maximum: int = maximum or 10 ** (width or DEFAULT_DIGITS) - 1
        self.text_length, self.sortable = _examine(text, period, tag, self.maximum)

    def write(self, date: datetime, number: int) -> str:
        """Return the text of a number; *date* is the beginning of its period."""
        return self._text.format(date=date, number=number, tag=self._tag)


def _number_width(text: str) -> int:
    """Return how many digits *text* gives to a number, 0 if it does not say. Raises ConfigError."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ConfigError(f"format {text!r} cannot be used: {error}") from None
    fields = [(name, spec or "") for _, name, spec, _ in parts if name is not None]
    for name, _ in fields:
        if name not in _FIELDS:
            raise ConfigError(
                f"format {text!r} has an unknown field {name!r}. The fields are: date, number, tag"
            )
    numbers = [spec for name, spec in fields if name == "number"]
    if len(numbers) != 1:
        raise ConfigError(f"format {text!r} must have the field {{number}} once, such as {{number:06}}")
    digits = numbers[0].removesuffix("d").removeprefix("0")
    return int(digits) if digits.isascii() and digits.isdecimal() and numbers[0].startswith("0") else 0


@functools.cache  # a few thousand texts
def _examine(text: str, period: PeriodName, tag: str, maximum: int) -> tuple[int, bool]:
    """Return the length of the longest text, and whether texts sort like dates and numbers. Raises ConfigError."""
    seen: dict[str, tuple[datetime, int]] = {}
    last, longest = "", 0
    sortable = True
    numbers = sorted({number for number in (1, 2, 10, 11, 111, maximum) if number <= maximum})
    for date in _dates(period):
        for number in numbers:
            try:
                made = text.format(date=date, number=number, tag=tag)
            except (ValueError, TypeError) as error:
                raise ConfigError(f"format {text!r} cannot be used: {error}") from None
            if made in seen:
                other, other_number = seen[made]
                raise ConfigError(
                    f"format {text!r} writes {made!r} for number {number} of {date:%Y-%m-%d %H:00} and for number "
                    f"{other_number} of {other:%Y-%m-%d %H:00}, but numbers start again each {period}. Write more of "
                    f"the date, such as {DEFAULT_FORMATS[period]!r}"
                )
            seen[made] = date, number
            sortable, last, longest = sortable and made > last, made, max(longest, len(made))
    sortable = sortable and _sorts(text, next(_dates(period)), tag, maximum)
    if longest > MAX_TEXT_LENGTH:
        raise ConfigError(
            f"format {text!r} makes texts of {longest} characters; {MAX_TEXT_LENGTH} are allowed"
        )
    return longest, sortable


def _sorts(text: str, date: datetime, tag: str, maximum: int) -> bool:
    """Return whether the texts of one date sort like their numbers."""
    numbers = sorted({min(10**digits - less, maximum) for digits in range(16) for less in (0, 1)} - {0})
    texts = [text.format(date=date, number=number, tag=tag) for number in numbers]
    return texts == sorted(texts)


def _dates(period: PeriodName) -> Iterator[datetime]:
    """Yield beginnings of periods, in order: neighbors, and those that are a day, a month or some years apart."""
    dates = {datetime(year, month, 1, tzinfo=UTC) for year in range(2000, 2040) for month in range(1, 13)}
    if period == "year":
        dates = {datetime(year, 1, 1, tzinfo=UTC) for year in range(2000, 2100)}
    first = datetime(2023, 12, 25, tzinfo=UTC)
    if period in ("day", "hour"):
        dates |= {first + timedelta(days=day) for day in range(800)}
    if period == "hour":
        dates |= {first + timedelta(hours=hour) for hour in range(10 * 24)}
    yield from sorted(dates)
