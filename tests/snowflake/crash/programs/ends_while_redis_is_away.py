"""Make an id, then end while Redis does not reply: URL, pid of Redis, "exit" or "close_on_sigterm"."""

import logging
import os
import signal
import sys

import snowredis
from snowredis.core.layout import Layout

url, pid, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
layout = Layout(timestamp_bits=41, backup_bits=2, worker_bits=0, sequence_bits=10)
ids = snowredis.connect(url, pool="killed", layout=layout, ttl=20.0, max_clock_lead=0.1, failover_slack=0.1)
ids.next_id()
logging.getLogger("snowredis").setLevel(logging.CRITICAL)
os.kill(pid, signal.SIGSTOP)
if how == "close_on_sigterm":
    snowredis.close_on_sigterm()
    signal.raise_signal(signal.SIGTERM)
