"""A process of the fleet: makes ids until its stdin is closed.

    python scripts/_moments/worker.py URL POOL LABEL

Prints its worker id as soon as it has one. A line on stdin with a number steps its clock by so many ms.
"""

from __future__ import annotations

import select
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import snowredis
from snowredis.process.clock import StepClock

# between two ids: 50 a second
PAUSE_S = 0.02


def main() -> None:
    url, pool, label = sys.argv[1:]
    clock, told = StepClock(), False
    options = snowredis.WorkerPool(url, pool).info().options
    with snowredis.connect(url, pool=pool, label=label, clock=clock, **options) as ids:
        while True:
            try:
                ids.next_id()
            except snowredis.SnowredisError as error:
                print(f"no id: {error}", file=sys.stderr, flush=True)
            else:
                if not told and ids.lease is not None:
                    told = bool(print(ids.lease.worker, flush=True)) or True
            if select.select([sys.stdin], [], [], PAUSE_S)[0]:
                line = sys.stdin.readline()
                if not line:
                    return
                clock.step(int(line))


if __name__ == "__main__":
    main()
