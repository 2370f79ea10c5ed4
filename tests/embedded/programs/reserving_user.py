"""Use an embedded server, end in the way that is asked for, and print what was reserved: reserving_user.py HOME WAY."""

import os
import sys
import time

import snowredis
from snowredis import embedded

home, is_daemon = sys.argv[1], sys.argv[2] == "daemon"
server = embedded.start(home, linger_s=0)
ids = snowredis.connect(f"embedded://{home}", pool="p", ttl=2)
an_id = ids.next_id()
print(server.fresh, ids.lease.until_ms, an_id, flush=True)
if not is_daemon:
    ids.close()
    os._exit(0)
# as code does that makes a daemon of its process
until_ms, made = ids.lease.until_ms, []
os.closerange(3, 256)
while time.time() * 1000 < until_ms:
    try:
        made.append(ids.next_id())
    except snowredis.SnowredisError:
        break
print(*made, flush=True)
os._exit(0)
