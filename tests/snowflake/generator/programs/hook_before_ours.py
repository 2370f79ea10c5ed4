"""Make an id in an after-fork hook that was registered before that of snowredis."""

import os
import sys

in_hook = []
os.register_at_fork(after_in_child=lambda: in_hook.append((ids.next_id(), ids.lease.worker)))
import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
ids.claim()
pid = os.fork()
if not pid:
    status = 1
    try:
        an_id, worker = in_hook[0]
        assert ids.next_id() > an_id
        assert ids.lease.worker == worker
        assert len(snowredis.WorkerPool(sys.argv[1], sys.argv[2]).workers()) == 2
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(pid, 0)[1] == 0
ids.close()
