"""`demo`: watch a fleet make ids while things go wrong; at the end all ids are checked.

A private Redis and processes of fleet.py run in a temporary directory. What the demo shows is read from the
pool, as by any other command. Each step waits for its precondition, does one thing, and logs what was observed.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import ExitCode, interrupted_by_signals, uninterrupted
from snowredis.cli.fleet import Checked, Fleet, Process
from snowredis.cli.options import Command
from snowredis.cli.output import Line, pairs, printable, write
from snowredis.core.values import duration

if TYPE_CHECKING:
    from snowredis.embedded import Server
    from snowredis.monitor.lease import Lease
    from snowredis.monitor.pool import PoolInfo
    from snowredis.worker_pool import WorkerPool

_SECONDS, _WORKERS = 20.0, 5


def run(_args: argparse.Namespace, length_s: float = _SECONDS, workers: int = _WORKERS) -> int:
    """Play a demo of *length_s*, 5 or more: in a shorter one a dead worker's lease does not end in time."""
    from snowredis.embedded import find_server
    from snowredis.snowflake.protocol.pool_config import PoolConfig
    from snowredis.worker_pool import WorkerPool

    began_s = time.monotonic()
    with (
        interrupted_by_signals(),
        _server() as (server, directory),
        contextlib.closing(WorkerPool(server.url, _POOL)) as pool,
    ):
        demo = Demo(pool, directory, length_s, workers, began_s)
        # this server is new, so no worker has to wait for a floor
        config = PoolConfig(name=_POOL, ttl_ms=round(demo.ttl_s * 1000))
        pool.create(config)
        write([[("snowredis demo", "strong"), (f"  on its own {' '.join(find_server())}", "dim")]])
        with contextlib.closing(demo.fleet):
            demo.play()
            verdict = demo.fleet.check()
        write([[], *verdict_lines(demo, verdict)])
    return ExitCode.OK if verdict.good and not demo.failed else ExitCode.ERROR


_POOL = "demo"
# ids per second of the whole fleet: 40 MB of files in 20 s
_FLEET_RATE = 250_000


@contextlib.contextmanager
def _server() -> Iterator[tuple[Server, Path]]:
    """Start a private Redis in a temporary directory; stop it and remove the directory at the end."""
    import tempfile

    from snowredis import embedded

    directory = Path(tempfile.mkdtemp(prefix="snowredis-"))
    try:
        # its lock is beside it
        yield embedded.start(directory / "redis"), directory
    finally:
        with uninterrupted():
            embedded.stop(directory / "redis")
            shutil.rmtree(directory, ignore_errors=True)


# --- the steps --------------------------------------------------------------------------------------

# time between two reads of Redis
_READ_EVERY_S = 0.15
# how long processes that all start at once may take on two cores
_START_TIMEOUT_S = 20.0
# how long steps may take that need milliseconds on an idle machine
_STEP_TIMEOUT_S = 5.0
# earliest time of each step, as a part of the demo's length; a step also waits for those before it
_KILL_AT, _STEP_CLOCK_AT = 0.25, 0.36
# the rest is for stopping the processes and checking their ids
_END_AT = 0.91
# far more than a generator waits for
_CLOCK_STEP_MS = -1000


