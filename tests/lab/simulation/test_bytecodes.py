"""Schedules whose tasks are interrupted before random bytecodes of the product, besides clocks, locks and Redis.

A sample of short ones; `scripts/soak.py --bytecodes` plays more.
"""

from __future__ import annotations

import pytest

from tests.lab.simulation.schedule import Simulation
from tests.support.programs import run

# forks, crashes, losses and other clocks, with one and two threads a process
SEEDS = (20_013, 20_020)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_interruption_between_bytecodes_repeats_an_id_or_starves_a_process(seed: int) -> None:
    simulation = Simulation(seed, bytecodes=True)
    result = simulation.run()
    assert simulation.bytecodes is not None
    assert simulation.bytecodes.interruptions > 100
    assert not result.failures, result.failures


def test_a_seed_replays_the_same_interruptions() -> None:
    # in processes of their own: Python stops at other instructions after the code has run a few times
    first, again = (run("tests.lab.simulation.interruptions_of_a_seed", "20020") for _ in range(2))
    assert len(first.splitlines()) > 100
    assert first == again
