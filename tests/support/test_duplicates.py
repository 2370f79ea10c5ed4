"""Repeated ids are found, wherever they hide, and counted exactly."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.duplicates import MAX_EXAMPLES, Runs, find_duplicates, int64s


@given(st.lists(st.lists(st.integers(0, 60), max_size=40), max_size=4), st.integers(1, 9))
def test_single_ids_are_counted_as_a_counter_does(sources: list[list[int]], window_runs: int) -> None:
    counted = Counter(an_id for ids in sources for an_id in ids)
    found = find_duplicates((Runs("", ids) for ids in sources), window_runs=window_runs)
    assert found.ids == counted.total()
    assert found.repeated == counted.total() - len(counted)


@given(st.lists(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=20), max_size=4), st.integers(1, 9))
def test_runs_are_counted_as_their_ids_are(sources: list[list[tuple[int, int]]], window_runs: int) -> None:
    counted = Counter(an_id for runs in sources for first, count in runs for an_id in range(first, first + count))
    packed = [Runs("", [first for first, _ in runs], [count for _, count in runs]) for runs in sources]
    found = find_duplicates(packed, window_runs=window_runs)
    assert found.ids == counted.total()
    assert found.repeated == counted.total() - len(counted)
    for example in found.examples:
        assert all(counted[an_id] > 1 for an_id in range(example.first, example.first + example.count))


@pytest.mark.parametrize("window_runs", [1, 2, 1000])
def test_a_repetition_names_its_makers_and_their_runs(window_runs: int) -> None:
    one = Runs("one", array("q", [5000, 100, 900]), array("q", [1, 50, 7]))
    two = Runs("two", array("q", [140, 9000]), array("q", [20, 1]))
    (example,) = find_duplicates([one, two], window_runs=window_runs).examples
    assert str(example) == "140 was made by one and by two"
    assert example.count == 10
    assert [(run.maker, run.position) for run in example.runs] == [(0, 1), (1, 0)]


def test_a_great_many_repetitions_are_counted_and_some_are_named() -> None:
    found = find_duplicates([Runs("one", range(10**5)), Runs("two", range(10**5))])
    assert (found.ids, found.repeated, len(found.examples)) == (2 * 10**5, 10**5, MAX_EXAMPLES)


def test_no_ids_are_no_duplicates() -> None:
    assert find_duplicates([]).repeated == 0
    assert find_duplicates([Runs("idle", int64s(b""))]).ids == 0


def test_a_row_that_was_written_in_part_is_left_out() -> None:
    written = array("q", [1, 2, 3, 4, 5]).tobytes()
    assert list(int64s(written[:-1])) == [1, 2, 3, 4]
    assert list(int64s(written, 2)) == [1, 2, 3, 4]