class Demo:
    """The fleet, what the pool says of it, and the log.

    Args:
        size: of the fleet.

    Attributes:
        info, leases: the newest reading.
        failed: True if a process ended by itself, or did not release its worker id.
        making_s: times of the first and of the last ids, from the start.
    """

    def __init__(self, pool: WorkerPool, directory: Path, length_s: float, size: int, began_s: float) -> None:
        self._pool, self.length_s, self._size, self._began_s = pool, length_s, size, began_s
        # short enough to see a dead worker's lease end
        self.ttl_s = min(4.0, length_s / 5)
        self.fleet = Fleet(directory, pool.where, _POOL, self.ttl_s, "detect", "raise", _FLEET_RATE // max(1, size))
        self.processes = self.fleet.processes
        self.info: PoolInfo | None = None
        self.leases: list[Lease] = []
        self.failed = False
        self.making_s = (0.0, 0.0)

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    def log(self, text: str, style: str = "") -> None:
        write([[(f"{self.now_s:6.1f} s  ", "dim"), (text, style)]])

    def play(self) -> None:
        """Play all steps. Blocks for about the length of the demo."""
        able = self._start_fleet()
        if len(able) > 1:
            victim, stepped = able[len(able) // 2], able[-1] if len(able) > 2 else able[0]
            self._wait(self.length_s * _KILL_AT - self.now_s)
            killed_s = self._kill(victim)
            self._wait(self.length_s * _STEP_CLOCK_AT - self.now_s)
            self._step_clock(stepped)
            self._replace(victim, killed_s)
        self._wait(self.length_s * _END_AT - self.now_s)
        self._end()
        self.log("checking every id")

    def _wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until *until* returns True, at most *seconds*; read the pool meanwhile."""
        deadline_s = self.now_s + seconds
        while True:
            self._read()
            if until() or self.now_s >= deadline_s:
                return
            time.sleep(min(_READ_EVERY_S, max(0.0, deadline_s - self.now_s)))

    def _read(self) -> None:
        self.info, self.leases = self._pool.info(), self._pool.workers(alive_only=False)
        records = {lease.pid: lease for lease in self.leases}
        for each in self.processes:
            each.record = record = records.get(each.pid)
            if record is not None and record.worker not in each.workers:
                if each.workers:
                    self.log(f"pid {each.pid} goes on with worker id {record.worker}", "warn")
                each.workers.append(record.worker)
            if not each.stopped and (code := each.process.poll()) is not None:
                self.failed = each.stopped = True
                reason = printable(each.log.rpartition("\n")[2], 200)
                self.log(f"pid {each.pid} ended by itself (exit code {code}): {reason}", "bad")

    def _start_one(self) -> Process:
        return self.fleet.start(f"demo {len(self.processes) + 1}")

    def _start_fleet(self) -> list[Process]:
        """Start the processes; return those that got a worker id, sorted by worker id."""
        fleet = [self._start_one() for _ in range(self._size)]
        self.log(f"{self._size} processes start; leases last {duration(self.ttl_s * 1000)}")
        self._wait(_START_TIMEOUT_S, lambda: any(each.workers for each in fleet))
        self.making_s = (self.now_s, self.now_s)
        self._wait(_START_TIMEOUT_S, lambda: all(each.workers or each.stopped for each in fleet))
        able = sorted((each for each in fleet if each.workers), key=lambda each: each.workers[0])
        if able:
            self.log(f"they claimed worker ids {', '.join(str(each.workers[0]) for each in able)}")
        self.failed = self.failed or not able
        return [each for each in able if not each.stopped]

    def _kill(self, victim: Process) -> float:
        left_ms = victim.record.end_ms - self.info.now_ms if victim.record and self.info else 0
        victim.stopped = True
        victim.process.kill()
        self.log(
            f"kill -9 worker {victim.workers[-1]} (pid {victim.pid}), whose lease would end in {duration(left_ms)}",
            "bad",
        )
        return self.now_s

    def _step_clock(self, process: Process) -> None:
        before = process.namespace
        # no ids have times before the pool began
        self._wait(
            _STEP_TIMEOUT_S,
            lambda: self.info is not None and self.info.now_ms - self.info.created_ms > 1.5 * -_CLOCK_STEP_MS,
        )
        process.step_clock(_CLOCK_STEP_MS)
        self.log(f"clock of worker {process.workers[-1]} set back by {duration(-_CLOCK_STEP_MS)}", "warn")
        self._wait(_STEP_TIMEOUT_S, lambda: process.namespace != before)
        if process.namespace != before:
            self.log(f"it goes on in namespace {process.namespace}, where no id was made yet", "note")
        else:
            self.log(f"it is still in namespace {before}", "warn")

    def _replace(self, victim: Process, killed_s: float) -> None:
        freed = victim.workers[-1]
        self._wait(
            2 * self.ttl_s + _STEP_TIMEOUT_S,
            lambda: victim.record is None or victim.record.state in ("expired", "released"),
        )
        after = duration((self.now_s - killed_s) * 1000)
        expired = victim.record is not None and victim.record.state == "expired"
        why = "its lease ended" if expired else "another process released it"
        self.log(f"worker id {freed} is available again, {after} after the kill: {why}", "good")
        newcomer = self._start_one()
        self.log(f"a new process starts (pid {newcomer.pid})")
        self._wait(_START_TIMEOUT_S, lambda: bool(newcomer.workers) or newcomer.stopped)
        if newcomer.workers:
            self.log(f"it claimed worker id {newcomer.workers[0]}", "good")

    def _end(self) -> None:
        self.making_s = (self.making_s[0], self.now_s)
        ending = self.fleet.terminate()
        self.log(f"SIGTERM to all {len(ending)}: they end and release their worker ids")
        self._wait(_STEP_TIMEOUT_S, lambda: all(each.process.poll() is not None for each in ending))
        self._wait(0)
        used = self.info.used if self.info else 0
        self.failed = self.failed or used > 0
        self.log(f"{used} worker ids are still leased" if used else "no worker id is leased any more")


# --- what is shown ----------------------------------------------------------------------------------


def verdict_lines(demo: Demo, verdict: Checked) -> list[Line]:
    """Return the result of the check of the ids, and how fast they were made."""
    made_s = demo.making_s[1] - demo.making_s[0]
    rate = round(verdict.ids / made_s) if made_s > 0 else 0
    held = {worker for process in demo.processes for worker in process.workers}
    by = f" by {len(demo.processes)} processes on {len(held)} worker ids"
    wrong = _count(verdict.wrong_workers, "every id decodes to the worker id of its process")
    rows: list[tuple[str, str | Line]] = [
        ("ids", [(f"{verdict.ids:,}", "strong"), (by, "")]),
        ("speed", f"{rate:,} a second for {duration(made_s * 1000)}; paced, to leave the CPU to others"),
        ("duplicates", _count(verdict.duplicates, "every id was compared with every other")),
        ("wrong worker", wrong),
    ]
    return pairs(rows)


def _count(errors: int, explanation: str) -> Line:
    return [(f"{errors:,}", "bad" if errors else "good"), (f"  {explanation}", "dim")]


DEMO = Command(
    "demo",
    "watch a fleet make ids while things go wrong, in about 20 seconds",
    """Starts a private Redis in a temporary directory, and processes that make ids. One is killed with -9, the
clock of another is set back, and a new process starts in the place of the dead one. At the end all ids are checked,
and everything is removed, also after Ctrl-C.""",
    [
        ("snowredis demo", "20 seconds, 5 workers"),
    ],
    run=run,
)
