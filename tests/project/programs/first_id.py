"""Make one id, and print the modules that this loaded in addition to those of redis-py.

first_id.py URL POOL
"""

import sys

import redis  # noqa: F401

before = set(sys.modules)

import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
ids.next_id()
print(*sorted(set(sys.modules) - before))
ids.close()
