"""Mistakes of the C extension other than wrong ids: leaks, state shared by interpreters, silent failures to load."""

import gc
import importlib.machinery
import logging
import subprocess
import sys
import tracemalloc
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.core import lanes
from snowredis.errors import ClockMovedBack
from snowredis.process.fork import GUARD
from snowredis.snowflake.ids import fast_path
from snowredis.testing import ManualClock, memory_pool
from tests.snowflake.ids.test_implementations import ClockThatShows
from tests.support.programs import finished


def run(program: str, *arguments: str, pure: str = "") -> subprocess.CompletedProcess[str]:
    program = f"tests.snowflake.ids.programs.{program}"
    return finished("-m", program, *arguments, forked=False, SNOWREDIS_PURE=pure)


# --- leaks -----------------------------------------------------------------------------------------


def use_everything() -> None:
    """Call every function of the fast path, with blocks that are published, sealed, collected and refused."""
    clock = ManualClock()
    pool = memory_pool(clock=clock)
    ids, other = pool.connect(), snowredis.connect(memory_pool())
    buffer = array("q", bytes(8 * 40))
    for _ in range(20):
        ids.next_id(), next(ids), ids.next_ids(30), other.next_ids(3), other.next_id()
        ids.fill(buffer)
        ids._id_now(), ids._take_now(5), ids._fill_now(memoryview(buffer))
        clock.advance(1)
    clock.step(-60_000)
    ids.next_id()
    ticks, last_id, _ = ids._position
    tick = last_id >> ticks.timestamp_shift
    for wrong in ("now", (1, 2)):
        if fast_path.IMPLEMENTATION == "c":
            with pytest.raises(TypeError):
                ids._supersede(ticks, tick, ticks._replace(limit_ns=wrong))  # type: ignore[arg-type]
    assert ids._supersede(ticks, tick, ticks._replace(first_id=last_id + 1))
    assert not ids._supersede(ticks, tick, ticks._replace(state=None))
    clock.step(60_001)
    ids.next_id()
    ids.close()
    other.close()


def fail_in_the_clock() -> None:
    clock = ClockThatShows()
    ids = memory_pool(clock=clock).connect()
    ids.next_id()
    clock.shown = OSError("no clock")
    for call in (ids.next_id, ids._id_now, lambda: ids._take_now(3), lambda: next(ids)):
        with pytest.raises(OSError, match="no clock"):
            call()
    clock.shown = None
    ids.close()


def drop_a_cycle() -> None:
    clock = ManualClock()
    ids = memory_pool(clock=clock).connect()
    ids.next_id()
    clock.ids = ids  # type: ignore[attr-defined]


@pytest.mark.parametrize("work", [use_everything, fail_in_the_clock, drop_a_cycle])
def test_nothing_is_left_of_generators_that_are_gone(
    work: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    # pytest keeps what is logged
    caplog.set_level(logging.CRITICAL, "snowredis")
    watched: list[Any] = [fast_path.FastPath, lanes.TickRange, GUARD.is_reset]
    watched += [None, snowredis.SnowflakeGenerator, ClockMovedBack]

    def counts() -> tuple[list[int], int]:
        gc.collect()
        # caches come and go: what grows with each round is a leak
        return [sys.getrefcount(thing) for thing in watched], len(gc.get_objects())

    # weak sets keep up to fifty objects for a while: with more rounds than that, one object a round shows
    rounds = 100
    for _ in range(3):
        work()
    tracemalloc.start()
    try:
        before, objects = counts()
        # what a cache takes comes once; the smallest object of a block has 40 bytes, and each round makes hundreds
        for _ in range(3):
            bytes_before = tracemalloc.get_traced_memory()[0]
            for _ in range(rounds):
                work()
            after, objects_after = counts()
            grown, more_objects = tracemalloc.get_traced_memory()[0] - bytes_before, objects_after - objects
            immortal = sys.version_info >= (3, 12)
            leaked = [
                (thing, more - less)
                for thing, less, more in zip(watched, before, after, strict=True)
                if more - less >= rounds and not (immortal and thing is None)
            ]
            if not leaked and more_objects < rounds and grown < 40 * 25 * rounds:
                break
            before, objects = after, objects_after
    finally:
        tracemalloc.stop()
    assert leaked == []
    assert more_objects < rounds
    assert grown < 40 * 25 * rounds


# --- loading ---------------------------------------------------------------------------------------


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="before Python 3.12, interpreters of a process share one GIL and their types"
)
def test_each_interpreter_has_a_fast_path_of_its_own() -> None:
    done = run("interpreters")
    assert done.returncode == 0, done.stderr
    found = [line.split() for line in done.stdout.splitlines()]
    assert [implementation for implementation, _ in found] == [snowredis.IMPLEMENTATION] * 3
    main, *others = [identity for _, identity in found]
    if snowredis.IMPLEMENTATION == "c":
        assert main not in others


@pytest.mark.parametrize("pure", ["", "1"])
@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (importlib.machinery.EXTENSION_SUFFIXES[0], "not a shared object"),
        # as from a build with the GIL where there is none
        (".py", "raise SystemError('init function returned uninitialized object')"),
    ],
)
def test_a_build_that_does_not_load_is_reported_and_ids_are_made_in_python(
    tmp_path: Path, suffix: str, content: str, pure: str
) -> None:
    name = "snowredis.snowflake.ids._fastpath"
    (tmp_path / f"_fastpath{suffix}").write_text(content)
    done = run("extension_of_a_directory", str(tmp_path), pure=pure)
    assert (done.returncode, done.stdout) == (0, "python True\n"), done.stderr
    assert (f"RuntimeWarning: {name} was built but does not load" in done.stderr) == (not pure)
    if pure:
        assert done.stderr == ""


def test_a_build_that_is_missing_is_no_news(tmp_path: Path) -> None:
    done = run("extension_of_a_directory", str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "python True\n", "")
