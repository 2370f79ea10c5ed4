"""Faults in the code: the judges see each, in a schedule that provokes it; scripts/judges.py plays more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.simulation.code_faults import CODE_FAULTS, accepted, play
from tests.lab.spec.tlc import missing

# schedules for each fault: on the fast path in Python the clock is read at other moments, so a seed plays another one
MOST = 20


# one test: each schedule is played once for both judges
@pytest.mark.timeout(900)
def test_each_fault_is_seen_by_the_checker_of_the_simulation_and_by_the_specification(tmp_path: Path) -> None:
    left = dict(CODE_FAULTS)
    for more in range(MOST):
        played = {name: play(name, fault.seed + more) for name, fault in left.items()}
        seen = [name for name, each in played.items() if each.result.failures]
        asked = [name for name in seen if left[name].blind != "TLC" and not missing()]
        verdicts = accepted([played[name].log for name in asked], tmp_path) if asked else []
        allowed = {name for name, is_allowed in zip(asked, verdicts, strict=True) if is_allowed}
        left = {name: fault for name, fault in left.items() if name not in seen or name in allowed}
        if not left:
            break
    assert left == {}
    if missing():
        pytest.skip(f"missing: {', '.join(missing())}; scripts/model installs them")
