"""Texts of dated numbers: which formats are refused because two numbers would have one text."""

from datetime import UTC, datetime

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
