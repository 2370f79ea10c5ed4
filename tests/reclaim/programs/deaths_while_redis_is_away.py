"""Kill children while Redis is stopped, let it continue; at a line on stdin, end while it is stopped: URL POOL."""

import os
import signal
import sys
import time

import redis

import snowredis

url, pool = sys.argv[1], sys.argv[2]
redis_pid = redis.Redis.from_url(url).info()["process_id"]
snowredis.configure(url=url, pool=pool)


def fork():
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        snowredis.next_id()
        os.write(write_end, b"+")
        signal.pause()
    os.close(write_end)
    assert os.read(read_end, 1) == b"+"
    os.close(read_end)
    return pid


def kill_while_redis_is_stopped(children):
    os.kill(redis_pid, signal.SIGSTOP)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not os.fork():
        os._exit(0)
    os.wait()


try:
    kill_while_redis_is_stopped([fork() for _ in range(3)])
finally:
    os.kill(redis_pid, signal.SIGCONT)
print("killed", flush=True)
sys.stdin.readline()
last, parent = fork(), os.getpid()
if not os.fork():
    # Redis stays stopped until the parent has ended, or for 20 s
    deadline_s = time.monotonic() + 20
    while os.getppid() == parent and time.monotonic() < deadline_s:
        time.sleep(0.05)
    os.kill(redis_pid, signal.SIGCONT)
    os.write(1, b"waited\n" if os.getppid() == parent else b"ended\n")
    os._exit(0)
kill_while_redis_is_stopped([last])
print("away again", flush=True)
