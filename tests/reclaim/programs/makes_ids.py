"""Make an id for each line of stdin, and print it; "close" closes the generator, "error" of a call is printed, too."""

import sys

import snowredis

url, pool, ttl = sys.argv[1:4]
ids = snowredis.connect(url, pool=pool, ttl=float(ttl), outage_reserve=3600, claim_timeout=0)
for line in sys.stdin:
    if line == "close\n":
        ids.close()
        print("closed", flush=True)
        continue
    try:
        print(ids.next_id(), flush=True)
    except snowredis.SnowredisError as error:
        print(type(error).__name__, flush=True)
