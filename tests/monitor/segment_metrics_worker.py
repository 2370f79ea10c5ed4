"""A preloaded application under PROMETHEUS_MULTIPROC_DIR: URL TAG. It and its two children make numbers of a tag.

The parent makes 500 before it forks and stays at 1,500 with an open generator, the first child makes 700 and closes its
generator, the second makes 800 and is killed. Then the parent waits for a line, closes its
generator, and waits for another.
"""

from __future__ import annotations

import os
import signal
import sys

import snowredis
from snowredis.integrations import prometheus
from snowredis.integrations.prometheus import MetricFiles

url, tag = sys.argv[1:]
metrics = prometheus.register(every_s=60)
assert isinstance(metrics, MetricFiles)
ids = snowredis.generator("segment", url=url, tag=tag, step=1_000, max_step=1_000)
ids.next_ids(500)
metrics.update()
for made in (700, 800):
    if os.fork() == 0:
        ids.next_ids(made)
        metrics.update()
        if made == 800:
            os.kill(os.getpid(), signal.SIGKILL)
        ids.close()
        sys.exit()
    os.wait()
ids.next_ids(1_000)
metrics.update()
print("open", flush=True)
sys.stdin.readline()
ids.close()
metrics.update()
print("closed", flush=True)
sys.stdin.readline()
