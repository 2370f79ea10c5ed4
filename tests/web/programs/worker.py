"""Hold a lease until stdin ends: worker.py URL POOL LABEL."""

import sys

import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], label=sys.argv[3], ttl=3)
print(ids.next_id(), flush=True)
sys.stdin.read()
