"""The fleet of `snowredis demo` and `snowredis gameday`: processes that make ids, and the check of these ids.

Each process runs this file, as ``python -m snowredis.cli.fleet POOL TTL_S DURABILITY ERRORS RATE PATH LABEL``, with
SNOWREDIS_URL. It ends at the end of stdin, so that it does not outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from snowredis.cli.exit_codes import CommandError, ExitCode, uninterrupted
from snowredis.process.clock import SYSTEM, SystemClock

if TYPE_CHECKING:
    from snowredis.monitor.lease import Lease

_ID_BYTES = 8
# processes end within a few round trips to Redis, which may be away
_STOP_TIMEOUT_S = 20.0
# between two looks at the processes, or at their pool
_READ_EVERY_S = 0.1


@dataclass(slots=True, eq=False)
class Process:
    """One process of a fleet.

    Attributes:
        path: the file of its ids; its log is beside it.
        started_s: when it was started, in s since 1970.
        worker: the worker id that the pool listed for it last; -1: none yet.
        record: the newest record of it in the pool; None if another process has its worker id by now.
    """

    process: subprocess.Popen[bytes]
    path: Path
    started_s: float = field(default_factory=time.time)
    worker: int = -1
    record: Lease | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def count(self) -> int:
        """Number of ids in its file."""
        return self.path.stat().st_size // _ID_BYTES

    @property
    def ids(self) -> Sequence[int]:
        """The ids in its file, without one at the end that was written in part."""
        return _int64s(self.path)

    @property
    def log(self) -> str:
        """Text that it wrote to stderr."""
        return self.path.with_suffix(".log").read_text("utf-8", "replace").strip()

    @property
    def namespace(self) -> int:
        return self.record.namespace if self.record else 0

    def step_clock(self, ms: int) -> None:
        """Step its clock by *ms*."""
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(f"{ms}\n".encode())
                self.process.stdin.flush()


class Fleet:
    """Processes that make ids.

    Args:
        directory: for the files of their ids.
        url: of their Redis.
        settings: POOL TTL_S DURABILITY ERRORS RATE of each, as make_ids() takes them.

    Attributes:
        processes: in the order in which they were started.
    """

    def __init__(self, directory: Path, url: str, *settings: object) -> None:
        self._directory, self._url, self._settings = directory, url, settings
        self.processes: list[Process] = []

    def start(self, label: str) -> Process:
        """Start one more process. Does not wait for its worker id."""
        path = self._directory / str(len(self.processes) + 1)
        path.touch()
        # the same packages as in this process, and none from the current directory
        packages = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        arguments = map(str, (*self._settings, path, label))
        with path.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "snowredis.cli.fleet", *arguments],
                stdin=subprocess.PIPE,
                stderr=log,
                # a URL may have a password, which all users of this machine would see among the arguments
                env=os.environ | {"PYTHONPATH": packages, "SNOWREDIS_URL": self._url},
                # Ctrl-C at the terminal goes to this process only, which then stops the others in order
                start_new_session=True,
            )
        self.processes.append(Process(process, path))
        return self.processes[-1]

    def close(self) -> None:
        """End all processes by the end of their stdin, as SIGTERM does; kill those that live after 20 s."""
        with uninterrupted():
            for each in self.processes:
                if each.process.stdin:
                    with contextlib.suppress(BrokenPipeError):
                        each.process.stdin.close()
            deadline_s = time.monotonic() + _STOP_TIMEOUT_S
            for each in self.processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    each.process.wait(max(0.0, deadline_s - time.monotonic()))
                each.process.kill()
                each.process.wait()

    def check(self) -> Checked:
        """Compare all ids of all processes."""
        return check([each.path for each in self.processes])


def wait_until(
    done: Callable[[], bool],
    meanwhile: Callable[[], object] = lambda: None,
    limit_s: float = math.inf,
    failure: str = "",
    code: ExitCode = ExitCode.ERROR,
) -> None:
    """Wait until *done* returns True, and call *meanwhile* again and again.

    Raises CommandError with *failure* and *code* after *limit_s*.
    """
    end_s = time.monotonic() + limit_s
    meanwhile()
    while not done():
        if time.monotonic() >= end_s:
            raise CommandError(code, f"{failure} within {limit_s:.0f} s")
        time.sleep(_READ_EVERY_S)
        meanwhile()


# --- the check: it trusts nothing of the library -------------------------------------------------------


class Checked(NamedTuple):
    """Result of check().

    Attributes:
        ids: how many ids there are.
        duplicates: how many of them repeat another.
    """

    ids: int
    duplicates: int


def check(files: Sequence[Path]) -> Checked:
    """Compare all ids of all *files*. An id at the end of a file that was written in part does not count."""
    written = [_int64s(path) for path in files]
    return Checked(sum(map(len, written)), sum(1 for _ in _repeated(written)))


def _int64s(path: Path) -> Sequence[int]:
    data = path.read_bytes()
    return memoryview(data)[: len(data) // _ID_BYTES * _ID_BYTES].cast("q")


def _repeated(sources: list[Sequence[int]]) -> Iterator[int]:
    """Yield every id that is equal to an earlier one of all *sources*."""
    growing = (ids if all(starmap(operator.le, pairwise(ids))) else sorted(ids) for ids in sources)
    return (second for first, second in pairwise(heapq.merge(*growing)) if first == second)


# --- in the processes ---------------------------------------------------------------------------------

# often enough for a number that moves smoothly on the screen, at little CPU
_BATCHES_PER_S = 50


class StepClock(SystemClock):
    """The clocks of the operating system, with a wall clock that can be set."""

    def __init__(self) -> None:
        self._offset_ns = 0

    def step(self, ms: int) -> None:
        """Move the wall clock forward by *ms*, or back if negative."""
        self._offset_ns += ms * 1_000_000

    def time_ns(self) -> int:
        return SYSTEM.time_ns() + self._offset_ns


def make_ids(pool: str, ttl_s: str, durability: Any, errors: str, rate: str, path: str, label: str) -> None:
    """Make *rate* ids a second and write them to the file *path*, until SIGTERM or the end of stdin.

    Each line of stdin says by how many ms to step the clock of this process.

    Args:
        errors: "raise": an error of snowredis ends the process; "ignore": it goes on to ask for ids.
    """
    import snowredis

    clock, ignored = StepClock(), (snowredis.SnowredisError,) if errors == "ignore" else ()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    # Ctrl-C is handled by the process that started this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_obey, args=(clock,), daemon=True).start()
    batch = array("q", bytes(_ID_BYTES * max(1, int(rate) // _BATCHES_PER_S)))
    # the generator claims at its first id: while Redis is unavailable, entering it would raise
    ids = snowredis.connect(pool=pool, ttl=float(ttl_s), durability=durability, label=label, clock=clock)
    # without a buffer: kill -9 loses nothing that was written
    with contextlib.closing(ids), Path(path).open("ab", buffering=0) as file:
        next_s = time.monotonic()
        while True:
            with contextlib.suppress(*ignored):
                ids.fill(batch)
                left = memoryview(batch).cast("B")
                while left:
                    left = left[file.write(left) or 0 :]
            # a process that was delayed does not catch up in one burst
            next_s = max(next_s + 1 / _BATCHES_PER_S, time.monotonic() - 1)
            time.sleep(max(0.0, next_s - time.monotonic()))


def _obey(clock: StepClock) -> None:
    for line in sys.stdin:
        clock.step(int(line))
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    make_ids(*sys.argv[1:])
