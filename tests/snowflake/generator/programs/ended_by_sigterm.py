"""Fork children that make ids, end each by SIGTERM at some moment, and print how many ended by it: URL POOL COUNT.

The first one waits for the reply to its claim then, which Redis will act on; half of the others may do so. "handler" is
printed once for each call of a handler that was there before.
"""

import os
import random
import signal
import sys
import threading
import time

import redis

import snowredis
from snowredis.process_generator import process_generator

url, pool, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(5)
snowredis.configure(url=url, pool=pool)
redis_pid = redis.Redis.from_url(url).info()["process_id"]
refused = []


def install():
    try:
        snowredis.close_on_sigterm()
    except snowredis.ConfigError as error:
        refused.append(error)


def run_until_sigterm():
    while True:
        snowredis.next_id()


def fork(prepare=None):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        if prepare is not None:
            prepare()
        os.write(write_end, b"+")
        run_until_sigterm()
    os.read(read_end, 1)
    os.close(read_end)
    os.close(write_end)
    return pid


def handle(_number, _frame):
    os.write(1, b"handler\n")
    os._exit(7)


def stop_redis_in_a_claim():
    # on a connection that exists, so that the claim is sent
    ids = process_generator()
    ids.claim()
    ids.suspend()
    ids.resume()
    os.kill(redis_pid, signal.SIGSTOP)


def install_after_another():
    signal.signal(signal.SIGTERM, handle)
    snowredis.close_on_sigterm()
    snowredis.close_on_sigterm()


thread = threading.Thread(target=install)
thread.start()
thread.join()
assert len(refused) == 1
snowredis.close_on_sigterm()
snowredis.close_on_sigterm()
statuses = []
for number in range(count):
    pid = fork(stop_redis_in_a_claim if not number else None)
    time.sleep(0.1 if not number else random.random() * (0.01 if number < count // 2 else 0.05))
    os.kill(pid, signal.SIGTERM)
    if not number:
        time.sleep(0.1)
        os.kill(redis_pid, signal.SIGCONT)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
pid = fork(install_after_another)
time.sleep(0.05)
os.kill(pid, signal.SIGTERM)
other = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
snowredis.close_on_sigterm()
ignored = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
print(statuses.count(-signal.SIGTERM), other, ignored)
