"""The smallest runs of the specification, and whether it allows what the simulation does; scripts/model runs all."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

# they register their schedules, too
import tests.simulation.crash_scenarios
import tests.simulation.durability_scenarios
import tests.simulation.end_scenarios
import tests.simulation.holder_scenarios
import tests.simulation.outage_scenarios
import tests.simulation.take_over_scenarios  # noqa: F401
from tests.simulation.faults import FAULTS
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.schedule import quiet, run_schedule
from tests.simulation.stage import Stage
from tests.simulation.test_rules import STARVING
from tests.simulation.tracing import Tracer, attach, attach_to_schedule
from tests.spec.log import Entry, read_log
from tests.spec.runs import Run, read_runs
from tests.spec.steps import steps_of
from tests.spec.tlc import missing
from tests.spec.validate import Verdict, check

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"missing: {', '.join(missing())}; scripts/model installs them"),
    # a machine with many busy processes starts Java slowly
    pytest.mark.timeout(600),
]

SMALL = (
    Run("fork", "pass"),
    Run("fork", "violation", ("void-fork",)),
    Run("end-crash", "violation", ("cut",)),
)
# schedules in which other settings come, where a log ends
OTHER_SETTINGS = (
    "start at the end",
    "end on every copy",
    "settings that may start",
    "refused processes create nothing",
)
# schedules of pools that nobody may trust: their scripts grant what the specification refuses
OTHER_DURABILITY = ("none: newcomers wait", "none: no adoption", "none: no late renewal", "reachable marks")


@pytest.mark.parametrize("run", SMALL, ids=lambda run: run.name)
def test_the_smallest_configurations_come_out_as_expected(run: Run) -> None:
    assert run in read_runs()
    outcome = run.check()
    assert outcome.result == run.expected, outcome.output
    assert bool(outcome.trail) == (run.expected == "violation")


def verdicts_on(log: io.StringIO, directory: Path, *, explain: bool = False) -> list[Verdict]:
    path = directory / "runs.log"
    path.write_text(log.getvalue())
    runs = [steps_of(entries) for entries in read_log(path)]
    return sorted(check(runs, explain=explain), key=lambda verdict: verdict.number)


def log_of_scenarios(names: Iterable[str], *, off: bool) -> io.StringIO:
    """Play the named schedules, with or without their rules, and return their log."""
    log, tracers = io.StringIO(), []
    begin = Stage.__init__

    def begin_traced(stage: Stage, **settings: Any) -> None:
        begin(stage, **settings)
        tracers.append(attach(stage, log))

    for name in names:
        with quiet(), mock.patch.object(Stage, "__init__", begin_traced):
            SCENARIOS[name](name if off else None).world.close()
        tracers.pop().end()
    return log


def test_a_run_without_a_rule_is_not_allowed_and_with_it_is_as_schedules_of_faults_are(tmp_path: Path) -> None:
    names = [name for name in SCENARIOS if name not in (*STARVING, *OTHER_SETTINGS, *OTHER_DURABILITY)]
    seeds = range(0, len(FAULTS), 11)
    # one log, since Java takes a second to start
    log = io.StringIO()
    tracers: list[Tracer] = []
    for off in (True, False):
        log.write(log_of_scenarios(names, off=off).getvalue())
    for seed in seeds:
        run_schedule(seed, prepare=lambda sim: tracers.append(attach_to_schedule(sim, log)))
        tracers.pop().end()
    verdicts = verdicts_on(log, tmp_path)
    assert sum(verdict.steps for verdict in verdicts[2 * len(names) :]) > 500
    runs = [*(f"{name}, {off}" for off in ("off", "on") for name in names), *map(str, seeds)]
    accepted = {run for run, verdict in zip(runs, verdicts, strict=True) if verdict.accepted}
    assert accepted == set(runs[len(names) :])


def test_the_first_step_that_is_not_allowed_is_shown_with_both_states(tmp_path: Path) -> None:
    """A log in which a server granted a ms more than it may."""
    lines = log_of_scenarios(["floor"], off=False).getvalue().splitlines()
    entries: list[Entry] = [json.loads(line) for line in lines]
    granted = next(entry for entry in entries if entry["do"] == "run" and entry["reply"][0] == "granted")
    granted["reply"][7] = str(int(granted["reply"][7]) + 1)
    (verdict,) = verdicts_on(io.StringIO("\n".join(map(json.dumps, entries))), tmp_path, explain=True)
    assert not verdict.accepted
    assert steps_of(entries).steps[verdict.refused - 1]["op"] == "granted"
    assert "the specification before it:" in verdict.text
    assert "the specification after it:" in verdict.text
