"""Make ids in four forked children and in their parent, and print them."""

import os
import sys

import snowredis

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2])
made = ids.next_ids(1500)
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        assert ids.lease is None
        out = ids.next_ids(1500)
        os.write(1, ("\n".join(map(str, out)) + "\n").encode())
        ids.close()
        os._exit(0)
    children.append(pid)
made += ids.next_ids(1500)
os.write(1, ("\n".join(map(str, made)) + "\n").encode())
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
