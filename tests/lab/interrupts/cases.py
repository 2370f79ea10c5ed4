"""Play one case, an operation and its interruptions before certain bytecodes, and find the failures."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.lab.interrupts.actions import action
from tests.lab.interrupts.operations import OPERATIONS, Operation
from tests.lab.interrupts.points import Points
from tests.lab.interrupts.stage import LAYOUT, Companion, Place, Stage


@dataclass(frozen=True)
class Case:
    """An operation and its interruptions.

    As text: ``claim/fork@120``, or with several interruptions ``claim/fork@120+handler:next_id@200``.

    ``claim/fork@120!`` has the operation run in another thread, which the main thread finds there.
    """

    operation: str
    interruptions: tuple[tuple[str, int], ...]
    elsewhere: bool = False

    @classmethod
    def parse(cls, text: str) -> Case:
        name, _, rest = text.removesuffix("!").partition("/")
        pairs = (part.rpartition("@") for part in rest.split("+"))
        return cls(name, tuple((what, int(at)) for what, _, at in pairs), text.endswith("!"))

    def __str__(self) -> str:
        return f"{self.operation}/{'+'.join(f'{what}@{at}' for what, at in self.interruptions)}{'!' * self.elsewhere}"


@dataclass
class Outcome:
    """Result of a case.

    points: how many bytecodes there were; fired: where something came in; doubled: whether ids were doubled
    that the call had as good as returned already, which only a tracer can see; leaked: why a worker id is not
    available before its lease ends.
    """

    case: str
    points: int
    fired: list[str]
    failures: list[str] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)
    ids: int = 0
    doubled: bool = False
    leaked: str = ""


# the stage that other libraries' after-fork hooks use
_current: list[Stage] = []


def _earlier_hook() -> None:
    if _current and _current[0].in_hook:
        stage = _current[0]
        stage.in_hook = False
        stage.attempt(lambda stage: stage.made_in_hook.append(stage.ids.next_id()))


def register_earlier_hook() -> None:
    """Register a hook that makes an id in a forked child; before the first generator of this process."""
    os.register_at_fork(after_in_child=_earlier_hook)


def play(case: Case, place: Place) -> Outcome:
    """Play *case*; in forked children this does not return."""
    operation = OPERATIONS[case.operation]
    stage = Stage(place, background=operation.background)
    _current[:] = [stage]
    me = os.getpid()
    try:
        points = _play(case, operation, stage)
        stage.settle()
        if os.getpid() != me:
            stage.end_child()
        stage.finish()
    except BaseException as error:
        if os.getpid() != me:
            stage.fail_child(error)
        raise
    finally:
        _current.clear()
    return judge(case, stage, points, stage.take_over())


def _play(case: Case, operation: Operation, stage: Stage) -> Points:
    operation.prepare(stage)
    chosen = [(action(what), at) for what, at in case.interruptions]
    for what, _ in chosen:
        if what.prepare is not None:
            what.prepare(stage)
    if case.elsewhere:
        return _play_elsewhere(chosen, operation, stage)
    points = Points(
        {at: functools.partial(what.run, stage) for what, at in chosen}, threading_too=operation.threading_too
    )

    def traced(stage: Stage) -> None:
        with points:
            operation.run(stage)

    stage.attempt(traced)
    return points


def _play_elsewhere(chosen: list[tuple[Any, int]], operation: Operation, stage: Stage) -> Points:
    """Stop another thread in the middle of the operation, and run the action in the main thread."""
    companion = Companion(stage, operation.run, chosen[0][1])
    stage.companions.append(companion)
    companion.run_to_point()
    if companion.points.fired:
        chosen[0][0].run(stage)
    return companion.points


def judge(case: Case, stage: Stage, points: Points, later: list[int]) -> Outcome:
    made = list(stage.made) + later
    failures = list(stage.failures)
    returned = Counter(stage.returned)
    for report in _all(stage.reports):
        made += report["made"]
        failures += report["failures"]
        returned.update(report["returned"])
    repeated = {an_id for an_id, count in Counter(made).items() if count > 1}
    doubled = bool(repeated) and repeated <= {i for i, n in returned.items() if n > 1} and not points.calls_left
    if repeated and not doubled:
        first = LAYOUT.decode(min(repeated))
        seconds = (first.timestamp_ms - stage.start_ms) / 1000
        failures.append(
            f"{len(repeated)} ids repeated; the first of worker id {first.worker}, lane {first.backup}, "
            f"{seconds:+.1f} s, sequence {first.sequence}"
        )
    if stage.leaked and not forked(case):
        # a forked child may have asked for a worker id in the name of its parent, and cannot know whose it is
        failures.append(stage.leaked)
    return Outcome(
        case=str(case),
        points=points.count,
        fired=points.fired,
        failures=failures,
        refusals=dict(stage.refusals),
        ids=len(made),
        doubled=doubled,
        leaked=stage.leaked,
    )


def _all(reports: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for report in reports:
        yield report
        yield from _all(report["reports"])


def forked(case: Case) -> bool:
    """Return whether the case has several processes, or one that is reset like a forked child."""
    return case.operation == "reset" or any(what.startswith("fork") for what, _ in case.interruptions)
