"""Make ids, write metrics, fork, and end in the way that is asked for: worker_that_ends.py URL POOL ENDING."""

import os
import signal
import sys

import snowredis
from snowredis.integrations import prometheus

url, pool, ending = sys.argv[1:]
metrics = prometheus.register(every_s=0.05)
if os.fork() == 0:
    # a preloaded application: the child counts for itself
    ids = snowredis.connect(url, pool=pool)
    ids.next_ids(1000)
    if ending == "kill":
        metrics.update()
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit()
os.wait()
