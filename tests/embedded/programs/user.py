"""Use the embedded server of a directory until a line comes in: user.py DIRECTORY [makes|forks]."""

import json
import os
import select
import sys

import snowredis
from snowredis import embedded

home, way = sys.argv[1], sys.argv[2:]
server = embedded.start(home)
print(json.dumps([*server]), flush=True)
if way == ["forks"] and os.fork():
    os._exit(0)
if way == ["makes"]:
    # ids until the end of what was granted, whatever happens to the server
    with snowredis.connect(f"embedded://{home}", pool="p", ttl=2) as ids:
        print(*ids.next_ids(1000), flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            try:
                print(*ids.next_ids(100), flush=True)
            except snowredis.SnowredisError:
                break
    os._exit(0)
sys.stdin.read()
