"""The fast path in C and in Python: the same calls at the same clock readings give the same ids and errors."""

import contextlib
import threading
from array import array
from pathlib import Path
from typing import Any, NoReturn

import pytest

import snowredis
from snowredis.core import lanes
from snowredis.errors import LayoutError
from snowredis.snowflake.ids import pure_path
from snowredis.testing import ManualClock, memory_pool
from tests.lab.interrupts.points import Points
from tests.support.programs import finished

only_c = pytest.mark.skipif(snowredis.IMPLEMENTATION != "c", reason="the C file was not built, or is not wanted")

# plays random calls on a clock of tests, and prints what came of each
SCHEDULES = Path(__file__).parent / "programs" / "implementation_schedules.py"


def played(first: int, last: int, *, pure: bool) -> list[str]:
    done = finished(SCHEDULES, str(first), str(last), timeout_s=100, SNOWREDIS_PURE="1" if pure else "")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@only_c
def test_both_give_the_same_ids_and_errors() -> None:
    in_c, in_python = (played(0, 30, pure=pure) for pure in (False, True))
    assert (in_c[0], in_python[0]) == ("c", "python")
    assert len(in_c) == 31
    for one, other in zip(in_c[1:], in_python[1:], strict=True):
        assert one == other
    # ids, waits, other namespaces and errors did occur
    assert sum("ClockMovedBack" in line for line in in_c) > 5


@only_c
def test_the_public_method_is_the_one_in_c() -> None:
    assert "next_id" not in vars(snowredis.SnowflakeGenerator)
    assert type(snowredis.SnowflakeGenerator.next_id).__name__ == "method_descriptor"
    assert "0 < id < 2**63" in (snowredis.SnowflakeGenerator.next_id.__doc__ or "")


def current(ids: Any) -> tuple[lanes.TickRange, int]:
    """Return the current range and the tick that was opened last."""
    ticks, last_id, _ = ids._position
    return ticks, last_id >> ticks.timestamp_shift


@only_c
@pytest.mark.parametrize(
    "wrong", [{"first_id": 0}, {"tick_ms": 0}, {"limit_ns": "1"}, {"timestamp_shift": 63}, {"sequence_shift": -1}]
)
def test_a_range_of_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    ids = memory_pool().connect()
    first = ids.next_id()
    ticks, tick = current(ids)
    with pytest.raises((TypeError, ValueError)):
        ids._supersede(ticks, tick, ticks._replace(**wrong))
    for not_a_range in (None, (), [1, 2]):
        with pytest.raises(TypeError):
            ids._supersede(ticks, tick, not_a_range)  # type: ignore[arg-type]
    assert ids.next_id() > first


def test_only_what_is_current_is_superseded_and_its_ids_are_gone() -> None:
    clock = ManualClock()
    ids = memory_pool(clock=clock).connect()
    first = ids.next_id()
    ticks, tick = current(ids)
    next_tick = (tick + 1 << ticks.timestamp_shift) | ticks.low
    new = ticks._replace(first_id=next_tick)
    late = ticks._replace(first_id=next_tick + (1 << ticks.timestamp_shift))
    assert not ids._supersede(ticks, tick - 1, late)
    assert ids._supersede(ticks, tick, new)
    assert ids._position[:2] == (new, next_tick)
    assert not ids._supersede(ticks, tick, late)
    # the clock shows the tick before: neither range has ids for it
    assert ids._id_now() == 0
    clock.advance(1)
    assert ids.next_id() == next_tick + 1 > first
    # opened by the fast path
    clock.advance(2)
    assert ids.decode(ids.next_id()).tick == tick + 3
    assert ids._position[0] is new


class PurePath(pure_path.PureFastPath):
    __slots__ = ("_lock",)


class Interrupted(BaseException):
    """Raised by a signal handler."""


def test_whoever_reads_what_is_current_leaves_no_ids_of_the_tick_before() -> None:
    """A handler seals, or forks, in the middle of the opening of a tick, and raises: the opening does not end.

    The frame below, which took the tick before for the clock's, goes on if a finalizer was between the two.
    """
    opened, at, fired = 0, 0, True
    clock = ManualClock()
    ticks, _, _ = memory_pool(clock=clock).connect()._position
    tick = clock.time_ns() // 1_000_000 - ticks.epoch_ms
    first = ticks._replace(first_id=tick << ticks.timestamp_shift | 1, limit_ns=1 << 62, is_reset=b"\1", clock=clock)
    while fired:
        path = PurePath()
        path._lock = threading.RLock()
        path._supersede(None, lanes.SEALED, first)
        before, ids = path._current, path._block[2]

        def handler(path: PurePath = path) -> NoReturn:
            _ = path._position
            raise Interrupted

        clock.advance(1)
        with contextlib.suppress(Interrupted), Points({at: handler}) as points:
            path._id_now()
        clock.step(-1)
        if path._current is not before:
            opened += 1
            assert list(ids) == [], points.fired
        at, fired = at + 1, bool(points.fired)
    assert opened > 10


@pytest.mark.parametrize("locked", [False, True])
def test_a_sealed_path_in_python_gives_no_id(monkeypatch: pytest.MonkeyPatch, locked: bool) -> None:
    monkeypatch.setattr(pure_path, "FREE_THREADED", locked)
    path, sealed = PurePath(), memory_pool().connect()._position[0]
    path._lock = threading.RLock()
    assert path._supersede(None, lanes.SEALED, sealed)
    assert (path._id_now(), path._take_now(3)) == (0, [])


class ClockThatShows(ManualClock):
    """A clock that shows any time, or raises an error, instead of the right time."""

    shown: int | OSError | None = None

    def time_ns(self) -> int:
        if isinstance(self.shown, OSError):
            raise self.shown
        return super().time_ns() if self.shown is None else self.shown


def test_a_clock_that_fails_is_heard_of_and_loses_no_id() -> None:
    clock = ClockThatShows()
    ids = snowredis.connect(memory_pool(clock=clock), clock=clock)
    first = ids.next_id()
    clock.shown = OSError("no clock")
    for call in (ids.next_id, ids.__next__, lambda: ids.next_ids(2), lambda: ids.fill(array("q", [0, 0]))):
        with pytest.raises(OSError, match="no clock"):
            call()
    clock.shown = None
    assert ids.next_id() == first + 1


@pytest.mark.parametrize(
    "now_ns", [-(1 << 63), -8_300_000_000 * 10**9, -1, (1 << 63) - 1, 1 << 63, 1 << 80, -(1 << 80)]
)
def test_a_clock_of_any_time_makes_no_id_out_of_the_range(now_ns: int) -> None:
    clock = ClockThatShows()
    ids = snowredis.connect(memory_pool(clock=clock), clock=clock)
    first = ids.next_id()
    clock.shown = now_ns
    for call in (ids.next_id, lambda: ids.next_ids(2), lambda: ids.fill(array("q", [0, 0]))):
        with pytest.raises(LayoutError, match="the clock of this host shows a time"):
            call()
    assert (ids._id_now(), ids._take_now(2), ids.ids_made) == (0, [], 1)
    clock.shown = None
    assert ids.next_id() == first + 1
