"""Dated numbers: texts, of which no two numbers have one, and periods of every zone, also where clocks are changed."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowredis.errors import ConfigError
from snowredis.numbers.formats import DEFAULT_FORMATS, Calendar, NumberFormat, PeriodName

PERIOD = Calendar("hour", "UTC").at(round(datetime(2026, 11, 22, 7, tzinfo=UTC).timestamp() * 1000))


@pytest.mark.parametrize(
    ("text", "period", "written", "length", "maximum", "sortable"),
    [
        ("INV-{date:%Y%m%d}-{number:06}", "day", "INV-20261122-000042", 19, 999_999, True),
        ("{date:%Y%m%d%H}-{number:06}", "hour", "2026112207-000042", 17, 999_999, True),
        ("{tag}/{date:%y%m}/{number}", "month", "orders/2611/42", 22, 9_999_999_999, False),
        ("{date:%Y}{number:08d}", "year", "202600000042", 12, 99_999_999, True),
        ("{number:06}.{date:%Y-%m-%d}", "day", "000042.2026-11-22", 17, 999_999, False),
    ],
)
def test_a_number_is_written_like_this(
    text: str, period: PeriodName, written: str, length: int, maximum: int, sortable: bool
) -> None:
    made = NumberFormat("orders", period, format=text)
    assert made.write(PERIOD, 42) == written
    assert (made.description.text_length, made.maximum, made.description.sortable) == (length, maximum, sortable)
    assert len(made.write(PERIOD, made.maximum)) <= length


AGAIN = "does not show the whole period, but numbers start again each"
UNKNOWN = "cannot be used from"


@pytest.mark.parametrize(
    ("text", "period", "reason"),
    [
        ("{date:%Y}-{number}", "day", f"{AGAIN} day"),
        ("{date}{date:%Y%m%d}-{number}", "day", UNKNOWN),
        ("{date:%Y%m%d}-{number}", "hour", f"{AGAIN} hour: two numbers would have one text. Write more"),
        ("{date:%Y%m%d%I}-{number}", "hour", UNKNOWN),
        ("{date:%G-%m-%d}-{number}", "day", f"{AGAIN} day"),
        ("{date:%G}-{number}", "year", f"{AGAIN} year"),
        ("{date:%Y-%m-}{date.day}{number}", "day", UNKNOWN),
        # January no. 1001 and November no. 1
        ("{date:%Y}{date:%-m}{number:03}", "month", UNKNOWN),
        ("{date:%Y}-{number:.2g}", "year", UNKNOWN),
        ("{date:%Y}-{number:{number}}", "year", UNKNOWN),
        ("{date:%Y{tag}}-{number}", "year", UNKNOWN),
        ("{date!s:.4}-{number}", "year", UNKNOWN),
        ("{tag:.1}{date:%Y}-{number}", "year", UNKNOWN),
        ("{number:06}", "day", f"{AGAIN} day"),
        ("{date:%Y%m%d}", "day", "must have the field {number} once"),
        ("{number}{number}", "day", "must have the field {number} once"),
        ("{date:%Y", "year", UNKNOWN),
        ("\ud800{date:%Y}-{number}", "year", "a lone surrogate"),
        ("{date:%Y}\0{number}", "year", "a control character"),
        ("x" * 200 + "{date:%Y}-{number:06}", "year", "makes texts of 211 characters; 200 are allowed"),
    ],
)
def test_a_format_that_repeats_texts_or_cannot_be_used_is_refused(text: str, period: PeriodName, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        NumberFormat("orders", period, format=text)
    assert reason in str(raised.value)


def test_the_format_that_an_error_proposes_can_be_used() -> None:
    for period, text in DEFAULT_FORMATS.items():
        made = NumberFormat("orders", period, format=text)  # type: ignore[arg-type]
        assert made.description.sortable == (period != "ever")


def test_a_maximum_of_its_own_is_part_of_the_length() -> None:
    made = NumberFormat("orders", "year", format="{date:%Y}-{number:03}", maximum=12_345)
    assert (made.maximum, made.description.text_length) == (12_345, len("2026-12345"))
    assert not made.description.sortable
    assert NumberFormat("orders", "year", format="{date:%Y}-{number:03}").maximum == 999


def test_as_many_digits_as_redis_counts_exactly_are_allowed() -> None:
    assert NumberFormat("orders", "year", format="{date:%Y}-{number:016}").maximum == 9 * 10**15


@given(
    text=st.lists(
        st.sampled_from(
            ["{date:%Y}", "{date:%m-%d}", "{date:%y%j}", "{date:%H}", "{date:%G%V%u}", "{tag}", "7", "-", "{{"]
        ),
        max_size=6,
    ).map("".join),
    number=st.sampled_from(["{number}", "{number:03}", "{number:0d}", "{number:012d}"]),
    at=st.integers(0, 40),
    period=st.sampled_from(["hour", "day", "month", "year"]),
    one=st.tuples(st.datetimes(datetime(2020, 1, 1), datetime(2099, 1, 1)), st.integers(1, 9 * 10**15)),
    other=st.tuples(st.datetimes(datetime(2020, 1, 1), datetime(2099, 1, 1)), st.integers(1, 9 * 10**15)),
)
def test_two_numbers_never_have_one_text(
    text: str, number: str, at: int, period: PeriodName, one: tuple[datetime, int], other: tuple[datetime, int]
) -> None:
    at = at % (len(text) + 1) if "{" not in text else 0
    try:
        made = NumberFormat("a1", period, format=text[:at] + number + text[at:])
    except ConfigError:
        return
    calendar = Calendar(period, "UTC")
    periods = [calendar.at(round(each.replace(tzinfo=UTC).timestamp() * 1000)) for each, _ in (one, other)]
    texts = [made.write(each, count) for each, (_, count) in zip(periods, (one, other), strict=True)]
    same = (periods[0].label, one[1]) == (periods[1].label, other[1])
    assert (texts[0] == texts[1]) == same


@pytest.mark.parametrize("zone", ["localtime", "posixrules", "Factory"])
def test_a_zone_that_is_another_one_on_each_host_is_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match="is another one on each host"):
        Calendar("day", zone)


# --- periods ------------------------------------------------------------------------------------------


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
