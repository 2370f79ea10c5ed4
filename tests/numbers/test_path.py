"""The numbers of a segment are taken one after the other, and a segment is replaced once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from snowredis.numbers.path import Segment, SegmentPath
from snowredis.process.fork import ForkGuard


class Path(SegmentPath):
    def __init__(self) -> None:
        super().__init__()
        self._lock, self._guard = threading.RLock(), ForkGuard()

    def _next_slow(self) -> int:
        raise LookupError


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
    with pytest.raises(LookupError):
        path.next_id()
    published = publish(path, range(2**63 - 5, 2**63 + 1, 2))
    assert [path.next_id(), next(path), path.next_id()] == [2**63 - 5, 2**63 - 3, 2**63 - 1]
    assert path._position == (published, 0, 3)
    with pytest.raises(LookupError):
        path.next_id()
    publish(path, range(2))
    assert list(iter(path.next_id, 1)) == [0]
    assert path._position[1:] == (0, 5)


def test_a_segment_is_replaced_once_and_its_numbers_are_gone(path: Any) -> None:
    old = publish(path, range(1, 11))
    assert path.next_id() == 1
    new = Segment(0, range(100, 105))
    assert path._supersede(old, new)
    assert not path._supersede(old, Segment(0, range(200, 205)))
    assert path._position == (new, 5, 1)
    assert path._take_now(9) == [100, 101, 102, 103, 104]
