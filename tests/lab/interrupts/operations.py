"""The interrupted operations: all that read or change a generator's lease, its lanes or its block."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass

from snowredis.process.sigterm import CloseAtSignal
from tests.lab.interrupts.stage import Stage, StageClock


@dataclass(frozen=True)
class Operation:
    """One operation: *prepare* runs without interruptions; *run* is one call, interrupted.

    Attributes:
        background: whether the clock lets the generator start its heartbeat thread.
        threading_too: whether Python's threading.py is interrupted as well.
        forks: whether it may be interrupted by a fork; not if it ends the generator.
    """

    prepare: Callable[[Stage], None]
    run: Callable[[Stage], None]
    background: bool = False
    threading_too: bool = False
    forks: bool = True


def _nothing(stage: Stage) -> None:
    pass


def claimed(stage: Stage) -> None:
    stage.ids.claim()


def working(stage: Stage) -> None:
    stage.take(stage.ids.next_id(), stage.ids.next_id())


def at_the_end_of_a_tick(stage: Stage) -> None:
    stage.take(*stage.ids.next_ids(6))


def in_a_new_tick(stage: Stage) -> None:
    working(stage)
    stage.clock.advance(1000)


def in_a_new_range(stage: Stage) -> None:
    """Leave the next tick to the slow path, as at the end of a reservation."""
    in_a_new_tick(stage)
    stage.ids._allocator.seal()


def clock_back(stage: Stage) -> None:
    """Set the clock so that the next id needs the other namespace."""
    working(stage)
    stage.clock.step(-3000)


def clock_back_twice(stage: Stage) -> None:
    """Set the clock so that the next id needs another worker id."""
    clock_back(stage)
    stage.take(stage.ids.next_id())
    stage.clock.step(-3000)


def reservation_over(stage: Stage) -> None:
    """Set the clock so that the next id needs a renewal."""
    stage.clock.step(-29_000)
    working(stage)
    stage.clock.advance(30_500)


def lost(stage: Stage) -> None:
    """Wipe Redis, and have another generator claim the same worker id."""
    working(stage)
    stage.place.wipe()
    rival = stage.place.connect(StageClock(stage.start_ms))
    rival.claim()
    stage.rivals.append(rival)
    stage.lost += 1


def suspended(stage: Stage) -> None:
    working(stage)
    stage.ids.suspend()
    stage.clock.advance(1000)


def next_id(stage: Stage) -> None:
    an_id = stage.ids.next_id()
    stage.returned.append(an_id)
    stage.made.append(an_id)


def next_ids(stage: Stage) -> None:
    batch = stage.ids.next_ids(5)
    stage.returned.extend(batch)
    stage.made.extend(batch)


def fill(stage: Stage) -> None:
    buffer = memoryview(bytearray(8 * 5)).cast("q")
    stage.ids.fill(buffer)
    stage.returned.extend(buffer)
    stage.made.extend(buffer)


def claim(stage: Stage) -> None:
    stage.ids.claim()


def beat(stage: Stage) -> None:
    stage.ids._beat()


def close(stage: Stage) -> None:
    stage.ids.close()


def sigterm(stage: Stage) -> None:
    """Do what close_on_sigterm() does at SIGTERM, in a program whose own handler lets it go on."""
    CloseAtSignal(lambda *_: None)(signal.SIGTERM, None)


def suspend(stage: Stage) -> None:
    stage.ids.suspend()


def suspend_and_resume(stage: Stage) -> None:
    stage.ids.suspend()
    stage.ids.resume()


def become_a_child(stage: Stage) -> None:
    """Reset the generators as a forked child does, whose parent lives on with the lease."""
    stage.rivals.append(stage.place.connect(StageClock(stage.start_ms)))
    guard = stage.ids._context.guard
    # as the kernel does
    guard.is_reset.value = 0
    guard.check()


def resumed(stage: Stage) -> None:
    stage.ids.resume()
    next_id(stage)


def anext_id_here(stage: Stage) -> None:
    """Run a coroutine without a loop: a new tick needs none. Where it has to wait, stop it, as in a forked child."""
    steps = stage.ids.anext_id()
    try:
        steps.send(None)
    except StopIteration as end:
        stage.returned.append(end.value)
        stage.made.append(end.value)
    except RuntimeError as error:
        if "event loop" not in str(error):
            raise
    finally:
        steps.close()


def anext_id_on_a_loop(stage: Stage) -> None:
    async def run() -> None:
        an_id = await stage.ids.anext_id()
        stage.returned.append(an_id)
        stage.made.append(an_id)

    asyncio.run(run())


OPERATIONS: dict[str, Operation] = {
    "claim": Operation(_nothing, claim),
    "first_id": Operation(_nothing, next_id),
    "start_heartbeat": Operation(_nothing, next_id, background=True, threading_too=True),
    "same_tick": Operation(working, next_id),
    "new_tick": Operation(in_a_new_tick, next_id),
    "new_range": Operation(in_a_new_range, next_id),
    "batch": Operation(at_the_end_of_a_tick, next_ids),
    "fill": Operation(at_the_end_of_a_tick, fill),
    "namespace": Operation(clock_back, next_id),
    "hand_over": Operation(clock_back_twice, next_id),
    "renew": Operation(working, beat),
    "renew_in_need": Operation(reservation_over, next_id),
    "lost": Operation(lost, beat),
    "suspend": Operation(working, suspend),
    "resume": Operation(suspended, resumed),
    "reset": Operation(working, become_a_child, forks=False),
    "close": Operation(working, close),
    "close_late": Operation(at_the_end_of_a_tick, close),
    "suspend_late": Operation(at_the_end_of_a_tick, suspend),
    "close_heartbeat": Operation(working, close, background=True, threading_too=True),
    "close_unused": Operation(claimed, close),
    "anext_new_tick": Operation(in_a_new_tick, anext_id_here),
    "anext_new_range": Operation(in_a_new_range, anext_id_here),
    "anext_first": Operation(_nothing, anext_id_on_a_loop, forks=False),
}
