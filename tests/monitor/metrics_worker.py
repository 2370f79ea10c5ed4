"""A preloaded application under PROMETHEUS_MULTIPROC_DIR: URL NAME. It and two children use a pool and a tag NAME.

The parent makes 500 numbers before it forks and stays at 1,500 with an open generator, the first child makes 700 and
closes its generator, the second makes 800 and is killed; each of them makes 1,000 ids. Then the parent waits for a
line, closes its generator, and waits for another.
"""

import os
import signal
import sys

import snowredis
from snowredis.integrations import prometheus
from snowredis.integrations.prometheus import MetricFiles

url, name = sys.argv[1:]
metrics = prometheus.register(every_s=60)
assert isinstance(metrics, MetricFiles)
numbers = snowredis.generator("segment", url=url, tag=name, step=1_000, max_step=1_000)
numbers.next_ids(500)
metrics.update()
for made in (700, 800):
    if os.fork() == 0:
        # the child counts for itself
        ids = snowredis.connect(url, pool=name)
        ids.next_ids(1000)
        numbers.next_ids(made)
        metrics.update()
        if made == 800:
            os.kill(os.getpid(), signal.SIGKILL)
        numbers.close()
        sys.exit()
    os.wait()
numbers.next_ids(1_000)
metrics.update()
print("open", flush=True)
sys.stdin.readline()
numbers.close()
metrics.update()
print("closed", flush=True)
sys.stdin.readline()
