"""The fast path in C and in Python: the same calls at the same clock readings give the same ids and errors."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import weakref
from array import array
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.core.layout import Layout
from snowredis.runtime import fast_path
from snowredis.testing import ManualClock, memory_pool

ROOT = Path(__file__).parents[2]
only_c = pytest.mark.skipif(
    snowredis.IMPLEMENTATION != "c", reason="the C file was not built, or is not wanted"
)

# plays random calls on a clock of tests, and prints what came of each
SCHEDULES = Path(__file__).parent / "programs" / "implementation_schedules.py"


def played(first: int, last: int, *, pure: bool) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SNOWREDIS_PURE"}
    done = subprocess.run(
        [sys.executable, SCHEDULES, str(first), str(last)],
        cwd=ROOT,
        env=environment | ({"SNOWREDIS_PURE": "1"} if pure else {}),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@only_c
@pytest.mark.parametrize("first", range(0, 600, 300))
def test_both_give_the_same_ids_and_errors(first: int) -> None:
    in_c, in_python = (played(first, first + 300, pure=pure) for pure in (False, True))
    assert (in_c[0], in_python[0]) == ("c", "python")
    assert len(in_c) == 301
    for one, other in zip(in_c[1:], in_python[1:], strict=True):
        assert one == other
    # ids, waits, other namespaces and errors did occur
    assert sum("ClockMovedBack" in line for line in in_c) > 10


@only_c
def test_the_public_method_is_the_one_in_c() -> None:
    assert "next_id" not in vars(snowredis.Generator)
    assert type(snowredis.Generator.next_id).__name__ == "method_descriptor"
    assert "0 < id < 2**63" in (snowredis.Generator.next_id.__doc__ or "")


def test_a_block_gives_what_a_range_gives() -> None:
    for low, stop, step in [(0, 0, 1), (5, 6, 1), (0, 100, 7), (3, 1 << 62, 1 << 55)]:
        ids, expected = fast_path.make_ids(low, stop, step), range(low, stop, step)
        assert ids.__length_hint__() == len(expected)  # type: ignore[attr-defined]
        assert list(itertools.islice(ids, 5)) == list(expected[:5])
        again = fast_path.make_ids(low, stop, step)
        for number in (4, 0):
            fast_path.exhaust(ids)
            assert next(ids, None) is None
            # whatever was taken before: an iterator that is told where to go must not go back
            ids, _ = again, list(itertools.islice(again, number))
        assert ids.__length_hint__() == 0  # type: ignore[attr-defined]


@only_c
@pytest.mark.parametrize("arguments", [(), (1, 2), (1, 2, 0), (-1, 2, 1), (1 << 70, 2, 1), ("1", 2, 3)])
def test_a_block_of_nonsense_is_refused(arguments: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        fast_path.make_ids(*arguments)


@only_c
@pytest.mark.parametrize(
    "block",
    [None, (), (1.0, 2.0, iter(()), True), ("1", 2.0, fast_path.make_ids(0, 1, 1), True), [1, 2, 3, 4]],
)
def test_a_window_takes_blocks_only(block: Any) -> None:
    ids = memory_pool().connect()
    first = ids.next_id()
    current = ids._published
    with pytest.raises(TypeError):
        ids._supersede(current, current._replace(block=block))
    with pytest.raises(TypeError):
        ids._supersede(current, None)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        ids._supersede(current, current, memoryview(bytearray(8)), 1, 1)
    assert ids.next_id() > first


def test_only_what_is_current_is_superseded_and_its_ids_are_gone() -> None:
    ids = memory_pool(clock=ManualClock()).connect()
    first = ids.next_id()
    old = ids._published
    read_already = old.block[2]
    marks = memoryview(bytearray(8)).cast("q")
    new, late = (fast_path.Published(fast_path.SEALED, old.state, {}) for _ in range(2))
    assert ids._supersede(old, new, marks, 0, 7)
    assert ids._published is new
    assert next(read_already, None) is None
    assert not ids._supersede(old, late)
    assert not ids._supersede(old, late, marks, 0, 5)
    assert ids._published is new
    assert marks[0] == 7
    assert ids.next_id() > first


def test_a_clock_that_fails_is_heard_of_and_loses_no_id() -> None:
    class Failing(ManualClock):
        broken = False

        def time(self) -> float:
            if self.broken:
                raise OSError("no clock")
            return super().time()

    clock = Failing()
    ids = snowredis.connect(memory_pool(clock=clock), clock=clock)
    first = ids.next_id()
    clock.broken = True
    for call in (ids.next_id, ids.__next__, lambda: ids.next_ids(2), lambda: ids.fill(array("q", [0, 0]))):
        with pytest.raises(OSError, match="no clock"):
            call()
    clock.broken = False
    assert ids.next_id() == first + 1


def test_a_generator_that_is_dropped_leaves_nothing() -> None:
    class Noticed(ManualClock):
        pass

    def make() -> tuple[weakref.ref[Any], weakref.ref[Any]]:
        clock = Noticed()
        ids = snowredis.connect(memory_pool(clock=clock), clock=clock)
        ids.next_ids(100)
        # a cycle through the clock that the fast path holds
        clock.ids = ids  # type: ignore[attr-defined]
        return weakref.ref(ids), weakref.ref(clock)

    refs = make()
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_many_ids_leave_no_memory_behind() -> None:
    import tracemalloc

    ids = snowredis.connect(memory_pool(), layout=Layout(worker_bits=2, sequence_bits=18))
    buffer = array("q", bytes(8_000))

    def work() -> None:
        for _ in range(200):
            ids.next_id()
            ids.next_ids(500)
            ids.fill(buffer)
            next(ids)

    work()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(5):
        work()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
