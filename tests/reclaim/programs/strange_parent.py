"""A parent that does what few do, and sees that nothing is disturbed; prints how many children died: URL POOL ENDS.

It closes all descriptors and opens others, forks in threads and in a signal handler, counts SIGCHLD and every child
that it reaps, forks a daemon, and lets the kernel reap its children. ENDS: the thread that watches ends before forks.
"""

import os
import signal
import sys
import threading
import time

import snowredis
from snowredis.snowflake import parent

url, pool = sys.argv[1], sys.argv[2]
parent.ENDS_BEFORE_FORKS = bool(sys.argv[3])
snowredis.configure(url=url, pool=pool)
ended, dead = [], 0


def fork(ending=signal.SIGKILL):
    """Fork a child that makes an id, and kill it."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        snowredis.next_id()
        os.write(write_end, b"+")
        if ending:
            os.kill(os.getpid(), ending)
        os._exit(0)
    os.close(write_end)
    assert os.read(read_end, 1) == b"+"
    os.close(read_end)
    return pid


def fork_and_wait():
    pid = fork()
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)


# other descriptors get the numbers of those that were closed
fork_and_wait()
os.closerange(3, 256)
pipes = [os.pipe() for _ in range(8)]
for _ in range(3):
    fork_and_wait()
for read_end, write_end in pipes:
    assert os.write(write_end, b"x") == 1
    assert os.read(read_end, 2) == b"x"
dead += 4

threads = [threading.Thread(target=fork_and_wait) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
dead += 4

# each child is reaped once, by this program; one SIGCHLD at least
signal.signal(signal.SIGCHLD, lambda number, frame: ended.append(number))
pids = {fork(0) for _ in range(3)}
while pids:
    pids.remove(os.wait()[0])
assert 1 <= len(ended) <= 3, ended
dead += 3

signal.signal(signal.SIGALRM, lambda number, frame: fork_and_wait())
signal.raise_signal(signal.SIGALRM)
dead += 1

# reaped by the kernel
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
fork()
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
dead += 1

# a daemon, which is nobody's child and forks itself
read_end, write_end = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        os.closerange(0, 3)
        fork_and_wait()
        os.write(write_end, b"+")
    os._exit(0)
os.wait()
assert os.read(read_end, 1) == b"+"
dead += 1

# no descriptor is left for a child, nor a process
assert len(os.listdir("/proc/self/fd")) <= 3 + 2 * 8 + 2 + 1 + 4, os.listdir("/proc/self/fd")
print(dead, flush=True)
# an exec does not matter, either
time.sleep(0.1)
if not os.fork():
    os.execv(sys.executable, [sys.executable, "-c", ""])
os.wait()
sys.stdin.readline()
