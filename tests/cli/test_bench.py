"""`bench`. What it measures is for people to read, not asserted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import snowredis
from snowredis.cli.commands import bench as timing

Cli = Callable[..., Any]


def test_it_prints_a_ratio_to_the_clock_for_every_subject(offline: Cli) -> None:
    result = offline("bench", "--quick")
    assert (result.code, result.err) == (0, "")
    rows = re.findall(r"(?m)^(\S.*?) {2,}[\d.,]+ +[\d.,]+ – [\d.,]+ +(\d+\.\d{2,3})$", result.out)
    names = [name for name, _ in rows]
    assert names[0] == timing.BASE
    assert dict(rows)[timing.BASE] == "1.00"
    for name in ("ids.next_id()", "uuid.uuid4()"):
        assert {name, f"{name}, 4 threads"} <= set(names)
    assert names[-2:] == ["ids.next_ids(1000), an id", "ids.fill(1,000,000), an id"]
    assert f"snowredis in {'C' if snowredis.IMPLEMENTATION == 'c' else 'Python'}" in result.out
    assert re.search(r"twitter, one thread: [\d.]+% of its 4,096 ids a ms, on \d+% of a CPU", result.out)


def test_json_has_quartiles_and_ratios_of_the_same_subjects(offline: Cli) -> None:
    result = offline("bench", "--quick", "--json")
    said = json.loads(result.out)
    assert said["implementation"] == snowredis.IMPLEMENTATION
    assert set(said["ns"]) == set(said["ratio"])
    assert said["ratio"][timing.BASE] == [1, 1, 1]
    assert all(low <= median <= high for low, median, high in said["ns"].values())
    assert set(said["twitter"]) == {"share_of_ceiling", "share_of_cpu"}


def test_nobody_always_comes_after_the_same_other() -> None:
    turns = list(timing.in_turns(["a", "b", "c"], 3))
    assert turns == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]


def test_a_ratio_is_taken_within_its_own_round() -> None:
    # a machine that is ten times slower in the second round
    low, median, high = timing.ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0])
    assert low == median == high == pytest.approx(2)


def test_a_batch_counts_as_its_ids_and_threads_count_as_one_stream() -> None:
    calls: list[None] = []
    subject = timing.Subject("calls.append(None)", {"calls": calls}, threads=4, per_call=10)
    assert subject.ns(25) > 0
    assert len(calls) == 100
