"""An interruption between two bytecodes never repeats an id, loses a lease or stops a process.

A sample that takes seconds; `scripts/interrupts.py` tries every bytecode. A failure names its case, which
`scripts/interrupts.py --replay CASE` plays again.
"""

import random
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.lab.interrupts.cases import Case, Outcome, forked
from tests.lab.interrupts.explore import Explorer, random_case
from tests.support.servers import redis_server

RANDOM_CASES = 15
REPLAYS = 20


@pytest.fixture(scope="module", params=["as built"])
def explorer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    directory: Path = tmp_path_factory.mktemp("i")
    with redis_server(directory) as server, Explorer(server.url, pure=request.param == "python") as explorer:
        yield explorer


# the fast path has bytecodes in Python only; beside it, the code is the same
in_both = pytest.mark.parametrize("explorer", ["as built", "python"], indirect=True)


def check(outcomes: Iterable[Outcome]) -> None:
    played, failures = 0, []
    for outcome in outcomes:
        played += 1
        failures += [f"{outcome.case}: {failure}  # {outcome.fired}" for failure in outcome.failures]
    assert played
    assert not failures, f"{len(failures)} failures in {played} cases:\n" + "\n".join(failures[:20])


def once_more(explorer: Explorer, case: Case) -> Outcome:
    """Play *case*; if it fails beside a thread that runs when it likes, again, and warn if that goes well.

    Such a case is another one each time, and CPython, too, leaves children that are forked beside threads in a state
    in which a few of them hang.
    """
    outcome = explorer.play(case)
    if outcome.failures and forked(case) and "thread:" in str(case):
        again = [explorer.play(case) for _ in range(REPLAYS)]
        if not any(replay.failures for replay in again):
            warnings.warn(f"{case} failed once: {outcome.failures}", stacklevel=1)
            return again[-1]
    return outcome


@pytest.mark.parametrize(("operation", "step"), [("first_id", 101), ("hand_over", 199), ("lost", 199), ("reset", 43)])
def test_a_handler_that_makes_an_id_repeats_none(explorer: Explorer, operation: str, step: int) -> None:
    check(explorer.sweep(operation, "handler:next_id", step=step))


# 7 is about as long as the shortest stretch in which an interruption did harm once; a range begins with a tick
@pytest.mark.parametrize("explorer", ["python"], indirect=True)
@pytest.mark.parametrize(("operation", "step"), [("new_tick", 29), ("new_range", 7)])
def test_a_handler_that_makes_an_id_in_the_fast_path_repeats_none(
    explorer: Explorer, operation: str, step: int
) -> None:
    check(explorer.sweep(operation, "handler:next_id", step=step))


@pytest.mark.parametrize("explorer", ["python"], indirect=True)
def test_a_handler_may_suspend_close_or_beat_while_a_tick_begins(explorer: Explorer) -> None:
    for action in ("handler:suspend", "handler:close", "handler:beat", "handler:clock_back"):
        check(explorer.sweep("new_range", action, step=89))


@pytest.mark.parametrize(
    ("operation", "step"), [("close_heartbeat", 13), ("close", 59), ("claim", 199), ("renew", 199), ("suspend", 199)]
)
def test_sigterm_at_any_moment_closes_the_generators_and_hangs_nobody(
    explorer: Explorer, operation: str, step: int
) -> None:
    check(explorer.sweep(operation, "handler:sigterm", step=step))


def test_two_sigterms_hang_nobody(explorer: Explorer) -> None:
    two = ("handler:sigterm", 300), ("handler:sigterm", 310)
    check(explorer.play(Case("close_heartbeat", tuple((name, at + k) for name, at in two))) for k in range(0, 900, 101))


def test_a_handler_gets_an_id_while_the_generator_is_resumed(explorer: Explorer) -> None:
    check(explorer.sweep("resume", "handler:next_id", end=60))


@pytest.mark.parametrize(
    "operation", ["claim", "new_range", "renew", "suspend", "close", "hand_over", "anext_new_range"]
)
def test_a_child_that_is_forked_in_the_middle_makes_ids_of_its_own(explorer: Explorer, operation: str) -> None:
    check(explorer.sweep(operation, "fork", first=60, step=797))


@pytest.mark.parametrize(("operation", "fork", "first"), [("claim", "fork", 480), ("renew", "fork:id_after", 440)])
def test_a_child_that_is_killed_in_its_parents_call_leaves_nothing_of_its_parents(
    explorer: Explorer, operation: str, fork: str, first: int
) -> None:
    forked_at = range(first, first + 400, 97)
    check(
        explorer.play(Case(operation, ((fork, at), ("child_dies", at + 100 + 37 * turn))))
        for turn, at in enumerate(forked_at)
    )


def test_a_fork_while_the_heartbeat_thread_is_started_hangs_nobody(explorer: Explorer) -> None:
    check(explorer.sweep("start_heartbeat", "fork", first=60, step=503))


def test_another_librarys_hook_may_make_an_id_in_the_child(explorer: Explorer) -> None:
    check(explorer.sweep("renew", "fork:earlier_hook", step=1009))


def test_a_child_is_well_whatever_another_thread_was_doing(explorer: Explorer) -> None:
    check(explorer.sweep("claim", "fork", elsewhere=True, first=60, step=1201))


@in_both
@pytest.mark.parametrize("action", ["paused:next_id:8", "thread:next_id", "thread:suspend"])
def test_a_thread_that_read_the_ids_before_they_were_sealed_repeats_none(explorer: Explorer, action: str) -> None:
    check(explorer.sweep("close_late", action, step=167))


def test_several_interruptions_at_random_points_do_no_harm(explorer: Explorer) -> None:
    rng = random.Random(1)
    check(once_more(explorer, random_case(rng)) for _ in range(RANDOM_CASES))


def test_an_interruption_comes_exactly_where_it_is_asked_for(explorer: Explorer) -> None:
    first = [outcome.fired for outcome in explorer.sweep("new_range", "clock:later", step=50)]
    again = [outcome.fired for outcome in explorer.sweep("new_range", "clock:later", step=50)]
    assert first == again
    # many places (a loop comes to one more than once), and all of them in the product
    assert len({where for (where,) in first}) > 10
    assert all(where.startswith(("core/", "process/", "snowflake/")) for (where,) in first)
