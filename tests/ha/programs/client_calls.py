"""Print which files and modules are opened while a claim and a renewal are made: client_calls.py URL POOL.

Not those in memory: what the kernel shows of processes, and the crash record.
"""

import sys

import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], failover_slack=0)
seen = []


def hook(event, args):
    if event in ("import", "open") and not str(args[0]).startswith(("/proc/", "/dev/shm/snowredis-")):
        frame, stack = sys._getframe(1), []
        while frame:
            stack.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            frame = frame.f_back
        seen.append((event, args[0], stack))


sys.addaudithook(hook)
ids.next_id()
assert ids._beat() > 0
renewals = ids.lease.renewals
ids.close()
done = list(seen)
assert renewals == 1
for entry in done:
    print(*entry)
