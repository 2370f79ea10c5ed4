"""`demo`: watch a fleet make ids while things go wrong; at the end all ids are checked.

A private Redis and processes of fleet.py run in a temporary directory. What the demo shows is read from the
pool, as by any other command. Each step waits for its precondition, does one thing, and logs what was observed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from snowredis.cli.exit_codes import CommandError, ExitCode, interrupted_by_signals, uninterrupted
from snowredis.cli.fleet import Fleet, Process, wait_until
from snowredis.cli.options import Command
from snowredis.cli.output import show, write
from snowredis.core.values import duration
from snowredis.process.clock import now_ms

if TYPE_CHECKING:
    from snowredis.embedded import Server
    from snowredis.worker_pool import WorkerPool

# in less than 5 s the lease of a dead worker does not end in time
_SECONDS, _WORKERS = 20.0, 5


def run(_args: argparse.Namespace, length_s: float = _SECONDS, size: int = _WORKERS) -> int:
    """Watch a fleet make ids while things go wrong, in about 20 seconds.

    Starts a private Redis in a temporary directory, and processes that make ids. One is killed with -9, the clock of
    another is set back, and a new process starts in the place of the dead one. At the end all ids are checked, and
    everything is removed, also after Ctrl-C.

    examples:
      snowredis demo  20 seconds, 5 workers
    """
    from snowredis.embedded import find_server
    from snowredis.snowflake.protocol.pool_config import PoolConfig
    from snowredis.worker_pool import WorkerPool

    with (
        interrupted_by_signals(),
        tempfile.TemporaryDirectory(prefix="snowredis-", ignore_cleanup_errors=True) as directory,
        # its lock is beside it
        _server(Path(directory, "redis")) as server,
        contextlib.closing(WorkerPool(server.url, _POOL)) as pool,
    ):
        demo = Demo(pool, Path(directory), length_s, size)
        # this server is new, so no worker has to wait for a floor
        pool.create(PoolConfig(name=_POOL, ttl_ms=round(demo.ttl_s * 1000)))
        write([f"snowredis demo  on its own {' '.join(find_server())}"])
        with contextlib.closing(demo.fleet):
            demo.play()
            checked = demo.fleet.check()
        print()
        show(checked, "ids duplicates")
    return ExitCode.ERROR if checked.duplicates else ExitCode.OK


_POOL = "demo"
# ids per second of the whole fleet: 40 MB of files in 20 s
_FLEET_RATE = 250_000


@contextlib.contextmanager
def _server(directory: Path) -> Iterator[Server]:
    """Start a private Redis in *directory*, and stop it at the end."""
    from snowredis import embedded

    try:
        yield embedded.start(directory)
    finally:
        with uninterrupted():
            embedded.stop(directory)


# --- the steps --------------------------------------------------------------------------------------

# how long a step may take on a slow machine
_LIMIT_S = 20.0
# far more than a generator waits for
_CLOCK_STEP_MS = -1000


class Demo:
    """The fleet, what the pool says of it, and the log.

    Args:
        size: of the fleet.
    """

    def __init__(self, pool: WorkerPool, directory: Path, length_s: float, size: int) -> None:
        self._pool, self._size, self._pause_s, self._began_s = pool, size, length_s / 5, time.monotonic()
        # short enough to see a dead worker's lease end
        self.ttl_s = min(4.0, self._pause_s)
        self.fleet = Fleet(directory, pool.where, _POOL, self.ttl_s, "detect", "raise", _FLEET_RATE // size)

    def log(self, text: str) -> None:
        write([f"{time.monotonic() - self._began_s:6.1f} s  {text}"])

    def play(self) -> None:
        """Play all steps. Blocks for about the length of the demo.

        Raises CommandError: a step took too long, a process ended by itself, or a worker id was not released.
        """
        fleet = [self._start() for _ in range(self._size)]
        self.log(f"{self._size} processes start; leases last {duration(self.ttl_s * 1000)}")
        self._until(lambda: all(each.record for each in fleet), "not all processes had worker ids")
        fleet.sort(key=lambda each: each.worker)
        self.log(f"they claimed worker ids {', '.join(str(each.worker) for each in fleet)}")
        self._pause()
        self._kill(fleet[self._size // 2])
        self._pause()
        self._step_clock(fleet[-1])
        self._pause()
        self._end()
        self.log("comparing every id with all others")

    def _start(self) -> Process:
        return self.fleet.start(f"demo {len(self.fleet.processes) + 1}")

    def _pause(self) -> None:
        until_s = time.monotonic() + self._pause_s
        self._until(lambda: time.monotonic() >= until_s, "the pause did not end")

    def _until(self, done: Callable[[], bool], failure: str) -> None:
        """Read the pool until *done* returns True."""
        wait_until(done, self._read, _LIMIT_S, failure)

    def _read(self) -> None:
        records = {lease.pid: lease for lease in self._pool.workers(alive_only=False)}
        for each in self.fleet.processes:
            each.record = record = records.get(each.pid)
            if record is not None and record.worker != each.worker:
                if each.worker >= 0:
                    self.log(f"pid {each.pid} goes on with worker id {record.worker}")
                each.worker = record.worker
            if (code := each.process.poll()) not in (None, -signal.SIGKILL):
                text = f"pid {each.pid} ended by itself (exit code {code}): {each.log.rpartition(chr(10))[2]}"
                raise CommandError(ExitCode.ERROR, text)

    def _kill(self, victim: Process) -> None:
        worker, killed_s = victim.worker, time.monotonic()
        left_ms = victim.record.end_ms - now_ms() if victim.record else 0
        victim.process.kill()
        self.log(f"kill -9 worker {worker} (pid {victim.pid}), whose lease would end in {duration(left_ms)}")
        self._until(
            lambda: victim.record is None or victim.record.state in ("expired", "released"), "its lease did not end"
        )
        after = duration((time.monotonic() - killed_s) * 1000)
        expired = victim.record is not None and victim.record.state == "expired"
        why = "its lease ended" if expired else "another process released it"
        self.log(f"worker id {worker} is available again, {after} after the kill: {why}")
        newcomer = self._start()
        self.log(f"a new process starts (pid {newcomer.pid})")
        self._until(lambda: newcomer.record is not None, "it had no worker id")
        self.log(f"it claimed worker id {newcomer.worker}")

    def _step_clock(self, process: Process) -> None:
        before = process.namespace
        process.step_clock(_CLOCK_STEP_MS)
        self.log(f"clock of worker {process.worker} set back by {duration(-_CLOCK_STEP_MS)}")
        self._until(lambda: process.namespace != before, "its namespace stayed the same")
        self.log(f"it goes on in namespace {process.namespace}, where no id was made yet")

    def _end(self) -> None:
        self.log(f"SIGTERM to all {self._size}: they end and release their worker ids")
        self.fleet.close()
        if used := self._pool.info().used:
            raise CommandError(ExitCode.ERROR, f"{used} worker ids are still leased")
        self.log("no worker id is leased any more")


DEMO = Command("demo", run)
