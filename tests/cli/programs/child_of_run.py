"""Print the worker id and, while alive, the time every 20 ms to a file: PATH. SIGTERM is ignored with "stubborn"."""

import os
import signal
import sys
import time

if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a", buffering=1) as file:
    file.write(f"start {os.getpid()} {os.environ['SNOWREDIS_WORKER_ID']} {os.environ['SNOWREDIS_FROM']}\n")
    while True:
        file.write(f"{time.time_ns() // 1_000_000}\n")
        time.sleep(0.02)
