"""Print dated numbers that this process and its forked child take at the same time.

Arguments: url, tag, how many.
"""

import os
import sys

import snowredis

url, tag, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
ids = snowredis.generator("dated", url=url, tag=tag, period="year")
first = ids.next_id()
read, write = os.pipe()
child = os.fork()
made = [ids.next_id() for _ in range(count)]
if child == 0:
    os.write(write, "\n".join(made).encode() + b"\n")
    os._exit(0)
os.close(write)
with os.fdopen(read) as pipe:
    sys.stdout.write(pipe.read())
print(first, *made, sep="\n")
