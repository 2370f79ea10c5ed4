"""Whatever comes between two bytecodes of a call, a signal handler, another thread or a fork, no number comes twice."""

import contextlib
import ctypes
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from snowredis.numbers import DatedGenerator, SegmentGenerator, create_tag
from snowredis.numbers.segments import open_generator
from snowredis.testing import memory_pool
from tests.lab.interrupts.points import NUMBERS, ROOMS, Points, stop_watching
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

# more than any of the calls has
MOST_BYTECODES = 4_000


def interrupted(
    number: int, action: Callable[[], object], call: Callable[[], Any], rooms: tuple[str, ...] = NUMBERS
) -> tuple[Any, bool]:
    """Return what *call* returns, with *action* where a signal handler may run first, from bytecode *number* on.

    Also whether there is such a place.
    """
    acted = False

    def act() -> None:
        nonlocal acted
        if points.signal and not acted:
            acted = True
            action()

    # a place is never so far
    points = Points(dict.fromkeys(range(number, number + 50), act), rooms=rooms)
    with points:
        value = call()
    return value, acted


def anywhere(step: int, interrupt: Callable[[int], bool]) -> None:
    """Interrupt a call at bytecodes that are *step* apart, until there is no such place."""
    for number in range(1, MOST_BYTECODES, step):
        if not interrupt(number):
            # the shortest call has 55 bytecodes in Python 3.11, and fewer in 3.14
            assert number > 20
            return
    raise AssertionError("the call does not end")


def at_the_end_of_a_part(url: Any, tag: str, parts: int) -> tuple[SegmentGenerator, list[int]]:
    """Return a generator of segments of 4 whose next number is in the next part, and the numbers it made."""
    ids = open_generator(url, tag=tag, step=4, max_step=4)
    # the first part of a segment has one number, the second one three
    made = ids.next_ids(1 if parts == 1 else 4)
    if parts == 2:
        eventually(lambda: ids._buffer.ready)
    return ids, made


@pytest.fixture(autouse=True, scope="module")
def full_speed_afterwards() -> Iterator[None]:
    yield
    stop_watching()


@pytest.mark.parametrize(("parts", "count"), [(1, 1), (2, 1), (2, 6)])
@pytest.mark.parametrize("kind", ["handler", "thread", "suspend"])
def test_a_call_that_is_interrupted_anywhere(kind: str, parts: int, count: int) -> None:
    def interrupt(number: int) -> bool:
        ids, made = at_the_end_of_a_part(memory_pool(), "t", parts)
        threads: list[threading.Thread] = []
        # after a suspension, what a clone of the process makes
        fresh_from = 1

        def act() -> None:
            nonlocal fresh_from
            if kind == "handler":
                made.extend([ids.next_id(), ids.next_id(), *ids.next_ids(4)])
            elif kind == "thread":
                # it may have to wait for a lock that the interrupted call holds
                thread = threading.Thread(target=lambda: made.extend([ids.next_id(), *ids.next_ids(4)]))
                thread.start()
                thread.join(0.002)
                threads.append(thread)
            else:
                ids.suspend()
                fresh_from = ids._masters.all[0].seen[""]
                ids.resume()

        mine, reached = interrupted(number, act, lambda: [ids.next_id()] if count == 1 else ids.next_ids(count))
        for thread in threads:
            thread.join(10)
        later = ids.next_ids(9)
        everything = [*made, *mine, *later]
        ids.close()
        assert len(set(everything)) == len(everything), number
        assert min(later) >= fresh_from, number
        return reached

    anywhere(3 if count == 1 else 17, interrupt)


@contextlib.contextmanager
def ended_child(pids: list[int]) -> Iterator[None]:
    """End the child of a fork in the block, which has [0] as *pids*, also after an error: it goes on with no test."""
    try:
        yield
    except BaseException:
        if pids == [0]:
            traceback.print_exc()
        raise
    finally:
        if pids == [0]:
            os._exit(0)


# the steps have no factor in common with what the call repeats
@pytest.mark.parametrize(
    ("kind", "action", "step"),
    [("segment", "fork", 11), ("segment", "libc-fork", 13), ("dated", "fork", 19), ("dated", "handler", 7)],
)
def test_a_call_that_a_fork_or_a_handler_interrupts_anywhere(
    server: RedisServer, kind: str, action: str, step: int
) -> None:
    tag = f"{kind}-{action}-anywhere"
    create_tag(server.url, tag, **{"period": "year"} if kind == "dated" else {})
    everything: list[str] = []

    def interrupt(number: int) -> bool:
        ids: Any = DatedGenerator(tag, server.url, period="year") if kind == "dated" else None
        ids, made = (ids, [ids.next_id()]) if ids else at_the_end_of_a_part(server.url, tag, 2)
        reader, writer = os.pipe()
        pids: list[int] = []

        def act() -> None:
            if action == "handler":
                made.extend([ids.next_id(), *ids.next_ids(2)])
            else:
                # the one of libc bypasses Python's hooks
                pids.append(os.fork() if action == "fork" else ctypes.PyDLL(None).fork())

        with ended_child(pids):
            mine, reached = interrupted(number, act, ids.next_id)
            numbers = [str(each) for each in (mine, *ids.next_ids(4), ids.next_id())]
            if pids == [0]:
                os.write(writer, " ".join(numbers).encode())
        os.close(writer)
        with os.fdopen(reader) as pipe:
            of_child = pipe.read().split()
        for pid in pids:
            os.waitpid(pid, 0)
        assert len(of_child) == 6 * len(pids), number
        everything.extend([*map(str, made), *numbers, *of_child])
        ids.close()
        return reached

    anywhere(step, interrupt)
    assert len(set(everything)) == len(everything) > 50


def test_no_lock_stays_held_when_a_signal_handler_raises() -> None:
    with open_generator(memory_pool(), tag="t") as ids, ThreadPoolExecutor(1) as other:

        def is_free() -> bool:
            acquired = ids._lock.acquire(blocking=False)
            if acquired:
                ids._lock.release()
            return acquired

        def interrupt(number: int) -> bool:
            with contextlib.suppress(ZeroDivisionError):
                return interrupted(number, lambda: 1 / 0, ids.resume, ROOMS + NUMBERS)[1]
            assert other.submit(is_free).result(), number
            return True

        anywhere(1, interrupt)
