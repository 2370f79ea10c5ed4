"""Schedules of faults, drawn by seed: no id repeated, no tick reserved twice, all recover.

A sample: `scripts/soak.py` plays thousands. A failure names its seed; `scripts/soak.py --replay SEED` plays it again
with everything that happened.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.faults import FAULTS
from tests.simulation.plain_ttl import plain_schedule
from tests.simulation.schedule import Result, quiet, run_schedule
from tests.simulation.stage import Stage

# besides those in which every class of faults fires
SCHEDULES = 20


def check(seed: int) -> Result:
    """Run a schedule that repeats no id and starves no process."""
    result = run_schedule(seed)
    assert result.scripts > 0
    assert not result.failures, f"scripts/soak.py --replay {seed}  # {result.classes}: {result.failures[0]}"
    return result


def test_no_schedule_repeats_an_id_or_starves_a_process() -> None:
    for seed in range(SCHEDULES):
        check(seed)


@pytest.mark.parametrize("seed", [3, 17, 22])
def test_a_seed_replays_the_very_same_schedule(seed: int) -> None:
    first, again = run_schedule(seed, traced=True), run_schedule(seed, traced=True)
    assert len(first.trace) > 100
    assert first.trace == again.trace
    # a second run without a trace is the same
    unseen = run_schedule(seed)
    assert (unseen.ids, unseen.scripts, unseen.fired) == (first.ids, first.scripts, first.fired)


# without greenlet, on threads, it takes ten times as long
@pytest.mark.timeout(600)
def test_every_class_of_faults_fires_in_the_schedules_it_belongs_to() -> None:
    silent = Counter(dict.fromkeys(FAULTS, 0))
    # from a seed after which they come soon
    for seed in range(10_075, 10_075 + 5 * len(FAULTS)):
        result = check(seed)
        silent.update(name for name in result.classes if name in silent)
        for name in result.classes:
            if result.fired[name]:
                del silent[name]
        if not silent:
            break
    # how many schedules had it in vain
    assert not silent


def test_schedules_without_faults_go_without_trouble() -> None:
    for seed in range(5):
        result = run_schedule(seed, classes=())
        assert not result.failures
        assert result.ids > 20


def test_a_plain_ttl_lease_repeats_ids_under_the_same_faults() -> None:
    repeated = [plain_schedule(seed).duplicates for seed in range(15, 45)]
    assert sum(count > 0 for count in repeated) > 4


def test_a_plain_ttl_lease_repeats_nothing_without_faults() -> None:
    assert not any(plain_schedule(seed, ()).duplicates for seed in range(10))


def test_worker_ids_whose_marks_are_out_of_reach_do_not_hide_the_others() -> None:
    """More of them than one claim looks at: their processes ran while all clocks were ahead."""
    ahead_us = 7_200_000_000
    with quiet():
        stage = Stage(worker_bits=7, tick_ms=1).with_pool()
        stage.master.offset_us = ahead_us
        early = [stage.process() for _ in range(65)]
        for process in early:
            process.host.offset_us = ahead_us
            stage.make(process)
        for process in early:
            stage.do(process, lambda process: process.generator.close())
            process.crash()
        stage.master.offset_us = 0
        made = 0
        # more than there are unused worker ids
        for _ in range(66):
            stage.wait(7_000)
            late = stage.process()
            stage.make(late)
            made += stage.checker.made.get(late.name, 0)
            stage.do(late, lambda process: process.generator.close())
            late.crash()
    # one claim sees none but those, and the next one looks at others
    assert made >= 65
