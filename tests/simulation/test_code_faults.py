"""Faults in the code: the judges see each, in a schedule that provokes it; scripts/judges.py plays more."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.simulation.code_faults import CODE_FAULTS, Played, accepted, play
from tests.spec.tlc import missing


@functools.cache
def played(name: str) -> Played:
    return play(name, CODE_FAULTS[name].seed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name, fault in CODE_FAULTS.items() if fault.blind != "soak"])
def test_the_checker_of_the_simulation_sees_each_fault(name: str) -> None:
    assert played(name).result.failures


@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(missing()), reason=f"missing: {', '.join(missing())}; scripts/model installs them")
def test_the_specification_allows_no_schedule_with_a_fault(tmp_path: Path) -> None:
    names = [name for name, fault in CODE_FAULTS.items() if fault.blind != "TLC"]
    allowed = accepted([played(name).log for name in names], tmp_path)
    assert [name for name, is_allowed in zip(names, allowed, strict=True) if is_allowed] == []


def test_all_but_three_faults_are_seen_by_both_judges() -> None:
    assert len(CODE_FAULTS) - sum(not fault.blind for fault in CODE_FAULTS.values()) <= 3
