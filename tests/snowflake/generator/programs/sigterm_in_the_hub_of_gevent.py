"""Get SIGTERM while gevent's hub waits for events, which cannot wait for anything else."""

from gevent import monkey

monkey.patch_all()

import logging
import os

import gevent

import snowredis
from snowredis.testing import memory_pool

logging.basicConfig(level=logging.INFO)
snowredis.close_on_sigterm()
ids = memory_pool().connect()
ids.next_id()
os.system("(sleep 0.2; kill -TERM $PPID) &")
gevent.sleep(10)
