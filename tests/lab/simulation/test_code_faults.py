"""Faults in the code: the judges see each, in a schedule that provokes it; scripts/judges.py plays more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.simulation.code_faults import CODE_FAULTS, accepted, play
from tests.lab.spec.tlc import missing


# one test: each schedule is played once for both judges
@pytest.mark.timeout(900)
def test_each_fault_is_seen_by_the_checker_of_the_simulation_and_by_the_specification(tmp_path: Path) -> None:
    played = {name: play(name, fault.seed) for name, fault in CODE_FAULTS.items()}
    unseen = {name for name, each in played.items() if not each.result.failures}
    assert unseen == {name for name, fault in CODE_FAULTS.items() if fault.blind == "soak"}
    if missing():
        pytest.skip(f"missing: {', '.join(missing())}; scripts/model installs them")
    names = [name for name, fault in CODE_FAULTS.items() if fault.blind != "TLC"]
    allowed = accepted([played[name].log for name in names], tmp_path)
    assert [name for name, is_allowed in zip(names, allowed, strict=True) if is_allowed] == []
