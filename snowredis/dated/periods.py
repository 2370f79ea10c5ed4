"""Periods of a calendar, hours to years, in a time zone: which one an instant is in, and from when until when.

Pure. A period is known by its label, the local time without what is smaller than the period: "2026-10-25T02". At the
end of daylight saving time an hour comes twice, and in some zones a day was left and entered again: both times are one
period, since they have one label, and numbers of a label never repeat.
"""

from __future__ import annotations

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
