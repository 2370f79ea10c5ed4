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


def test_handlers_in_two_threads_do_not_wait_for_each_other_for_ever() -> None:
    """One thread makes an id, the other renews; in both something comes in that asks for an id itself."""
    with quiet():
        stage = Stage().with_pool()
        process = stage.process()
        stage.make(process)
        # the reservation is over, so that every id needs a renewal
        stage.wait(7_500)

        def come_in(after_us: int) -> None:
            stage.world.sleep(after_us)
            process.make(1)

        # the second interruption is where the clock is read under the generator's lock
        process.armed = (2, lambda: come_in(10_000))
        making = stage.begin(process, lambda process: process.make(1))
        stage.wait(1)
        process.armed = (1, lambda: come_in(20_000))
        renewing = stage.begin(process, lambda process: process.generator._beat())
        stage.wait(15_000)
        assert making.greenlet.dead
        assert renewing.greenlet.dead
        stage.make(process)
        assert not stage.checker.failures
        stage.world.close()
