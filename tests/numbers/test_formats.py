"""Texts of dated numbers: which formats are refused because two numbers would have one text."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from snowredis.errors import ConfigError
from snowredis.numbers.dated_formats import DEFAULT_FORMATS, NumberFormat, PeriodName

DATE = datetime(2026, 11, 22, 7, tzinfo=UTC)


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
    made = NumberFormat(text, period, "orders")
    assert made.write(DATE, 42) == written
    assert (made.text_length, made.maximum, made.sortable) == (length, maximum, sortable)
    assert len(made.write(DATE, made.maximum)) <= length


@pytest.mark.parametrize(
    ("text", "period", "reason"),
    [
        (
            "{date:%Y}-{number}",
            "day",
            "writes '2000-1' for number 1 of 2000-02-01 00:00 and for number 1 of 2000-01-01",
        ),
        ("{date:%m%d}-{number}", "day", "numbers start again each day"),
        ("{date:%Y%m%d}-{number}", "hour", "numbers start again each hour. Write more of the date"),
        ("{date:%Y%m%d%I}-{number}", "hour", "numbers start again each hour"),
        ("{date:%G-%m-%d}-{number}", "day", "numbers start again each day"),
        ("{date:%Y-%m-}{date.day}{number}", "day", "unknown field 'date.day'"),
        (
            "{date:%Y%m%-d}{number}",
            "day",
            "writes '202401111' for number 1 of 2024-01-11 00:00 and for number 11 of",
        ),
        ("{number:06}", "day", "numbers start again each day"),
        ("{date:%Y%m%d}", "day", "must have the field {number} once"),
        ("{number}{number}", "day", "must have the field {number} once"),
        ("{date:%Y}{number:.2f}{x}", "year", "unknown field 'x'"),
        ("{date:%Y", "year", "cannot be used"),
        ("{date:%Y}-{number:q}", "year", "cannot be used"),
        ("{date.__class__}{number}", "year", "unknown field"),
        ("x" * 200 + "{date:%Y}-{number:06}", "year", "makes texts of 211 characters; 200 are allowed"),
    ],
)
def test_a_format_that_repeats_texts_or_cannot_be_used_is_refused(
    text: str, period: PeriodName, reason: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        NumberFormat(text, period, "orders")
    assert reason in str(raised.value)


def test_the_format_that_an_error_proposes_can_be_used() -> None:
    for period, text in DEFAULT_FORMATS.items():
        assert NumberFormat(text, period, "orders").sortable  # type: ignore[arg-type]


def test_a_maximum_of_its_own_is_part_of_the_length() -> None:
    made = NumberFormat("{date:%Y}-{number:03}", "year", "orders", 12_345)
    assert (made.maximum, made.text_length) == (12_345, len("2026-12345"))
    assert not made.sortable
    assert NumberFormat("{date:%Y}-{number:03}", "year", "orders").maximum == 999
