"""Hold a lease until stdin ends: worker.py URL POOL LABEL."""

import sys
import time

import snowredis

url, pool, label = sys.argv[1:]
ids = snowredis.connect(url, pool=pool, label=label, **snowredis.WorkerPool(url, pool).info().options)
an_id = ids.next_id()
while ids.lease is not None and ids.lease.renewals == 0:
    # one that never renewed counts as a claim whose reply was lost
    time.sleep(0.05)
print(an_id, flush=True)
sys.stdin.read()
