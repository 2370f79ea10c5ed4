"""One process of the demo's fleet: makes ids at a steady rate and appends them to a file.

Started by fleet.py as ``python -m snowredis.cli.demo.worker URL POOL TTL_S RATE PATH LABEL``.
Writes messages to stdout, one per line:

    claimed WORKER_ID      before the first id of that worker id is written
    namespace NUMBER       ids come from this namespace from now on
    error TEXT             no id could be made; the process tries again
    closed                 the process released its worker id

Reads ``step MS`` from stdin and steps its clock. Ends on SIGTERM, and when stdin is closed, so that it cannot
outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
import time
from array import array
from pathlib import Path

import snowredis
from snowredis.errors import SnowredisError
from snowredis.process.clock import StepClock

# often enough for a number that moves smoothly on the screen, at little CPU
_BATCHES_PER_S = 50
# an error is not repeated faster than a person can read
_RETRY_S = 0.25


class Control:
    """Commands to this process: SIGTERM, and lines on stdin."""

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock
        self._rest = b""
        self.ended = False
        signal.signal(signal.SIGTERM, self._end)
        # Ctrl-C is handled by the process that started this one
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _end(self, _number: int, _frame: object) -> None:
        self.ended = True

    def wait(self, seconds: float) -> None:
        """Wait for commands, at most *seconds*, and execute them."""
        ready, _, _ = select.select([0], [], [], max(0.0, seconds))
        if not ready:
            return
        # not sys.stdin: select() does not see a line in its buffer
        data = os.read(0, 4096)
        self.ended = self.ended or not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"step":
                self._clock.step(int(number))


def report(word: str, *values: object) -> None:
    """Write one message."""
    # the reader may have ended; then stdin is closed, too
    with contextlib.suppress(BrokenPipeError):
        print(word, *values, flush=True)


def record(file: io.FileIO, batch: array[int]) -> None:
    """Write *batch* to the file without a buffer: kill -9 cannot lose it after that."""
    data = memoryview(batch).cast("B")
    while data:
        data = data[file.write(data) or 0 :]


def make_ids(ids: snowredis.Generator, control: Control, file: io.FileIO, rate: int) -> None:
    """Make *rate* ids per second and write them to *file*, until *control* ends it."""
    batch = array("q", bytes(8 * max(1, rate // _BATCHES_PER_S)))
    worker, namespace = -1, 0
    next_s = time.monotonic()
    while not control.ended:
        try:
            ids.fill(batch)
        except SnowredisError as error:
            report("error", error)
            control.wait(_RETRY_S)
            continue
        lease = ids.lease
        if lease is not None and lease.worker != worker:
            worker = lease.worker
            report("claimed", worker)
        record(file, batch)
        if (backup := ids.decode(batch[-1]).backup) != namespace:
            namespace = backup
            report("namespace", namespace)
        # a process that was delayed does not catch up in one burst
        next_s = max(next_s + 1 / _BATCHES_PER_S, time.monotonic() - 1)
        control.wait(next_s - time.monotonic())


def main(url: str, pool: str, ttl_s: str, rate: str, path: str, label: str) -> None:
    clock = StepClock()
    control = Control(clock)
    with (
        Path(path).open("ab", buffering=0) as file,
        snowredis.connect(url, pool=pool, ttl=float(ttl_s), label=label, clock=clock) as ids,
    ):
        make_ids(ids, control, file, int(rate))
    report("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
