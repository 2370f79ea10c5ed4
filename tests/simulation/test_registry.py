"""The rules of registries of shard numbers, in simulated time: with all of them no number is used by two pools."""

from __future__ import annotations

import pytest

from tests.simulation.registry import RULES, Simulation


def test_no_number_is_used_by_two_pools_whatever_the_registrys_redis_forgets() -> None:
    used = losses = openings = refusals = 0
    for seed in range(8):
        simulation = Simulation(seed, renumbered=seed >= 6)
        assert simulation.run() == [], seed
        used += len(simulation.used)
        losses, openings = losses + simulation.losses, openings + simulation.openings
        refusals += simulation.refusals
    # it is no test if nothing happens in it
    assert used > 60
    assert min(losses, openings, refusals) > 10


# a schedule that needs the rule: its seed, and how likely its creators are paused
NEEDED = {
    "closed after a loss": (184, 0.3),
    "identity": (15, 0.3),
    "highest number": (0, 0.9),
    "one pool for a number": (73, 0.9),
    "one number for a name": (37, 0.3),
    "first confirmed while open": (10407, 0.9),
    "taken up again": (35, 0.3),
    "confirmed before it is used": (852, 0.9),
    "crash record of a registration": (0, 0.3),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    seed, pauses = NEEDED[rule]
    renumbered = rule == "crash record of a registration"
    assert Simulation(seed, pauses=pauses, renumbered=renumbered).run() == []
    assert Simulation(seed, without=rule, pauses=pauses, renumbered=renumbered).run() != []
