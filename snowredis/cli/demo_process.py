"""One process of the fleet of `snowredis demo`: make ids at a steady rate and write them to a file.

Run as ``python -m snowredis.cli.demo_process URL POOL TTL_S RATE PATH LABEL``. Each line of stdin says by how many ms
to step its clock. Ends at SIGTERM, and at the end of stdin, so that it does not outlive the process that started it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from array import array
from pathlib import Path

import snowredis
from snowredis.process.clock import StepClock

# often enough for a number that moves smoothly on the screen, at little CPU
_BATCHES_PER_S = 50


def main(url: str, pool: str, ttl_s: str, rate: str, path: str, label: str) -> None:
    """Make *rate* ids a second and write them to the file *path*, until a signal ends the process."""
    clock = StepClock()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    # Ctrl-C is handled by the process that started this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_obey, args=(clock,), daemon=True).start()
    batch = array("q", bytes(8 * max(1, int(rate) // _BATCHES_PER_S)))
    with (
        # without a buffer: kill -9 loses nothing that was written
        Path(path).open("ab", buffering=0) as file,
        snowredis.connect(url, pool=pool, ttl=float(ttl_s), label=label, clock=clock) as ids,
    ):
        next_s = time.monotonic()
        while True:
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
    main(*sys.argv[1:])
