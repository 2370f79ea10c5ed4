"""Make an id, then end while Redis does not reply: URL, POOL, pid of Redis, "exit" or "close_on_sigterm"."""

import logging
import os
import signal
import sys

import snowredis

url, pool, pid, how = sys.argv[1:]
ids = snowredis.connect(url, pool=pool, layout="41/0/2/0/10", ttl=20.0)
ids.next_id()
logging.getLogger("snowredis").setLevel(logging.CRITICAL)
os.kill(int(pid), signal.SIGSTOP)
if how == "close_on_sigterm":
    snowredis.close_on_sigterm()
    signal.raise_signal(signal.SIGTERM)
