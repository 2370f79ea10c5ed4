"""The numbers of a segment are taken one after the other, and a segment is replaced once."""

from __future__ import annotations

import threading
from array import array
from typing import Any

import pytest

from snowredis.numbers.path import Segment, SegmentPath
from snowredis.process.fork import ForkGuard


class Slow(Exception):
    """The slow path was called."""


class Path(SegmentPath):
    def __init__(self) -> None:
        super().__init__()
        self._lock, self._guard = threading.RLock(), ForkGuard()

    def _next_slow(self) -> int:
        raise Slow


# what is not part of the path
Path.__abstractmethods__ = frozenset()


@pytest.fixture
def path() -> Any:
    return Path()  # type: ignore[abstract]


def publish(path: Any, numbers: range) -> Segment:
    new = Segment(0, numbers)
    assert path._supersede(path._position[0], new)
    return new


def test_numbers_come_one_after_the_other_and_then_the_slow_path_is_asked(path: Any) -> None:
    with pytest.raises(Slow):
        path.next_id()
    published = publish(path, range(2**63 - 5, 2**63 + 1, 2))
    assert [path.next_id(), next(path), path.next_id()] == [2**63 - 5, 2**63 - 3, 2**63 - 1]
    assert path._position == (published, 0, 3)
    with pytest.raises(Slow):
        path.next_id()
    publish(path, range(2))
    assert list(iter(path.next_id, 1)) == [0]
    assert path._position[1:] == (0, 5)


def test_batches_take_what_is_there(path: Any) -> None:
    publish(path, range(10, 28, 3))
    assert path._take_now(2) == [10, 13]
    buffer = array("q", [0] * 5)
    assert path._fill_now(memoryview(buffer)) == 4
    assert list(buffer) == [16, 19, 22, 25, 0]
    assert path._take_now(1) == []
    assert path._fill_now(memoryview(buffer)) == 0
    assert path._take_now(0) == []


def test_a_segment_is_replaced_once_and_its_numbers_are_gone(path: Any) -> None:
    old = publish(path, range(1, 11))
    assert path.next_id() == 1
    new = Segment(0, range(100, 105))
    assert path._supersede(old, new)
    assert not path._supersede(old, Segment(0, range(200, 205)))
    assert path._position == (new, 5, 1)
    assert path._take_now(9) == [100, 101, 102, 103, 104]


def test_a_forked_child_takes_nothing(path: Any) -> None:
    publish(path, range(1, 11))
    assert path.next_id() == 1
    # the truth value of a ctypes object counts, which changes in the child
    path._block = (path._block[0], b"")
    assert path._take_now(5) == []
    with pytest.raises(Slow):
        path.next_id()


def test_threads_share_numbers_while_segments_are_replaced(path: Any) -> None:
    taken: list[list[int]] = [[] for _ in range(4)]
    done = threading.Event()

    def take(mine: list[int]) -> None:
        while not done.is_set():
            mine += path._take_now(3)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for start in range(0, 300_000, 1000):
        with path._lock:
            publish(path, range(start, start + 700))
    done.set()
    for thread in threads:
        thread.join()
    numbers = [number for mine in taken for number in mine]
    assert len(numbers) == len(set(numbers))
    assert all(number % 1000 < 700 for number in numbers)
