"""Tables and numbers; foreign text made harmless."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowredis.cli import output
from snowredis.core.values import duration

anything = st.text(st.characters(), max_size=60)


@given(anything, st.none() | st.integers(1, 30))
def test_printable_text_moves_no_cursor_and_keeps_its_length(text: str, limit: int | None) -> None:
    shown = output.printable(text, limit)
    assert all(char == " " or unicodedata.category(char)[0] not in "CZ" for char in shown)
    if limit is not None:
        assert len(shown) <= limit


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ünïcode 日本", "plain text, ünïcode 日本"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\x9b", r"\x9b"),
        ("a\nb\tc\x00", r"a\x0ab\x09c\x00"),
        ("\u202e\u200b\ufeff", r"\u202e\u200b\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert output.printable(text) == shown


@given(st.lists(st.tuples(anything, anything), max_size=6))
def test_the_lines_of_a_table_stand_below_each_other(rows: list[tuple[str, str]]) -> None:
    columns = [("left", False), ("right", True), ("end", False)]
    lines = output.table(columns, [[*map(output.printable, row), "end"] for row in rows])
    assert len({output.width_of(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0, "0.0 s"), (3_440, "3.4 s"), (59_900, "59.9 s"), (60_000, "1.0 min"), (3_600_000, "1.0 h")]
    + [(47 * 3_600_000, "47.0 h"), (72 * 3_600_000, "3.0 days"), (365.25 * 86_400_000 * 3, "3.0 years")],
)
def test_durations_are_short(ms: float, shown: str) -> None:
    assert duration(ms) == shown


@pytest.mark.parametrize(
    ("ms", "shown"), [(1_500, "1.5 s ago"), (-1_500, "in 1.5 s"), (0, "0.0 s ago"), (-1, "0.0 s ago")]
)
def test_a_moment_that_has_just_come_is_not_in_the_future(ms: int, shown: str) -> None:
    assert output.ago(ms) == shown


@pytest.mark.parametrize(
    ("ms", "shown"), [(0, "+0 ms"), (12, "+12 ms"), (-5_001, "-5001 ms"), (60_000, "+1.0 min"), (-60_000, "-1.0 min")]
)
def test_clock_offsets_have_a_sign(ms: int, shown: str) -> None:
    assert output.offset(ms) == shown
