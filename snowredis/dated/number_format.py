"""Texts of dated numbers, such as "INV-{date:%Y%m%d}-{number:06}": checked so that no two numbers have one text.

Pure. The text has to show the period: with daily numbers and "{date:%Y}-{number}", each day would repeat the numbers of
the day before. And it has to show where the date ends: "{date:%d}{number}" has one text for several numbers.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from snowredis.dated.periods import PeriodName
from snowredis.errors import ConfigError

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
