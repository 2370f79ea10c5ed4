"""One process of the fleet of `snowredis demo` or `snowredis gameday`.

Run as ``python -m snowredis.cli.fleet_process demo POOL TTL_S RATE PATH LABEL``, or as
``python -m snowredis.cli.fleet_process gameday POOL TTL_S DURABILITY PATH``, with SNOWREDIS_URL. It ends at the end of
stdin, so that it does not outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import snowredis
from snowredis.process.clock import StepClock

# often enough for a number that moves smoothly on the screen, at little CPU
_BATCHES_PER_S = 50
# gameday makes the ids of this time at once
_STEP_MS = 10


def demo(pool: str, ttl_s: str, rate: str, path: str, label: str) -> None:
    """Make *rate* ids a second and write them to the file *path*, until SIGTERM.

    Each line of stdin says by how many ms to step the clock of this process.
    """
    clock = StepClock()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    # Ctrl-C is handled by the process that started this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_obey, args=(clock,), daemon=True).start()
    batch = array("q", bytes(8 * max(1, int(rate) // _BATCHES_PER_S)))
    with (
        # without a buffer: kill -9 loses nothing that was written
        Path(path).open("ab", buffering=0) as file,
        snowredis.connect(pool=pool, ttl=float(ttl_s), label=label, clock=clock) as ids,
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


def gameday(pool: str, ttl_s: str, durability: Any, path: str) -> None:
    """Make about 1,000 ids a second and write them to the file *path*, until the end of stdin."""
    stop = threading.Event()
    # the generator is not entered as a context manager: that claims at once, and raises while Redis is unavailable
    ids = snowredis.connect(pool=pool, ttl=float(ttl_s), durability=durability, label="gameday")

    def make() -> None:
        with Path(path).open("wb") as file:
            while not stop.wait(_STEP_MS / 1000):
                with contextlib.suppress(snowredis.SnowredisError):
                    file.write(array("q", ids.next_ids(_STEP_MS)))

    maker = threading.Thread(target=make, daemon=True)
    maker.start()
    sys.stdin.read()
    stop.set()
    maker.join(5)
    ids.close()


if __name__ == "__main__":
    kinds: dict[str, Callable[..., None]] = {"demo": demo, "gameday": gameday}
    kinds[sys.argv[1]](*sys.argv[2:])
