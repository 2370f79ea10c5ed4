"""Fork while the heartbeat thread is started."""

import _thread
import os
import sys
import threading

import snowredis

start, forking, pids = _thread.start_new_thread, [], []


def start_and_fork(*args):
    # a handler forks before the thread was seen to run: the child has no such thread
    if not forking:
        # a hook of the fork may start a thread, too
        forking.append(True)
        pids.append(os.fork())
        if not pids[0]:
            return 0
    return start(*args)


_thread.start_new_thread = threading._start_new_thread = start_and_fork
ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
made = ids.next_id()
if not pids[0]:
    os._exit(0)
assert os.waitpid(pids[0], 0)[1] == 0
ids.close()
