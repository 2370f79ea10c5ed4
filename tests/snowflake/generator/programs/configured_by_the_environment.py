"""Make ids with the generator of the process, which SNOWREDIS_* variables configure."""

import snowredis

first = snowredis.next_id()
assert first < snowredis.next_ids(3)[0]
import sys

assert snowredis.WorkerPool(sys.argv[1], sys.argv[2]).workers()[0].label == "from the environment"
snowredis.close()
assert snowredis.next_id() > first
