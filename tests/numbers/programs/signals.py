"""Make numbers in a signal handler while the same thread makes some, and print them all. Arguments: URL, tag."""

from __future__ import annotations

import signal
import sys

from snowredis.numbers.segments import open_generator

url, tag = sys.argv[1:]
ids = open_generator(url, tag=tag, step=20, max_step=20)
made: list[int] = []
handled: list[int] = []


def handle(*_: object) -> None:
    handled.extend(ids.next_ids(2))


signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
while len(handled) < 200:
    made.append(ids.next_id())
signal.setitimer(signal.ITIMER_REAL, 0)
print(*made, *handled)
