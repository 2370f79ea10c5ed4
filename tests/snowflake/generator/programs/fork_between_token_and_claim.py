"""Fork after the token of a claim was made, before it is sent."""

import os
import sys

import snowredis
from snowredis.snowflake.lease_manager import LeaseManager

ids = snowredis.connect(sys.argv[1], pool=sys.argv[2], layout="game")
make, pids = LeaseManager._fresh_name, []


def make_and_fork(lease_manager):
    name = make(lease_manager)
    if not pids:
        pids.append(os.fork())
    return name


LeaseManager._fresh_name = make_and_fork
made = [ids.next_id() for _ in range(10)]
os.write(1, "".join(f"{an_id}\n" for an_id in made).encode())
if not pids[0]:
    os._exit(0)
assert os.waitpid(pids[0], 0)[1] == 0
ids.close()
