"""Close all descriptors as a daemon does, open others, fork, and see that those are as they were: URL POOL."""

import os
import sys

import snowredis

url, pool = sys.argv[1], sys.argv[2]
snowredis.configure(url=url, pool=pool)


def fork():
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        snowredis.next_id()
        os.write(write_end, b"+")
        os._exit(0)
    os.close(write_end)
    assert os.read(read_end, 1) == b"+"
    os.close(read_end)
    assert os.waitpid(pid, 0)[0] == pid


fork()
os.closerange(3, 64)
pipes = [os.pipe() for _ in range(8)]
for _ in range(3):
    fork()
for read_end, write_end in pipes:
    assert os.write(write_end, b"x") == 1
    assert os.read(read_end, 1) == b"x"
print("as they were", flush=True)
sys.stdin.readline()
os._exit(0)
