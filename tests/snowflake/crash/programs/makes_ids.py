"""Make an id for each line of stdin, and print it, or an error; "close", "suspend" and "resume" call these methods."""

import sys

import snowredis

url, pool, ttl = sys.argv[1:4]
ids = snowredis.connect(url, pool=pool, ttl=float(ttl), outage_reserve=3600, claim_timeout=0)
for line in sys.stdin:
    if line.strip():
        getattr(ids, line.strip())()
        print("done", flush=True)
        continue
    try:
        print(ids.next_id(), flush=True)
    except snowredis.SnowredisError as error:
        print(type(error).__name__, flush=True)
