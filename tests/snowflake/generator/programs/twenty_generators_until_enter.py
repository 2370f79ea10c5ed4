"""Hold twenty leases until a line comes in, then end."""

import sys

import snowredis

all = [snowredis.connect(sys.argv[1], pool=sys.argv[2]) for _ in range(20)]
for ids in all:
    ids.next_id()
print("ready", flush=True)
sys.stdin.readline()
