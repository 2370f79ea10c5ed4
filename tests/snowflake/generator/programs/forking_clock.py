"""A clock that forks where it is read, as a signal handler may anywhere; ticks of 10 s, so that repeats show."""

import os
import sys
import time

import snowredis
from snowredis.process.clock import SystemClock


class ForkingClock(SystemClock):
    fork_in = -1
    child = False

    def _read(self):
        self.fork_in -= 1
        if self.fork_in == 0:
            self.pid = os.fork()
            self.child = not self.pid

    def time(self):
        self._read()
        return time.time()

    def time_ns(self):
        self._read()
        return time.time_ns()

    def monotonic(self):
        self._read()
        return time.monotonic()


def hand_over(file, ids):
    os.write(file, "".join(f"{an_id}\\n" for an_id in ids).encode())


def play(operation, reading, file):
    clock = ForkingClock()
    ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="game", clock=clock)
    made = []
    if operation != "claim":
        made.append(ids.next_id())
    clock.fork_in = reading
    if operation == "claim":
        made.append(ids.next_id())
    elif operation == "renew":
        ids._beat()
    elif operation == "close":
        ids.close()
    else:
        ids.suspend()
        ids.resume()
    forked, clock.fork_in = clock.fork_in <= 0, -1
    if clock.child:
        made = made[1:] if operation != "claim" else made
    if operation != "close":
        made += ids.next_ids(5)
    hand_over(file, made)
    if clock.child:
        os._exit(0)
    if forked:
        assert os.waitpid(clock.pid, 0)[1] == 0
    ids.close()
    return forked
