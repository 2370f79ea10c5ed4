"""Append ids to a file as fast as possible, until SIGTERM: writer URL POOL FILE TTL LAYOUT."""

import array
import signal
import sys

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
ids.close()
