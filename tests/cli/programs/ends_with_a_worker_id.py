"""Lease a worker id, whose loss would end this process with another exit code, and end without close()."""

import atexit
import os
import sys
import time

import snowredis

# called after the exit handler of snowredis, so the thread that looks for a loss has time to look
atexit.register(time.sleep, 0.5)
snowredis.worker_id("p", url=sys.argv[1], on_loss=lambda: os._exit(7))
