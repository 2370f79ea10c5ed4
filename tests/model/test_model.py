"""The smallest configurations of the model, at every run; scripts/model searches all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.checker import check, missing_programs
from tests.model.configurations import HOLDS, NEEDED, Configuration

pytestmark = pytest.mark.skipif(
    bool(missing_programs()),
    reason=f"not on PATH: {', '.join(missing_programs())}; scripts/model installs them",
)

# one of a script, one of a process
SWITCHED_OFF = ("mark", "mark in the crash record first")


def _name(configuration: Configuration) -> str:
    return configuration.name


@pytest.mark.parametrize("configuration", [c for c in HOLDS if c.quick], ids=_name)
def test_no_tick_is_stamped_twice_in_any_reachable_state(configuration: Configuration, tmp_path: Path) -> None:
    result = check(configuration.constants, tmp_path / "search")
    assert result.trail == ()
    assert result.complete, result.problem
    assert result.states > 10_000


@pytest.mark.parametrize("configuration", [c for c in NEEDED if c.name in SWITCHED_OFF], ids=_name)
def test_a_tick_is_stamped_twice_without_the_rule(configuration: Configuration, tmp_path: Path) -> None:
    result = check(configuration.constants, tmp_path / "search", shortest=True)
    assert result.trail, result.problem
    assert "stamps tick" in result.trail[-1][1]
