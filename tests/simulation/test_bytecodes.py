"""Schedules whose tasks are interrupted before random bytecodes of the product, besides clocks, locks and Redis."""

from __future__ import annotations

import pytest

from tests.simulation.schedule import Simulation

SCHEDULES = 12


@pytest.mark.parametrize("seed", range(20_000, 20_000 + SCHEDULES))
def test_no_interruption_between_bytecodes_repeats_an_id_or_starves_a_process(seed: int) -> None:
    simulation = Simulation(seed, bytecodes=True)
    result = simulation.run()
    assert simulation.bytecodes is not None
    assert simulation.bytecodes.interruptions > 100
    assert not result.failures, result.failures


def test_a_seed_replays_the_same_interruptions() -> None:
    # Python 3.14 stops at other instructions until the code has run a few times
    *_, first, again = [Simulation(20_001, bytecodes=True, traced=True).run() for _ in range(4)]
    assert first.trace == again.trace
