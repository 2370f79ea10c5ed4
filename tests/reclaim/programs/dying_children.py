"""Let children make ids and die in many ways; print how many were killed, and wait for stdin: URL POOL.

As they are in a pool of multiprocessing, most of four more are killed.
"""

import multiprocessing
import os
import signal
import sys
import time

import snowredis

url, pool = sys.argv[1], sys.argv[2]
snowredis.configure(url=url, pool=pool)
made = 0


def make(_=None):
    snowredis.next_ids(3)
    time.sleep(0.02)
    return os.getpid()


def fork(work):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        snowredis.next_id()
        work(write_end)
        signal.pause()
    os.close(write_end)
    assert os.read(read_end, 1) == b"+"
    os.close(read_end)
    return pid


def ready(write_end):
    os.write(write_end, b"+")


def ready_and_exit(write_end):
    os.write(write_end, b"+")
    os._exit(0)


def ready_with_a_child_that_is_killed(write_end):
    os.kill(fork(ready), signal.SIGKILL)
    os.wait()
    os.write(write_end, b"+")


def leave_a_child(write_end):
    if not os.fork():
        snowredis.next_id()
        os.write(write_end, b"+")
        time.sleep(0.1)
        os._exit(0)
    os._exit(0)


reaped = 0
for work, number in (
    (ready_and_exit, 0),
    (ready, signal.SIGKILL),
    (ready, signal.SIGTERM),
    (ready_with_a_child_that_is_killed, signal.SIGKILL),
    (leave_a_child, 0),
):
    pid = fork(work)
    if number:
        os.kill(pid, number)
    # nobody else reaps it
    assert os.waitpid(pid, 0)[0] == pid
    reaped += 1
with multiprocessing.get_context("fork").Pool(4) as children:
    assert children.map(make, range(40), chunksize=1)
print(reaped + 2, flush=True)
sys.stdin.readline()
