"""Fork in C, so that Python runs no hook."""

import ctypes
import os
import sys

import snowredis

# a tick of 10 s: parent and child are in the same one
ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="game")
made = ids.next_ids(10)
pid = ctypes.CDLL(None).fork()
made = made + ids.next_ids(10) if pid else [ids.next_id() for _ in range(10)]
os.write(1, ("\n".join(map(str, made)) + "\n").encode())
if pid == 0:
    ids.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
