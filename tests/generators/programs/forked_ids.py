"""Print the ids that a process and its forked children make, of the kind that the first argument names."""

from __future__ import annotations

import os
import sys

import snowredis

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
