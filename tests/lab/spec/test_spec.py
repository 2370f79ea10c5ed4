"""The smallest runs of the specification, and whether it allows what the simulation does; scripts/model runs all."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.lab.simulation.faults import FAULTS
from tests.lab.simulation.scenarios import SCENARIOS, Scenario
from tests.lab.simulation.schedule import quiet, run_schedule
from tests.lab.simulation.stage import Stage
from tests.lab.simulation.tracing import Tracer, attach, attach_to_schedule
from tests.lab.spec.log import read_log
from tests.lab.spec.steps import steps_of
from tests.lab.spec.tlc import Run, missing, read_runs
from tests.lab.spec.validate import check

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"missing: {', '.join(missing())}; scripts/model installs them"),
    # a machine with many busy processes starts Java slowly
    pytest.mark.timeout(600),
]

SMALL = (Run("fork", "pass"), Run("end-crash", "violation", ("cut",)))
# rules in whose scenarios other settings come, where a log ends
OTHER_SETTINGS = ("start at the end", "above the pool before", "end on every copy", "refused processes create nothing")
# scenarios of pools that nobody may trust: their scripts grant what the specification refuses
OTHER_DURABILITY = ("none", "none: no adoption", "reachable marks")


@pytest.mark.parametrize("run", SMALL, ids=lambda run: run.name)
def test_the_smallest_configurations_come_out_as_expected(run: Run) -> None:
    assert run in read_runs()
    outcome = run.check()
    assert outcome.result == run.expected, outcome.output
    assert bool(outcome.trail) == (run.expected == "violation")


def log_of(scenarios: Iterable[Scenario], *, off: bool) -> io.StringIO:
    """Play the scenarios, with or without their rules, and return their log."""
    log, tracers = io.StringIO(), []
    begin = Stage.__init__

    def begin_traced(stage: Stage, **settings: Any) -> None:
        begin(stage, **settings)
        tracers.append(attach(stage, log))

    for scenario in scenarios:
        with quiet(), mock.patch.object(Stage, "__init__", begin_traced):
            scenario.play(off=off).world.close()
        tracers.pop().end()
    return log


def test_a_run_without_a_rule_is_not_allowed_and_with_it_is_as_schedules_of_faults_are(tmp_path: Path) -> None:
    unlogged = {*OTHER_SETTINGS, *OTHER_DURABILITY}
    scenarios = [each for each in SCENARIOS if not each.starves and each.rule not in unlogged]
    seeds = range(0, len(FAULTS), 11)
    # one log, since Java takes a second to start
    log = io.StringIO()
    tracers: list[Tracer] = []
    for off in (True, False):
        log.write(log_of(scenarios, off=off).getvalue())
    for seed in seeds:
        run_schedule(seed, prepare=lambda sim: tracers.append(attach_to_schedule(sim, log)))
        tracers.pop().end()
    path = tmp_path / "runs.log"
    path.write_text(log.getvalue())
    found = check([steps_of(entries) for entries in read_log(path)], explain=False)
    verdicts = sorted(found, key=lambda verdict: verdict.number)
    assert sum(verdict.steps for verdict in verdicts[2 * len(scenarios) :]) > 500
    runs = [*(f"{each.what}, {off}" for off in ("off", "on") for each in scenarios), *map(str, seeds)]
    accepted = {run for run, verdict in zip(runs, verdicts, strict=True) if verdict.accepted}
    assert accepted == set(runs[len(scenarios) :])
