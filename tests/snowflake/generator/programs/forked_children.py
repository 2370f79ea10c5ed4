"""Make ids in four forked children and in their parent, and print them: URL POOL LAYOUT COUNT HOW.

HOW: "os.fork", or "in C", so that Python runs no hook.
"""

import asyncio
import ctypes
import os
import sys

import snowredis

url, pool, layout, count, how = sys.argv[1:]
fork = ctypes.CDLL(None).fork if how == "in C" else os.fork
ids = snowredis.connect(url, pool=pool, layout=layout)
made = ids.next_ids(int(count))
children = []
for _ in range(4):
    pid = fork()
    if pid == 0:
        # none needs no lease
        assert (ids.next_ids(0), ids.fill(bytearray()), asyncio.run(ids.anext_ids(0))) == ([], None, [])
        assert how == "in C" or ids.lease is None
        out = [ids.next_id() for _ in range(int(count))]
        os.write(1, ("\n".join(map(str, out)) + "\n").encode())
        ids.close()
        os._exit(0)
    children.append(pid)
made += ids.next_ids(int(count))
os.write(1, ("\n".join(map(str, made)) + "\n").encode())
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
