"""Append some ids of nearly every ms to a file, until SIGTERM: writer URL POOL FILE TTL LAYOUT."""

import array
import signal
import sys
import time

import snowredis

url, pool, path, ttl, spec = sys.argv[1:6]
ids = snowredis.connect(url, pool=pool, ttl=float(ttl), layout=spec)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
with open(path, "ab", buffering=0) as file:
    while not stopped:
        try:
            batch = ids.next_ids(200)
        except snowredis.LeaseExpired:
            continue
        file.write(array.array("q", batch).tobytes())
        # all ids of a ms would be millions a second, which the test has to compare
        time.sleep(0.0005)
ids.close()
