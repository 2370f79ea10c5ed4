"""Each rule of the design is needed: without it, its scenarios fail; with it, they pass."""

import pytest

from tests.lab.simulation.rules import RULES
from tests.lab.simulation.scenarios import SCENARIOS, Scenario
from tests.lab.simulation.schedule import quiet
from tests.lab.simulation.stage import Stage

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.rule)


def play(scenario: Scenario, *, off: bool) -> Stage:
    with quiet():
        stage = scenario.play(off=off)
        stage.world.close()
    return stage


def test_every_rule_has_a_scenario_that_needs_it() -> None:
    assert {scenario.rule for scenario in SCENARIOS} == RULES.keys()


@each_scenario
def test_with_all_rules_on_each_scenario_goes_well(scenario: Scenario) -> None:
    stage = play(scenario, off=False)
    assert not stage.checker.failures
    assert stage.checker.ids


@each_scenario
def test_without_its_rule_a_scenario_repeats_ids_or_starves(scenario: Scenario) -> None:
    stage = play(scenario, off=True)
    assert stage.checker.failures
    if not scenario.starves:
        assert stage.checker.duplicates
