"""Raise in a signal handler at random moments of calls that hold the lock; print whether it is held afterwards."""

import random
import signal
import threading

import snowredis
from snowredis.testing import memory_pool


class Raised(Exception):
    pass


def handle(number, frame):
    raise Raised


pool = memory_pool()
ids = snowredis.generator("segment", url=pool, tag="orders")
ids.next_id()
signal.signal(signal.SIGALRM, handle)
raised = 0
for _ in range(3000):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 60e-6))
        ids.resume()
        ids.resume()
        ids.resume()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Raised:
        raised += 1
signal.setitimer(signal.ITIMER_REAL, 0)
held = []
other = threading.Thread(target=lambda: held.append(not ids._lock.acquire(timeout=1)))
other.start()
other.join()
print(raised > 10, held)
