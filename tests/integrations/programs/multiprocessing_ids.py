"""Make ids in several processes: multiprocessing_ids URL POOL METHOD TTL_S WORK, which is a function of this file.

What makes ids prints how many it made, how many of them differ, and the pids of others that hold a worker id.
"""

import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import snowredis

URL, POOL, METHOD, TTL, WORK = sys.argv[1:]
# forked children have that of their parent, spawned ones make their own when they import this
ids = snowredis.connect(URL, pool=POOL, ttl=float(TTL))
snowredis.configure(url=URL, pool=POOL, ttl=float(TTL))
context = multiprocessing.get_context(METHOD)


def make(_=None):
    return ids.next_ids(100) + [snowredis.next_id() for _ in range(10)]


def put(queue):
    queue.put(make())


def holders():
    return {info.pid for info in snowredis.WorkerPool(URL, POOL).workers()}


def say(batches):
    made = [an_id for batch in batches for an_id in batch]
    print(json.dumps([len(made), len(set(made)), sorted(holders() - {os.getpid()})]))


def processes_and_pools():
    batches = [make()]
    queue = context.SimpleQueue()
    process = context.Process(target=put, args=(queue,))
    process.start()
    batches.append(queue.get())
    process.join()
    assert process.exitcode == 0
    # each spawned child imports everything again, so there are few
    if METHOD == "fork":
        pool = context.Pool(1, maxtasksperchild=5)
        batches += pool.map(make, range(10), chunksize=1)
        pool.close()
        pool.join()
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        batches += pool.map(make, range(20))
    batches.append(make())
    say(batches)


def terminated_pool():
    with context.Pool(2) as pool:
        batches = pool.map(make, range(10), chunksize=1)
    batches.append(make())
    until = time.monotonic() + 20
    while holders() - {os.getpid()} and time.monotonic() < until:
        time.sleep(0.05)
    say(batches + [make()])


if __name__ == "__main__":
    globals()[WORK]()
