"""Start workers and wait to be killed: python -m tests.monitor.dying_fleet URL POOL TTL COUNT

Prints the pid of each worker once it has a worker id. Workers are forked, which takes less time than starting them.
After a line on its input, their parent makes an id, and prints it.
"""

from __future__ import annotations

import os
import signal
import sys

# loaded once, before the forks
import redis  # noqa: F401

import snowredis
from snowredis.snowflake import generator  # noqa: F401


def main() -> None:
    url, pool, ttl, count = sys.argv[1:]
    for number in range(int(count)):
        if os.fork() == 0:
            ids = snowredis.connect(url, pool=pool, ttl=float(ttl), label=f"w{number}")
            ids.next_id()
            # one call, or the workers' lines are mixed
            os.write(1, f"{os.getpid()}\n".encode())
            signal.pause()
    sys.stdin.readline()
    with snowredis.connect(url, pool=pool, ttl=float(ttl), label="heir") as heir:
        os.write(1, f"{heir.next_id()}\n".encode())
        signal.pause()


if __name__ == "__main__":
    main()
