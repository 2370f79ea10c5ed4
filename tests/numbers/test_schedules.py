"""Random schedules of faults, and the rules that they need. scripts/segments.py runs thousands of schedules."""

from __future__ import annotations

import pytest

from tests.numbers.rules import RULES
from tests.numbers.simulation import SegmentSimulation, Violation


@pytest.mark.parametrize("seed", range(4))
def test_no_number_comes_twice_whatever_redis_forgets(seed: int) -> None:
    sim = SegmentSimulation(seed)
    sim.run()
    assert sim.checker.count > 100
    assert sim.fired


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_a_number_comes_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = RULES[name]
    SegmentSimulation(rule.seed, rule.classes).run()
    rule.patch(monkeypatch)
    with pytest.raises(Violation, match=r"was made by \w+ and \w+"):
        SegmentSimulation(rule.seed, rule.classes).run()
