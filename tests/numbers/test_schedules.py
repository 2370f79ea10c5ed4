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
    if rule.patch is not None:
        rule.patch(monkeypatch)
    edited: list[str] = []

    def edit(name: str, source: str) -> str:
        changed = rule.edit(name, source)
        edited.extend([name] if changed != source else [])
        return changed

    with pytest.raises(Violation, match=rule.complaint):
        SegmentSimulation(rule.seed, rule.classes, edit=edit).run()
    assert edited or rule.replaced is None
