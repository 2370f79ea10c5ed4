"""Fork in the middle of a take-over, as a signal handler may, and end the child without its exit handlers."""

import os
import sys

import snowredis
from snowredis.snowflake.crash.files import Directory

url, pool, ttl = sys.argv[1:4]
child = -1
remove = Directory.remove


def fork_then_remove(directory: Directory, name: str) -> None:
    global child
    if child < 0:
        child = os.fork()
    if child:
        remove(directory, name)


Directory.remove = fork_then_remove  # type: ignore[method-assign]
ids = snowredis.connect(url, pool=pool, ttl=float(ttl), outage_reserve=3600, claim_timeout=0)
try:
    ids.next_id()
except snowredis.StoreUnavailable:
    assert child == 0
if not child:
    os._exit(0)
os.waitpid(child, 0)
print("the child has ended", flush=True)
sys.stdin.read()
