"""Interruptions between two bytecodes: signal handlers, finalizers, forks, other threads, clocks that are set."""

import ctypes
import gc
from collections.abc import Callable
from dataclasses import dataclass

from tests.lab.interrupts import operations
from tests.lab.interrupts.stage import Companion, Stage


@dataclass(frozen=True)
class Action:
    """One interruption: *run* is called at the point, *prepare* before the operation begins."""

    run: Callable[[Stage], object]
    prepare: Callable[[Stage], None] | None = None
    forks: bool = False


def _one_id(stage: Stage) -> None:
    stage.take(stage.ids.next_id())


def _batch(stage: Stage) -> None:
    stage.take(*stage.ids.next_ids(9))


def _later(stage: Stage) -> None:
    stage.clock.advance(1000)
    _one_id(stage)


def _back(stage: Stage) -> None:
    stage.clock.step(-2000)
    _one_id(stage)


def _far_ahead(stage: Stage) -> None:
    stage.clock.step(60_000)
    _one_id(stage)


def _twice_back(stage: Stage) -> None:
    _back(stage)
    _back(stage)


def _suspend_and_go_on(stage: Stage) -> None:
    operations.suspend_and_resume(stage)
    _one_id(stage)


# what a handler, a finalizer or another thread does
CALLS: dict[str, Callable[[Stage], None]] = {
    "next_id": _one_id,
    "next_ids": _batch,
    "next_tick": _later,
    "clock_back": _back,
    "clock_back_twice": _twice_back,
    "clock_far_ahead": _far_ahead,
    "beat": operations.beat,
    "close": operations.close,
    "sigterm": operations.sigterm,
    "suspend": _suspend_and_go_on,
}


def handler(call: Callable[[Stage], None]) -> Callable[[Stage], None]:
    return lambda stage: stage.attempt(call)


class _Cycle:
    """An object that makes an id when it is collected as garbage."""

    def __init__(self, stage: Stage) -> None:
        self.me, self._stage = self, stage

    def __del__(self) -> None:
        self._stage.attempt(_one_id)


def _collect(stage: Stage) -> None:
    _Cycle(stage)
    gc.collect(0)


def thread(call: Callable[[Stage], None]) -> Callable[[Stage], None]:
    return lambda stage: stage.in_thread(call)


def _id_then_fork(stage: Stage) -> None:
    stage.attempt(_one_id)
    stage.fork()


def _fork_then_id(stage: Stage) -> None:
    stage.fork()
    stage.attempt(_one_id)


def _fork_then_later(stage: Stage) -> None:
    stage.fork()
    stage.attempt(_later)


def _die_as_a_child(stage: Stage) -> None:
    """End a child that was forked before, in the middle of its call, as kill -9 does."""
    if stage.is_child:
        stage.die()


def _fork_with_an_earlier_hook(stage: Stage) -> None:
    """Fork, and make an id in the child in another library's after-fork hook that was registered first."""
    stage.in_hook = True
    try:
        stage.fork()
    finally:
        stage.in_hook = False


ACTIONS: dict[str, Action] = {
    **{f"handler:{name}": Action(handler(call)) for name, call in CALLS.items()},
    "clock:later": Action(lambda stage: stage.clock.advance(1000)),
    "clock:back": Action(lambda stage: stage.clock.step(-2000)),
    "finalizer:next_id": Action(_collect),
    **{f"thread:{name}": Action(thread(call)) for name, call in CALLS.items()},
    "fork": Action(Stage.fork, forks=True),
    "fork:parent_first": Action(lambda stage: stage.fork(child_first=False), forks=True),
    # Python runs no hooks. The GIL is held, which the child could not get back otherwise
    "fork:in_c": Action(lambda stage: stage.fork(fork=ctypes.PyDLL(None).fork), forks=True),
    "fork:id_before": Action(_id_then_fork, forks=True),
    "fork:id_after": Action(_fork_then_id, forks=True),
    "fork:id_in_next_tick": Action(_fork_then_later, forks=True),
    "child_dies": Action(_die_as_a_child),
    "fork:earlier_hook": Action(_fork_with_an_earlier_hook, forks=True),
}

# another thread is in the middle of one of these, before its k-th bytecode, while the operation begins
PAUSED: dict[str, Callable[[Stage], None]] = {
    "next_id": _one_id,
    "next_tick": _one_id,
    "next_ids": _batch,
    "beat": operations.beat,
    "close": operations.close,
    "suspend": _suspend_and_go_on,
}


def action(name: str) -> Action:
    """Return the action called *name*; ``paused:next_id:7`` resumes a thread that is stopped before its bytecode 7."""
    kind, _, rest = name.partition(":")
    if kind != "paused":
        return ACTIONS[name]
    call, _, at = rest.partition(":")

    def prepare(stage: Stage) -> None:
        if call == "next_tick":
            stage.clock.advance(1000)
        companion = Companion(stage, PAUSED[call], int(at))
        stage.companions.append(companion)
        companion.run_to_point()

    def run(stage: Stage) -> None:
        # a forked child has no other thread
        for companion in stage.companions[:1]:
            companion.let_go_on()

    return Action(run, prepare)
