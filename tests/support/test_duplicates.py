"""Repeated ids are found, wherever they hide, and counted exactly."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.support.duplicates import Runs, find_duplicates


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
