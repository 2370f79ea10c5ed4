"""Print the ids that a process and its forked children make, of the kind that the first argument names.

With a second argument, all have the same pid, as in pid namespaces of their own.
"""

import os
import sys

import snowredis

if sys.argv[2:]:
    os.getpid = lambda: 7
ids = snowredis.generator(sys.argv[1])
ids.next_id()
read, write = os.pipe()
for _ in range(8):
    if os.fork() == 0:
        os.write(write, "".join(f"{ids.next_id()}\n" for _ in range(20)).encode())
        os._exit(0)
os.write(write, "".join(f"{ids.next_id()}\n" for _ in range(20)).encode())
os.close(write)
with os.fdopen(read) as pipe:
    sys.stdout.write(pipe.read())
