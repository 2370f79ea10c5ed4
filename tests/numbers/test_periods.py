"""The calendar of dated numbers: periods of every zone, also where clocks are changed."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from snowredis.errors import ConfigError
from snowredis.numbers.formats import Calendar, PeriodName

LABELS = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}
# zone, and an instant around which its clocks were changed in one way or another
CHANGES = [
    ("Europe/Berlin", "2026-10-25T01:00"),  # an hour back
    ("Europe/Berlin", "2026-03-29T01:00"),  # an hour forward
    ("Australia/Lord_Howe", "2026-04-04T15:00"),  # half an hour back
    ("America/St_Johns", "2006-10-29T02:31"),  # at one minute past midnight, back into the day before
    ("America/Sao_Paulo", "2018-11-04T03:00"),  # at midnight forward: the day begins at 1
    ("America/Havana", "2026-11-01T05:00"),  # at 1, back to midnight
    ("Pacific/Apia", "2011-12-30T10:00"),  # a day is left out
    ("America/Nome", "1867-10-18T22:02"),  # a day comes twice
    ("Asia/Kolkata", "2026-12-31T18:30"),  # a new year, half an hour off
    ("UTC", "2024-02-29T23:59"),
]


def label_of(at: datetime, zone: str, period: str) -> str:
    return at.astimezone(ZoneInfo(zone)).strftime(LABELS[period])


def ms_of(at: datetime) -> int:
    return round(at.timestamp() * 1000)


@pytest.mark.parametrize("period", LABELS)
@pytest.mark.parametrize(("zone", "around"), CHANGES)
def test_a_period_holds_its_instants_and_no_others(zone: str, around: str, period: PeriodName) -> None:
    calendar = Calendar(period, zone)
    middle = datetime.fromisoformat(around).replace(tzinfo=UTC)
    chosen = random.Random(f"{zone}{around}{period}")
    minutes = [*range(-200, 200, 7), *(chosen.randrange(-60_000, 60_000) for _ in range(60))]
    instants = sorted(middle + timedelta(minutes=minute, milliseconds=-1) for minute in minutes)
    labels = [label_of(at, zone, period) for at in instants]
    first_of: dict[str, datetime] = {}
    for at, label in zip(instants, labels, strict=True):
        first_of.setdefault(label, at)
        found = calendar.at(ms_of(at))
        assert found.label == label
        assert found.first_ms <= found.from_ms <= ms_of(at) < found.until_ms
        assert found.first_ms <= ms_of(first_of[label])
        assert found.date.strftime(LABELS[period]) == label
        inside = [chosen.randrange(found.from_ms, found.until_ms) for _ in range(5)]
        for ms in (found.from_ms, *inside, found.until_ms - 1):
            assert label_of(datetime.fromtimestamp(ms / 1000, UTC), zone, period) == label
        later = calendar.at(found.later_ms)
        assert later.label > label
        # where a local time comes twice, a period may be in two pieces
        if abs(later.first_ms - ms_of(middle)) > 2 * 86_400_000:
            assert calendar.at(later.first_ms - 1).label == label


@pytest.mark.parametrize("zone", ["Europe/Bielefeld", "", "../etc/passwd", "/etc/localtime"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match=r"zone must be the name of a time zone.*pip install tzdata"):
        Calendar("day", zone)
