"""Make an id of a pool of the registry "world" for each line of stdin; print its number, or the name of an error."""

import sys

import snowredis

url, pool, layout, ttl = sys.argv[1:5]
ids = snowredis.connect(url, pool=pool, layout=layout, datacenter="auto", registry="world", ttl=float(ttl))
for _ in sys.stdin:
    try:
        print(ids.decode(ids.next_id()).datacenter, flush=True)
    except snowredis.SnowredisError as error:
        print(type(error).__name__, flush=True)
