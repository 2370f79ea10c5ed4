"""A preloaded application under PROMETHEUS_MULTIPROC_DIR: URL POOL exit|kill. Its child makes 1,000 ids, and ends."""

from __future__ import annotations

import os
import signal
import sys

import snowredis
from snowredis.integrations import prometheus
from snowredis.integrations.prometheus import MetricFiles

url, pool, ending = sys.argv[1:]
metrics = prometheus.register(every_s=0.05)
assert isinstance(metrics, MetricFiles)
if os.fork() == 0:
    # the child counts for itself
    ids = snowredis.connect(url, pool=pool)
    ids.next_ids(1000)
    if ending == "kill":
        metrics.update()
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit()
os.wait()
