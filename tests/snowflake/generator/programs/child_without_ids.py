"""Fork a child that makes no id: the parent keeps its lease."""

import os
import sys

import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
first = ids.claim()
pid = os.fork()
if pid == 0:
    ids.close()
    sys.exit(0)
os.waitpid(pid, 0)
assert ids.lease.worker == first.worker
assert len(snowredis.WorkerPool(sys.argv[1], sys.argv[2]).workers()) == 1
ids.next_id()
