"""Each rule of the design is needed: without it, its schedule fails; with it, the same schedule passes."""

from __future__ import annotations

import pytest

# they register their schedules, too
import tests.simulation.crash_scenarios
import tests.simulation.durability_scenarios
import tests.simulation.end_scenarios
import tests.simulation.holder_scenarios
import tests.simulation.outage_scenarios
import tests.simulation.take_over_scenarios  # noqa: F401
from tests.simulation.rules import RULES
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import quiet
from tests.simulation.stage import Stage

# without them a worker id is of no use for a time, and no id is repeated
STARVING = (
    "index",
    "crash record's text",
    "crash record's start",
    "crash record taken over",
    "clock that was ahead",
    "bounded lease end",
    "reachable marks",
    "one write",
    # the ids that it repeats are excused: a clone's
    "clocks agree",
    "clocks agree in the outage lane",
    "settings that may start",
    "refused processes create nothing",
    "outage lane while Redis is behind",
    "a lease of use",
)


def play(name: str, off: str | None) -> Stage:
    with quiet():
        stage = SCENARIOS[name](off)
        stage.world.close()
    return stage


def test_every_rule_has_a_schedule_that_needs_it() -> None:
    assert SCENARIOS.keys() == RULES.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_with_all_rules_on_the_schedule_of_each_goes_well(name: str) -> None:
    stage = play(name, None)
    assert not stage.checker.failures
    assert stage.checker.ids


@pytest.mark.parametrize("name", SCENARIOS)
def test_without_its_rule_a_schedule_repeats_ids_or_starves(name: str) -> None:
    stage = play(name, name)
    assert stage.checker.failures
    if name not in STARVING:
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
