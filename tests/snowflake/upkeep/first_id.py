"""Make one id: first_id.py URL POOL."""

import sys

import snowredis

# the first worker waits for 1.2 s, long enough for the warning
with snowredis.connect(sys.argv[1], pool=sys.argv[2], ttl=1) as ids:
    print(ids.next_id())
